#include "librun/input_sizes.h"

#include "libgraph/guard_text.h"

namespace sg {
namespace {

Error does_not_fit(std::string message) {
  return {ErrorKind::cannot_apply, std::move(message), {}, "the graph was captured for other sizes: capture it for these"};
}

}  // namespace

InputSizes::InputSizes(const Program& program) : program_(program), exprs_(program.graph.pool().exprs) {}

std::optional<int64_t> InputSizes::value(Expr e) const { return values_.value(exprs_, e); }

void InputSizes::learn(std::span<const Expr> recorded, std::span<const int64_t> actual) {
  for (size_t d = 0; d < recorded.size(); ++d)
    if (auto symbol = exprs_.as_symbol(recorded[d]); symbol && !values_.value(*symbol)) values_.set(*symbol, actual[d]);
}

void InputSizes::follow_guards() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const Guard& guard : program_.guards) {
      if (guard.relation != Relation::eq) continue;
      for (auto [unknown, known] : {std::pair{guard.left, guard.right}, std::pair{guard.right, guard.left}}) {
        auto symbol = exprs_.as_symbol(unknown);
        auto number = value(known);
        if (!symbol || !number || values_.value(*symbol)) continue;
        values_.set(*symbol, *number);
        changed = true;
      }
    }
  }
}

void InputSizes::take_hints() {
  for (const Symbol& symbol : program_.symbols) {
    if (symbol.kind != SymbolKind::input || !symbol.hint || values_.value(symbol.name)) continue;
    values_.set(symbol.name, *symbol.hint);
    follow_guards();
  }
}

std::string InputSizes::print(const Guard& guard) const {
  return exprs_.print(guard.left) + " " + std::string(relation_sign(guard.relation)) + " " + exprs_.print(guard.right);
}

Status InputSizes::check() const {
  const StringTable& strings = program_.graph.pool().strings;
  for (const Symbol& symbol : program_.symbols) {
    auto number = values_.value(symbol.name);
    if (!number) continue;
    std::string is = "the size " + strings.str(symbol.name) + " is " + std::to_string(*number) + ", ";
    if (symbol.min && *number < *symbol.min) return does_not_fit(is + "the graph takes " + std::to_string(*symbol.min) + " or more");
    if (symbol.max && *number > *symbol.max) return does_not_fit(is + "the graph takes " + std::to_string(*symbol.max) + " or less");
    if (symbol.divisor > 1 && *number % symbol.divisor != 0)
      return does_not_fit(is + "the graph takes multiples of " + std::to_string(symbol.divisor));
  }
  for (const Guard& guard : program_.guards) {
    auto left = value(guard.left), right = value(guard.right);
    if (left && right && !holds(guard.relation, *left, *right))
      return does_not_fit("the graph needs " + print(guard) + "; the inputs make it " + std::to_string(*left) + " and " +
                          std::to_string(*right));
  }
  return ok_status();
}

}  // namespace sg
