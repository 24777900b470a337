#include "libgraph/expr/assume.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <unordered_map>

#include "libgraph/base/nearest.h"
#include "libgraph/expr/countable.h"
#include "libgraph/expr/expr_builder.h"
#include "libgraph/expr/guard_sizes.h"
#include "libgraph/expr/guard_text.h"
#include "libgraph/expr/symbol_collector.h"
#include "libgraph/facts/computed_number.h"
#include "libgraph/op.h"

namespace sg {

namespace {

constexpr size_t kMaxNamed = 8;  // symbols that an error lists
constexpr int kMaxPasses = 64;   // over guards and exchanges, after one guess
constexpr int kMaxGuesses = 64;  // guesses made one at a time; the rest are made all at once

// Finds values for one program's symbols: the given ones, then what follows from them, then one guess at a time.
class Solver {
 public:
  Solver(const Job& job, size_t index, const RangeInference& inference, const Assumption& assumption)
      : program_(*job.programs[index]),
        exprs_(job.pool->exprs),
        facts_(inference.facts[index]),
        exchanges_(inference.exchanges[index]),
        counts_(inference.counts[index]),
        policy_(assumption.policy) {
    for (const Symbol& s : program_.symbols) add_symbol(s.name, s.kind, s.hint);
    for (const Guard& g : program_.guards)  // guards may relate symbols to others that no value mentions
      for (Expr side : {g.left, g.right}) {
        std::vector<StrId> names;
        exprs_.collect_symbols(side, &names);
        for (StrId name : names) add_symbol(name, SymbolKind::input, std::nullopt);
      }
    for (const Guard& g : program_.guards) {
      Expr difference = exprs_.sub(g.left, g.right);
      if (g.relation == Relation::eq && !exprs_.is_invalid(difference)) zeros_.push_back(difference);
    }
    note_computed();
    for (const auto& [name, value] : assumption.fixed)
      if (StrId symbol = job.pool->strings.find(name); kinds_.count(symbol) != 0) out_.set(symbol, value);
  }

  SymbolValues run() {
    take_given();
    if (policy_ == Assumption::Policy::max) {
      solve_inputs();
      for (const Unknown& s : symbols_)
        if (auto most = highest(s.name); s.kind == SymbolKind::data && !is_known(s.name) && most)
          out_.set(s.name, *most);
    }
    for (int guesses = 0; guesses <= kMaxGuesses; ++guesses) {
      follow();
      bool is_last = guesses == kMaxGuesses;
      if (!guess(SymbolKind::input, is_last) && !guess(SymbolKind::data, is_last)) break;
    }
    follow();
    return std::move(out_);
  }

 private:
  struct Unknown {
    StrId name;
    SymbolKind kind;
    std::optional<int64_t> hint;
  };

  void add_symbol(StrId name, SymbolKind kind, std::optional<int64_t> hint) {
    if (kinds_.emplace(name, kind).second) symbols_.push_back({name, kind, hint});
  }

  // Solves the sizes of inputs from each other alone, so that data-dependent sizes cannot determine them.
  void solve_inputs() {
    std::vector<Expr> all = zeros_;
    std::erase_if(zeros_, [&](Expr e) {
      std::vector<StrId> names;
      exprs_.collect_symbols(e, &names);
      return std::any_of(names.begin(), names.end(), [&](StrId n) { return kinds_.at(n) == SymbolKind::data; });
    });
    for (int guesses = 0; guesses <= kMaxGuesses; ++guesses) {
      follow();
      if (!guess(SymbolKind::input, guesses == kMaxGuesses)) break;
    }
    zeros_ = std::move(all);
  }

  bool is_known(StrId symbol) const { return out_.value(symbol).has_value(); }

  void take_given() {
    for (const Unknown& s : symbols_) {
      if (is_known(s.name)) continue;
      Interval range = facts_.range_of_symbol(s.name);
      bool takes_hint = policy_ == Assumption::Policy::balanced || s.kind == SymbolKind::input;
      if (range.is_single()) out_.set(s.name, range.min);
      else if (s.hint && takes_hint) out_.set(s.name, *s.hint);
    }
  }

  void follow() {
    bool progress = true;
    for (int pass = 0; progress && pass < kMaxPasses; ++pass) {
      progress = follow_exchanges();
      progress |= follow_computed();
      for (Expr e : zeros_) progress |= split_total(e);
    }
  }

