#include "libgraph/export/python_symbols.h"

#include <algorithm>
#include <unordered_set>

#include "libgraph/export/python_layout.h"

namespace sg::python {

namespace {

using SymbolSet = std::unordered_set<StrId, IdHash>;

// Whether e = factor * symbol + offset, with a single symbol to the power of one.
bool is_linear(const ExprPool& exprs, Expr e, SymbolSource* out) {
  if (!e || exprs.is_invalid(e)) return false;
  std::span<const Term> terms = exprs.terms(e);
  if (terms.empty() || terms.size() > 2 || terms[0].factors.size() != 1 || terms[0].factors[0].power != 1) return false;
  const Atom& atom = exprs.atom(terms[0].factors[0].atom);
  if (atom.kind != AtomKind::symbol || (terms.size() == 2 && !terms[1].factors.empty())) return false;
  out->symbol = atom.symbol, out->factor = terms[0].coefficient;
  out->offset = terms.size() == 2 ? terms[1].coefficient : 0;
  return out->offset != INT64_MIN;
}

// What the graph's conditions are about: guards, and sizes of inputs. Of data, symbols whose range says something.
void want_conditions(const Program& program, SymbolSet* wanted) {
  const ExprPool& exprs = program.graph.pool().exprs;
  std::vector<StrId> symbols;
  for (const Guard& guard : program.guards) {
    exprs.collect_symbols(guard.left, &symbols);
    exprs.collect_symbols(guard.right, &symbols);
  }
  for (const Input& input : program.graph.inputs())
    for (Expr size : program.graph.type(input.value).shape) exprs.collect_symbols(size, &symbols);
  for (const Symbol& symbol : program.symbols)
    if (symbol.kind == SymbolKind::data && (symbol.max || symbol.min.value_or(0) != 0)) symbols.push_back(symbol.name);
  wanted->insert(symbols.begin(), symbols.end());
}

// Takes from `value` the symbols in `wanted` that are not yet `known`: bare ones, or with `linear` those in linear
// expressions.
void learn(const Graph& graph, ValueId value, bool linear, const SymbolSet& wanted, SymbolSet* known,
           std::vector<SymbolSource>* out) {
  const Type& type = graph.type(value);
  SymbolSource source;
  source.value = value;
  auto consider = [&](Expr e, int dimension) {
    if (!is_linear(graph.pool().exprs, e, &source)) return;
    if (linear != (source.factor != 1 || source.offset != 0)) return;
    if (!wanted.contains(source.symbol) || !known->insert(source.symbol).second) return;
    source.dimension = dimension;
    out->push_back(source);
  };
  if (type.kind == TypeKind::integer && type.has_value) consider(type.value, SymbolSource::kScalar);
  if (type.kind != TypeKind::tensor) return;
  for (size_t d = 0; d < type.shape.size(); ++d) consider(type.shape[d], static_cast<int>(d));
}

// The symbols of answers, one per result, where the type has no number or that of the capture: of conditions of the
// data.
void learn_answers(const Graph& graph, NodeId n, const SymbolSet& wanted, SymbolSet* known,
                   std::vector<SymbolSource>* out) {
  const Node& node = graph.node(n);
  const auto& binds = graph.meta(n).binds;
  if (!binds || binds->size() != node.result_count) return;
  for (uint32_t i = 0; i < node.result_count; ++i) {
    const Type& type = graph.type(node.result(i));
    if (type.kind != TypeKind::integer && type.kind != TypeKind::boolean) continue;
    if (!wanted.contains((*binds)[i]) || !known->insert((*binds)[i]).second) continue;
    out->push_back({(*binds)[i], node.result(i)});
  }
}

}  // namespace

SymbolPlan::SymbolPlan(const Program& program, bool has_conditions)
    : program_(program),
      has_conditions_(has_conditions),
      nested_(program.nested.size()),
      planned_(program.nested.size(), 0) {
  for (uint32_t i = 0; i < program.nested.size(); ++i) plan_nested(NestedId(i));
  main_ = plan(program.graph);
}

void SymbolPlan::plan_nested(NestedId id) {
  if (id.index >= planned_.size() || planned_[id.index]) return;
  if (++depth_ > kMaxDepth) {
    is_too_deep_ = true;
  } else {
    planned_[id.index] = 1;
    GraphSymbols symbols = plan(program_.nested[id.index]->graph);
    nested_[id.index] = std::move(symbols);
  }
  --depth_;
}

std::vector<StrId> SymbolPlan::needs_of(const Graph& graph, NodeId n) {
  std::vector<StrId> out;
  for (const Arg& top : graph.node(n).args) {
    top.walk([&](const Arg& arg) {
      if (arg.is(ArgKind::expr) && arg.as_expr()) graph.pool().exprs.collect_symbols(arg.as_expr(), &out);
      if (!arg.is(ArgKind::graph)) return;
      plan_nested(arg.as_graph());
      if (arg.as_graph().index >= nested_.size()) return;
      const auto& of_body = nested_[arg.as_graph().index].parameters;
      out.insert(out.end(), of_body.begin(), of_body.end());
    });
  }
  return out;
}

GraphSymbols SymbolPlan::plan(const Graph& graph) {
  GraphSymbols out;
  SymbolSet wanted, known;
  std::vector<std::pair<NodeId, std::vector<StrId>>> needs;
  for (NodeId n : graph.nodes()) {
    auto list = needs_of(graph, n);
    wanted.insert(list.begin(), list.end());
    if (!list.empty()) needs.emplace_back(n, std::move(list));
  }
  // Strides of inputs may use symbols that no node needs.
  for (const Input& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    std::vector<StrId> symbols;
    for (Expr e : type.stride) graph.pool().exprs.collect_symbols(e, &symbols);
    if (type.kind == TypeKind::tensor && type.stride != graph.pool().contiguous_strides(type.shape))
      wanted.insert(symbols.begin(), symbols.end());
  }
  if (&graph == &program_.graph && has_conditions_) want_conditions(program_, &wanted);
  const std::vector<uint8_t> laid_out = counted_layouts(graph);
  for (NodeId n : graph.nodes())
    for (uint32_t i = 0; i < graph.node(n).result_count; ++i) {
      ValueId v = graph.node(n).result(i);
      if (!laid_out[v.index]) continue;
      std::vector<StrId> symbols;
      for (Expr e : graph.type(v).stride) graph.pool().exprs.collect_symbols(e, &symbols);
      wanted.insert(symbols.begin(), symbols.end());
    }
  for (bool linear : {false, true})
    for (const Input& input : graph.inputs()) learn(graph, input.value, linear, wanted, &known, &out.from_inputs);
  size_t at = 0;
  for (NodeId n : graph.nodes()) {
    if (at < needs.size() && needs[at].first == n) {
      for (StrId symbol : needs[at].second)
        if (known.insert(symbol).second) out.parameters.push_back(symbol), out.needed_at.push_back(n);
      ++at;
    }
    if (wanted.size() == known.size()) continue;
    std::vector<SymbolSource> here;
    for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
      learn(graph, graph.node(n).result(i), false, wanted, &known, &here);
    learn_answers(graph, n, wanted, &known, &here);
    if (!here.empty()) out.from_node.emplace(n, std::move(here));
  }
  return out;
}

}  // namespace sg::python
