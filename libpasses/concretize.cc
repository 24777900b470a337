#include "libpasses/concretize.h"

#include <algorithm>
#include <unordered_set>

#include "libgraph/base/joined.h"
#include "libgraph/base/json.h"
#include "libgraph/expr/assume.h"
#include "libgraph/expr/countable.h"
#include "libgraph/expr/guard_sizes.h"
#include "libgraph/expr/guard_text.h"
#include "libgraph/expr/input_sizes.h"
#include "libgraph/expr/substitute.h"
#include "libgraph/expr/symbols.h"
#include "libgraph/infer/check_types.h"
#include "libgraph/op.h"
#include "libpasses/size_plumbing.h"

namespace sg {
namespace {

Location source_of(const Pool& pool, SourceId source) {
  Location where;
  if (source.is_none()) return where;
  where.file = pool.strings[pool.sources[source].file];
  where.line = static_cast<uint32_t>(pool.sources[source].line);
  return where;
}

struct OpenSize {
  std::string symbol;
  Interval range;
};

// Concretizes one program.
class Concretizer {
 public:
  explicit Concretizer(Program* program) : program_(*program), pool_(program->graph.pool()), sizes_(*program) {
    note_bound_symbols(program_.graph);
    for (const auto& nested : program_.nested) note_bound_symbols(nested->graph);
  }

  Status choose(const ConcretizeOptions& options) {
    SG_TRY(sizes_.bind(options.bindings));
    sizes_.follow_guards();
    if (options.bindings.empty()) sizes_.take_hints();
    settle_computed();
    SG_TRY(check_guards());
    return check_sizes();
  }

  // Replaces symbols by numbers, and repeats for symbols that become computable from sizes alone.
  Status apply() {
    for (;;) {
      substitute_symbols(&program_, [this](StrId s) -> std::optional<Expr> {
        auto number = value_of(s);
        return number ? std::optional(pool_.exprs.constant(*number)) : std::nullopt;
      });
      SG_TRY(plumb(&program_.graph));
      for (auto& nested : program_.nested) SG_TRY(plumb(&nested->graph));
      if (!settle_computed()) return ok_status();
      SG_TRY(check_sizes());
    }
  }

  Status finish() {
    SG_TRY(drop_declarations());
    SG_TRY(check_what_is_left());
    return check_all_types();
  }

  // "s0 = 16, s1 = 4", of the symbols that the program declares.
  std::string describe() const {
    std::string out;
    for (const Symbol& s : program_.symbols)
      if (auto number = value_of(s.name))
        out += (out.empty() ? "" : ", ") + pool_.strings.str(s.name) + " = " + std::to_string(*number);
    return out;
  }

  // Appends the input sizes that have no number yet.
  void list_open(std::vector<OpenSize>* out) const {
    const Facts facts(program_);
    for (const Symbol& s : program_.symbols)
      if (s.kind == SymbolKind::input && !value_of(s.name))
        out->push_back({pool_.strings.str(s.name), facts.range_of_symbol(s.name)});
  }

  bool knows_some() const {
    return std::ranges::any_of(program_.symbols, [this](const Symbol& s) { return value_of(s.name).has_value(); });
  }
  size_t erased() const { return erased_; }

 private:
  // A symbol that a node defines depends on the data, even if an equality ties it to a size, unless the node computes
  // it from numbers alone.
  std::optional<int64_t> value_of(StrId symbol) const {
    return bound_.contains(symbol) ? std::nullopt : sizes_.values().value(symbol);
  }

  void note_bound_symbols(const Graph& graph) {
    for (NodeId n : graph.nodes()) {
      const auto& binds = graph.meta(n).binds;
      for (StrId s : binds ? *binds : default_binds(program_, graph, n)) bound_.insert(s);
    }
  }

  bool settle_computed() {
    bool some = settle_computed(program_.graph);
    for (const auto& nested : program_.nested) some |= settle_computed(nested->graph);
    return some;
  }

  bool settle_computed(const Graph& graph) {
    bool some = false;
    for (NodeId n : graph.nodes()) {
      const Node& node = graph.node(n);
      if (node.result_count != 1) continue;
      const Type& type = graph.type(node.result(0));
      const auto symbol = type.value.is_none() ? std::nullopt : pool_.exprs.as_symbol(type.value);
      if (!symbol || !bound_.contains(*symbol)) continue;
      const auto number = computed_number(graph, n);
      if (!number || !number->is_integral()) continue;
      sizes_.settle(*symbol, number->i);
      bound_.erase(*symbol);
      some = true;
    }
    return some;
  }

  Status check_sizes() const {
    SG_TRY(sizes_.check());
    return check_countable(program_, [this](StrId s) { return value_of(s); });
  }

  Status check_guards() const {
    for (const Guard& guard : program_.guards) SG_TRY(check_guard(guard, sizes_.values()));
    return ok_status();
  }

