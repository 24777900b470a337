#include "libgraph/verify/verify.h"

#include <algorithm>

#include "libgraph/base/parallel.h"
#include "libgraph/story/source_text.h"
#include "libgraph/verify/verify_rules.h"

namespace sg {
namespace {

enum class Scope : uint8_t { ids, job, program, graph, node, ranks };

struct Rule {
  VerifyRule doc;
  Scope scope;
  void (*whole)(Check&);
  void (*node)(Check&, NodeId);  // for scope node, and for node ids
};

// In the order in which they run within their scope. A rule may have one row for nodes and one for the rest.
constexpr Rule kRules[] = {
    {{"world", "the world has ranks, and each rank at most one program"}, Scope::job, check_world, nullptr},
    {{"group", "groups name ranks of the world, once, and no two groups are the same"},
     Scope::job,
     check_groups,
     nullptr},
    {{"mesh", "meshes have as many sizes as axes and fit the world"}, Scope::job, check_meshes, nullptr},
    {{"provenance", "provenance names tools, versions and digests"}, Scope::job, check_provenance, nullptr},
    {{"keys", "free keys are sorted and occur once"}, Scope::job, check_keys, nullptr},
    {{"op-name", "no unknown op is a misspelled known one (a warning)"}, Scope::job, check_op_names, nullptr},
    {{"nested",
      "nested graphs have unique names, do not contain themselves, and their calls end: not too deep, not too many"},
     Scope::program,
     check_nested,
     nullptr},
    {{"symbol", "symbols are declared once, with bounds that some number meets"},
     Scope::program,
     check_symbols,
     nullptr},
    {{"guard", "no guard is contradicted by constants, symbol ranges or the sizes at capture"},
     Scope::program,
     check_guards,
     nullptr},
    {{"bind", "each data-dependent symbol is bound by one node"}, Scope::program, check_binds, nullptr},
    {{"random-stream", "two nodes share a random stream only if both are copies or chunks of one original"},
     Scope::program,
     check_random_streams,
     nullptr},
    {{"name", "names are there, printable, and unique in their graph"}, Scope::graph, check_names, nullptr},
    {{"input", "inputs have what their kind needs"}, Scope::graph, check_inputs, nullptr},
    {{"output", "outputs have what their kind needs"}, Scope::graph, check_outputs, nullptr},
    {{"type", "sizes, strides and offsets are numbers that can be"}, Scope::graph, check_input_types, nullptr},
    {{"scope", "types and arguments mention declared symbols only"}, Scope::graph, check_scope_of_ports, nullptr},
    {{"write", "nothing writes to constants, views of them included, or to elements that share storage"},
     Scope::graph,
     check_writes,
     nullptr},
    {{"extent", "views whose strides are given stay within the memory that a node made"},
     Scope::graph,
     check_extents,
     nullptr},
    {{"wait", "results of collectives are used, and their inputs written, after the wait only"},
     Scope::graph,
     check_waits,
     nullptr},
    {{"result", "results are numbered in order, and only tuples hold several"}, Scope::node, nullptr, check_results},
    {{"order", "values are defined before they are used"}, Scope::node, nullptr, check_order},
    {{"symbol-order", "symbols that a node binds are used after it"}, Scope::node, nullptr, check_symbol_order},
    {{"scope", ""}, Scope::node, nullptr, check_scope},
    {{"type", ""}, Scope::node, nullptr, check_result_types},
    {{"arguments", "arguments fit the schema of the op"}, Scope::node, nullptr, check_args},
    {{"call", "calls of nested graphs pass and return what the body takes and gives"},
     Scope::node,
     nullptr,
     check_call},
    {{"inferred-type", "recorded types are those that the op gives"}, Scope::node, nullptr, check_inferred},
    {{"random", "exactly the random ops have a random stream"}, Scope::node, nullptr, check_random},
    {{"group-use", "groups of collectives hold the ranks that call them, and are as large as they say"},
     Scope::node,
     nullptr,
     check_group_use},
    {{"link", "links point to forward nodes that exist"}, Scope::node, nullptr, check_links},
    {{"metadata", "chunks, buckets and regions are well-formed"}, Scope::node, nullptr, check_metadata},
    {{"keys", ""}, Scope::node, nullptr, check_node_keys},
    {{"collective-order", "all ranks of a group call the same collectives in the same order, with sizes that match"},
     Scope::ranks,
     check_collective_order,
     nullptr},
    {{"deadlock", "no ranks wait for each other in a circle"}, Scope::ranks, check_deadlock, nullptr},
};
constexpr std::string_view kIdsRule = "index";

void run_whole(Check& c, Scope scope) {
  for (const Rule& rule : kRules) {
    if (rule.scope != scope) continue;
    c.rule = rule.doc.name;
    rule.whole(c);
  }
}

template <class Fn>
void for_each_graph(Check& c, const Program& program, const Fn& fn) {
  c.enter(program.graph);
  fn();
  for (const auto& nested : program.nested) {
    c.enter(nested->graph);
    fn();
  }
}

void run_ids(Check& c) {
  c.rule = kIdsRule;
  ids_of_pool(c);
  ids_of_job(c);
  for (const auto& program : c.job.programs) {
    c.enter(*program);
    ids_of_program(c);
    for_each_graph(c, *program, [&] {
      ids_of_graph(c);
      for (NodeId n : c.graph->nodes()) ids_of_node(c, n);
    });
  }
}

void run_program(Check& c, const Program& program) {
  c.enter(program);
  c.enter(program.graph);
  run_whole(c, Scope::program);
  for_each_graph(c, program, [&] {
    run_whole(c, Scope::graph);
    for (NodeId n : c.graph->nodes()) {
      bool arguments_fit = true;  // if not, the op's other rules have nothing to add
      for (const Rule& rule : kRules) {
        if (rule.scope != Scope::node) continue;
        if (rule.node == check_inferred && (!c.options.types || !arguments_fit)) continue;
        const size_t before = c.error_count();
        c.rule = rule.doc.name;
        rule.node(c, n);
        if (rule.node == check_args || rule.node == check_result_types) arguments_fit &= c.error_count() == before;
      }
    }
  });
}

// Each thread checks a contiguous range of programs on its own copy, as rules intern into the pool. Findings are merged
// in program order.
void run_programs(Check& c, const Job& job, const VerifyOptions& options, Diagnostics* findings) {
  size_t count = job.programs.size(), parts = std::min(count, options.threads);
  if (parts <= 1) {
    for (const auto& program : job.programs) run_program(c, *program);
    return;
  }
  std::vector<Diagnostics> found(parts, Diagnostics(findings->max_errors()));
  parallel_for(parts, parts, [&](size_t part) {
    std::vector<size_t> mine;
    for (size_t i = part * count / parts; i < (part + 1) * count / parts; ++i) mine.push_back(i);
    Job copy(job, mine);
    Check check(copy, options, &found[part]);
    for (const auto& program : copy.programs) run_program(check, *program);
  });
  for (const Diagnostics& list : found) findings->add(list);
}

}  // namespace

std::span<const VerifyRule> verify_rules() {
  static const std::vector<VerifyRule> rules = [] {
    std::vector<VerifyRule> out = {{kIdsRule, "every index names something that exists"}};
    for (const Rule& rule : kRules)
      if (!rule.doc.promise.empty()) out.push_back(rule.doc);
    return out;
  }();
  return rules;
}

void verify(const Job& job, const VerifyOptions& options, Diagnostics* findings) {
  size_t before = findings->error_count();
  Check c(job, options, findings);
  run_ids(c);
  if (findings->error_count() != before) return;
  c.leave();
  run_whole(c, Scope::job);
  bool groups_hold = findings->error_count() == before;
  run_programs(c, job, options, findings);
  c.leave();
  if (options.ranks && groups_hold) run_whole(c, Scope::ranks);
}

// --- Check ---

void Check::enter(const Program& p) {
  program = &p;
  graph = nullptr;
  ++program_round;
  facts_.reset();
  type_checker_.reset();
  aliases_.reset();
  bodies_.reset();
  bound_by.clear();
}

void Check::enter(const Graph& g) {
  graph = &g;
  aliases_.reset();
  ++graph_round;
}

void Check::leave() {
  program = nullptr;
  graph = nullptr;
}

void Check::add(std::string message, std::string path, std::string hint) {
  last_failed_ = rule;
  Location where;
  where.path = std::move(path);
  findings_->error(std::string(rule), std::move(message), std::move(where), std::move(hint));
}

void Check::warn(std::string message, std::string hint, std::string path) {
  Location where;
  where.path = std::move(path);
  findings_->warning(std::string(rule), std::move(message), std::move(where), std::move(hint));
}

void Check::fail(std::string message, std::string hint) {
  bool in_program = program && !findings_->full();
  add(std::move(message), in_program ? place_of(*program, graph ? *graph : program->graph, NodeId()) : "",
      std::move(hint));
}

void Check::fail(NodeId n, std::string message, std::string hint) {
  if (findings_->full()) return add({}, {}, {});  // only counted
  add(message + from_line(n), place_of(*program, *graph, n), std::move(hint));
}

void Check::fail_item(std::string_view kind, size_t index, std::string message, std::string hint) {
  if (findings_->full()) return add({}, {}, {});
  std::string path = program ? place_of(*program, graph ? *graph : program->graph, NodeId()) + ", " : "";
  path += std::string(kind) + " " + std::to_string(index);
  bool has_name = kind == "input" && graph->inputs()[index].value.index < graph->value_id_limit();
  if (has_name && rule != kIdsRule) path += " " + name(graph->inputs()[index].value);
  add(std::move(message), std::move(path), std::move(hint));
}

void Check::fail(ValueId v, std::string message, std::string hint) {
  const Value& value = graph->value(v);
  if (value.def) return fail(value.def, std::move(message), std::move(hint));
  fail_item("input", value.index, std::move(message), std::move(hint));
}

std::string Check::from_line(NodeId n) const {
  SourceId source = graph->node(n).source;
  if (!source || source.index >= pool.sources.size()) return {};
  if (pool.sources[source].file.index >= pool.strings.size()) return {};
  return " (from " + short_source_text(pool, source) + ")";
}

const Facts& Check::facts() {
  if (!facts_) facts_.emplace(*program);
  return *facts_;
}

TypeChecker& Check::type_checker() {
  if (!type_checker_) type_checker_.emplace(*program);
  return *type_checker_;
}

const AliasAnalysis& Check::aliases() {
  if (!bodies_) bodies_ = std::make_unique<BodySummaries>(*program, AliasOptions());
  if (!aliases_) aliases_.emplace(*program, *graph, AliasOptions(), bodies_.get());
  return *aliases_;
}

const std::vector<StrId>& Check::symbols_of(TypeId t) {
  if (t.index >= type_symbols_.size()) {
    type_symbols_.resize(t.index + size_t{1} + t.index / 2);
    type_symbols_known_.resize(type_symbols_.size());
  }
  if (type_symbols_known_[t.index]) return type_symbols_[t.index];
  type_symbols_known_[t.index] = true;
  const Type& type = pool.types[t];
  std::vector<StrId> found;
  auto collect = [&](Expr e) {
    if (e && !pool.exprs.is_constant(e)) pool.exprs.collect_symbols(e, &found);
  };
  for (Expr e : type.shape) collect(e);
  for (Expr e : type.stride) collect(e);
  collect(type.offset);
  collect(type.value);
  for (TypeId element : type.elements)
    for (StrId s : std::vector<StrId>(symbols_of(element))) found.push_back(s);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return type_symbols_[t.index] = std::move(found);
}

// --- helpers of the rules ---

std::vector<const Arg*> args_by_param(const Pool& pool, const Node& node, const OpInfo& info) {
  std::vector<const Arg*> out(info.params.size());
  size_t position = 0;
  for (const Arg& arg : node.args) {
    if (arg.key()) {
      int index = info.param_index(pool.strings[arg.key()]);
      if (index >= 0) out[static_cast<size_t>(index)] = &arg;
    } else if (position < out.size()) {
      out[position++] = &arg;
    }
  }
  return out;
}

}  // namespace sg