  // Solves k*u0 + k*u1 + ... + known == 0: the total is spread evenly over the unknowns; the first ones get the
  // remainder.
  bool split_total(Expr difference) {
    std::vector<StrId> open;
    int64_t coefficient = 0;
    Wide known = 0;
    for (const Term& t : exprs_.terms(difference)) {
      Expr one = ExprBuilder{exprs_}.intern(Poly{{t}, true});
      if (auto value = out_.value(exprs_, one)) {
        known += *value;
        continue;
      }
      if (t.factors.size() != 1 || t.factors[0].power != 1) return false;
      const Atom& a = exprs_.atom(t.factors[0].atom);
      if (a.kind != AtomKind::symbol || (coefficient != 0 && coefficient != t.coefficient)) return false;
      coefficient = t.coefficient;
      open.push_back(a.symbol);
    }
    if (open.empty() || known % coefficient != 0) return false;
    Wide total = -known / coefficient, count = static_cast<Wide>(open.size());
    if (total > INT64_MAX || total < INT64_MIN || (total < 0 && count > 1)) return false;
    for (size_t i = 0; i < open.size(); ++i) {
      Wide share = total / count + (static_cast<Wide>(i) < total % count ? 1 : 0);
      out_.set(open[i], static_cast<int64_t>(share));
    }
    return true;
  }

  bool follow_exchanges() {
    bool progress = false;
    for (const Exchange& e : exchanges_) {
      for (size_t i = 0; i < e.received.size() && i < e.sent.size(); ++i) {
        auto symbol = exprs_.as_symbol(e.received[i]);
        auto sent = symbol && !is_known(*symbol) ? out_.value(exprs_, e.sent[i]) : std::nullopt;
        if (!sent) continue;
        out_.set(*symbol, *sent);
        progress = true;
      }
    }
    return progress;
  }

  // Collects Python arithmetic that defines symbols of its own, such as `math.ceil(1.25 * rows)`.
  void note_computed() {
    const Graph& graph = program_.graph;
    bool makes_some = false;
    for (NodeId n : graph.nodes()) {
      const OpInfo* op = graph.op_info(n);
      if (op == nullptr || !op->has(kSize) || graph.node(n).result_count != 1) continue;
      computed_.push_back(n);
      makes_some |= graph.op_name(n).starts_with("python.") && made_by(n).has_value();
    }
    if (!makes_some) computed_.clear();
  }

  // The data symbol that is exactly the node's result.
  std::optional<StrId> made_by(NodeId n) const {
    const Type& type = program_.graph.type(program_.graph.node(n).result(0));
    const auto symbol = type.value.is_none() ? std::nullopt : exprs_.as_symbol(type.value);
    const auto kind = symbol ? kinds_.find(*symbol) : kinds_.end();
    return kind != kinds_.end() && kind->second == SymbolKind::data ? symbol : std::nullopt;
  }

  bool follow_computed() {
    const Graph& graph = program_.graph;
    std::unordered_map<ValueId, Scalar, IdHash> numbers;
    bool progress = false;
    for (NodeId n : computed_) {
      const auto number = computed_number(graph, n, [&](ValueId v) -> std::optional<Scalar> {
        if (auto at = numbers.find(v); at != numbers.end()) return at->second;
        const Type& type = graph.type(v);
        const auto size = type.value.is_none() ? std::nullopt : out_.value(exprs_, type.value);
        return size && type.kind == TypeKind::integer ? std::optional(Scalar::integer(*size)) : std::nullopt;
      });
      if (!number) continue;
      numbers.emplace(graph.node(n).result(0), *number);
      const auto symbol = made_by(n);
      if (!symbol || is_known(*symbol) || number->kind != Scalar::Kind::integer) continue;
      out_.set(*symbol, number->i);
      progress = true;
    }
    return progress;
  }

  // The upper end of the symbol's range, or the known size of the tensor in which it is a count, if that is less: the
  // range holds for all sizes of the inputs.
  std::optional<int64_t> highest(StrId symbol) const {
    std::optional<int64_t> least;
    if (Interval range = facts_.range_of_symbol(symbol); range.has_max()) least = range.max;
    for (const Count& count : counts_)
      if (count.symbol == symbol)
        if (const auto most = out_.value(exprs_, count.most); most && *most >= 0)
          least = least ? std::min(*least, *most) : most;
    return least;
  }

  // Sets the first open symbol of this kind, or all of them, to its upper bound (for inputs without one, the lower
  // bound).
  bool guess(SymbolKind kind, bool all) {
    bool progress = false;
    for (const Unknown& s : symbols_) {
      Interval range = facts_.range_of_symbol(s.name);
      const std::optional<int64_t> most = highest(s.name);
      bool has_bound = most || (kind == SymbolKind::input && range.has_min());
      if (s.kind != kind || is_known(s.name) || !has_bound) continue;
      out_.set(s.name, most.value_or(range.min));
      progress = true;
      if (!all) break;
    }
    return progress;
  }

