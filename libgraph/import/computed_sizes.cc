#include "libgraph/import/computed_sizes.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <vector>

#include "libgraph/base/chars.h"

namespace sg {
namespace {

// PyTorch's integer-valued functions of floats or bits.
constexpr std::string_view kCalls[] = {"TruncToInt(", "FloorToInt(", "CeilToInt(", "RoundToInt(",
                                       "LShift(",     "RShift(",     "BitwiseFn_"};

// The start of the next such call; npos if there is none.
size_t next_call(std::string_view text, size_t from) {
  for (size_t at = from; at < text.size(); ++at) {
    if (at > 0 && is_word(text[at - 1])) continue;
    std::string_view rest = text.substr(at);
    if (std::ranges::any_of(kCalls, [&](std::string_view call) { return rest.starts_with(call); })) return at;
  }
  return std::string_view::npos;
}

// The index after the call's closing bracket; npos if it is not closed.
size_t end_of_call(std::string_view text, size_t at) {
  size_t end = text.find('(', at);
  for (int depth = 0; end < text.size(); ++end) {
    depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
    if (depth == 0) return end + 1;
  }
  return std::string_view::npos;
}

// 0.75*ToFloat(...): a product that is exact in floats is treated as a division of integers.
bool is_exact_product(std::string_view inside) {
  constexpr double kLargest = 1 << 16;
  size_t star = inside.find("*ToFloat(");
  if (star == std::string_view::npos || star == 0 || star > 24) return false;
  std::string number(inside.substr(0, star));
  char* end = nullptr;
  double factor = std::strtod(number.c_str(), &end) * kLargest;
  return *end == '\0' && factor == std::floor(factor) && std::fabs(factor) <= kLargest * kLargest &&
         end_of_call(inside, star) == inside.size();
}

bool is_division(std::string_view call, ComputedSizes::Spelling spelling) {
  using Spelling = ComputedSizes::Spelling;
  size_t open = call.find('(');
  std::string_view name = call.substr(0, open), inside = call.substr(open + 1, call.size() - open - 2);
  bool is_ratio = inside.starts_with("IntTrueDiv(") && end_of_call(inside, 0) == inside.size();
  if (spelling == Spelling::annotation)
    return name.ends_with("ToInt") && name != "RoundToInt" && (is_ratio || is_exact_product(inside));
  return spelling == Spelling::constructors && is_ratio && (name == "CeilToInt" || name == "FloorToInt");
}

// Symbols that no node defines yet.
using OpenSymbols = std::set<StrId>;

void bind_at(Graph* graph, NodeId n, const std::vector<StrId>& symbols, OpenSymbols* open) {
  NodeMeta meta = graph->meta(n);
  if (!meta.binds) meta.binds.emplace();
  for (StrId symbol : symbols)
    if (open->erase(symbol) != 0 && std::ranges::find(*meta.binds, symbol) == meta.binds->end())
      meta.binds->push_back(symbol);
  graph->set_meta(n, std::move(meta));
}

// The symbols that equal a number, or sizes of a tensor.
void add_symbols(const ExprPool& exprs, const Type& type, TypeKind kind, std::vector<StrId>* out) {
  auto add = [&](Expr e) {
    if (!e || exprs.is_invalid(e)) return;
    if (auto symbol = exprs.as_symbol(e)) out->push_back(*symbol);
  };
  if (type.kind != kind) return;
  if (kind == TypeKind::integer && type.has_value) add(type.value);
  if (kind == TypeKind::tensor) std::ranges::for_each(type.shape, add);
}

}  // namespace

std::string ComputedSizes::named(Pool* pool, std::string_view text, Spelling spelling) {
  std::string out;
  size_t at = 0;
  for (size_t call; (call = next_call(text, at)) != std::string_view::npos;) {
    size_t end = end_of_call(text, call);
    if (end == std::string_view::npos) break;
    std::string_view whole = text.substr(call, end - call);
    out += text.substr(at, call - at);
    at = end;
    if (is_division(whole, spelling)) {
      out += whole;
      continue;
    }
    auto [known, is_new] = by_text_.try_emplace(std::string(whole), list_.size());
    if (is_new) list_.push_back({pool->str("made" + std::to_string(list_.size())), std::string(whole)});
    std::string name = pool->strings.str(list_[known->second].symbol);
    out += spelling == Spelling::constructors ? "Symbol('" + name + "')" : name;
  }
  return out += text.substr(at);
}

Status bind_computed(const std::vector<ComputedSize>& sizes, Program* program) {
  Graph& graph = program->graph;
  OpenSymbols open;
  for (const ComputedSize& size : sizes)
    if (program->find_symbol(size.symbol)) open.insert(size.symbol);
  std::vector<StrId> symbols;
  for (TypeKind kind : {TypeKind::integer, TypeKind::tensor})
    for (NodeId n : graph.nodes()) {
      if (open.empty()) return ok_status();
      symbols.clear();
      for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
        add_symbols(graph.pool().exprs, graph.type(graph.node(n).result(i)), kind, &symbols);
      std::erase_if(symbols, [&](StrId symbol) { return !open.contains(symbol); });
      if (!symbols.empty()) bind_at(&graph, n, symbols, &open);
    }
  if (open.empty()) return ok_status();
  auto size = std::ranges::find_if(sizes, [&](const ComputedSize& s) { return open.contains(s.symbol); });
  return Error{ErrorKind::unreadable,
               "no node computes the size `" + size->text.substr(0, 200) + "`, which the graph's types mention",
               {},
               "give the sizes that it is made of as numbers, or export the program with the sizes fixed"};
}

}  // namespace sg
