#include "libgraph/sim/step_costs.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "libgraph/op.h"
#include "libgraph/sim/comm_time.h"
#include "libgraph/sim/op_time.h"
#include "libgraph/transfer.h"

namespace sg {
namespace {

constexpr size_t kMaxFrames = 64;

bool costs_nothing(const OpInfo& op) { return op.has(kView) || op.has(kSize) || op.has(kAssert); }

void append(std::vector<uint32_t>* list, const std::vector<uint32_t>& more) {
  list->insert(list->end(), more.begin(), more.end());
}

}  // namespace

// Walks the schedule once. What is under way behind a value is a list of operations: collectives, and copies.
class StepCostsBuilder {
 public:
  StepCostsBuilder(StepCosts* out, const Job& job, const Program& program, const SymbolValues& values,
                   const SimOptions& options)
      : out_(*out),
        job_(job),
        program_(program),
        options_(options),
        values_([&values](StrId s) { return values.value(s); }),
        costs_(program, values_) {
    out_.groups_ = job.groups.size() + 1;
    out_.launch_us_ = options.machine.host.launch_us;
    for (const Group& group : job.groups) extents_.push_back(extent_of(group));
    extents_.emplace_back();
  }

  void run() {
    const Graph& graph = program_.graph;
    out_.first_.resize(graph.node_id_limit());
    out_.count_.resize(graph.node_id_limit());
    Frame frame(graph);
    for (NodeId n : graph.nodes()) {
      out_.first_[n.index] = static_cast<uint32_t>(out_.ops_.size());
      add(frame, n, 0);
      out_.count_[n.index] = static_cast<uint32_t>(out_.ops_.size()) - out_.first_[n.index];
    }
  }

 private:
  // What has to be over before a value is there.
  struct Pending {
    std::vector<uint32_t> launches, copies;
    bool empty() const { return launches.empty() && copies.empty(); }
  };
  struct Frame {
    const Graph* graph;
    std::vector<Pending> pending;  // by ValueId
    explicit Frame(const Graph& g) : graph(&g), pending(g.value_id_limit()) {}
  };
  struct Extent {
    double ranks = 1, nodes = 1;
  };

  Extent extent_of(const Group& group) const {
    const GroupPart* part = group.part_of(program_.ranks.empty() ? 0 : program_.ranks[0]);
    if (part == nullptr) return {};
    const double per_node = std::max(1.0, options_.machine.network.ranks_per_node);
    if (options_.ranks != 0 && part->ranks.size() == job_.world)
      return {static_cast<double>(options_.ranks), std::ceil(options_.ranks / per_node)};
    std::set<uint64_t> hosts;
    for (uint32_t r : part->ranks) hosts.insert(static_cast<uint64_t>(r / per_node));
    return {static_cast<double>(part->ranks.size()), static_cast<double>(hosts.size())};
  }

  void add(Frame& frame, NodeId n, size_t depth) {
    const Graph& graph = *frame.graph;
    const OpInfo* op = graph.op_info(n);
    const bool is_wait = op && op->has(kWait), free = op && costs_nothing(*op);
    Pending taken;
    for (const Arg& arg : graph.node(n).args)
      arg.walk([&](const Arg& a) {
        if (!a.is(ArgKind::value)) return;
        append(&taken.launches, frame.pending[a.as_value().index].launches);
        append(&taken.copies, frame.pending[a.as_value().index].copies);
      });
    if (free && !is_wait) return give(frame, n, std::move(taken));
    if (const Graph* body = body_of(graph, n, depth)) return call(frame, n, *body, depth);
    StepOp step;
    std::vector<uint32_t> holds = std::move(taken.launches);
    if (is_wait) {
      step.kind = StepOp::Kind::wait;
      append(&holds, taken.copies);
      emit(step, holds);
    } else if (op && op->has(kCollective)) {
      launch(graph, n, &step);
      give(frame, n, {{emit(step, holds)}, {}});
    } else if (op && op->has(kHostSync)) {
      step.kind = StepOp::Kind::sync;
      step.us = options_.machine.host.sync_us;
      emit(step, holds);
    } else if (starts_transfer(op)) {
      if (!holds.empty()) emit({.kind = StepOp::Kind::wait}, holds);
      copy(graph, n, transfer_of(op) == Transfer::to_host, &step);
      holds = std::move(taken.copies);
      give(frame, n, {{}, {emit(step, holds)}});
    } else {
      compute(graph, n, &step);
      if (step.us == 0) {
        step.kind = StepOp::Kind::wait;  // takes no time, but waits for collectives
        if (!holds.empty()) emit(step, holds);
        return give(frame, n, {{}, std::move(taken.copies)});
      }
      append(&holds, taken.copies);
      emit(step, holds);
    }
  }

  uint32_t emit(StepOp step, std::vector<uint32_t>& holds) {
    std::sort(holds.begin(), holds.end());
    holds.erase(std::unique(holds.begin(), holds.end()), holds.end());
    step.holds = static_cast<uint32_t>(out_.holds_.size());
    step.hold_count = static_cast<uint32_t>(holds.size());
    append(&out_.holds_, holds);
    out_.ops_.push_back(step);
    return static_cast<uint32_t>(out_.ops_.size() - 1);
  }

  static void give(Frame& frame, NodeId n, const Pending& pending) {
    if (pending.empty()) return;
    const Node& node = frame.graph->node(n);
    for (uint32_t r = 0; r < node.result_count; ++r) frame.pending[node.result(r).index] = pending;
  }