  // Passes if a side is not known yet.
  Status check_guard(const Guard& guard, const SymbolValues& values) const {
    auto left = values.value(pool_.exprs, guard.left), right = values.value(pool_.exprs, guard.right);
    if (!left || !right || holds(guard.relation, *left, *right)) return ok_status();
    return Error{ErrorKind::cannot_apply,
                 "the guard " + print_guard(pool_.exprs, guard) + " does not hold: it would be " +
                     std::to_string(*left) + " and " + std::to_string(*right),
                 source_of(pool_, guard.source),
                 "the step was captured under this condition: bind other sizes, or capture again"};
  }

  // A guard may have become constant although not all of its symbols have numbers.
  Status drop_declarations() {
    SymbolList kept;
    for (const Symbol& s : program_.symbols)
      if (!value_of(s.name)) kept.push_back(s);
    program_.symbols = std::move(kept);
    for (const Guard& guard : program_.guards) SG_TRY(check_guard(guard, {}));
    std::erase_if(program_.guards, [this](const Guard& g) {
      return pool_.exprs.is_constant(g.left) && pool_.exprs.is_constant(g.right);
    });
    for (const Guard& guard : program_.guards) mend_hints(guard);
    return ok_status();
  }

  // The symbols that stay must have sizes to take.
  Status check_what_is_left() const {
    if (!Facts(program_).contradictory()) return ok_status();
    const std::string guards =
        joined(program_.guards, ", ", [this](const Guard& guard) { return print_guard(pool_.exprs, guard); });
    return Error{ErrorKind::cannot_apply,
                 "no sizes are left that meet all ranges and guards" + (guards.empty() ? "" : ": " + guards),
                 {},
                 "bind other sizes, or capture again"};
  }

  // A captured size may contradict what is bound now. The first that can be another one is; if none can, all of the
  // guard stop being hints.
  void mend_hints(const Guard& guard) {
    const auto hint = [this](StrId name) -> std::optional<int64_t> {
      const Symbol* s = program_.find_symbol(name);
      return s ? s->hint : std::nullopt;
    };
    if (meets(program_, guard, hint) != false) return;
    const auto is_in = [&](const Symbol& s) {
      return pool_.exprs.mentions(guard.left, s.name) || pool_.exprs.mentions(guard.right, s.name);
    };
    for (Symbol& s : program_.symbols)
      if (const auto other = is_in(s) ? size_that_meets(program_, guard, s, hint) : std::nullopt) {
        s.hint = other;
        return;
      }
    for (Symbol& s : program_.symbols)
      if (is_in(s)) s.hint.reset();
  }

  // The condition of an assertion, if it is known.
  std::optional<bool> condition_of(const Graph& graph, NodeId n) const {
    if (graph.node(n).args.empty()) return std::nullopt;
    const Arg& arg = graph.node(n).args[0];
    return arg.is(ArgKind::boolean) ? std::optional(arg.as_bool()) : std::nullopt;
  }

  // The assertion's own message, quoted.
  std::string said_by(const Graph& graph, NodeId n) const {
    const std::vector<Arg>& args = graph.node(n).args;
    return args.size() > 1 && args[1].is(ArgKind::string) ? " " + json_string(pool_.strings[args[1].as_text()])
                                                          : std::string();
  }

  Status settle_assertions(Graph* graph) {
    for (NodeId n : graph->nodes()) {
      if (graph->op_name(n) != "aten._assert_scalar.default") continue;
      const std::optional<bool> holds = condition_of(*graph, n);
      if (!holds) continue;
      if (!*holds)
        return Error{
            ErrorKind::cannot_apply,
            place_of(program_, *graph, n) + ": the assertion" + said_by(*graph, n) + " does not hold at these sizes",
            source_of(pool_, graph->node(n).source), "bind other sizes"};
      graph->erase(n);
      ++erased_;
    }
    return ok_status();
  }

  Status plumb(Graph* graph) {
    replace_known_sizes(graph);
    SG_TRY(settle_assertions(graph));
    erased_ += erase_unused_sizes(graph);
    return ok_status();
  }

  // Whether two types may be equal. Equality that depends on guards over the remaining symbols is left to the verifier.
  // The stride of an axis of length 1 is never used, so it is ignored.
  bool may_be_equal(const Type& a, const Type& b) const {
    auto may_be_one = [&](Expr x, Expr y) {
      return x == y || !pool_.exprs.is_constant(x) || !pool_.exprs.is_constant(y);
    };
    if (a.kind == TypeKind::integer && b.kind == TypeKind::integer && a.has_value && b.has_value)
      return may_be_one(a.value, b.value);
    if (a.kind != TypeKind::tensor || b.kind != TypeKind::tensor || a.dtype != b.dtype || a.device != b.device ||
        !may_be_one(a.offset, b.offset) || !std::ranges::equal(a.shape, b.shape, may_be_one))
      return false;
    for (size_t i = 0; i < a.stride.size() && i < b.stride.size(); ++i)
      if (!may_be_one(a.stride[i], b.stride[i]) && pool_.exprs.constant_value(a.shape[i]) != 1) return false;
    return a.stride.size() == b.stride.size();
  }

