// Casts to f32 that a softmax can do itself (`half_to_float`), directly or through views. Sums are in double either
// way, so no bit changes; an f32 tensor that was written and read again disappears.
//
// The cast of its gradient back stays, although the op has an `input_dtype`: an f32 gradient reuses the memory of its
// operand, while a narrower one would need memory of its own besides.
#include <string_view>

#include "libpasses/clean/clean_parts.h"

namespace sg::clean_parts {
namespace {

ValueId first_value(const Graph& graph, NodeId n) {
  const Node& node = graph.node(n);
  return !node.args.empty() && node.args[0].is(ArgKind::value) ? node.args[0].as_value() : ValueId();
}

bool is_half(DType t) { return t == DType::bf16 || t == DType::f16; }
bool is_softmax(std::string_view op) { return op == "aten._softmax.default" || op == "aten._log_softmax.default"; }

class CastFolder {
 public:
  CastFolder(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule)
      : graph_(scope.graph), tally_(scope.tally), alias_(alias), schedule_(schedule) {}

  size_t run() {
    size_t changes = 0;
    for (NodeId n : graph_.nodes())
      if (is_softmax(graph_.op_name(n))) changes += fold(n);
    return changes;
  }

  // half -> [cast] -> views -> softmax
  bool fold(NodeId softmax) {
    const Node& node = graph_.node(softmax);
    if (node.args.size() < 3 || !node.args[2].is(ArgKind::boolean) || node.args[2].as_bool()) return false;
    std::vector<ValueId> views;
    ValueId v = first_operand(softmax);
    NodeId def;
    for (;; v = first_operand(def)) {
      if (v.is_none() || graph_.value(v).use_count != 1) return false;
      def = graph_.value(v).def;
      if (!def || !is_typed_view(graph_, def)) break;
      views.push_back(v);
    }
    if (!def || !is_cast(graph_, def) || graph_.type(v).dtype != DType::f32) return false;
    const ValueId half = first_operand(def);
    const DType dtype = graph_.type(half).dtype;
    const StorageId s = alias_.storage_of(half);
    if (!is_half(dtype) || s.is_none() || !alias_.storage(s).certain) return false;
    if (schedule_.is_written_after(alias_.storage(s).alias_class, schedule_.position(def))) return false;
    tally_.add(Kind::cast, graph_, def, "is what %" + std::string(graph_.label(softmax)) + " does itself");
    const NodeId reader = views.empty() ? softmax : graph_.value(views.back()).def;
    set_arg(reader, 0, Arg::value(half));
    for (ValueId view : views) set_dtype(view, dtype);
    set_arg(softmax, 2, Arg::boolean(true));
    return true;
  }

 private:
  ValueId first_operand(NodeId n) const { return first_value(graph_, n); }

  void set_dtype(ValueId v, DType to) {
    Type type = graph_.type(v);
    type.dtype = to;
    graph_.set_type(v, graph_.pool().types.intern(std::move(type)));
  }

  void set_arg(NodeId n, size_t at, Arg arg) {
    std::vector<Arg> args = graph_.node(n).args;
    args[at] = std::move(arg);
    graph_.set_args(n, std::move(args));
  }

  Graph& graph_;
  Tally& tally_;
  const AliasAnalysis& alias_;
  const Schedule& schedule_;
};

}  // namespace

bool is_cast(const Graph& graph, NodeId n) {
  const std::string_view op = graph.op_name(n);
  if (op != "aten._to_copy.default" && op != "aten.to.dtype") return false;
  const ValueId from = first_value(graph, n);
  if (from.is_none() || graph.node(n).result_count != 1 || is_deliberate_copy(graph, n)) return false;
  Type type = graph.type(from);
  type.dtype = graph.type(graph.node(n).result(0)).dtype;
  return type == graph.type(graph.node(n).result(0));
}

bool is_typed_view(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  const ValueId from = first_value(graph, n);
  return op != nullptr && op->has(kPure) && op->has(kView) && !op->writes() && graph.node(n).result_count == 1 &&
         !from.is_none() && graph.type(from).dtype == graph.type(graph.node(n).result(0)).dtype;
}

size_t fold_casts(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule) {
  return CastFolder(scope, alias, schedule).run();
}

bool fold_cast_into(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule, NodeId softmax) {
  return CastFolder(scope, alias, schedule).fold(softmax);
}

}  // namespace sg::clean_parts
