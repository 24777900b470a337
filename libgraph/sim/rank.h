// One program of a simulation: its operations (step_costs.h) in the graph's order, as far as they have come, and what
// its time is spent on. Internal to simulate.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libgraph/sim/simulate.h"
#include "libgraph/sim/step_costs.h"
#include "libgraph/sim/streams.h"

namespace sg {

// A collective as its rank launched it; `end_us` holds once it is settled.
struct SimLaunch {
  uint32_t op = 0;
  double us = 0;        // as this rank sees its group
  double ready_us = 0;  // from here on it may begin
  double end_us = 0;
};

class SimRank {
 public:
  SimRank(const Job& job, const Program& program, const SymbolValues& values, const SimOptions& options);

  // Goes on until the end, or to a wait for a collective that is not settled. False = it did not move.
  bool advance();
  bool done() const { return at_ == costs_.ops().size(); }
  Error stuck() const;     // REQUIRES: !done()
  ProgramTimeline take();  // REQUIRES: done()

  // The groups that it launches on, ascending: what is said of one below takes its place here.
  const std::vector<uint32_t>& groups() const { return groups_; }
  std::optional<size_t> place_of_group(uint32_t group) const;
  // The places of those on which it has launched since the last call, each once.
  std::vector<size_t> take_fresh();

  // Launches on a group, in order; those below settled(place) have an end.
  size_t launched(size_t place) const { return launches_[place].size(); }
  size_t settled(size_t place) const { return settled_[place]; }
  const SimLaunch& launch(size_t place, size_t k) const { return launches_[place][k]; }
  void settle(size_t place, double begin_us, double end_us);

 private:
  // Of an operation that others wait for.
  struct Done {
    double end_us = kUnderWay;
    uint32_t event = SimEvent::kNoCause;
    static constexpr double kUnderWay = -1;
  };

  std::string kind_of(uint32_t op) const;
  bool is_blocked(const StepOp& op) const;
  void wait_for(const StepOp& op);
  void play(const StepOp& op);
  void launch(const StepOp& op);
  void copy(const StepOp& op);
  void sync(const StepOp& op);
  void compute(const StepOp& op);
  void hold(double until_us, double* account, uint32_t event);
  uint32_t add_event(Resource resource, GroupId group, double begin_us, double end_us, uint32_t cause);
  uint32_t later_event() const { return streams_.compute_us >= streams_.host_us ? compute_event_ : host_event_; }

  const Program& program_;
  const StepCosts costs_;
  const bool keeps_events_;
  uint32_t at_ = 0;         // the operation that comes next
  std::vector<Done> done_;  // by operation
  const std::vector<uint32_t> groups_;
  std::vector<std::vector<SimLaunch>> launches_;  // by place in groups_
  std::vector<size_t> settled_, fresh_;
  Streams streams_;
  uint32_t host_event_ = SimEvent::kNoCause, compute_event_ = SimEvent::kNoCause;  // that each stands at
  std::array<uint32_t, 2> copy_event_ = {SimEvent::kNoCause, SimEvent::kNoCause};
  double last_end_us_ = 0;
  ProgramTimeline out_;
};

}  // namespace sg
