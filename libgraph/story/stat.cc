#include "libgraph/story/stat.h"

#include <algorithm>

#include "libgraph/expr/assume.h"
#include "libgraph/expr/range_infer.h"
#include "libgraph/facts/cost.h"
#include "libgraph/group_name.h"
#include "libgraph/modules/module_path.h"
#include "libgraph/names.h"
#include "libgraph/op.h"
#include "libgraph/plan/plan.h"
#include "libgraph/story/ranks_text.h"

namespace sg {
namespace {

std::optional<int64_t> default_size(const Program& program, StrId name) {
  const Symbol* symbol = program.find_symbol(name);
  return symbol ? hint_or_middle(*symbol) : std::nullopt;
}

std::string_view first_components(std::string_view module, size_t depth) {
  const std::vector<ModulePart> parts = parts_of_module(module);
  return depth == 0 || parts.size() <= depth ? module : parts[depth - 1].path;
}

template <class Fn>
void for_each_call(const Graph& graph, const Fn& fn) {
  for (NodeId n : graph.nodes()) {
    const OpInfo* info = graph.op_info(n);
    if (!info || !info->has(kHigherOrder)) continue;
    for (const Arg& arg : graph.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::graph)) fn(a.as_graph().index);
      });
  }
}

// How often a step runs each nested graph: callers are counted before what they call. Bodies do not contain themselves.
std::vector<double> runs_of_bodies(const Program& program) {
  size_t count = program.nested.size();
  std::vector<std::vector<uint32_t>> called(count);
  std::vector<size_t> callers(count);
  std::vector<double> runs(count);
  for_each_call(program.graph, [&](uint32_t body) { runs[body] += 1; });
  for (size_t i = 0; i < count; ++i)
    for_each_call(program.nested[i]->graph, [&](uint32_t body) {
      called[i].push_back(body);
      ++callers[body];
    });
  std::vector<uint32_t> ready;
  for (uint32_t i = 0; i < count; ++i)
    if (callers[i] == 0) ready.push_back(i);
  while (!ready.empty()) {
    uint32_t body = ready.back();
    ready.pop_back();
    for (uint32_t inner : called[body]) {
      runs[inner] += runs[body];
      if (--callers[inner] == 0) ready.push_back(inner);
    }
  }
  return runs;
}

class Collector {
 public:
  Collector(const Job& job, const Program& program, const StatOptions& options)
      : job_(job),
        program_(program),
        options_(options),
        values_(values_of(program, options)),
        cost_(program, values_) {}

  ProgramStats run() {
    const Graph& graph = program_.graph;
    out_.ranks = program_.ranks;
    out_.nodes = graph.node_count();
    out_.inputs = graph.inputs().size();
    out_.outputs = graph.outputs().size();
    for (NodeId n : graph.nodes()) add_node(graph, n);
    add_collectives_of_bodies();
    for (auto& [key, sum] : collectives_) out_.collectives.push_back(std::move(sum));
    add_parameters();
    add_symbols();
    for (const auto& nested : program_.nested) add_nested(*nested);
    if (options_.memory) add_memory();
    return std::move(out_);
  }

 private:
  static SizeValues values_of(const Program& program, const StatOptions& options) {
    auto sizes = options.sizes ? options.sizes : default_size;
    return [&program, sizes](StrId name) { return sizes(program, name); };
  }

  void add_node(const Graph& graph, NodeId n) {
    const Node& node = graph.node(n);
    std::string op(graph.op_name(n));
    ++out_.ops[op];
    NodeCost cost = cost_.node(graph, n);
    out_.incomplete += !cost.complete;
    std::string_view module = node.module.is_none() ? std::string_view() : graph.pool().strings[node.module];
    for (CostSum* sum : {&out_.total, &out_.by_phase[std::string(name_of(node.phase))], &out_.by_op[op],
                         &out_.by_module[std::string(first_components(module, options_.module_depth))]}) {
      ++sum->nodes;
      sum->flops += cost.flops;
      sum->bytes += cost.bytes;
    }
    const OpInfo* info = graph.op_info(n);
    if (!info) ++out_.opaque_ops[op];
    if (draws_random(graph, n)) ++out_.random_ops;
    if (info && info->has(kCollective)) add_collective(graph, n, 1);
  }

