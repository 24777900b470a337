#include "librun/check/precision.h"

#include <optional>

namespace sg {
namespace {

DType narrower(DType a, DType b) {
  const int x = significand_bits(a), y = significand_bits(b);
  if (x == 0) return y == 0 ? DType::none : b;
  return y != 0 && y < x ? b : a;
}

class Precision {
 public:
  Precision(const Program& program, const AliasAnalysis& alias)
      : program_(program),
        graph_(program.graph),
        alias_(alias),
        of_value_(graph_.value_id_limit(), DType::none),
        of_class_(alias.storages().size(), DType::none),
        of_body_(program.nested.size()) {}

  std::vector<DType> run() {
    for (const Input& input : graph_.inputs()) of_value_[input.value.index] = of_type(graph_, input.value);
    for (NodeId n : graph_.nodes()) visit(n);
    // Inputs and outputs come last, after everything has been written to them.
    for (const Input& input : graph_.inputs()) add_memory(input.value, &of_value_[input.value.index]);
    for (const Output& output : graph_.outputs())
      if (output.value) add_memory(output.value, &of_value_[output.value.index]);
    return std::move(of_value_);
  }

 private:
  static DType of_type(const Graph& graph, ValueId v) {
    const Type& type = graph.type(v);
    DType t = type.kind == TypeKind::tensor ? real_part(type.dtype) : DType::none;
    return significand_bits(t) != 0 ? t : DType::none;
  }

  // Adds what has been written so far into the memory of v.
  void add_memory(ValueId v, DType* out) const {
    if (StorageId s = alias_.storage_of(v)) *out = narrower(*out, of_class_[alias_.storage(s).alias_class]);
  }

  void visit(NodeId n) {
    DType all = DType::none;
    for (const Arg& arg : graph_.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::value)) {
          all = narrower(all, of_value_[a.as_value().index]);
          add_memory(a.as_value(), &all);
        } else if (a.is(ArgKind::graph)) {
          all = narrower(all, of_body(a.as_graph(), 0));
        }
      });
    const Node& node = graph_.node(n);
    for (uint32_t i = 0; i < node.result_count; ++i)
      of_value_[node.result(i).index] = narrower(all, of_type(graph_, node.result(i)));
    for (StorageId s : alias_.writes(n)) {
      DType& memory = of_class_[alias_.storage(s).alias_class];
      memory = narrower(memory, all);
    }
  }

  // Combines everything in a nested graph, regardless of what its results depend on. Recursive bodies, which no valid
  // job has, end at kMaxDepth.
  DType of_body(NestedId id, int depth) {
    constexpr int kMaxDepth = 64;
    if (id.index >= of_body_.size() || depth > kMaxDepth) return DType::none;
    if (of_body_[id.index]) return *of_body_[id.index];
    of_body_[id.index] = DType::none;
    const Graph& graph = program_.nested[id.index]->graph;
    DType all = DType::none;
    for (const Input& input : graph.inputs()) all = narrower(all, of_type(graph, input.value));
    for (NodeId n : graph.nodes()) {
      const Node& node = graph.node(n);
      for (uint32_t i = 0; i < node.result_count; ++i) all = narrower(all, of_type(graph, node.result(i)));
      for (const Arg& arg : node.args)
        arg.walk([&](const Arg& a) {
          if (a.is(ArgKind::graph)) all = narrower(all, of_body(a.as_graph(), depth + 1));
        });
    }
    of_body_[id.index] = all;
    return all;
  }

  const Program& program_;
  const Graph& graph_;
  const AliasAnalysis& alias_;
  std::vector<DType> of_value_, of_class_;
  std::vector<std::optional<DType>> of_body_;
};

}  // namespace

int significand_bits(DType t) {
  switch (real_part(t)) {
    case DType::f64: return 53;
    case DType::f32: return 24;
    case DType::f16: return 11;
    case DType::bf16: return 8;
    case DType::f8e4m3fn:
    case DType::f8e4m3fnuz: return 4;
    case DType::f8e5m2:
    case DType::f8e5m2fnuz: return 3;
    default: return 0;
  }
}

std::vector<DType> narrowest_floats(const Program& program, const AliasAnalysis& alias) {
  return Precision(program, alias).run();
}

}  // namespace sg
