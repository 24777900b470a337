// One program of a simulation: its host, streams and values, as far as it has come. Internal to simulate.cc.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "libgraph/cost.h"
#include "libgraph/sim/comm_time.h"
#include "libgraph/sim/simulate.h"

namespace sg {

// A collective as its rank launched it; `end_us` holds once it is settled.
struct SimLaunch {
  CollectivePattern kind = CollectivePattern::point_to_point;
  std::string_view kind_name;
  double bytes = 0;     // of the whole: comm_time.h
  double ready_us = 0;  // from here on it may begin
  double begin_us = 0, end_us = 0;
  uint32_t event = SimEvent::kNoCause;
};

class SimRank {
 public:
  SimRank(const Job& job, const Program& program, const SymbolValues& values, const SimOptions& options);

  // Goes on until the end, or to a wait for a collective that is not settled. False = it did not move.
  bool advance();
  bool done() const { return frames_.empty(); }
  Error stuck() const;
  ProgramTimeline take();  // REQUIRES: done()

  // Launches on a group, in order; those below settled(g) have an end.
  size_t launched(uint32_t group) const { return launches_[group].size(); }
  size_t settled(uint32_t group) const { return settled_[group]; }
  const SimLaunch& launch(uint32_t group, size_t k) const { return launches_[group][k]; }
  void settle(uint32_t group, double begin_us, double end_us);

 private:
  // When a value is there. Results of a collective under way are pending: (group, launch).
  struct Ready {
    double us = 0;
    uint32_t event = SimEvent::kNoCause;
    uint32_t group = kNotPending;
    uint32_t launch = 0;
    static constexpr uint32_t kNotPending = 0xFFFFFFFFu;
  };
  struct Frame {
    const Graph* graph;
    NodeId at;
    NodeId caller;             // in the frame below
    std::vector<Ready> ready;  // by ValueId
  };

  Frame& top() { return frames_.back(); }
  bool step();  // one node; false = it has to wait for a peer
  void enter(const Graph& graph, NodeId caller, std::vector<Ready> inputs);
  void leave();
  void finish(NodeId n, const Ready& ready);
  Ready latest_of(NodeId n, bool pending_first);
  const Graph* body_of(NodeId n, std::vector<Ready>* inputs);

  bool wait_for(const Ready& ready);
  void launch_collective(NodeId n);
  void copy(NodeId n, bool to_host, const Ready& input);
  void sync(NodeId n);
  void compute(NodeId n, const Ready& inputs);
  uint32_t add_event(NodeId n, Resource resource, GroupId group, double begin, double end, uint32_t cause);
  void hold_compute(double until_us, double* account, uint32_t event);

  const Job& job_;
  const Program& program_;
  const SimOptions& options_;
  SizeValues values_;
  CostModel costs_;
  std::vector<Frame> frames_;
  std::vector<std::vector<SimLaunch>> launches_;  // by group
  std::vector<size_t> settled_;
  double host_us_ = 0, compute_us_ = 0;  // free from here on
  double copy_free_us_[2] = {0, 0};      // out, in
  uint32_t host_event_ = SimEvent::kNoCause, compute_event_ = SimEvent::kNoCause;
  uint32_t copy_event_[2] = {SimEvent::kNoCause, SimEvent::kNoCause};
  double last_end_us_ = 0;
  ProgramTimeline out_;
};

}  // namespace sg
