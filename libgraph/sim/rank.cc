#include "libgraph/sim/rank.h"

#include <algorithm>

#include "libgraph/op.h"
#include "libgraph/sim/op_time.h"
#include "libgraph/transfer.h"

namespace sg {
namespace {

constexpr size_t kMaxFrames = 64;

template <class Fn>
void for_each_argument(const Node& node, const Fn& fn) {
  for (const Arg& arg : node.args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::value)) fn(a.as_value());
    });
}

bool costs_nothing(const OpInfo& op) { return op.has(kView) || op.has(kSize) || op.has(kAssert); }

}  // namespace

SimRank::SimRank(const Job& job, const Program& program, const SymbolValues& values, const SimOptions& options)
    : job_(job),
      program_(program),
      options_(options),
      values_([&values](StrId s) { return values.value(s); }),
      costs_(program, values_),
      launches_(job.groups.size() + 1),
      settled_(job.groups.size() + 1) {
  enter(program.graph, NodeId(), {});
}

void SimRank::enter(const Graph& graph, NodeId caller, std::vector<Ready> inputs) {
  Frame frame{&graph, graph.first(), caller, std::vector<Ready>(graph.value_id_limit())};
  for (size_t i = 0; i < inputs.size() && i < graph.inputs().size(); ++i)
    frame.ready[graph.inputs()[i].value.index] = inputs[i];
  frames_.push_back(std::move(frame));
}

// The body's outputs are the call's results.
void SimRank::leave() {
  Frame body = std::move(frames_.back());
  frames_.pop_back();
  if (frames_.empty()) return;
  const Node& call = top().graph->node(body.caller);
  const std::vector<Output>& outputs = body.graph->outputs();
  for (uint32_t r = 0; r < call.result_count && r < outputs.size(); ++r)
    if (outputs[r].value) top().ready[call.result(r).index] = body.ready[outputs[r].value.index];
  top().at = top().graph->next(body.caller);
}

bool SimRank::advance() {
  bool moved = false;
  while (!frames_.empty()) {
    if (top().at.is_none()) {
      leave();
    } else if (!step()) {
      return moved;
    }
    moved = true;
  }
  return moved;
}

bool SimRank::step() {
  NodeId n = top().at;
  const OpInfo* op = top().graph->op_info(n);
  bool free = op && costs_nothing(*op);
  if (!free || (op && op->has(kWait))) {  // what is under way is held by its wait, or by the first that needs it
    bool blocked = false;
    for_each_argument(top().graph->node(n), [&](ValueId v) { blocked = blocked || !wait_for(top().ready[v.index]); });
    if (blocked) return false;
  }
  std::vector<Ready> inputs;
  if (const Graph* body = body_of(n, &inputs)) {
    enter(*body, n, std::move(inputs));
    return true;
  }
  if (op && op->has(kWait)) {
    Ready copied = latest_of(n, false);
    hold_compute(copied.us, &out_.copy_us, copied.event);
    finish(n, Ready());
  } else if (free) {
    finish(n, latest_of(n, true));
  } else if (op && op->has(kCollective)) {
    launch_collective(n);
  } else if (op && op->has(kHostSync)) {
    sync(n);
  } else if (starts_transfer(op)) {
    copy(n, transfer_of(op) == Transfer::to_host, latest_of(n, false));
  } else {
    compute(n, latest_of(n, false));
  }
  top().at = top().graph->next(n);
  return true;
}

void SimRank::finish(NodeId n, const Ready& ready) {
  const Node& node = top().graph->node(n);
  for (uint32_t r = 0; r < node.result_count; ++r) top().ready[node.result(r).index] = ready;
}

// The latest of a node's arguments. Those under way go before all, or have been waited for and count no more.
SimRank::Ready SimRank::latest_of(NodeId n, bool pending_first) {
  Ready latest;
  for_each_argument(top().graph->node(n), [&](ValueId v) {
    const Ready& r = top().ready[v.index];
    bool pending = r.group != Ready::kNotPending;
    if (pending ? pending_first : latest.group == Ready::kNotPending && r.us > latest.us) latest = r;
  });
  return latest;
}

const Graph* SimRank::body_of(NodeId n, std::vector<Ready>* inputs) {
  const Graph& graph = *top().graph;
  const OpInfo* op = graph.op_info(n);
  const Node& node = graph.node(n);
  if (!op || op->name != "sg.call" || frames_.size() >= kMaxFrames || node.args.empty() ||
      !node.args[0].is(ArgKind::graph))
    return nullptr;
  for_each_argument(node, [&](ValueId v) { inputs->push_back(top().ready[v.index]); });
  return &program_.nested[node.args[0].as_graph().index]->graph;
}

uint32_t SimRank::add_event(NodeId n, Resource resource, GroupId group, double begin, double end, uint32_t cause) {
  last_end_us_ = std::max(last_end_us_, end);
  if (!options_.events) return SimEvent::kNoCause;
  out_.events.push_back({top().graph, n, resource, group, begin, end, cause});
  return static_cast<uint32_t>(out_.events.size() - 1);
}

