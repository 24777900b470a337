#include "librun/execute/call_check.h"

#include <algorithm>
#include <optional>
#include <string>

#include "libgraph/infer/check_types.h"
#include "libgraph/infer/infer.h"
#include "libgraph/job.h"
#include "libgraph/shape_text.h"

namespace sg {
namespace {

bool is_open(const ExprPool& exprs, Expr e) { return !e.is_none() && !exprs.constant_value(e); }

bool is_open(const Pool& pool, const Type& t) {
  auto open = [&](Expr e) { return is_open(pool.exprs, e); };
  return std::ranges::any_of(t.shape, open) || std::ranges::any_of(t.stride, open) || open(t.offset) ||
         (t.has_value && open(t.value)) ||
         std::ranges::any_of(t.elements, [&](TypeId element) { return is_open(pool, pool.types[element]); });
}

bool same_shape(const Tensor& t, const Type& inferred, const Pool& pool) {
  bool same = inferred.shape.size() == static_cast<size_t>(t.rank);
  for (int i = 0; same && i < t.rank; ++i)
    same = pool.exprs.constant_value(inferred.shape[static_cast<size_t>(i)]) == t.dim(i);
  return same;
}

// Where they matter.
bool same_strides(const Tensor& t, const Type& inferred, const Pool& pool) {
  bool same = true;
  for (int i = 0; i < t.rank; ++i)
    same &= t.dim(i) <= 1 || pool.exprs.constant_value(inferred.stride[static_cast<size_t>(i)]) == t.step(i);
  return same;
}

}  // namespace

bool has_open_sizes(const Graph& graph, NodeId n) {
  const Node& node = graph.node(n);
  bool open = false;
  for (uint32_t i = 0; i < node.result_count; ++i) open |= is_open(graph.pool(), graph.type(node.result(i)));
  for (const Arg& arg : node.args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::expr)) open |= is_open(graph.pool().exprs, a.as_expr());
      if (a.is(ArgKind::value)) open |= is_open(graph.pool(), graph.type(a.as_value()));
    });
  return open;
}

namespace {

// A program that holds only this node, with numbers in place of symbols.
class OneNode {
 public:
  OneNode(const Graph& from, const ValueTable& values, const Bindings& bindings)
      : from_(from), values_(values), bindings_(bindings) {}

  Result<std::vector<Type>> infer(NodeId n) {
    const Node& node = from_.node(n);
    NodeSpec spec;
    spec.op = pool_.op(from_.op_name(n));
    for (const Arg& arg : node.args) spec.args.push_back(copied(arg));
    for (uint32_t i = 0; i < node.result_count; ++i)
      spec.result_types.push_back(pool_.types.intern(type_of(node.result(i))));
    auto types = infer_types(program_, program_.graph, program_.graph.append(spec));
    if (!types.ok())
      return Error{ErrorKind::cannot_apply, reason(types.error().message, from_.op_name(n)), {}, types.error().hint};
    return types;
  }

  Status check(NodeId n) {
    const Node& node = from_.node(n);
    SG_ASSIGN(const std::vector<Type> types, infer(n));
    for (uint32_t i = 0; i < node.result_count; ++i) {
      const Tensor& t = values_.tensors[node.result(i).index];
      const Type& recorded = from_.type(node.result(i));
      if (recorded.kind != TypeKind::tensor || t.is_none() || types[i].kind != TypeKind::tensor) continue;
      if (std::string what = difference(n, recorded, t, types[i]); !what.empty())
        return Error{ErrorKind::cannot_apply, "result %" + std::string(from_.name(node.result(i))) + what};
    }
    return ok_status();
  }

  std::optional<int64_t> number_of(Expr inferred) const { return pool_.exprs.constant_value(inferred); }

 private:
  // Drops the op's name from a rule's message, because the executor adds it again.
  static std::string reason(std::string message, std::string_view op) {
    std::string prefix = std::string(op) + ": ";
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  }

  // How the tensor, recorded as `recorded`, is other than the op's rule says; empty if it is not.
  std::string difference(NodeId n, const Type& recorded, const Tensor& t, const Type& inferred) {
    if (!same_shape(t, inferred, pool_))
      return " has the shape " + shape_text(t.sizes()) + ", but the op gives " + shape_text(numbers(inferred.shape));
    if (t.elements() == 0) return "";
    if (!layout_is_free(from_, n) && !same_strides(t, inferred, pool_)) return " has other strides than the op gives";
    const bool is_placed = from_.op_info(n)->has(kView) && !inferred.offset.is_none();
    if (is_placed && number(recorded.offset) != inferred.offset)
      return " begins elsewhere in its memory than the op says";
    return "";
  }

