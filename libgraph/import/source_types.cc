#include "libgraph/import/source_types.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_set>

#include "libgraph/composite/composite.h"
#include "libgraph/infer/infer.h"

namespace sg {
namespace {

class SymbolCollector {
 public:
  SymbolCollector(const SourceProgram& source, Pool* pool, Program* program) : pool_(pool), program_(program) {
    for (const Symbol& symbol : source.known_symbols) known_.try_emplace(symbol.name, &symbol);
  }

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
    for (Expr size : type.shape) at_least(size, 0);
    for (TypeId element : type.elements) this->type(element);
  }

  // PyTorch compiles graphs for input sizes and strides of 2 or more; 0 and 1 get separate graphs.
  void input(TypeId id) {
    type(id);
    const Type& type = pool_->types[id];
    for (const std::vector<Expr>* sizes : {&type.shape, &type.stride})
      for (Expr e : *sizes) at_least(e, 2);
  }

  void graph(const SourceGraph& graph) {
    for (const SourceInput& in : graph.inputs) input(in.type);
    for (const SourceNode& node : graph.nodes) {
      for (const Arg& arg : node.args)
        arg.walk([&](const Arg& a) {
          if (a.is(ArgKind::expr)) expr(a.as_expr());
        });
      for (TypeId id : node.results.types) type(id);
    }
  }

 private:
  // PyTorch names sizes of inputs s0, ..., and values unknown at capture u0, ...
  void declare(StrId name) {
    if (program_->find_symbol(name)) return;
    if (auto known = known_.find(name); known != known_.end()) return program_->symbols.push_back(*known->second);
    Symbol symbol;
    symbol.name = name;
    symbol.kind = pool_->strings[name].starts_with('s') ? SymbolKind::input : SymbolKind::data;
    symbol.source = StrId();
    program_->symbols.push_back(symbol);
    is_declared_here_.insert(name);
  }

  // Raises the minimum of a size that is a symbol declared here. Sizes unknown at capture may always be 0.
  void at_least(Expr size, int64_t min) {
    if (!size || pool_->exprs.is_constant(size) || pool_->exprs.is_invalid(size)) return;
    found_.clear();
    pool_->exprs.collect_symbols(size, &found_);
    if (found_.size() != 1 || size != pool_->exprs.symbol(found_[0]) || !is_declared_here_.contains(found_[0])) return;
    for (Symbol& symbol : program_->symbols)
      if (symbol.name == found_[0])
        symbol.min = std::max(symbol.min.value_or(0), symbol.kind == SymbolKind::input ? min : int64_t{0});
  }

  Pool* pool_;
  Program* program_;
  std::unordered_map<StrId, const Symbol*, IdHash> known_;
  std::unordered_set<StrId, IdHash> is_declared_here_;
  std::vector<bool> seen_;
  std::vector<StrId> found_;
};

bool same_layout(const Type& a, const Type& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.shape == b.shape && a.device == b.device &&
         (a.kind != TypeKind::tensor || a.stride == b.stride);
}

// Symbolic sizes may be spelled differently; different numbers differ.
bool may_be_same(const ExprPool& exprs, const Type& a, const Type& b) {
  auto may_be = [&](Expr x, Expr y) { return x == y || !exprs.is_constant(x) || !exprs.is_constant(y); };
  return a.kind == b.kind && a.dtype == b.dtype && std::ranges::equal(a.shape, b.shape, may_be);
}

// What the source states stays; what it guesses is replaced by the inferred type.
Type settled(const Type& told, Type inferred, Guess guess) {
  if (told.kind == TypeKind::unknown || guess == Guess::none) return inferred;
  Type type = guess == Guess::offset ? told : inferred;
  type.shape = told.shape;
  type.offset = inferred.offset;
  return type;
}

// If the results are compatible with the inferred types, takes those for everything still open.
void take_inferred(Graph& graph, NodeId n, Guess guess, TypeInferrer& inferrer) {
  auto types = inferrer.infer(graph, n);
  if (!types.ok()) return;
  const Node& node = graph.node(n);
  for (uint32_t i = 0; i < node.result_count; ++i) {
    const Type& told = graph.type(node.result(i));
    if (told.kind == TypeKind::unknown) continue;
    bool fits =
        guess == Guess::none ? same_layout(told, (*types)[i]) : may_be_same(graph.pool().exprs, told, (*types)[i]);
    if (!fits) return;
  }
  for (uint32_t i = 0; i < node.result_count; ++i) {
    const Type& told = graph.type(node.result(i));
    if (told.kind == TypeKind::integer && !told.has_value)
      graph.set_type(node.result(i), graph.pool().types.intern((*types)[i]));
    if ((*types)[i].kind != TypeKind::tensor) continue;  // scalars: the source holds the value
    Type type = settled(graph.type(node.result(i)), std::move((*types)[i]), guess);
    graph.set_type(node.result(i), graph.pool().types.intern(std::move(type)));
  }
}

void settle_graph(const Program& program, Graph& graph, const GuessedTypes& guessed, CompositeExpander* expander,
                  ImportTally* tally) {
  TypeInferrer inferrer(program);
  for (NodeId n : graph.nodes()) {
    const Guess guess = guessed.of(&graph, n);
    if (is_taken_apart(graph, n)) {
      const RecordedTypes recorded = guess == Guess::none ? RecordedTypes::hold : RecordedTypes::are_guesses;
      expand_and_tell(expander, program, &graph, n, recorded, tally);
      continue;
    }
    const Node& node = graph.node(n);
    bool is_open = guess != Guess::none;
    for (uint32_t i = 0; i < node.result_count; ++i)
      is_open = is_open || graph.type(node.result(i)).kind == TypeKind::unknown;
    if (is_open) take_inferred(graph, n, guess, inferrer);
  }
}

// Adds known guards on declared symbols only, each once.
void add_known_guards(const SourceProgram& source, const Pool& pool, Program* program) {
  std::set<std::tuple<Relation, uint32_t, uint32_t>> seen;
  std::vector<StrId> names;
  for (const Guard& guard : source.known_guards) {
    names.clear();
    for (Expr side : {guard.left, guard.right}) pool.exprs.collect_symbols(side, &names);
    bool is_about_us = !names.empty() && std::ranges::all_of(names, [&](StrId s) { return program->find_symbol(s); });
    if (is_about_us && seen.emplace(guard.relation, guard.left.index, guard.right.index).second)
      program->guards.push_back(guard);
  }
}

}  // namespace

void declare_symbols(const SourceProgram& source, Pool* pool, Program* program) {
  SymbolCollector collector(source, pool, program);
  for (const Symbol& symbol : source.symbols) program->symbols.push_back(symbol);
  for (const Guard& guard : source.guards) {
    collector.expr(guard.left);
    collector.expr(guard.right);
    program->guards.push_back(guard);
  }
  collector.graph(source.graph);
  for (const SourceNested& nested : source.nested) collector.graph(nested.graph);
  add_known_guards(source, *pool, program);
}

void settle_types(Program* program, bool rank_local, const GuessedTypes& guessed, ImportTally* tally) {
  CompositeExpander expander(program, rank_local);
  for (uint32_t i : inner_first(*program)) settle_graph(*program, program->nested[i]->graph, guessed, &expander, tally);
  settle_graph(*program, program->graph, guessed, &expander, tally);
  expander.relink();
  infer_missing_types(*program);
}

}  // namespace sg
