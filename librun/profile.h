// Profile: when each node ran, as a trace for Perfetto (or chrome://tracing).
//
// One process per rank. Tracks: the nodes; one per communicator group, with a slice from each launch to the end of its
// wait and an arrow between the two; the live bytes, as planned. Modules and source lines are arguments of the slices.
//
// On a device, times are those of its streams (device_clock.h): a node, or a fused group that begins with it, lasts
// from when the stream reaches it until the stream is done with it; a collective that the device performs itself lasts
// from its first byte to its last; one more track shows uploads and downloads.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "libgraph/base/json.h"
#include "librun/execute/graph_run.h"

namespace sg {

class Profile : public Observer {
 public:
  using Clock = std::chrono::steady_clock;
  Profile(const Job& job, uint32_t rank, Clock::time_point start) : job_(job), rank_(rank), start_(start) {}

  void before(const Graph& graph, NodeId n) override;
  void ran(const Graph& graph, NodeId n, size_t steps) override;
  bool looks_at_results() const override { return false; }
  Status after(const Graph&, NodeId, std::span<const Tensor>) override { return ok_status(); }
  // Around each step on a device, which must have settled at the end of it. Times then come from that clock.
  Status begin_step(DeviceClock* clock);
  Status end_step();
  // Live bytes by schedule position of the main graph.
  void set_memory(const GraphRun& graph, int64_t pool_bytes);

  void write_events(JsonWriter* json) const;

 private:
  struct Stretch {
    double begin, end;  // microseconds since the start
  };
  struct Slice {
    const Graph* graph;
    NodeId node;
    size_t steps;  // that ran as one, starting with this node
    double begin, end;
    std::vector<Stretch> flights = {};  // of the collectives it launches, by result, if the device performs them
  };
  struct Marks {  // of a node, until the end of its step
    const Graph* graph;
    NodeId node;
    size_t steps;
    uint64_t begin, end;
  };
  struct Copy {
    DeviceClock::Span::Kind kind;
    int64_t bytes;
    Stretch time;
    std::string node;  // the requesting node; empty = none
  };
  double now() const { return std::chrono::duration<double, std::micro>(Clock::now() - start_).count(); }
  void write_slice(JsonWriter* json, const Slice& slice) const;
  void write_collectives(JsonWriter* json) const;
  void write_copies(JsonWriter* json) const;
  size_t copy_track() const;
  Stretch flight_of(const Slice& launch, const Slice& wait) const;
  size_t node_of(const DeviceClock::Span& span) const;
  void begin_event(JsonWriter* json, std::string_view phase, std::string_view name, size_t track, double at) const;

  const Job& job_;
  uint32_t rank_;
  Clock::time_point start_;
  std::vector<double> began_;  // of unfinished nodes: bodies nest
  std::vector<Slice> slices_;
  DeviceClock* clock_ = nullptr;    // null = the CPU
  double step_begin_ = 0;           // when the clock was restarted
  std::vector<uint64_t> begun_at_;  // marks of unfinished nodes
  std::vector<Marks> marks_;        // of this step, ordered by end
  std::vector<Copy> copies_;
  const Graph* outermost_ = nullptr;
  std::vector<std::pair<NodeId, int64_t>> live_bytes_;
};

// The whole trace, with the profiles of all ranks of this process.
std::string profile_json(std::span<const Profile* const> profiles);

}  // namespace sg
