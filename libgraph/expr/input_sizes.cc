#include "libgraph/expr/input_sizes.h"

#include <set>

#include "libgraph/base/human.h"
#include "libgraph/base/nearest.h"
#include "libgraph/expr/guard_sizes.h"
#include "libgraph/expr/guard_text.h"

namespace sg {
namespace {

// The input with that name, else the one with that FQN.
const Input* find_input(const Graph& graph, std::string_view name) {
  const Input* by_fqn = nullptr;
  for (const Input& input : graph.inputs()) {
    if (graph.name(input.value) == name) return &input;
    if (by_fqn == nullptr && input.fqn && graph.pool().strings[input.fqn] == name) by_fqn = &input;
  }
  return by_fqn;
}

// A binding that the graph does not take.
Error misbound(const SizeBinding& binding, std::string message, std::string hint = {}) {
  return {ErrorKind::cannot_apply, "--bind " + binding.text + ": " + std::move(message), {}, std::move(hint)};
}

// The size of the input's dimension that a binding names.
Result<Expr> dimension_of(const Graph& graph, const Input& input, const SizeBinding& binding) {
  const Type& type = graph.type(input.value);
  const auto axes = static_cast<int64_t>(type.kind == TypeKind::tensor ? type.shape.size() : 0);
  const int64_t axis = *binding.dimension < 0 ? *binding.dimension + axes : *binding.dimension;
  if (axis < 0 || axis >= axes)
    return misbound(
        binding, "%" + std::string(graph.name(input.value)) + " has " + plural(static_cast<size_t>(axes), "dimension"));
  return type.shape[static_cast<size_t>(axis)];
}

bool is_about(const SizeBinding& binding, const Program& program) {
  return binding.ranks.empty() || binding.ranks == program.ranks;
}

void offer_names(const Program& program, const SizeBinding& binding, Nearest* nearest) {
  const StringTable& strings = program.graph.pool().strings;
  if (!binding.dimension)
    for (const Symbol& symbol : program.symbols) {
      if (symbol.kind == SymbolKind::input) nearest->offer(strings[symbol.name]);
    }
  else
    for (const Input& input : program.graph.inputs()) {
      nearest->offer(program.graph.name(input.value));
      if (input.fqn) nearest->offer(strings[input.fqn]);
    }
}

// Lists the symbols that can be bound, for a name that is no symbol.
std::string symbols_hint(const Job& job) {
  std::set<std::string> names;
  bool has_others = false;
  for (const auto& program : job.programs)
    for (const Symbol& symbol : program->symbols) {
      if (symbol.kind == SymbolKind::input) names.insert(job.pool->strings.str(symbol.name));
      else has_others = true;
    }
  if (names.empty() && has_others) return "all its symbols depend on the data of a run";
  if (names.empty()) return "all its sizes are numbers; for symbols, capture with dynamic=";
  std::string out = "its symbols are";
  for (const std::string& name : names) out += (name == *names.begin() ? " " : ", ") + name;
  return out;
}

Error does_not_fit(std::string message) {
  return {
      ErrorKind::cannot_apply, std::move(message), {}, "the graph was captured for other sizes: capture it for these"};
}

bool is_chunked(const Graph& graph) {
  for (NodeId n : graph.nodes())
    if (graph.meta(n).chunk.region) return true;
  return false;
}

}  // namespace

Status check_bindings(const Job& job, std::span<const SizeBinding> bindings) {
  for (const SizeBinding& binding : bindings) {
    Nearest nearest(binding.name);
    bool is_found = false;
    for (const auto& program : job.programs) {
      if (!is_about(binding, *program)) continue;
      offer_names(*program, binding, &nearest);
      if (!binding.dimension) {
        const StrId name = job.pool->strings.find(binding.name);
        const Symbol* symbol = name ? program->find_symbol(name) : nullptr;
        if (symbol != nullptr && symbol->kind != SymbolKind::input)
          return misbound(binding, binding.name + " depends on the data of a run and cannot be bound");
        is_found |= symbol != nullptr;
      } else if (const Input* input = find_input(program->graph, binding.name)) {
        SG_TRY(dimension_of(program->graph, *input, binding));
        is_found = true;
      }
    }
    if (!is_found)
      return misbound(
          binding,
          std::string("the graph has no ") + (binding.dimension ? "input" : "symbol") + " `" + binding.name + "`",
          nearest.hint().empty() && !binding.dimension ? symbols_hint(job) : nearest.hint());
  }
  return ok_status();
}

InputSizes::InputSizes(const Program& program) : program_(program), exprs_(program.graph.pool().exprs) {}

std::optional<int64_t> InputSizes::value(Expr e) const { return values_.value(exprs_, e); }

Status InputSizes::set(StrId symbol, int64_t number, const SizeBinding& binding) {
  const auto known = values_.value(symbol);
  if (known && *known != number) {
    Error error = misbound(binding, program_.graph.pool().strings.str(symbol) + " would be " + std::to_string(number) +
                                        " and is bound to " + std::to_string(*known));
    error.kind = ErrorKind::usage;  // two options contradict each other
    return error;
  }
  values_.set(symbol, number);
  return ok_status();
}

// Sizes are almost always linear in a symbol: the values at 0 and 1 give the line, and the solution is verified.
Status InputSizes::solve(Expr size, const SizeBinding& binding) {
  if (auto symbol = exprs_.as_symbol(size)) return set(*symbol, binding.value, binding);
  std::vector<StrId> symbols;
  exprs_.collect_symbols(size, &symbols);
  std::erase_if(symbols, [&](StrId s) { return values_.value(s).has_value(); });
  const std::string is = "that size is " + exprs_.print(size);
  if (symbols.size() > 1) return misbound(binding, is + ": bind all but one of its symbols first");
  auto at = [&](int64_t x) {
    return exprs_.evaluate(size, [&](StrId s) { return !symbols.empty() && s == symbols[0] ? x : values_.value(s); });
  };
  if (symbols.empty()) {
    if (at(0) == binding.value) return ok_status();
    const bool says_all = exprs_.is_constant(size) || !at(0);
    return misbound(binding, says_all ? is : is + ", which is " + std::to_string(*at(0)));
  }
  const auto zero = at(0), one = at(1);
  int64_t slope = 0, rise = 0;
  const bool is_line = zero && one && !__builtin_sub_overflow(*one, *zero, &slope) &&
                       !__builtin_sub_overflow(binding.value, *zero, &rise);
  if (is_line && slope != 0 && slope != -1 && at(rise / slope) == binding.value)
    return set(symbols[0], rise / slope, binding);
  if (is_line && slope == -1 && rise != INT64_MIN && at(-rise) == binding.value) return set(symbols[0], -rise, binding);
  return misbound(binding, is + ", which cannot be solved for " + program_.graph.pool().strings.str(symbols[0]),
                  "bind the symbol itself");
}

Status InputSizes::bind(std::span<const SizeBinding> bindings) {
  const Graph& graph = program_.graph;
  for (const SizeBinding& binding : bindings) {
    if (!is_about(binding, program_)) continue;
    if (!binding.dimension) {
      const StrId symbol = graph.pool().strings.find(binding.name);
      if (symbol && program_.find_symbol(symbol) != nullptr) SG_TRY(set(symbol, binding.value, binding));
    } else if (const Input* input = find_input(graph, binding.name)) {
      SG_ASSIGN(Expr size, dimension_of(graph, *input, binding));
      SG_TRY(solve(size, binding));
    }
  }
  return ok_status();
}

void InputSizes::learn(std::span<const Expr> recorded, std::span<const int64_t> actual) {
  for (size_t d = 0; d < recorded.size(); ++d)
    if (auto symbol = exprs_.as_symbol(recorded[d]); symbol && !values_.value(*symbol)) values_.set(*symbol, actual[d]);
}

void InputSizes::follow_guards() {
  const auto known = [this](StrId s) { return values_.value(s); };
  for (bool changed = true; changed;) {
    changed = false;
    for (const Guard& guard : program_.guards) {
      if (guard.relation != Relation::eq) continue;
      const auto symbol = only_unknown(guard);
      const auto number = symbol ? solution(exprs_, guard, *symbol, known) : std::nullopt;
      if (!number) continue;
      values_.set(*symbol, *number);
      changed = true;
    }
  }
}

std::optional<StrId> InputSizes::only_unknown(const Guard& guard) const {
  std::vector<StrId> symbols;
  for (Expr side : {guard.left, guard.right})
    if (!exprs_.is_invalid(side)) exprs_.collect_symbols(side, &symbols);
  std::optional<StrId> out;
  for (StrId s : symbols) {
    if (values_.value(s) || s == out) continue;
    if (out) return std::nullopt;
    out = s;
  }
  return out;
}

void InputSizes::take_hints() {
  for (const Symbol& symbol : program_.symbols) {
    if (symbol.kind != SymbolKind::input || !symbol.hint || values_.value(symbol.name)) continue;
    values_.set(symbol.name, *symbol.hint);
    hinted_.push_back(symbol.name);
    follow_guards();
  }
}

Status InputSizes::check() const {
  const StringTable& strings = program_.graph.pool().strings;
  for (const Symbol& symbol : program_.symbols) {
    auto number = values_.value(symbol.name);
    if (!number) continue;
    std::string is = "the size " + strings.str(symbol.name) + " is " + std::to_string(*number) + ", ";
    if (symbol.min && *number < *symbol.min)
      return does_not_fit(is + "the graph takes " + std::to_string(*symbol.min) + " or more");
    if (symbol.max && *number > *symbol.max)
      return does_not_fit(is + "the graph takes " + std::to_string(*symbol.max) + " or less");
    if (symbol.divisor > 1 && *number % symbol.divisor != 0)
      return does_not_fit(is + "the graph takes multiples of " + std::to_string(symbol.divisor));
  }
  for (const Guard& guard : program_.guards) {
    auto left = value(guard.left), right = value(guard.right);
    if (!left || !right || holds(guard.relation, *left, *right)) continue;
    const std::string sides = *left == *right ? "both sides " + std::to_string(*left)
                                              : "it " + std::to_string(*left) + " and " + std::to_string(*right);
    Error error = does_not_fit("the graph needs " + print_guard(exprs_, guard) + "; the inputs make " + sides);
    if (!guard.source && guard.relation == Relation::ge && is_chunked(program_.graph))
      error.hint = "it was chunked for other sizes: use fewer chunks for these";
    for (StrId s : hinted_)
      if (exprs_.mentions(guard.left, s) || exprs_.mentions(guard.right, s))
        error.hint = "the capture has " + std::to_string(*values_.value(s)) + " for " + strings.str(s) +
                     ": bind it as well, --bind " + strings.str(s) + "=N";
    return error;
  }
  return ok_status();
}

}  // namespace sg
