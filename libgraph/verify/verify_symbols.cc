// Rules about symbolic sizes: declarations, guards, where symbols may occur and where they are defined.
#include <optional>
#include <unordered_set>

#include "libgraph/expr/guard_text.h"
#include "libgraph/verify/verify_rules.h"

namespace sg {
namespace {

void check_symbol(Check& c, size_t index) {
  const Symbol& s = c.program->symbols[index];
  std::string name = "symbol " + std::string(c.str(s.name));
  auto fail = [&](std::string message, std::string hint = {}) {
    c.fail_item("symbol", index, std::move(message), std::move(hint));
  };
  if (c.str(s.name).empty()) fail("a symbol has an empty name");
  if (s.divisor < 1) return fail(name + " is a multiple of " + std::to_string(s.divisor), "divisors are 1 or more");
  if (s.min && s.max && *s.min > *s.max) fail(name + ": no number is in its range");
  if (!s.hint) return;
  if ((s.min && *s.hint < *s.min) || (s.max && *s.hint > *s.max)) fail(name + ": its hint is outside its range");
  if (*s.hint % s.divisor != 0) fail(name + ": its hint is not a multiple of " + std::to_string(s.divisor));
}

std::string guard_text(const Check& c, const Guard& g) { return "guard " + print_guard(c.pool.exprs, g); }

// Calls fn once for each symbol of `e`.
template <class Fn>
void for_each_symbol(Check& c, Expr e, const Fn& fn) {
  if (c.pool.exprs.is_constant(e)) return;
  std::vector<StrId> symbols;
  c.pool.exprs.collect_symbols(e, &symbols);
  for (StrId s : symbols) fn(s);
}

std::string undeclared(const Check& c, StrId s) { return "the symbol " + std::string(c.str(s)) + " is not declared"; }
std::string declare_hint(const Check& c, StrId s) {
  return "add `symbol " + std::string(c.str(s)) + " input [2, inf]` (or `data`) to the graph's head";
}

// Each type is checked once per program: equal types have equal symbols.
void check_type_scope(Check& c, ValueId v) {
  TypeId t = c.graph->value(v).type;
  if (!c.type_scope.first(t.index, c.program_round)) return;
  for (StrId s : c.symbols_of(t))
    if (!c.symbol(s)) c.fail(v, undeclared(c, s), declare_hint(c, s));
  const Type& type = c.pool.types[t];
  auto is_negative = [&](Expr e) {
    return c.facts().quick_range(e).min < 0 && c.facts().range(e).max < 0;
  };  // most sizes pass the quick check
  for (size_t i = 0; i < type.shape.size(); ++i)
    if (!c.pool.exprs.is_constant(type.shape[i]) && is_negative(type.shape[i]))
      c.fail(
          v,
          c.name(v) + ": size " + std::to_string(i) + ", " + c.pool.exprs.print(type.shape[i]) + ", is always negative",
          "compare the type with the ranges of its symbols");
}

}  // namespace

void check_symbols(Check& c) {
  std::unordered_set<uint32_t> names;
  for (size_t i = 0; i < c.program->symbols.size(); ++i) {
    StrId name = c.program->symbols[i].name;
    if (!names.insert(name.index).second)
      c.fail_item("symbol", i, "symbol " + std::string(c.str(name)) + " is declared twice");
    check_symbol(c, i);
  }
}

namespace {

// Whether both sides of guard `i` are valid and all its symbols are declared.
bool check_guard_scope(Check& c, size_t i) {
  const Guard& g = c.program->guards[i];
  if (c.pool.exprs.is_invalid(g.left) || c.pool.exprs.is_invalid(g.right)) {
    c.fail_item("guard", i, "a guard compares something that is not a number",
                "it overflows 64 bits, divides by zero or is too large");
    return false;
  }
  bool declared = true;
  for (Expr side : {g.left, g.right})
    for_each_symbol(c, side, [&](StrId s) {
      if (!c.symbol(s)) c.fail_item("guard", i, guard_text(c, g) + ": " + undeclared(c, s), declare_hint(c, s));
      declared = declared && c.symbol(s);
    });
  return declared;
}

}  // namespace

void check_guards(Check& c) {
  auto hint_of = [&](StrId s) {
    const Symbol* symbol = c.symbol(s);
    return symbol ? symbol->hint : std::nullopt;
  };
  for (size_t i = 0; i < c.program->guards.size(); ++i) {
    if (!check_guard_scope(c, i)) continue;
    const Guard& g = c.program->guards[i];
    std::optional<int64_t> left = c.pool.exprs.evaluate(g.left, hint_of),
                           right = c.pool.exprs.evaluate(g.right, hint_of);
    if (!left || !right || holds(g.relation, *left, *right)) continue;
    bool constant = c.pool.exprs.is_constant(g.left) && c.pool.exprs.is_constant(g.right);
    c.fail_item("guard", i,
                guard_text(c, g) + (constant ? " can never hold" : " does not hold for the sizes at capture"),
                "the graph is valid only where its guards hold: bind other sizes or capture again");
    return;
  }
  if (c.facts().contradictory())
    c.fail("no sizes meet all ranges and guards at once", "a range or a guard is wrong: compare them with the capture");
}

void check_scope_of_ports(Check& c) {
  for (const Input& in : c.graph->inputs()) {
    check_type_scope(c, in.value);
    for (Expr e : in.sharding.global_shape)
      for_each_symbol(c, e, [&](StrId s) {
        if (!c.symbol(s)) c.fail(in.value, undeclared(c, s), declare_hint(c, s));
      });
  }
  for (size_t i = 0; i < c.graph->outputs().size(); ++i)
    for (Expr e : c.graph->outputs()[i].sharding.global_shape)
      for_each_symbol(c, e, [&](StrId s) {
        if (!c.symbol(s)) c.fail_item("output", i, undeclared(c, s), declare_hint(c, s));
      });
}

void check_scope(Check& c, NodeId n) {
  const Node& node = c.graph->node(n);
  for (uint32_t i = 0; i < node.result_count; ++i) check_type_scope(c, node.result(i));
  auto check = [&](Expr e) {
    if (!c.exprs.first(e.index, c.program_round)) return;
    if (c.pool.exprs.is_invalid(e))
      return c.fail(n, "an argument is not a number: it overflows 64 bits, divides by zero or is too large");
    for_each_symbol(c, e, [&](StrId s) {
      if (!c.symbol(s)) c.fail(n, undeclared(c, s), declare_hint(c, s));
    });
  };
  for (const Arg& arg : node.args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::expr)) check(a.as_expr());
    });
  if (node.meta == Pool::kDefaultMeta) return;
  for (Expr e : c.graph->meta(n).random.origin_shape) check(e);
  for (Expr e : c.graph->meta(n).random.origin_offset) check(e);
}