  const Graph* body_of(const Graph& graph, NodeId n, size_t depth) const {
    const OpInfo* op = graph.op_info(n);
    const Node& node = graph.node(n);
    if (!op || op->name != "sg.call" || depth + 1 >= kMaxFrames || node.args.empty() ||
        !node.args[0].is(ArgKind::graph))
      return nullptr;
    return &program_.nested[node.args[0].as_graph().index]->graph;
  }

  void call(Frame& frame, NodeId n, const Graph& body, size_t depth) {
    Frame inner(body);
    size_t next = 0;
    for (const Arg& arg : frame.graph->node(n).args)
      arg.walk([&](const Arg& a) {
        if (!a.is(ArgKind::value)) return;
        if (next < body.inputs().size())
          inner.pending[body.inputs()[next].value.index] = frame.pending[a.as_value().index];
        ++next;
      });
    for (NodeId m : body.nodes()) add(inner, m, depth + 1);
    const Node& node = frame.graph->node(n);
    for (uint32_t r = 0; r < node.result_count && r < body.outputs().size(); ++r)
      if (body.outputs()[r].value) frame.pending[node.result(r).index] = inner.pending[body.outputs()[r].value.index];
  }

  void launch(const Graph& graph, NodeId n, StepOp* step) {
    const Communication c = communication_of(job_, program_, graph, n, values_);
    if (!c.complete) ++out_.unknown_;
    step->kind = StepOp::Kind::launch;
    step->group = c.group.index < job_.groups.size() ? c.group.index : static_cast<uint32_t>(job_.groups.size());
    const CollectivePattern kind = collective_kind(c.kind);
    const double bytes =
        kind == CollectivePattern::all_gather && c.payload_bytes > 0 ? c.wire_bytes + c.payload_bytes : c.payload_bytes;
    step->us = collective_time_us(options_.machine.network, kind, bytes, extents_[step->group].ranks,
                                  extents_[step->group].nodes);
  }

  void copy(const Graph& graph, NodeId n, bool to_host, StepOp* step) {
    const auto bytes = distinct_bytes(graph.pool(), graph.type(graph.node(n).result(0)), values_);
    if (!bytes) ++out_.unknown_;
    step->kind = to_host ? StepOp::Kind::copy_out : StepOp::Kind::copy_in;
    step->us = static_cast<double>(bytes.value_or(0)) / options_.machine.device.copy_gbps * 1e-3;
  }

  void compute(const Graph& graph, NodeId n, StepOp* step) {
    const NodeCost cost = costs_.node(graph, n);
    if (!cost.complete) ++out_.unknown_;
    step->kind = StepOp::Kind::compute;
    step->us = compute_time_us(options_.machine, graph, n, cost, values_);
  }

  StepCosts& out_;
  const Job& job_;
  const Program& program_;
  const SimOptions& options_;
  SizeValues values_;
  CostModel costs_;
  std::vector<Extent> extents_;  // by group
};

StepCosts::StepCosts(const Job& job, const Program& program, const SymbolValues& values, const SimOptions& options) {
  StepCostsBuilder(this, job, program, values, options).run();
}

void StepClock::reset() {
  host_us_ = compute_us_ = last_us_ = 0;
  copy_us_ = {};
  std::fill(group_us_.begin(), group_us_.end(), 0);
  std::fill(end_us_.begin(), end_us_.end(), 0);
}

void StepClock::play(NodeId n) {
  uint32_t index = costs_.first_op(n);
  for (const StepOp& op : costs_.ops(n)) play(op, index++);
}

void StepClock::play(const StepOp& op, uint32_t index) {
  using Kind = StepOp::Kind;
  double held = 0;
  for (uint32_t hold : costs_.holds(op)) held = std::max(held, end_us_[hold]);
  if (op.kind == Kind::launch || op.kind == Kind::sync || op.kind == Kind::wait)
    compute_us_ = std::max(compute_us_, held);
  double end = compute_us_;
  switch (op.kind) {
    case Kind::nothing:
    case Kind::wait: break;
    case Kind::launch:
      host_us_ += costs_.launch_us();
      end = std::max({host_us_, compute_us_, group_us_[op.group]}) + op.us;
      group_us_[op.group] = end;
      break;
    case Kind::sync: end = host_us_ = std::max(host_us_, compute_us_) + op.us; break;
    case Kind::copy_out:
    case Kind::copy_in: {
      double& free_us = copy_us_[op.kind == Kind::copy_out ? 0 : 1];
      host_us_ += costs_.launch_us();
      end = std::max({host_us_, compute_us_, free_us, held}) + op.us;
      free_us = end;
      break;
    }
    case Kind::compute:
      host_us_ += costs_.launch_us();
      compute_us_ = std::max({compute_us_, host_us_, held}) + op.us;
      end = compute_us_;
      break;
  }
  end_us_[index] = end;
  last_us_ = std::max(last_us_, end);
}

double StepClock::end_us(NodeId n) const {
  const size_t count = costs_.ops(n).size();
  return count == 0 ? 0 : end_us_[costs_.first_op(n) + count - 1];
}

double StepClock::held_until_us(NodeId n) const {
  double held = 0;
  for (const StepOp& op : costs_.ops(n))
    for (uint32_t hold : costs_.holds(op)) held = std::max(held, end_us_[hold]);
  return held;
}

double StepClock::makespan_us() const { return std::max({compute_us_, host_us_, last_us_}); }

}  // namespace sg