  const Program& program_;
  ExprPool& exprs_;
  const Facts& facts_;
  const std::vector<Exchange>& exchanges_;
  const std::vector<Count>& counts_;
  Assumption::Policy policy_;
  std::vector<Unknown> symbols_;
  std::vector<Expr> zeros_;  // left - right of each Eq guard
  std::vector<NodeId> computed_;
  std::unordered_map<StrId, SymbolKind, IdHash> kinds_;
  SymbolValues out_;
};

// The symbols that say how much there is: of a shape or a stride, or told to a collective or a body. An index, such as
// the u0 of `rows[best.item()]`, says where.
SymbolCollector amounts_of(const Program& program) {
  SymbolCollector out(program.graph.pool(), SymbolCollector::Of::amounts);
  const auto look_at = [&](const Graph& graph) {
    out.add_values(graph);
    for (NodeId n : graph.nodes()) {
      const OpInfo* op = graph.op_info(n);
      if (op != nullptr && !op->has(kCollective) && !op->has(kHigherOrder)) continue;
      for (const Arg& arg : graph.node(n).args)
        arg.walk([&](const Arg& a) {
          if (a.is(ArgKind::expr)) out.add(a.as_expr());
          if (a.is(ArgKind::value)) out.add(graph.type(a.as_value()).value);
        });
    }
  };
  look_at(program.graph);
  for (const auto& nested : program.nested) look_at(nested->graph);
  return out;
}

// The nearest symbol, or where they all are.
std::string hint_of_symbols(const Job& job, const std::string& name) {
  Nearest nearest(name);
  bool has_any = false;
  for (const auto& program : job.programs)
    for (const Symbol& symbol : program->symbols) nearest.offer(job.pool->strings[symbol.name]), has_any = true;
  if (!has_any) return "all its sizes are numbers";
  return nearest.hint().empty() ? "sg-print shows the symbols at the head of each graph" : nearest.hint();
}

Status check_fixed(const Job& job, const Assumption& assumption) {
  for (const auto& [name, value] : assumption.fixed) {
    StrId symbol = job.pool->strings.find(name);
    bool is_found = false;
    for (const auto& p : job.programs) {
      const Symbol* s = symbol ? p->find_symbol(symbol) : nullptr;
      if (!s) continue;
      is_found = true;
      Interval range = Interval::of(s->min, s->max);
      if (!range.contains(value))
        return Error{ErrorKind::cannot_apply,
                     "--assume " + name + "=" + std::to_string(value) + " is outside " + print(range),
                     {},
                     {},
                     "assume"};
    }
    if (!is_found)
      return Error{ErrorKind::cannot_apply,
                   "--assume names '" + name + "', which is not a symbol of the job",
                   {},
                   hint_of_symbols(job, name),
                   "assume"};
  }
  return ok_status();
}

}  // namespace

Result<Assumption> parse_assume(std::span<const std::string_view> items) {
  Assumption out;
  for (std::string_view item : items) {
    size_t sign = item.find('=');
    if (item == "balanced" || item == "max") {
      out.policy = item == "max" ? Assumption::Policy::max : Assumption::Policy::balanced;
      continue;
    }
    int64_t value = 0;
    bool is_pair = sign != std::string_view::npos && ExprPool::is_symbol_name(item.substr(0, sign));
    if (is_pair) {
      const char* end = item.data() + item.size();
      auto [stop, error] = std::from_chars(item.data() + sign + 1, end, value);
      is_pair = error == std::errc() && stop == end;
    }
    if (!is_pair)
      return option_error("assume", " cannot read '" + std::string(item) + "'",
                          "write balanced, max or SYM=VALUE, for example u0=256");
    const std::string_view name = item.substr(0, sign);
    const auto earlier =
        std::ranges::find(out.fixed, name, [](const auto& fixed) { return std::string_view(fixed.first); });
    if (earlier != out.fixed.end() && earlier->second != value)
      return option_error("assume", " gives " + earlier->first + " two values: " + std::to_string(earlier->second) +
                                        " and " + std::to_string(value));
    if (earlier == out.fixed.end()) out.fixed.emplace_back(name, value);
  }
  return out;
}

namespace {

// Where a number that was given for an input size breaks a condition, another input size of that condition follows, if
// one can. What the data decides may be assumed against its sums: it is an estimate.
Status follow_fixed(const Program& program, const Assumption& assumption, SymbolValues* values) {
  const ExprPool& exprs = program.graph.pool().exprs;
  const StringTable& strings = program.graph.pool().strings;
  const auto is_fixed = [&](const Symbol& s) {
    return std::ranges::any_of(assumption.fixed, [&](const auto& fixed) { return strings[s.name] == fixed.first; });
  };
  const auto value = [&](StrId s) { return values->value(s); };
  for (const Guard& guard : program.guards) {
    const auto is_in = [&](const Symbol& s) {
      return exprs.mentions(guard.left, s.name) || exprs.mentions(guard.right, s.name);
    };
    const auto is_given = [&](const Symbol& s) { return s.kind == SymbolKind::input && is_fixed(s) && is_in(s); };
    if (meets(program, guard, value) != false || std::ranges::none_of(program.symbols, is_given)) continue;
    std::optional<int64_t> other;
    for (const Symbol& s : program.symbols) {
      if (s.kind != SymbolKind::input || is_fixed(s) || !is_in(s)) continue;
      if ((other = size_that_meets(program, guard, s, value))) {
        values->set(s.name, *other);
        break;
      }
    }
    if (!other)
      return Error{
          ErrorKind::cannot_apply,
          "--assume: by these sizes the condition " + print_guard(exprs, guard) + " of the capture does not hold",
          {},
          {},
          "assume"};
  }
  return ok_status();
}

}  // namespace

std::optional<int64_t> SymbolValues::value(StrId symbol) const {
  auto it = values_.find(symbol);
  return it == values_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<int64_t> SymbolValues::value(const ExprPool& exprs, Expr e) const {
  return exprs.evaluate(e, [this](StrId symbol) { return value(symbol); });
}

Result<std::vector<SymbolValues>> assume_values(const Job& job, const RangeInference& inference,
                                                const Assumption& assumption) {
  SG_TRY(check_fixed(job, assumption));
  std::vector<SymbolValues> out;
  std::vector<std::string> open;
  for (size_t i = 0; i < job.programs.size(); ++i) {
    out.push_back(Solver(job, i, inference, assumption).run());
    if (assumption.policy == Assumption::Policy::balanced)
      SG_TRY(follow_fixed(*job.programs[i], assumption, &out.back()));
    std::optional<SymbolCollector> amounts;  // few programs have symbols without a value
    for (const Symbol& s : job.programs[i]->symbols) {
      if (out[i].value(s.name) || inference.used[i].count(s.name) == 0) continue;
      if (!amounts) amounts.emplace(amounts_of(*job.programs[i]));
      if (!amounts->has(s.name)) continue;
      std::string name(job.pool->strings[s.name]);
      if (std::find(open.begin(), open.end(), name) == open.end()) open.push_back(name);
    }
  }
  if (open.empty()) {
    // Sizes that a policy makes too large are counted as nothing, with a note; a value given by the user is an error.
    for (size_t i = 0; i < job.programs.size() && !assumption.fixed.empty(); ++i)
      SG_TRY(check_countable(*job.programs[i], [&values = out[i]](StrId s) { return values.value(s); }));
    return out;
  }
  std::string list;
  for (size_t i = 0; i < open.size() && i < kMaxNamed; ++i) list += (i > 0 ? ", " : "") + open[i];
  if (open.size() > kMaxNamed) list += " and " + std::to_string(open.size() - kMaxNamed) + " more";
  return Error{ErrorKind::cannot_apply,
               "nothing bounds the data-dependent sizes " + list,
               {},
               "give them numbers: --assume " + open[0] + "=256"};
}

std::optional<int64_t> hint_or_middle(const Symbol& symbol) {
  if (symbol.hint) return symbol.hint;
  if (!symbol.max) return std::nullopt;
  const int64_t low = std::max<int64_t>(symbol.min.value_or(0), 0);
  return *symbol.max < low ? low : low + (*symbol.max - low) / 2;
}

std::vector<SymbolValues> usual_values(const Job& job) {
  std::vector<SymbolValues> out(job.programs.size());
  if (std::ranges::all_of(job.programs, [](const auto& program) { return program->symbols.empty(); })) return out;
  Result<std::vector<SymbolValues>> assumed = assume_values(job, infer_ranges(job), {});
  if (assumed.ok()) return std::move(*assumed);
  for (size_t i = 0; i < out.size(); ++i)
    for (const Symbol& symbol : job.programs[i]->symbols)
      if (const std::optional<int64_t> value = hint_or_middle(symbol)) out[i].set(symbol.name, *value);
  return out;
}

JobSizes sizes_of(const Job& job, std::vector<SymbolValues> values) {
  auto by_program = std::make_shared<std::unordered_map<const Program*, SymbolValues>>();  // shared by all copies
  for (size_t i = 0; i < values.size(); ++i) by_program->emplace(job.programs[i].get(), std::move(values[i]));
  return [by_program = std::move(by_program)](const Program& program, StrId symbol) -> std::optional<int64_t> {
    const auto found = by_program->find(&program);
    return found == by_program->end() ? std::nullopt : found->second.value(symbol);
  };
}

}  // namespace sg
