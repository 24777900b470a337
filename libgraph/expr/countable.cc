#include "libgraph/expr/countable.h"

#include <algorithm>

namespace sg {
namespace {

class CountableCheck {
 public:
  CountableCheck(const Program& program, const SizeValues& values)
      : program_(program), pool_(program.graph.pool()), values_(values) {}

  Status check(const Graph& graph) const {
    for (const Input& input : graph.inputs())
      if (!is_countable(graph.type(input.value))) return refuse(graph, input.value, NodeId());
    for (NodeId n : graph.nodes())
      for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
        if (ValueId v = graph.node(n).result(i); !is_countable(graph.type(v))) return refuse(graph, v, n);
    return ok_status();
  }

 private:
  bool has_numbers(const Type& type) const {
    std::vector<StrId> symbols;
    for (Expr e : type.shape) pool_.exprs.collect_symbols(e, &symbols);
    for (Expr e : type.stride) pool_.exprs.collect_symbols(e, &symbols);
    if (type.offset) pool_.exprs.collect_symbols(type.offset, &symbols);
    return std::ranges::all_of(symbols, [this](StrId s) { return values_(s).has_value(); });
  }

  bool is_countable(const Type& type) const {
    return type.kind != TypeKind::tensor || storage_bytes(pool_, type, values_) || !has_numbers(type);
  }

  // "f32[b = 4611686018427387904, 3]"
  std::string print(const Type& type) const {
    std::string out = std::string(dtype_name(type.dtype)) + "[";
    for (size_t d = 0; d < type.shape.size(); ++d) {
      const Expr e = type.shape[d];
      out += (d == 0 ? "" : ", ") + pool_.exprs.print(e);
      if (pool_.exprs.is_constant(e)) continue;
      if (auto value = evaluate_size(pool_, e, values_)) out += " = " + std::to_string(*value);
    }
    return out + "]";
  }

  Error refuse(const Graph& graph, ValueId v, NodeId n) const {
    return Error{ErrorKind::cannot_apply,
                 place_of(program_, graph, n) + (n ? ": " : ", input ") + "%" + std::string(graph.name(v)) +
                     ": its size " + print(graph.type(v)) + " has no value, or its bytes pass 63 bits",
                 {},
                 "give smaller sizes"};
  }

  const Program& program_;
  const Pool& pool_;
  const SizeValues& values_;
};

}  // namespace

Status check_countable(const Program& program, const SizeValues& values) {
  const CountableCheck each(program, values);
  SG_TRY(each.check(program.graph));
  for (const auto& nested : program.nested) SG_TRY(each.check(nested->graph));
  return ok_status();
}

}  // namespace sg