  // Counts the collectives of each body as often as the body runs.
  void add_collectives_of_bodies() {
    std::vector<double> runs = runs_of_bodies(program_);
    for (size_t i = 0; i < runs.size(); ++i) {
      const Graph& graph = program_.nested[i]->graph;
      for (NodeId n : graph.nodes()) {
        const OpInfo* info = graph.op_info(n);
        if (runs[i] > 0 && info && info->has(kCollective)) add_collective(graph, n, runs[i]);
      }
    }
  }

  void add_collective(const Graph& graph, NodeId n, double runs) {
    Communication c = communication_of(job_, program_, graph, n, values_);
    std::string kind(c.kind), group = group_name(job_, c.group);
    CollectiveSum& sum = collectives_[{kind, group}];
    sum.kind = kind;
    sum.group = group;
    constexpr double kMost = 1e18;  // nested calls multiply
    sum.count = static_cast<size_t>(std::min(static_cast<double>(sum.count) + runs, kMost));
    sum.bytes += runs * c.payload_bytes;
    sum.wire_bytes += runs * c.wire_bytes;
  }

  void add_parameters() {
    for (const Input& input : program_.graph.inputs()) {
      const Type& type = program_.graph.type(input.value);
      int64_t bytes = storage_bytes(program_.graph.pool(), type, values_).value_or(0);
      bool is_parameter = input.kind == InputKind::parameter;
      if (__builtin_add_overflow(out_.memory.inputs_bytes, bytes, &out_.memory.inputs_bytes))
        out_.memory.inputs_bytes = INT64_MAX;
      if (!is_parameter) continue;
      ++out_.parameters;
      out_.parameter_elements += static_cast<double>(element_count(program_.graph.pool(), type, values_).value_or(0));
      if (__builtin_add_overflow(out_.memory.parameters_bytes, bytes, &out_.memory.parameters_bytes))
        out_.memory.parameters_bytes = INT64_MAX;
    }
  }

  void add_symbols() {
    out_.symbols = program_.symbols.size();
    const SizeValues sizes = values_of(program_, options_);
    for (const Symbol& s : program_.symbols) {
      out_.data_symbols += s.kind == SymbolKind::data;
      if (const auto number = sizes(s.name)) out_.assumed.emplace_back(job_.pool->strings.str(s.name), *number);
    }
  }

  void add_nested(const Nested& nested) {
    NestedStats stats;
    stats.name = job_.pool->strings.str(nested.name);
    stats.nodes = nested.graph.node_count();
    stats.inputs = nested.graph.inputs().size();
    stats.outputs = nested.graph.outputs().size();
    for (NodeId n : nested.graph.nodes()) ++stats.ops[std::string(nested.graph.op_name(n))];
    out_.nested.push_back(std::move(stats));
  }

  void add_memory() {
    const Graph& graph = program_.graph;
    Liveness live = compute_liveness(program_, graph, values_);
    MemoryStats& m = out_.memory;
    const MemoryPlan plan = plan_memory(live);
    m.peak_bytes = plan.arena_bytes;
    m.host_bytes = plan.host_bytes;
    m.lower_bound_bytes = live.lower_bound_bytes;
    if (options_.allocator) m.allocation = allocate_step(program_, live, *options_.allocator);
    m.call_bytes = live.call_bytes_at_peak;
    m.unknown_sizes = live.unknown_sizes;
    if (!live.schedule.empty()) m.peak_node = graph.label(live.schedule[live.peak_position]);
    for (uint32_t i : live.live_at_peak) {
      const LiveStorage& s = live.storages[i];
      const Node& node = graph.node(s.def);
      LiveOwner owner;
      owner.name = graph.name(s.owner);
      owner.op = graph.op_name(s.def);
      if (node.module) owner.module = graph.pool().strings[node.module];
      owner.phase = name_of(node.phase);
      owner.bytes = s.bytes;
      m.live_at_peak.push_back(std::move(owner));
    }
  }

  const Job& job_;
  const Program& program_;
  const StatOptions& options_;
  SizeValues values_;
  CostModel cost_;
  ProgramStats out_;
  std::map<std::pair<std::string, std::string>, CollectiveSum> collectives_;
};

// --- JSON ---

void write_counts(JsonWriter& w, std::string_view key, const std::map<std::string, size_t>& counts) {
  w.key(key).begin_object();
  for (const auto& [name, count] : counts) w.member(name, count);
  w.end_object();
}

