#include "librun/execute/bindings.h"

#include <algorithm>
#include <string>

#include "libgraph/expr/guard_text.h"

namespace sg {
namespace {

std::string range_text(const Symbol& s) {
  auto bound = [](std::optional<int64_t> v, const char* none) { return v ? std::to_string(*v) : std::string(none); };
  return "[" + bound(s.min, "-inf") + ", " + bound(s.max, "inf") + "]";
}

}  // namespace

Bindings::Bindings(const Program& program) : program_(program), pool_(program.graph.pool()) {
  for (uint32_t i = 0; i < program.symbols.size(); ++i) slot_of_.emplace(program.symbols[i].name, i);
  values_.resize(program.symbols.size());
  guards_of_.resize(program.symbols.size());
  for (uint32_t g = 0; g < program.guards.size(); ++g) {
    std::vector<StrId> symbols;
    pool_.exprs.collect_symbols(program.guards[g].left, &symbols);
    pool_.exprs.collect_symbols(program.guards[g].right, &symbols);
    for (StrId s : symbols)
      if (auto it = slot_of_.find(s); it != slot_of_.end()) guards_of_[it->second].push_back(g);
  }
}

std::optional<int64_t> Bindings::value(StrId symbol) const {
  auto it = slot_of_.find(symbol);
  return it == slot_of_.end() ? std::nullopt : values_[it->second];
}

std::optional<int64_t> Bindings::value(Expr e) const {
  if (e.is_none()) return std::nullopt;
  if (auto constant = pool_.exprs.constant_value(e)) return constant;
  return evaluate_size(pool_, e, [this](StrId s) { return value(s); });
}

SizeValues Bindings::lookup() const {
  return [this](StrId s) { return value(s); };
}

Status Bindings::bind(StrId symbol, int64_t v) {
  auto it = slot_of_.find(symbol);
  if (it == slot_of_.end())
    return Error{ErrorKind::cannot_apply, "symbol " + std::string(pool_.strings[symbol]) + " is not declared"};
  std::optional<int64_t>& value = values_[it->second];
  const Symbol& s = program_.symbols[it->second];
  std::string name(pool_.strings[symbol]);
  if (value && *value != v)
    return Error{ErrorKind::cannot_apply,
                 "symbol " + name + " is " + std::to_string(*value) + " here and " + std::to_string(v) + " there"};
  if ((s.min && v < *s.min) || (s.max && v > *s.max))
    return Error{ErrorKind::cannot_apply,
                 "symbol " + name + " = " + std::to_string(v) + " is outside its range " + range_text(s),
                 {},
                 s.kind == SymbolKind::data ? std::string(kOfData) : ""};
  if (s.divisor > 1 && v % s.divisor != 0)
    return Error{ErrorKind::cannot_apply,
                 "symbol " + name + " = " + std::to_string(v) + " is not a multiple of " + std::to_string(s.divisor)};
  if (value) return ok_status();
  value = v;
  for (uint32_t g : guards_of_[it->second]) SG_TRY(check_guard(program_.guards[g]));
  return ok_status();
}

Status Bindings::check_guard(const Guard& guard) const {
  auto left = value(guard.left), right = value(guard.right);
  if (!left || !right || holds(guard.relation, *left, *right)) return ok_status();
  const std::string text = print_guard(pool_.exprs, guard);
  std::vector<StrId> symbols;
  pool_.exprs.collect_symbols(guard.left, &symbols);
  pool_.exprs.collect_symbols(guard.right, &symbols);
  const bool is_of_data =
      std::ranges::any_of(symbols, [&](StrId s) { return program_.symbols[slot_of_.at(s)].kind == SymbolKind::data; });
  return Error{
      ErrorKind::cannot_apply,
      "guard " + text + " does not hold: the left side is " + std::to_string(*left) + ", the right side " +
          std::to_string(*right),
      {},
      is_of_data ? std::string(kOfData) : "the graph was captured under this condition; capture again for these sizes"};
}

Status Bindings::bind_shape(const Type& type, std::span<const int64_t> shape, std::string_view input) {
  auto mismatch = [&](std::string what) {
    return Error{ErrorKind::unreadable, "input " + std::string(input) + " " + what};
  };
  if (shape.size() != type.shape.size())
    return mismatch("has " + std::to_string(shape.size()) + " axes, the graph expects " +
                    std::to_string(type.shape.size()));
  for (size_t i = 0; i < shape.size(); ++i)
    if (auto symbol = pool_.exprs.as_symbol(type.shape[i])) SG_TRY(bind(*symbol, shape[i]));
  for (size_t i = 0; i < shape.size(); ++i) {
    auto expected = value(type.shape[i]);
    if (expected && *expected != shape[i])
      return mismatch("has size " + std::to_string(shape[i]) + " along axis " + std::to_string(i) +
                      ", the graph expects " + std::to_string(*expected));
  }
  return ok_status();
}

void Bindings::forget_data() {
  for (size_t i = 0; i < values_.size(); ++i)
    if (program_.symbols[i].kind == SymbolKind::data) values_[i].reset();
}

}  // namespace sg
