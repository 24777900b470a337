#include "libpasses/chunk/chunk_calls.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "libgraph/base/disjoint_sets.h"
#include "libgraph/dtype.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

constexpr uint32_t kNoCall = 0xFFFFFFFFu;

// Of the nodes of one region.
class CallSplit {
 public:
  CallSplit(const Graph& graph, const std::vector<bool>& from_data, const std::vector<uint32_t>& region_of,
            uint32_t region, const std::vector<NodeId>& nodes)
      : graph_(graph), from_data_(from_data), region_of_(region_of), region_(region), nodes_(nodes) {}

  // By position in `nodes`: 0, 1, ... in order of their first nodes. Empty = it is one call.
  std::vector<uint32_t> run() {
    for (size_t i = 0; i < nodes_.size(); ++i) at_.emplace(nodes_[i], i);
    call_.assign(nodes_.size(), kNoCall);
    find_rounds();
    if (!part_sides()) return {};
    spread_to_backward();
    return number();
  }

 private:
  bool is_forward(NodeId n) const { return graph_.node(n).phase == Phase::forward; }
  bool takes_data(NodeId n) const {
    bool out = false;
    for_operands(graph_, n, [&](ValueId v) { out = out || from_data_[v.index]; });
    return out;
  }
  // Position of the region's node that makes `v`; kNoCall = none does.
  size_t made_at(ValueId v) const {
    const NodeId def = graph_.value(v).def;
    return def && region_of_[def.index] == region_ ? at_.at(def) : size_t{kNoCall};
  }

  // call_ of forward nodes that take data: how often it left the region, and came back.
  void find_rounds() {
    NodeId first, last;
    for (NodeId n : nodes_) {
      if (!is_forward(n) || !takes_data(n)) continue;
      if (!first) first = n;
      last = n;
    }
    std::unordered_map<ValueId, uint32_t, IdHash> left;  // by values made outside: of which round they are made
    for (NodeId n = first; n; n = n == last ? NodeId() : graph_.next(n)) {
      const bool is_inside = region_of_[n.index] == region_;
      if (is_inside && (!is_forward(n) || !takes_data(n))) continue;
      uint32_t round = 0;
      bool any = false;
      for_operands(graph_, n, [&](ValueId v) {
        if (const size_t at = made_at(v); at != kNoCall) {
          if (call_[at] != kNoCall) round = std::max(round, call_[at]), any = true;
        } else if (const auto outside = left.find(v); outside != left.end()) {
          round = std::max(round, outside->second + (is_inside ? 1 : 0)), any = true;
        }
      });
      if (is_inside) call_[at_.at(n)] = round;
      else if (any)
        for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) left[graph_.node(n).result(i)] = round;
    }
  }

  // Parts of one round that share nothing; false if all is one call.
  bool part_sides() {
    DisjointSets<size_t> sides(nodes_.size());
    std::map<std::pair<uint32_t, ValueId>, size_t> taker;  // by round and value from outside
    std::vector<bool> has_activation(nodes_.size(), false);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (call_[i] == kNoCall) continue;
      for_operands(graph_, nodes_[i], [&](ValueId v) {
        if (!from_data_[v.index]) return;
        size_t other = made_at(v);
        if (other == kNoCall) other = taker.try_emplace({call_[i], v}, i).first->second;
        if (call_[other] == call_[i]) sides.join(i, other);
      });
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (call_[i] == kNoCall) continue;
      for_operands(graph_, nodes_[i], [&](ValueId v) {
        const Type& t = graph_.type(v);
        if (from_data_[v.index] && made_at(v) == kNoCall && is_floating(t.dtype) && !t.shape.empty())
          has_activation[sides.first_of(i)] = true;
      });
    }
    std::map<uint32_t, uint32_t> main;  // by round: the call of what has no activation of its own
    std::map<size_t, uint32_t> of_side;
    uint32_t count = 0;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (call_[i] != kNoCall && has_activation[sides.first_of(i)] &&
          of_side.try_emplace(sides.first_of(i), count).second)
        main.try_emplace(call_[i], count++);
    if (count < 2) return false;
    std::vector<uint32_t> calls(nodes_.size(), kNoCall);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (call_[i] == kNoCall) continue;
      if (const auto own = of_side.find(sides.first_of(i)); own != of_side.end()) calls[i] = own->second;
      else if (const auto rest = main.find(call_[i]); rest != main.end()) calls[i] = rest->second;
    }
    call_ = std::move(calls);
    return true;
  }

  // Nodes without data prepare what one call takes; backward nodes have forward nodes, or neighbours that have.
  void spread_to_backward() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (call_[i] != kNoCall || is_forward(nodes_[i])) continue;
      const NodeId forward = graph_.node(nodes_[i]).forward;
      if (forward && region_of_[forward.index] == region_) call_[i] = call_[at_.at(forward)];
    }
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (call_[i] == kNoCall && !is_forward(nodes_[i]))
        for_operands(graph_, nodes_[i], [&](ValueId v) {
          if (const size_t at = made_at(v); at != kNoCall && call_[i] == kNoCall) call_[i] = call_[at];
        });
    for (size_t i = nodes_.size(); i-- > 0;)
      for (uint32_t r = 0; call_[i] == kNoCall && r < graph_.node(nodes_[i]).result_count; ++r)
        for (NodeId user : graph_.users(graph_.node(nodes_[i]).result(r)))
          if (region_of_[user.index] == region_ && call_[i] == kNoCall) call_[i] = call_[at_.at(user)];
    for (size_t i = 0; i < nodes_.size(); ++i) {  // what is linked to nodes without data, which have theirs now
      const NodeId forward = graph_.node(nodes_[i]).forward;
      const bool is_linked = !is_forward(nodes_[i]) && forward && region_of_[forward.index] == region_;
      if (is_linked && call_[at_.at(forward)] != kNoCall) call_[i] = call_[at_.at(forward)];
    }
    for (uint32_t& call : call_)
      if (call == kNoCall) call = 0;
  }

  std::vector<uint32_t> number() const {
    std::map<uint32_t, uint32_t> order;
    std::vector<uint32_t> out;
    for (uint32_t call : call_)
      out.push_back(order.try_emplace(call, static_cast<uint32_t>(order.size())).first->second);
    return out;
  }

  const Graph& graph_;
  const std::vector<bool>& from_data_;
  const std::vector<uint32_t>& region_of_;
  const uint32_t region_;
  const std::vector<NodeId>& nodes_;
  std::unordered_map<NodeId, size_t, IdHash> at_;
  std::vector<uint32_t> call_;  // by position in nodes_
};

}  // namespace

void split_by_calls(const Graph& graph, const std::vector<bool>& from_data, ProgramRegions* found) {
  const size_t modules = found->regions.size();
  for (uint32_t r = 0; r < modules; ++r) {
    const std::vector<NodeId> nodes = found->nodes[r];
    const std::vector<uint32_t> call = CallSplit(graph, from_data, found->of_node, r, nodes).run();
    if (call.empty()) continue;
    const uint32_t count = *std::ranges::max_element(call) + 1, begin = static_cast<uint32_t>(found->regions.size());
    for (uint32_t c = 1; c < count; ++c) found->regions.push_back(found->regions[r]), found->nodes.emplace_back();
    found->nodes[r].clear();
    for (size_t i = 0; i < nodes.size(); ++i) {
      const uint32_t region = call[i] == 0 ? r : begin + call[i] - 1;
      found->of_node[nodes[i].index] = region;
      found->nodes[region].push_back(nodes[i]);
    }
  }
}

}  // namespace sg