void write_costs(JsonWriter& w, std::string_view key, const std::map<std::string, CostSum>& sums) {
  w.key(key).begin_object();
  for (const auto& [name, sum] : sums)
    w.key(name)
        .begin_object()
        .member("nodes", sum.nodes)
        .key("flops")
        .count(sum.flops)
        .key("bytes")
        .count(sum.bytes)
        .end_object();
  w.end_object();
}

void write_collectives(JsonWriter& w, const std::vector<CollectiveSum>& list) {
  w.key("collectives").begin_array();
  for (const CollectiveSum& c : list)
    w.begin_object()
        .member("kind", c.kind)
        .member("group", c.group)
        .member("count", c.count)
        .key("bytes")
        .count(c.bytes)
        .key("wire_bytes")
        .count(c.wire_bytes)
        .end_object();
  w.end_array();
}

void write_memory(JsonWriter& w, const MemoryStats& m) {
  w.key("memory").begin_object();
  w.member("inputs_bytes", m.inputs_bytes).member("parameters_bytes", m.parameters_bytes);
  w.member("peak_bytes", m.peak_bytes);
  w.member("lower_bound_bytes", m.lower_bound_bytes).member("peak_node", m.peak_node);
  w.member("host_bytes", m.host_bytes);
  w.member("call_bytes", m.call_bytes).member("unknown_sizes", m.unknown_sizes);
  if (m.allocation) write_allocation(*m.allocation, &w.key("allocator"));
  w.key("live_at_peak").begin_array();
  for (const LiveOwner& o : m.live_at_peak)
    w.begin_object()
        .member("name", o.name)
        .member("bytes", o.bytes)
        .member("op", o.op)
        .member("module", o.module)
        .member("phase", o.phase)
        .end_object();
  w.end_array().end_object();
}

void write_nested(JsonWriter& w, const std::vector<NestedStats>& list) {
  w.key("nested").begin_array();
  for (const NestedStats& n : list) {
    w.begin_object().member("name", n.name).member("nodes", n.nodes).member("inputs", n.inputs);
    w.member("outputs", n.outputs);
    write_counts(w, "ops", n.ops);
    w.end_object();
  }
  w.end_array();
}

void write_program(JsonWriter& w, const ProgramStats& p) {
  w.member("nodes", p.nodes).member("inputs", p.inputs).member("outputs", p.outputs);
  write_counts(w, "ops", p.ops);
  w.key("flops").count(p.total.flops).key("bytes").count(p.total.bytes);
  w.key("parameters").begin_object().member("count", p.parameters);
  w.key("elements").count(p.parameter_elements).member("bytes", p.memory.parameters_bytes).end_object();
  write_collectives(w, p.collectives);
  write_memory(w, p.memory);
  write_costs(w, "by_phase", p.by_phase);
  write_costs(w, "by_module", p.by_module);
  write_costs(w, "by_op", p.by_op);
  w.key("symbols").begin_object().member("count", p.symbols).member("data", p.data_symbols);
  w.key("unbounded").begin_array();
  for (const std::string& name : p.unbounded) w.string(name);
  w.end_array().key("assumed").begin_object();
  for (const auto& [name, number] : p.assumed) w.member(name, number);
  w.end_object().end_object();
  w.member("random_ops", p.random_ops);
  write_counts(w, "opaque_ops", p.opaque_ops);
  w.member("incomplete_costs", p.incomplete);
  write_nested(w, p.nested);
}

}  // namespace

Stats collect_stats(const Job& job, const StatOptions& options) {
  Stats out;
  out.title = job.pool->strings.str(job.title);
  out.world = job.world;
  for (const auto& program : job.programs) out.programs.push_back(Collector(job, *program, options).run());
  for (const RangeInference::Open& open : infer_ranges(job).unbounded)
    out.programs[open.program].unbounded.push_back(job.pool->strings.str(open.symbol));
  return out;
}

std::string stats_json(const Stats& stats, JsonWriter::Style style) {
  JsonWriter w(style);
  w.begin_object().member("schema", "sg-stat").member("version", 1);
  w.member("title", stats.title).member("world", stats.world);
  static const ProgramStats kEmpty;
  write_program(w, stats.programs.empty() ? kEmpty : stats.programs[0]);
  if (stats.programs.size() > 1) {
    w.key("ranks").begin_array();
    for (const ProgramStats& p : stats.programs) {
      w.begin_object();
      write_ranks(p.ranks, &w);
      write_program(w, p);
      w.end_object();
    }
    w.end_array();
  }
  return w.end_object().take();
}

}  // namespace sg
