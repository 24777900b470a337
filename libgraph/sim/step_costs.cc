#include "libgraph/sim/step_costs.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>

#include "libgraph/facts/transfer.h"
#include "libgraph/op.h"
#include "libgraph/sim/comm_time.h"
#include "libgraph/sim/op_time.h"

namespace sg {
namespace {

constexpr size_t kMaxFrames = 64;

bool costs_nothing(const OpInfo* op) { return op && (op->has(kView) || op->has(kSize) || op->has(kAssert)); }

template <class Fn>
void for_each_value(const Arg& arg, const Fn& fn) {
  arg.walk([&](const Arg& a) {
    if (a.is(ArgKind::value)) fn(a.as_value());
  });
}

}  // namespace

// Walks the schedule once. Per value it tracks the collectives and copies in flight that the value depends on.
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
    extents_.emplace(static_cast<uint32_t>(job.groups.size()), Extent());
  }

  void run() {
    const Graph& graph = program_.graph;
    out_.first_.resize(graph.node_id_limit());
    out_.count_.resize(graph.node_id_limit());
    out_.ops_.reserve(graph.node_id_limit());
    out_.origins_.reserve(graph.node_id_limit());
    Frame frame(graph);
    for (NodeId n : graph.nodes()) {
      out_.first_[n.index] = static_cast<uint32_t>(out_.ops_.size());
      add(frame, n, 0);
      out_.count_[n.index] = static_cast<uint32_t>(out_.ops_.size()) - out_.first_[n.index];
    }
  }

 private:
  using Flight = std::vector<uint32_t>;  // operations in flight
  struct Frame {
    const Graph* graph;
    std::vector<Flight> behind;  // by ValueId: what must finish before the value exists
    explicit Frame(const Graph& g) : graph(&g), behind(g.value_id_limit()) {}
  };
  // A communicator's ranks, and the nodes that they are on.
  struct Extent {
    double ranks = 1, nodes = 1;
  };

  const Extent& extent_of(uint32_t group) {
    auto known = extents_.find(group);
    if (known == extents_.end()) known = extents_.emplace(group, extent_of(job_.groups[group])).first;
    return known->second;
  }

  // Of the part that lies on most nodes, where ranks of the program are in several: the others wait for it.
  Extent extent_of(const Group& group) const {
    Extent out;
    for (const GroupPart& part : group.parts) {
      const auto is_here = [&](uint32_t r) { return std::ranges::binary_search(program_.ranks, r); };
      if (!program_.ranks.empty() && std::ranges::none_of(part.ranks, is_here)) continue;
      const Extent other = extent_of(part);
      if (std::pair(other.nodes, other.ranks) > std::pair(out.nodes, out.ranks)) out = other;
    }
    return out;
  }

  Extent extent_of(const GroupPart& part) const {
    const double per_node = std::max(1.0, options_.machine.network.ranks_per_node);
    if (options_.ranks != 0 && part.ranks.size() == job_.world)
      return {static_cast<double>(options_.ranks), std::ceil(options_.ranks / per_node)};
    std::vector<uint64_t> hosts;
    for (uint32_t r : part.ranks)
      if (const auto host = static_cast<uint64_t>(r / per_node); hosts.empty() || hosts.back() != host)
        hosts.push_back(host);
    std::sort(hosts.begin(), hosts.end());
    const auto count = std::unique(hosts.begin(), hosts.end()) - hosts.begin();
    return {static_cast<double>(part.ranks.size()), static_cast<double>(count)};
  }

  void add(Frame& frame, NodeId n, size_t depth) {
    const Graph& graph = *frame.graph;
    const OpInfo* op = graph.op_info(n);
    const bool is_wait = op && op->has(kWait);
    const Flight taken = behind_arguments(frame, n, is_wait);
    StepOp step;
    const StepOrigin origin{&graph, n};
    if (is_wait) {
      emit(step, origin, taken);
    } else if (costs_nothing(op)) {
      give(frame, n, taken);
    } else if (const Graph* body = body_of(graph, n, depth)) {
      if (!taken.empty()) emit(step, origin, taken);
      call(frame, n, *body, depth);
    } else if (op && op->has(kCollective)) {
      launch(graph, n, &step);
      give(frame, n, {emit(step, origin, taken)});
    } else if (op && op->has(kHostSync)) {
      step.kind = StepOp::Kind::sync;
      step.us = options_.machine.host.sync_us;
      emit(step, origin, taken);
    } else if (starts_transfer(op)) {
      copy(graph, n, transfer_of(op) == Transfer::to_host, &step);
      give(frame, n, {emit(step, origin, taken)});
    } else {
      compute(graph, n, &step);
      if (step.us == 0) step.kind = StepOp::Kind::wait;  // nothing runs, but its operands must be there
      if (step.us != 0 || !taken.empty()) emit(step, origin, taken);
    }
  }

  static Flight behind_arguments(const Frame& frame, NodeId n, bool first_only) {
    Flight out;
    for (const Arg& arg : frame.graph->node(n).args) {
      for_each_value(arg, [&](ValueId v) {
        const Flight& flight = frame.behind[v.index];
        out.insert(out.end(), flight.begin(), flight.end());
      });
      if (first_only) break;
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  static void give(Frame& frame, NodeId n, const Flight& flight) {
    if (flight.empty()) return;
    const Node& node = frame.graph->node(n);
    for (uint32_t r = 0; r < node.result_count; ++r) frame.behind[node.result(r).index] = flight;
  }

  uint32_t emit(StepOp step, const StepOrigin& origin, const Flight& holds) {
    step.holds = static_cast<uint32_t>(out_.holds_.size());
    step.hold_count = static_cast<uint32_t>(holds.size());
    out_.holds_.insert(out_.holds_.end(), holds.begin(), holds.end());
    out_.ops_.push_back(step);
    out_.origins_.push_back(origin);
    return static_cast<uint32_t>(out_.ops_.size() - 1);
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
    for (NodeId m : body.nodes()) add(inner, m, depth + 1);
    const Node& node = frame.graph->node(n);
    for (uint32_t r = 0; r < node.result_count && r < body.outputs().size(); ++r)
      if (body.outputs()[r].value) frame.behind[node.result(r).index] = inner.behind[body.outputs()[r].value.index];
  }

  void launch(const Graph& graph, NodeId n, StepOp* step) {
    const Communication c = communication_of(job_, program_, graph, n, values_);
    if (!c.complete) ++out_.unknown_;
    step->kind = StepOp::Kind::launch;
    step->group = c.group.index < job_.groups.size() ? c.group.index : static_cast<uint32_t>(job_.groups.size());
    const CollectivePattern kind = collective_kind(c.kind);
    const Extent& extent = extent_of(step->group);
    double bytes = c.payload_bytes;  // of the whole tensor, see comm_time.h
    if (kind == CollectivePattern::all_gather) bytes += c.wire_bytes;
    // The model assumes equal parts, one of which stays on the rank.
    if (kind == CollectivePattern::all_to_all && extent.ranks > 1)
      bytes = std::max(c.wire_bytes, c.received_bytes) * extent.ranks / (extent.ranks - 1);
    step->us = collective_time_us(options_.machine.network, kind, bytes, extent.ranks, extent.nodes);
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
    out_.flops_ += cost.flops;
    if (graph.meta(n).copy.kind != CopyKind::remat)
      out_.at_peak_us_ += product_time_at_peak_us(options_.machine, graph, n, cost, values_);
    step->kind = StepOp::Kind::compute;
    step->us = compute_time_us(options_.machine, graph, n, cost, values_);
  }

  StepCosts& out_;
  const Job& job_;
  const Program& program_;
  const SimOptions& options_;
  SizeValues values_;
  CostModel costs_;
  std::unordered_map<uint32_t, Extent> extents_;  // by group, of those that the program has used
};

StepCosts::StepCosts(const Job& job, const Program& program, const SymbolValues& values, const SimOptions& options) {
  StepCostsBuilder(this, job, program, values, options).run();
}

}  // namespace sg
