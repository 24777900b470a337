// Moves launches and waits of buckets apart, to overlap them with compute.
#include <algorithm>
#include <array>

#include "libgraph/facts/collective_roles.h"
#include "libpasses/bucket/bucket_parts.h"

namespace sg::bucket_parts {
namespace {

size_t index_of(BucketDirection direction) { return direction == BucketDirection::forward ? 0 : 1; }

// One program's buckets, by direction, in the order of their launches.
class Placer {
 public:
  Placer(Program* program, size_t distance)
      : graph_(program->graph), roles_(*program, graph_), distance_(distance), is_ours_(graph_.node_id_limit()) {
    for (const CollectiveChain& chain : roles_.chains()) {
      const CollectiveInfo& info = graph_.meta(chain.launch).collective;
      if (info.bucket == -1 || !chain.wait || chain.depth != 0) continue;
      (chain.role == CollectiveRole::unshard ? gathers_ : reductions_)[index_of(info.direction)].push_back(&chain);
      for (const auto* nodes : {&chain.before, &chain.after})
        for (NodeId n : *nodes) is_ours_[n.index] = true;
      is_ours_[chain.launch.index] = is_ours_[chain.wait.index] = true;
    }
  }

  size_t run() {
    const std::vector<NodeId> before = order();
    for (size_t direction = 0; direction < 2; ++direction)
      prefetch(gathers_[direction], begin_of(direction == 0 ? Phase::forward : Phase::backward));
    for (const auto& list : reductions_) delay(list);
    const std::vector<NodeId> after = order();
    size_t moved = 0;
    for (size_t i = 0; i < before.size(); ++i) moved += before[i] != after[i];
    return moved;
  }

 private:
  using Chains = std::vector<const CollectiveChain*>;

  std::vector<NodeId> order() const {
    std::vector<NodeId> out;
    for (NodeId n : graph_.nodes()) out.push_back(n);
    return out;
  }

  // The first node of a phase that computes something.
  NodeId begin_of(Phase phase) const {
    for (NodeId n : graph_.nodes())
      if (graph_.node(n).phase == phase && !is_ours_[n.index] && graph_.meta(n).collective.bucket == -1) return n;
    return {};
  }

  // Moves each launch, with the nodes that make its input, before the wait of the gather `distance_` earlier; the first
  // ones before `begin` and before any wait.
  void prefetch(const Chains& list, NodeId begin) {
    if (begin && !list.empty() && graph_.before(list[0]->wait, begin)) begin = list[0]->wait;
    for (size_t i = 0; i < list.size(); ++i) {
      const NodeId place = i >= distance_ ? list[i - distance_]->wait : begin;
      if (!place || !graph_.before(place, list[i]->launch)) continue;
      for (NodeId n : list[i]->before)
        if (graph_.before(place, n)) graph_.move_before(n, place);
      graph_.move_before(list[i]->launch, place);
    }
  }

  // Moves each wait, with the nodes that use its result, after the launch of the reduction `distance_` later; the last
  // ones to the end, or before their consumer.
  void delay(const Chains& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      NodeId place = i + distance_ < list.size() ? list[i + distance_]->launch : graph_.last();
      if (const NodeId consumer = list[i]->consumer; consumer && !graph_.before(place, consumer))
        place = graph_.previous(consumer);
      if (!graph_.before(list[i]->wait, place)) continue;
      std::vector<NodeId> moved = {list[i]->wait};
      for (NodeId n : list[i]->after)
        if (graph_.before(n, place) || n == place) moved.push_back(n);
      if (moved.back() == place) continue;  // only its own nodes follow
      for (NodeId n : moved) graph_.move_after(n, place), place = n;
    }
  }

  Graph& graph_;
  CollectiveRoles roles_;
  size_t distance_;
  std::vector<bool> is_ours_;  // by node: belongs to a bucket
  std::array<Chains, 2> gathers_, reductions_;
};

}  // namespace

size_t place_buckets(Job* job, int64_t prefetch) {
  size_t moved = 0;
  if (prefetch > 0)
    for (auto& program : job->programs) moved += Placer(program.get(), static_cast<size_t>(prefetch)).run();
  return moved;
}

}  // namespace sg::bucket_parts