// --- where data-dependent symbols come from ---

namespace {

std::vector<StrId> binds_of(Check& c, NodeId n) {
  const NodeMeta& meta = c.graph->meta(n);
  if (meta.binds) return *meta.binds;
  const OpInfo* info = c.graph->op_info(n);
  if (info && !info->has(kBindsSymbol)) return {};
  return default_binds(*c.program, *c.graph, n);
}

}  // namespace

void check_binds(Check& c) {
  for (NodeId n : c.graph->nodes())
    for (StrId s : binds_of(c, n)) {
      const Symbol* symbol = c.symbol(s);
      std::string name = "symbol " + std::string(c.str(s));
      if (!symbol)
        c.fail(n, "binds " + name + ", which is not declared", "add `symbol " + std::string(c.str(s)) + " data`");
      else if (symbol->kind != SymbolKind::data)
        c.fail(n, "binds " + name + ", which is a size of the inputs", "declare it as `data`");
      if (!symbol || symbol->kind != SymbolKind::data) continue;
      auto [it, is_new] = c.bound_by.try_emplace(s, n);
      if (!is_new && c.graph->op_info(n))
        c.fail(n, "binds " + name + ", which " + c.label(it->second) + " binds already", "give it a symbol of its own");
    }
}

void check_symbol_order(Check& c, NodeId n) {
  if (c.bound_by.empty() || !c.in_main_graph()) return;
  const Node& node = c.graph->node(n);
  auto check = [&](StrId s) {
    auto it = c.bound_by.find(s);
    if (it != c.bound_by.end() && c.graph->before(n, it->second))
      c.fail(n, "needs symbol " + std::string(c.str(s)) + " before " + c.label(it->second) + " reads it",
             "move it after " + c.label(it->second));
  };
  for (uint32_t i = 0; i < node.result_count; ++i)
    for (StrId s : c.symbols_of(c.graph->value(node.result(i)).type)) check(s);
  for (const Arg& arg : node.args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::expr)) for_each_symbol(c, a.as_expr(), check);
    });
}

}  // namespace sg
