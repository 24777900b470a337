#include "libgraph/import/source_types.h"

#include "libgraph/composite/composite.h"
#include "libgraph/infer/infer.h"

namespace sg {
namespace {

class SymbolCollector {
 public:
  SymbolCollector(Pool* pool, Program* program) : pool_(pool), program_(program) {}

  void expr(Expr e) {
    if (!e || pool_->exprs.is_constant(e) || pool_->exprs.is_invalid(e)) return;
    found_.clear();
    pool_->exprs.collect_symbols(e, &found_);
    for (StrId name : found_) declare(name);
  }

  void type(TypeId id) {
    if (seen_.size() < pool_->types.size()) seen_.resize(pool_->types.size());
    if (seen_[id.index]) return;
    seen_[id.index] = true;
    const Type& type = pool_->types[id];
    for (const std::vector<Expr>* sizes : {&type.shape, &type.stride})
      for (Expr e : *sizes) expr(e);
    expr(type.offset);
    expr(type.value);
    for (TypeId element : type.elements) this->type(element);
  }

  void graph(const SourceGraph& graph) {
    for (const SourceInput& input : graph.inputs) type(input.type);
    for (const SourceNode& node : graph.nodes) {
      for (const Arg& arg : node.args)
        arg.walk([&](const Arg& a) {
          if (a.is(ArgKind::expr)) expr(a.as_expr());
        });
      for (TypeId id : node.results.types) type(id);
    }
  }

 private:
  // PyTorch calls a size of the inputs s0, and what has no value at capture u0.
  void declare(StrId name) {
    if (program_->find_symbol(name)) return;
    Symbol symbol;
    symbol.name = name;
    symbol.kind = pool_->strings[name].substr(0, 1) == "s" ? SymbolKind::input : SymbolKind::data;
    symbol.source = StrId();
    program_->symbols.push_back(symbol);
  }

  Pool* pool_;
  Program* program_;
  std::vector<bool> seen_;
  std::vector<StrId> found_;
};

bool same_tensor(const Type& a, const Type& b) { return a.kind == b.kind && a.dtype == b.dtype && a.shape == b.shape; }

bool same_layout(const Type& a, const Type& b) {
  return same_tensor(a, b) && a.device == b.device && (a.kind != TypeKind::tensor || a.stride == b.stride);
}

// All results agree with what is inferred, but for what is a guess: they are taken. True when the node is done.
bool take_inferred(Graph& graph, NodeId n, Guess known, TypeInferrer& inferrer) {
  auto types = inferrer.infer(graph, n);
  if (!types.ok()) return false;
  const Node& node = graph.node(n);
  for (uint32_t i = 0; i < node.result_count; ++i) {
    const Type& guess = graph.type(node.result(i));
    if (guess.kind == TypeKind::unknown) continue;
    if (known == Guess::layout ? !same_tensor(guess, (*types)[i]) : !same_layout(guess, (*types)[i])) return false;
  }
  for (uint32_t i = 0; i < node.result_count; ++i) {
    Type type = (*types)[i];
    if (type.kind != TypeKind::tensor) continue;  // scalars: the source's word holds the value
    graph.set_type(node.result(i), graph.pool().types.intern(std::move(type)));
  }
  return true;
}

void settle_graph(const Program& program, Graph& graph, const GuessedTypes& guessed, CompositeExpander* expander,
                  ImportTally* tally) {
  TypeInferrer inferrer(program);
  for (NodeId n : graph.nodes()) {
    if (is_taken_apart(graph, n)) {
      expand_and_tell(expander, program, &graph, n, guessed.of(&graph, n) == Guess::none, tally);
      continue;
    }
    const Node& node = graph.node(n);
    Guess guess = guessed.of(&graph, n);
    bool is_open = guess != Guess::none;
    for (uint32_t i = 0; i < node.result_count; ++i)
      is_open = is_open || graph.type(node.result(i)).kind == TypeKind::unknown;
    if (is_open) take_inferred(graph, n, guess, inferrer);
  }
}

}  // namespace

void declare_symbols(const SourceProgram& source, Pool* pool, Program* program) {
  SymbolCollector collector(pool, program);
  for (const Symbol& symbol : source.symbols) program->symbols.push_back(symbol);
  for (const Guard& guard : source.guards) {
    collector.expr(guard.left);
    collector.expr(guard.right);
    program->guards.push_back(guard);
  }
  collector.graph(source.graph);
  for (const SourceNested& nested : source.nested) collector.graph(nested.graph);
}

void settle_types(Program* program, bool rank_local, const GuessedTypes& guessed, ImportTally* tally) {
  CompositeExpander expander(program, rank_local);
  for (uint32_t i : inner_first(*program)) settle_graph(*program, program->nested[i]->graph, guessed, &expander, tally);
  settle_graph(*program, program->graph, guessed, &expander, tally);
  expander.relink();
  infer_missing_types(*program);
}

}  // namespace sg
