#include "libgraph/sim/rank.h"

#include <algorithm>
#include <utility>

#include "libgraph/facts/cost.h"

namespace sg {
namespace {

std::vector<uint32_t> groups_of(const StepCosts& costs) {
  std::vector<uint32_t> out;
  for (const StepOp& op : costs.ops())
    if (op.kind == StepOp::Kind::launch) out.push_back(op.group);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

SimRank::SimRank(const Job& job, const Program& program, const SymbolValues& values, const SimOptions& options)
    : program_(program),
      costs_(job, program, values, options),
      keeps_events_(options.events),
      done_(costs_.ops().size()),
      groups_(groups_of(costs_)),
      launches_(groups_.size()),
      settled_(groups_.size()) {}

std::optional<size_t> SimRank::place_of_group(uint32_t group) const {
  auto found = std::lower_bound(groups_.begin(), groups_.end(), group);
  if (found == groups_.end() || *found != group) return std::nullopt;
  return static_cast<size_t>(found - groups_.begin());
}

std::vector<size_t> SimRank::take_fresh() {
  std::sort(fresh_.begin(), fresh_.end());
  fresh_.erase(std::unique(fresh_.begin(), fresh_.end()), fresh_.end());
  return std::exchange(fresh_, {});
}

// The kind of a launched collective.
std::string SimRank::kind_of(uint32_t op) const {
  const StepOrigin& origin = costs_.origin(op);
  return std::string(communication_kind(origin.graph->op_name(origin.node)));
}

bool SimRank::advance() {
  const uint32_t from = at_;
  for (; !done(); ++at_) {
    const StepOp& op = costs_.ops()[at_];
    if (is_blocked(op)) break;
    wait_for(op);
    play(op);
  }
  return at_ != from;
}

bool SimRank::is_blocked(const StepOp& op) const {
  return std::ranges::any_of(costs_.holds(op), [&](uint32_t hold) { return done_[hold].end_us == Done::kUnderWay; });
}

void SimRank::wait_for(const StepOp& op) {
  for (uint32_t hold_op : costs_.holds(op)) {
    const bool is_launch = costs_.ops()[hold_op].kind == StepOp::Kind::launch;
    double* account = is_launch ? &out_.exposed_us[kind_of(hold_op)] : &out_.copy_us;
    hold(done_[hold_op].end_us, account, done_[hold_op].event);
  }
}

// Blocks compute until `until_us`; the part in which the host had not launched yet anyway is accounted to the host.
void SimRank::hold(double until_us, double* account, uint32_t event) {
  const double from_us = streams_.compute_us;
  if (until_us <= from_us) return;
  const double host_part = std::clamp(streams_.host_us - from_us, 0.0, until_us - from_us);
  out_.host_us += host_part;
  *account += until_us - from_us - host_part;
  streams_.hold(until_us);
  compute_event_ = event;
}

void SimRank::play(const StepOp& op) {
  switch (op.kind) {
    case StepOp::Kind::wait: break;
    case StepOp::Kind::launch: return launch(op);
    case StepOp::Kind::sync: return sync(op);
    case StepOp::Kind::copy_out:
    case StepOp::Kind::copy_in: return copy(op);
    case StepOp::Kind::compute: return compute(op);
  }
}

void SimRank::launch(const StepOp& op) {
  const double ready_us = streams_.launch(costs_.launch_us());
  const bool declared = op.group + 1 < costs_.group_count();
  done_[at_].event =
      add_event(Resource::communicator, declared ? GroupId(op.group) : GroupId(), ready_us, ready_us, later_event());
  const size_t place = *place_of_group(op.group);
  launches_[place].push_back({at_, op.us, ready_us, 0});
  fresh_.push_back(place);
}

void SimRank::settle(size_t place, double begin_us, double end_us) {
  const size_t k = settled_[place]++;
  SimLaunch& launch = launches_[place][k];
  launch.end_us = done_[launch.op].end_us = end_us;
  last_end_us_ = std::max(last_end_us_, end_us);
  out_.communication_us[kind_of(launch.op)] += end_us - begin_us;
  if (!keeps_events_) return;
  SimEvent& event = out_.events[done_[launch.op].event];
  event.begin_us = begin_us;
  event.end_us = end_us;
  if (k == 0) return;
  const SimLaunch& before = launches_[place][k - 1];
  if (before.end_us >= begin_us) event.cause = done_[before.op].event;
}

void SimRank::copy(const StepOp& op) {
  const size_t way = op.kind == StepOp::Kind::copy_out ? 0 : 1;
  const double free_us = streams_.copy_us[way];
  const double begin_us = streams_.copy(way, costs_.launch_us(), op.us);
  const uint32_t cause = begin_us == free_us               ? copy_event_[way]
                         : begin_us == streams_.compute_us ? compute_event_
                                                           : host_event_;
  copy_event_[way] =
      add_event(way == 0 ? Resource::copy_out : Resource::copy_in, GroupId(), begin_us, begin_us + op.us, cause);
  done_[at_] = {begin_us + op.us, copy_event_[way]};
}

void SimRank::sync(const StepOp& op) {
  const uint32_t cause = later_event();
  const double begin_us = streams_.sync(op.us);
  host_event_ = add_event(Resource::host, GroupId(), begin_us, begin_us + op.us, cause);
}

void SimRank::compute(const StepOp& op) {
  const double free_us = streams_.compute_us;
  const double begin_us = streams_.compute(costs_.launch_us(), op.us);
  const bool host_is_late = begin_us > free_us;
  if (host_is_late) out_.host_us += begin_us - free_us;
  compute_event_ =
      add_event(Resource::compute, GroupId(), begin_us, begin_us + op.us, host_is_late ? host_event_ : compute_event_);
  out_.compute_us += op.us;
}

uint32_t SimRank::add_event(Resource resource, GroupId group, double begin_us, double end_us, uint32_t cause) {
  last_end_us_ = std::max(last_end_us_, end_us);
  if (!keeps_events_) return SimEvent::kNoCause;
  const StepOrigin& origin = costs_.origin(at_);
  out_.events.push_back({origin.graph, origin.node, resource, group, begin_us, end_us, cause});
  return static_cast<uint32_t>(out_.events.size() - 1);
}

ProgramTimeline SimRank::take() {
  out_.flops = costs_.flops();
  out_.at_peak_us = costs_.at_peak_us();
  out_.unknown = costs_.unknown();
  out_.makespan_us = std::max({streams_.compute_us, streams_.host_us, last_end_us_});
  out_.tail_us = out_.makespan_us - streams_.compute_us;
  return std::move(out_);
}

Error SimRank::stuck() const {
  const StepOrigin& origin = costs_.origin(at_);
  Location where;
  where.path = place_of(program_, *origin.graph, origin.node);
  return {ErrorKind::cannot_apply,
          "the ranks wait for each other: the collective of " + where.path + " is never launched by all of its group",
          std::move(where), "sg-check shows where the ranks differ"};
}

}  // namespace sg
