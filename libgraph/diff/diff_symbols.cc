#include "libgraph/diff/diff_symbols.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "libgraph/expr/guard_text.h"
#include "libgraph/names.h"
#include "libgraph/op.h"

namespace sg {
namespace {

// What explains the node that defines each data symbol of the main graph; kNone = nothing does.
std::unordered_map<StrId, uint32_t, IdHash> causes_of(const Program& program, const MatchSide& side,
                                                      const std::vector<uint32_t>& cause) {
  std::unordered_map<StrId, uint32_t, IdHash> out;
  for (uint32_t n = 0; n < side.node_count(); ++n) {
    const NodeMeta& meta = side.graph->meta(side.nodes[n]);
    const OpInfo* op = side.graph->op_info(side.nodes[n]);
    if (!meta.binds && op && !op->has(kBindsSymbol)) continue;
    for (StrId symbol : meta.binds ? *meta.binds : default_binds(program, *side.graph, side.nodes[n]))
      out.emplace(symbol, cause[n]);
  }
  return out;
}

}  // namespace

void SymbolDiffer::run() { symbols(), guards(); }

void SymbolDiffer::add(ItemEdit item, int side, std::vector<StrId> symbols) {
  about_.push_back({out_.items.size(), side, std::move(symbols)});
  out_.items.push_back(std::move(item));
}

std::vector<StrId> SymbolDiffer::symbols_of(int side, const Guard& g) const {
  std::vector<StrId> out;
  const Pool& pool = *(side == 0 ? a_ : b_).pool;
  pool.exprs.collect_symbols(g.left, &out), pool.exprs.collect_symbols(g.right, &out);
  return out;
}

void SymbolDiffer::explain() {
  bool any = std::any_of(about_.begin(), about_.end(),
                         [&](const About& a) { return out_.items[a.item].explanation == MatchSide::kNone; });
  if (!any || out_.graphs.empty()) return;
  const GraphDiff& g = out_.graphs[0];
  std::vector<uint32_t> cause[2] = {std::vector<uint32_t>(g.side_a.node_count(), MatchSide::kNone),
                                    std::vector<uint32_t>(g.side_b.node_count(), MatchSide::kNone)};
  for (const NodeEdit& e : g.edits) {
    bool is_tag = e.explanation != MatchSide::kNone && g.explanations[e.explanation].kind == ExplanationKind::tagged;
    if (e.explanation == MatchSide::kNone || is_tag) continue;
    if (e.a != MatchSide::kNone) cause[0][e.a] = e.explanation;
    if (e.b != MatchSide::kNone) cause[1][e.b] = e.explanation;
  }
  std::unordered_map<StrId, uint32_t, IdHash> causes[2] = {causes_of(*out_.a, g.side_a, cause[0]),
                                                           causes_of(*out_.b, g.side_b, cause[1])};
  for (const About& about : about_) {
    ItemEdit& item = out_.items[about.item];
    if (item.explanation != MatchSide::kNone) continue;
    uint32_t found = MatchSide::kNone;
    bool all = true;  // of the symbols that nodes define; those of inputs need no reason
    for (StrId symbol : about.symbols) {
      auto at = causes[about.side].find(symbol);
      if (at == causes[about.side].end()) continue;
      all = all && at->second != MatchSide::kNone;
      if (found == MatchSide::kNone) found = at->second;
    }
    if (all) item.explanation = found;
  }
}

void SymbolDiffer::symbols() {
  std::set<StrId> partners;
  for (const Symbol& s : out_.a->symbols) {
    StrId partner = terms_.symbol_partner(s.name);
    const Symbol* t = partner ? out_.b->find_symbol(partner) : nullptr;
    if (t == nullptr) {
      add({"symbol", print_.a.symbol_alone(s), EditKind::removed, {}, MatchSide::kNone, told_symbol(0, s.name)}, 0,
          {s.name});
      continue;
    }
    partners.insert(partner);
    std::vector<Difference> changes = symbol(s, *t);
    bool only_kind = std::all_of(changes.begin(), changes.end(),
                                 [](const Difference& c) { return c.what == "kind" || c.what == "hint"; });
    uint32_t told = only_kind ? std::min(told_symbol(0, s.name), told_symbol(1, t->name)) : MatchSide::kNone;
    if (!changes.empty())
      add({"symbol", b_.pool->strings.str(t->name), EditKind::changed, std::move(changes), MatchSide::kNone, told}, 0,
          {s.name});
  }
  for (const Symbol& t : out_.b->symbols)
    if (!partners.contains(t.name))
      add({"symbol", print_.b.symbol_alone(t), EditKind::added, {}, MatchSide::kNone, told_symbol(1, t.name)}, 1,
          {t.name});
}

std::vector<Difference> SymbolDiffer::symbol(const Symbol& s, const Symbol& t) {
  std::vector<Difference> out;
  auto number = [](std::optional<int64_t> v) { return v ? std::to_string(*v) : std::string("-"); };
  auto field = [&](const char* what, std::optional<int64_t> v, std::optional<int64_t> w) {
    bool is_unsaid = options_.ignore_meta && (!v || !w);
    if (v != w && !is_unsaid) out.push_back({Aspect::attribute, what, number(v), number(w)});
  };
  if (s.kind != t.kind)
    out.push_back({Aspect::attribute, "kind", std::string(name_of(s.kind)), std::string(name_of(t.kind))});
  field("min", s.min, t.min), field("max", s.max, t.max), field("hint", s.hint, t.hint),
      field("divisor", s.divisor, t.divisor);
  auto text = [](const Pool& pool, StrId id) { return id ? pool.strings.str(id) : std::string("-"); };
  if (!options_.ignore_loc && !terms_.same_text(s.source, t.source))
    out.push_back({Aspect::loc, "source", text(*a_.pool, s.source), text(*b_.pool, t.source)});
  if (!options_.ignore_name && !terms_.same_text(s.name, t.name))
    out.push_back({Aspect::name, "name", text(*a_.pool, s.name), text(*b_.pool, t.name)});
  return out;
}

// Guards have no order: equal ones are paired, each once. With --ignore meta, a side without guards does not count.
void SymbolDiffer::guards() {
  if (options_.ignore_meta && (out_.a->guards.empty() || out_.b->guards.empty())) return;
  using Key = std::tuple<Relation, Expr, Expr, std::string>;
  auto source = [&](text::TextPrinter& print, SourceId s) {
    return options_.ignore_loc ? std::string() : print.source_alone(s);
  };
  std::map<Key, std::vector<size_t>> of_b;
  for (size_t j = out_.b->guards.size(); j-- > 0;) {
    const Guard& h = out_.b->guards[j];
    of_b[{h.relation, terms_.of_b(h.left), terms_.of_b(h.right), source(print_.b, h.source)}].push_back(j);
  }
  std::vector<bool> taken(out_.b->guards.size());
  std::vector<const Guard*> gone, made;
  for (const Guard& g : out_.a->guards) {
    auto at = of_b.find({g.relation, terms_.of_a(g.left), terms_.of_a(g.right), source(print_.a, g.source)});
    bool found = at != of_b.end() && !at->second.empty();
    if (!found) {
      gone.push_back(&g);
      continue;
    }
    taken[at->second.back()] = true;
    at->second.pop_back();
  }
  for (size_t j = 0; j < taken.size(); ++j)
    if (!taken[j]) made.push_back(&out_.b->guards[j]);
  std::set<const Guard*> by_number = same_by_number(gone, made);
  auto told = [&](int side, const Guard* g) { return by_number.contains(g) ? 0 : told_guard(side, *g); };
  for (const Guard* g : gone)
    add({"guard", print_.a.guard_alone(*g), EditKind::removed, {}, MatchSide::kNone, told(0, g)}, 0, symbols_of(0, *g));
  for (const Guard* g : made)
    add({"guard", print_.b.guard_alone(*g), EditKind::added, {}, MatchSide::kNone, told(1, g)}, 1, symbols_of(1, *g));
}

// Unmatched guards that are equal once symbols that are numbers on the other side are replaced by them.
std::set<const Guard*> SymbolDiffer::same_by_number(const std::vector<const Guard*>& gone,
                                                    const std::vector<const Guard*>& made) {
  constexpr size_t kMaxPairs = 1 << 16;
  std::set<const Guard*> out;
  if (!terms_.has_numbers() || gone.size() * made.size() > kMaxPairs) return out;
  auto same = [&](Expr x, Expr y) { return terms_.same_expr(x, y) || terms_.same_expr_by_number(x, y); };
  for (const Guard* g : gone)
    for (const Guard* h : made) {
      if (out.contains(h) || g->relation != h->relation || !same(g->left, h->left) || !same(g->right, h->right))
        continue;
      out.insert(g), out.insert(h);
      break;
    }
  return out;
}

// Symbols that are numbers on the other side, and guards that hold for these numbers, are explained by the main graph's
// first explanation (0).
uint32_t SymbolDiffer::told_symbol(int s, StrId symbol) const {
  return numbers_[s].contains(symbol) ? 0 : MatchSide::kNone;
}

uint32_t SymbolDiffer::told_guard(int s, const Guard& g) const {
  const Pool& pool = *(s == 0 ? a_ : b_).pool;
  std::optional<int64_t> left = number_of(pool, g.left, numbers_[s]), right = number_of(pool, g.right, numbers_[s]);
  return !numbers_[s].empty() && left && right && holds(g.relation, *left, *right) ? 0 : MatchSide::kNone;
}

}  // namespace sg