  Status check_all_types() const {
    for (const TypeDisagreement& d : check_types(program_)) {
      if (d.exception != nullptr || (d.reason.empty() && may_be_equal(d.inferred, d.recorded))) continue;
      return Error{
          ErrorKind::cannot_apply,
          place_of(program_, *d.graph, d.node) + ": " +
              (d.reason.empty() ? "the op gives another type at these sizes than the graph records" : d.reason),
          source_of(pool_, d.graph->node(d.node).source),
          "the step was captured for other sizes: capture it for these"};
    }
    return ok_status();
  }

  Program& program_;
  Pool& pool_;
  InputSizes sizes_;
  std::unordered_set<StrId, IdHash> bound_;  // symbols that nodes define
  size_t erased_ = 0;
};

constexpr PassOption kConcretizeOptions[] = {
    {"bind",
     0,
     "SYMBOL=N",
     "a symbol s0=16 or a dimension INPUT[DIM]=16 (default: the sizes of the capture)",
     {},
     true},
};

Result<ConcretizeOptions> read_concretize_options(const PassOptions& options) {
  ConcretizeOptions out;
  for (const std::string& text : options.all("bind")) {
    SG_ASSIGN(SizeBinding binding, parse_binding(text));
    out.bindings.push_back(std::move(binding));
  }
  return out;
}

Result<Change> run_concretize(Job* job, const PassOptions& options, PassContext& context) {
  SG_ASSIGN(const ConcretizeOptions read, read_concretize_options(options));
  return concretize(job, read, context);
}

Status check_concretize(const PassOptions& options) {
  SG_TRY(read_concretize_options(options));
  return ok_status();
}

// How to get a number for the first open size.
std::string remedy(const OpenSize& open) {
  std::string out = "--bind " + open.symbol + "=N gives one";
  if (open.range.has_min() && open.range.has_max())
    out += ", from " + std::to_string(open.range.min) + " to " + std::to_string(open.range.max);
  else if (open.range.has_min()) out += ", from " + std::to_string(open.range.min);
  return out;
}

// "s28, s74 and s59 stay symbols: --bind s28=N gives one, from 2"
std::string what_stays(const std::vector<OpenSize>& open) {
  std::vector<std::string> names;
  for (const OpenSize& size : open)
    if (std::ranges::find(names, size.symbol) == names.end()) names.push_back(size.symbol);
  std::string out = names[0];
  for (size_t i = 1; i < names.size(); ++i) out += (i + 1 < names.size() ? ", " : " and ") + names[i];
  return out + (names.size() == 1 ? " stays a symbol: " : " stay symbols: ") + remedy(open[0]);
}

std::string reason_for_nothing(const std::vector<OpenSize>& open, bool by_hints) {
  if (open.empty()) return "no size of an input is symbolic";
  return (by_hints ? "the capture has no number for " : "what was bound is a number already; for ") + open[0].symbol +
         (by_hints ? "; " : " ") + remedy(open[0]);
}

}  // namespace

Result<Change> concretize(Job* job, const ConcretizeOptions& options, PassContext& context) {
  SG_TRY(check_bindings(*job, options.bindings));
  std::vector<Concretizer> programs;
  programs.reserve(job->programs.size());
  for (auto& program : job->programs) SG_TRY(programs.emplace_back(program.get()).choose(options));
  Change change;
  size_t erased = 0;
  std::string sizes;
  std::vector<OpenSize> open;
  for (Concretizer& program : programs) {
    program.list_open(&open);
    if (!program.knows_some()) continue;
    SG_TRY(program.apply());
    const std::string list = program.describe();
    if (context.explain) change.plan += list + "\n";
    if (sizes.empty()) sizes = list;
    SG_TRY(program.finish());
    erased += program.erased();
    change.changed = true;
  }
  if (change.changed)
    change.summary =
        sizes +
        (erased > 0 ? "; " + std::to_string(erased) + (erased == 1 ? " size node gone" : " size nodes gone") : "") +
        (open.empty() ? "" : "; " + what_stays(open));
  else change.summary = "nothing to concretize: " + reason_for_nothing(open, options.bindings.empty());
  return change;
}

constexpr PassInfo concretize_pass = {
    .name = "concretize",
    .summary = "replace symbolic sizes by numbers",
    .details =
        "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.\n"
        "--bind s0=16 sets a symbol, --bind 'tokens[0]=16' a dimension of an input; equal sizes follow.",
    .options = kConcretizeOptions,
    .examples = {{"sg-concretize step.sg -o fixed.sg", "a graph with the sizes of the capture"},
                 {"sg-import step.json | sg-concretize | sg-run - --init seed:0", "import, fix the sizes, run"}},
    .run = run_concretize,
    .check = check_concretize,
};

}  // namespace sg
