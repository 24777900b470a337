// MinCut: the cheapest set of edges that separates a source from a sink, by Dinic's algorithm.
//
// Of several cheapest cuts it finds the one closest to the sink. Capacities are whole numbers; kInfinite edges are
// never cut (a graph with an infinite path has no cut, and `run` says so).
#pragma once

#include <cstdint>
#include <vector>

namespace sg {

class MinCut {
 public:
  static constexpr int64_t kInfinite = INT64_MAX / 4;

  explicit MinCut(uint32_t vertices) : first_(vertices, kNone) {}
  void add_edge(uint32_t from, uint32_t to, int64_t capacity);

  // False when no finite cut exists.
  bool run(uint32_t source, uint32_t sink);

  // After `run`: whether the vertex lies on the sink's side of the cut.
  bool is_behind(uint32_t vertex) const { return behind_[vertex]; }

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  struct Edge {
    uint32_t to, next;
    int64_t left;
  };
  bool find_levels(uint32_t source, uint32_t sink);
  int64_t augment(uint32_t source, uint32_t sink);
  void find_behind(uint32_t sink);

  std::vector<uint32_t> first_;       // by vertex
  std::vector<Edge> edges_;           // an edge and its reverse, side by side
  std::vector<uint32_t> level_, at_;  // by vertex
  std::vector<uint8_t> behind_;
};

}  // namespace sg
