#include "libpasses/min_cut.h"

#include <algorithm>

namespace sg {

void MinCut::add_edge(uint32_t from, uint32_t to, int64_t capacity) {
  if (capacity <= 0 || from == to) return;
  edges_.push_back({to, first_[from], std::min(capacity, kInfinite)});
  first_[from] = static_cast<uint32_t>(edges_.size()) - 1;
  edges_.push_back({from, first_[to], 0});
  first_[to] = static_cast<uint32_t>(edges_.size()) - 1;
}

bool MinCut::run(uint32_t source, uint32_t sink) {
  int64_t flow = 0;
  while (flow < kInfinite && find_levels(source, sink)) {
    at_ = first_;
    while (int64_t more = augment(source, sink)) {
      flow += more;
      if (flow >= kInfinite) break;
    }
  }
  find_behind(sink);
  return flow < kInfinite;
}

bool MinCut::find_levels(uint32_t source, uint32_t sink) {
  level_.assign(first_.size(), kNone);
  level_[source] = 0;
  std::vector<uint32_t> queue = {source};
  for (size_t i = 0; i < queue.size() && level_[sink] == kNone; ++i)
    for (uint32_t e = first_[queue[i]]; e != kNone; e = edges_[e].next)
      if (edges_[e].left > 0 && level_[edges_[e].to] == kNone) {
        level_[edges_[e].to] = level_[queue[i]] + 1;
        queue.push_back(edges_[e].to);
      }
  return level_[sink] != kNone;
}

// Augments along one path of the level graph, depth first; dead ends are never revisited. Returns the flow added; 0 =
// no path.
int64_t MinCut::augment(uint32_t source, uint32_t sink) {
  std::vector<uint32_t> path;  // edges
  uint32_t v = source;
  while (v != sink) {
    uint32_t& e = at_[v];
    while (e != kNone && !(edges_[e].left > 0 && level_[edges_[e].to] == level_[v] + 1)) e = edges_[e].next;
    if (e != kNone) {
      path.push_back(e);
      v = edges_[e].to;
    } else if (path.empty()) {
      return 0;
    } else {
      v = edges_[path.back() ^ 1].to;
      path.pop_back();
      at_[v] = edges_[at_[v]].next;
    }
  }
  int64_t flow = kInfinite;
  for (uint32_t e : path) flow = std::min(flow, edges_[e].left);
  for (uint32_t e : path) {
    if (edges_[e].left < kInfinite) edges_[e].left -= flow;
    if (edges_[e ^ 1].left < kInfinite) edges_[e ^ 1].left += flow;
  }
  return flow;
}

void MinCut::find_behind(uint32_t sink) {
  behind_.assign(first_.size(), 0);
  behind_[sink] = 1;
  std::vector<uint32_t> queue = {sink};
  for (size_t i = 0; i < queue.size(); ++i)
    for (uint32_t e = first_[queue[i]]; e != kNone; e = edges_[e].next) {
      const uint32_t from = edges_[e].to;  // the reverse edge leads back to where an edge comes from
      if (edges_[e ^ 1].left <= 0 || behind_[from]) continue;
      behind_[from] = 1;
      queue.push_back(from);
    }
}

}  // namespace sg