// Compute cannot go on before `until_us`: what the host had not launched by then anyhow is the host's part.
void SimRank::hold_compute(double until_us, double* account, uint32_t event) {
  if (until_us <= compute_us_) return;
  double host_part = std::clamp(host_us_ - compute_us_, 0.0, until_us - compute_us_);
  out_.host_us += host_part;
  *account += until_us - compute_us_ - host_part;
  compute_us_ = until_us;
  compute_event_ = event;
}

bool SimRank::wait_for(const Ready& ready) {
  if (ready.group == Ready::kNotPending) return true;
  if (ready.launch >= settled_[ready.group]) return false;
  const SimLaunch& launch = launches_[ready.group][ready.launch];
  hold_compute(launch.end_us, &out_.exposed_us[std::string(launch.kind_name)], launch.event);
  return true;
}

void SimRank::launch_collective(NodeId n) {
  Communication c = communication_of(job_, program_, *top().graph, n, values_);
  if (!c.complete) ++out_.unknown;
  uint32_t group = c.group.index < job_.groups.size() ? c.group.index : static_cast<uint32_t>(job_.groups.size());
  host_us_ += options_.machine.host.launch_us;
  SimLaunch launch;
  launch.kind = collective_kind(c.kind);
  launch.kind_name = c.kind;
  launch.bytes = launch.kind == CollectivePattern::all_gather && c.payload_bytes > 0 ? c.wire_bytes + c.payload_bytes
                                                                                     : c.payload_bytes;
  launch.ready_us = std::max(host_us_, compute_us_);
  uint32_t cause = compute_us_ >= host_us_ ? compute_event_ : host_event_;
  launch.event = add_event(n, Resource::communicator, c.group, launch.ready_us, launch.ready_us, cause);
  launches_[group].push_back(launch);
  finish(n, {0, launch.event, group, static_cast<uint32_t>(launches_[group].size() - 1)});
}

void SimRank::settle(uint32_t group, double begin_us, double end_us) {
  size_t k = settled_[group]++;
  SimLaunch& launch = launches_[group][k];
  launch.begin_us = begin_us;
  launch.end_us = end_us;
  last_end_us_ = std::max(last_end_us_, end_us);
  out_.communication_us[std::string(launch.kind_name)] += end_us - begin_us;
  if (launch.event == SimEvent::kNoCause) return;
  SimEvent& event = out_.events[launch.event];
  event.begin_us = begin_us;
  event.end_us = end_us;
  if (k > 0 && launches_[group][k - 1].end_us >= begin_us) event.cause = launches_[group][k - 1].event;
}

void SimRank::copy(NodeId n, bool to_host, const Ready& input) {
  int way = to_host ? 0 : 1;
  const Type& type = top().graph->type(top().graph->node(n).result(0));
  auto bytes = distinct_bytes(top().graph->pool(), type, values_);
  if (!bytes) ++out_.unknown;
  host_us_ += options_.machine.host.launch_us;
  double begin = std::max({host_us_, compute_us_, copy_free_us_[way], input.us});
  uint32_t cause = begin == input.us             ? input.event
                   : begin == copy_free_us_[way] ? copy_event_[way]
                   : begin == compute_us_        ? compute_event_
                                                 : host_event_;
  double end = begin + static_cast<double>(bytes.value_or(0)) / options_.machine.device.copy_gbps * 1e-3;
  copy_free_us_[way] = end;
  copy_event_[way] = add_event(n, to_host ? Resource::copy_out : Resource::copy_in, GroupId(), begin, end, cause);
  finish(n, {end, copy_event_[way]});
}

void SimRank::sync(NodeId n) {
  double begin = std::max(host_us_, compute_us_);
  host_event_ = add_event(n, Resource::host, GroupId(), begin, begin + options_.machine.host.sync_us,
                          compute_us_ >= host_us_ ? compute_event_ : host_event_);
  host_us_ = begin + options_.machine.host.sync_us;
  finish(n, Ready());
}

void SimRank::compute(NodeId n, const Ready& inputs) {
  NodeCost cost = costs_.node(*top().graph, n);
  if (!cost.complete) ++out_.unknown;
  double length = compute_time_us(options_.machine, *top().graph, n, cost, values_);
  out_.flops += cost.flops;
  if (length == 0) return finish(n, inputs);
  host_us_ += options_.machine.host.launch_us;
  hold_compute(inputs.us, &out_.copy_us, inputs.event);
  uint32_t cause = compute_event_;
  if (host_us_ > compute_us_) {
    out_.host_us += host_us_ - compute_us_;
    compute_us_ = host_us_;
    cause = host_event_;
  }
  double end = compute_us_ + length;
  compute_event_ = add_event(n, Resource::compute, GroupId(), compute_us_, end, cause);
  compute_us_ = end;
  out_.compute_us += length;
  finish(n, Ready());
}

ProgramTimeline SimRank::take() {
  out_.makespan_us = std::max({compute_us_, host_us_, last_end_us_});
  out_.tail_us = out_.makespan_us - compute_us_;
  return std::move(out_);
}

Error SimRank::stuck() const {
  const Frame& frame = frames_.back();
  Location where;
  where.path = place_of(program_, *frame.graph, frame.at);
  return {ErrorKind::cannot_apply,
          "the ranks wait for each other: this node's collective is never launched by all of its group",
          std::move(where), "sg-check tells where the ranks part"};
}

}  // namespace sg
