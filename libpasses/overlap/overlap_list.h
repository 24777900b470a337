// ListScheduler: one order of a step's nodes, made front to back while host, streams and memory are played along.
//
// At each point the node to issue next is chosen of those that nothing holds back:
//   at once    views and sizes; launches, the most urgent first; waits for what is over already
//   else       the most urgent compute, copy or host sync that fits into memory; a wait that stops compute only when
//              there is no such node, or when something more urgent hangs on it and the rest of the wait is shorter
//              than the rule's patience
// Window       only nodes that the graph's own order starts within `window_us` of the first one that is still to be
//              issued. So nothing is moved arbitrarily far, memory cannot grow without bound, and what is not urgent is
//              issued some day.
// Always ends  the first node that is still to be issued is always ready.
// Cost         n log n, and a look at each size of a launch that memory holds back (of which there are few) a node.
#pragma once

#include <map>

#include "libpasses/overlap/overlap_parts.h"

namespace sg::overlap_parts {

struct ListRule {
  const std::vector<double>* urgency = nullptr;  // by place; larger = sooner
  double window_us = 0;
  double patience = 0;  // of a filler's length: how long compute rather waits for something more urgent
  int64_t peak_bytes = 0;
};

class ListScheduler {
 public:
  // `own`: the order that windows and places refer to; `launches` as in ModelLimits.
  ListScheduler(Step& step, StepClock& clock, const Order& own, const Lists* launches);

  Order run(const ListRule& rule);
  // The longest time from a node to the end of the step, as if there were streams for all.
  const std::vector<double>& urgency_by_path() const { return by_path_; }
  const std::vector<double>& urgency_by_place() const { return by_place_; }
  double longest_launch_us() const { return longest_launch_us_; }

 private:
  enum class Turn : uint8_t { instant, launch, held, work };
  using Keyed = std::pair<double, uint32_t>;

  void prepare_turns();
  void start(const ListRule& rule);
  void open_window();
  void make_ready(uint32_t place);
  void put(uint32_t place);
  void issue(uint32_t place);
  void hold_back(uint32_t place);
  void retry();
  bool issue_at_once();
  bool fits(uint32_t place) const { return step_.memory.peak_if(place) <= rule_.peak_bytes; }
  uint32_t take_work();  // the most urgent that fits; kNone
  uint32_t first_open() const { return own_[open_]; }

  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  Step& step_;
  StepClock& clock_;
  const Order& own_;
  std::vector<uint32_t> at_;                                    // by place: where it stands in own_
  std::vector<Turn> turn_;                                      // by place
  std::vector<double> own_us_, start_us_, by_path_, by_place_;  // start_us_: by position in own_
  Lists extra_after_;                                           // the order of launches that other programs have chosen
  std::vector<uint32_t> extra_before_;                          // by place: how many
  double longest_launch_us_ = 0;

  ListRule rule_;  // of the run at hand
  Order out_;
  std::vector<uint32_t> waits_for_;  // by place: nodes still to be issued before it
  std::vector<bool> issued_;
  size_t open_ = 0, window_end_ = 0;  // positions in own_
  std::vector<uint32_t> later_;       // ready but outside of the window: heap, first position on top
  std::vector<uint32_t> instants_;
  std::vector<Keyed> launches_, work_;  // heaps, most urgent on top
  std::vector<Keyed> held_;             // heap, first end on top
  std::vector<uint32_t> blocked_;       // do not fit into memory now; tried again behind each node
  // Launches that do not fit, by the bytes that they need: heaps, most urgent on top. Where one does not fit, none of
  // its size does, so that only the first of each is tried again.
  std::map<int64_t, std::vector<Keyed>> blocked_launches_;
};

}  // namespace sg::overlap_parts
