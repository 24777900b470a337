#include "libgraph/expr/substitute.h"

#include <unordered_map>

namespace sg {
namespace {

class Substituter {
 public:
  Substituter(Program* program, const ExprPool::Lookup& lookup)
      : program_(*program), pool_(program->graph.pool()), lookup_(lookup) {}

  void run() {
    graph(&program_.graph);
    for (auto& nested : program_.nested) graph(&nested->graph);
    for (Guard& guard : program_.guards) guard.left = expr(guard.left), guard.right = expr(guard.right);
  }

 private:
  Expr expr(Expr e) {
    if (e.is_none() || pool_.exprs.is_constant(e)) return e;
    auto it = exprs_.find(e);
    if (it == exprs_.end()) it = exprs_.emplace(e, pool_.exprs.substitute(e, lookup_)).first;
    return it->second;
  }

  void all(std::vector<Expr>* list) {
    for (Expr& e : *list) e = expr(e);
  }

  TypeId type(TypeId t) {
    if (auto it = types_.find(t); it != types_.end()) return it->second;
    Type out = pool_.types[t];
    all(&out.shape);
    all(&out.stride);
    out.offset = expr(out.offset);
    out.value = expr(out.value);
    for (TypeId& element : out.elements) element = type(element);
    const TypeId id = pool_.types.intern(std::move(out));
    types_.emplace(t, id);
    return id;
  }

  void graph(Graph* graph) {
    for (size_t i = 0; i < graph->inputs().size(); ++i) {
      Input& input = graph->mutable_input(i);
      all(&input.sharding.global_shape);
      graph->set_type(input.value, type(graph->value(input.value).type));
    }
    for (NodeId n : graph->nodes()) node(graph, n);
    for (size_t i = 0; i < graph->outputs().size(); ++i) all(&graph->mutable_output(i).sharding.global_shape);
  }

  void node(Graph* graph, NodeId n) {
    for (uint32_t i = 0; i < graph->node(n).result_count; ++i) {
      const ValueId v = graph->node(n).result(i);
      graph->set_type(v, type(graph->value(v).type));
    }
    if (mentions_expr(graph->node(n))) {
      std::vector<Arg> args = graph->node(n).args;
      for (Arg& arg : args) arg.walk_mutable([&](Arg& a) { argument(&a); });
      graph->set_args(n, std::move(args));
    }
    if (graph->meta(n).random.origin_shape.empty()) return;
    NodeMeta meta = graph->meta(n);
    all(&meta.random.origin_shape);
    all(&meta.random.origin_offset);
    graph->set_meta(n, std::move(meta));
  }

  static bool mentions_expr(const Node& node) {
    bool found = false;
    for (const Arg& arg : node.args) arg.walk([&](const Arg& a) { found |= a.is(ArgKind::expr); });
    return found;
  }

  void argument(Arg* arg) {
    if (!arg->is(ArgKind::expr)) return;
    const StrId key = arg->key();
    const Expr e = expr(arg->as_expr());
    const auto number = pool_.exprs.constant_value(e);
    *arg = number ? Arg::integer(*number) : Arg::expr(e);
    arg->set_key(key);
  }

  Program& program_;
  Pool& pool_;
  const ExprPool::Lookup& lookup_;
  std::unordered_map<Expr, Expr, IdHash> exprs_;
  std::unordered_map<TypeId, TypeId, IdHash> types_;
};

}  // namespace

void substitute_symbols(Program* program, const ExprPool::Lookup& lookup) { Substituter(program, lookup).run(); }

}  // namespace sg