  std::vector<int64_t> numbers(const std::vector<Expr>& shape) const {
    std::vector<int64_t> out;
    for (Expr e : shape) out.push_back(number_of(e).value_or(-1));
    return out;
  }

  StrId text(StrId s) { return s.is_none() ? s : pool_.strings.intern(from_.pool().strings[s]); }

  Expr number(Expr e) {
    auto value = e.is_none() ? std::optional<int64_t>(0) : bindings_.value(e);
    return pool_.exprs.constant(value.value_or(0));
  }

  // Unknown if there is nothing that the rule could use.
  Type type_of(ValueId v) {
    const Type& recorded = from_.type(v);
    Type out;
    if (recorded.kind == TypeKind::tensor) {
      const Tensor& t = values_.tensors[v.index];
      if (!t.is_none()) out = tensor_type(recorded, t);
    } else if (recorded.kind == TypeKind::integer || recorded.kind == TypeKind::boolean) {
      out.kind = recorded.kind;
      out.has_value = true;
      out.value = pool_.exprs.constant(values_.scalars[v.index].to_int());
    } else if (recorded.kind == TypeKind::floating || recorded.kind == TypeKind::none) {
      out.kind = recorded.kind;
    }
    return out;
  }

  Type tensor_type(const Type& recorded, const Tensor& t) {
    Type out;
    out.kind = TypeKind::tensor;
    out.dtype = recorded.dtype;
    out.device = text(recorded.device);
    out.offset = number(recorded.offset);
    for (int i = 0; i < t.rank; ++i) {
      out.shape.push_back(pool_.exprs.constant(t.dim(i)));
      out.stride.push_back(pool_.exprs.constant(t.step(i)));
    }
    return out;
  }

  Arg copied(const Arg& arg) {
    Arg out = arg;
    out.set_key(text(arg.key()));
    if (arg.is(ArgKind::value)) {
      out = Arg::value(program_.graph.add_input("x", pool_.types.intern(type_of(arg.as_value())), {}));
    } else if (arg.is(ArgKind::expr)) {
      auto value = bindings_.value(arg.as_expr());
      out = value ? Arg::integer(*value) : Arg::none();
    } else if (arg.is_text()) {
      out = Arg::text(arg.kind(), text(arg.as_text()));
    } else if (arg.has_items()) {
      for (Arg& item : out.mutable_items()) item = copied(item);
    }
    return std::move(out.set_key(text(arg.key())));
  }

  const Graph& from_;
  const ValueTable& values_;
  const Bindings& bindings_;
  Job job_;
  Pool& pool_ = *job_.pool;
  Program& program_ = job_.add_program();
};

}  // namespace

Status check_sizes(const Graph& graph, NodeId n, const ValueTable& values, const Bindings& bindings) {
  return OneNode(graph, values, bindings).check(n);
}

Status bind_view_sizes(const Graph& graph, NodeId n, std::span<const StrId> symbols, const ValueTable& values,
                       Bindings* bindings) {
  OneNode one(graph, values, *bindings);
  SG_ASSIGN(const std::vector<Type> types, one.infer(n));
  auto bind = [&](Expr recorded, Expr inferred) -> Status {
    const auto symbol = recorded.is_none() ? std::nullopt : graph.pool().exprs.as_symbol(recorded);
    const auto number = inferred.is_none() ? std::nullopt : one.number_of(inferred);
    if (!symbol || !number || std::ranges::find(symbols, *symbol) == symbols.end()) return ok_status();
    return bindings->bind(*symbol, *number);
  };
  for (uint32_t i = 0; i < types.size(); ++i) {
    const Type& recorded = graph.type(graph.node(n).result(i));
    if (recorded.shape.size() != types[i].shape.size()) continue;  // check_sizes tells
    for (size_t d = 0; d < recorded.shape.size(); ++d) SG_TRY(bind(recorded.shape[d], types[i].shape[d]));
    for (size_t d = 0; d < recorded.shape.size(); ++d) SG_TRY(bind(recorded.stride[d], types[i].stride[d]));
    SG_TRY(bind(recorded.offset, types[i].offset));
  }
  return ok_status();
}

}  // namespace sg
