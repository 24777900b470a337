// Profile: when each node ran, as a trace that Perfetto (or chrome://tracing) shows.
//
// One process a rank. Tracks: the nodes; one a communicator group, with a slice from each launch to the end of its wait
// and an arrow between the two; the bytes alive, as planned. The modules and source lines are arguments of the slices.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "libgraph/json.h"
#include "librun/graph_run.h"

namespace sg {

class Profile : public Observer {
 public:
  using Clock = std::chrono::steady_clock;
  Profile(const Job& job, uint32_t rank, Clock::time_point start) : job_(job), rank_(rank), start_(start) {}

  void before(const Graph& graph, NodeId n) override;
  Status after(const Graph& graph, NodeId n, std::span<const Tensor> results) override;
  // Bytes alive by schedule position of the outermost graph.
  void set_memory(const GraphRun& graph, int64_t pool_bytes);

  void write_events(JsonWriter* json) const;

 private:
  struct Slice {
    const Graph* graph;
    NodeId node;
    double begin, end;  // microseconds since the start
  };
  double now() const { return std::chrono::duration<double, std::micro>(Clock::now() - start_).count(); }
  void write_slice(JsonWriter* json, const Slice& slice) const;
  void write_collectives(JsonWriter* json) const;
  void begin_event(JsonWriter* json, std::string_view phase, std::string_view name, size_t track, double at) const;

  const Job& job_;
  uint32_t rank_;
  Clock::time_point start_;
  std::vector<double> began_;  // of nodes under way: bodies nest
  std::vector<Slice> slices_;
  const Graph* outermost_ = nullptr;
  std::vector<std::pair<NodeId, int64_t>> live_bytes_;
};

// The whole trace, of the profiles of all ranks of this process.
std::string profile_json(std::span<const Profile* const> profiles);

}  // namespace sg
