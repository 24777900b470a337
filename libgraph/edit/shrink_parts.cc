#include "libgraph/edit/shrink_parts.h"

#include <numeric>
#include <unordered_map>

#include "libgraph/base/disjoint_sets.h"
#include "libgraph/facts/collective_calls.h"
#include "libgraph/verify/verify.h"

namespace sg {
namespace {

// Nodes of all main graphs, in sets that are joined.
class NodeSets {
 public:
  explicit NodeSets(const Job& job) {
    size_t total = 0;
    for (const auto& program : job.programs) {
      begin_.push_back(total);
      total += program->graph.node_id_limit();
    }
    sets_ = DisjointSets<size_t>(total);
  }

  size_t index(size_t program, NodeId n) const { return begin_[program] + n.index; }
  void join(size_t a, size_t b) { sets_.join(a, b); }
  size_t root(size_t at) { return sets_.first_of(at); }

 private:
  std::vector<size_t> begin_;
  DisjointSets<size_t> sets_;
};

// Joins nodes that come with the same key.
class Joiner {
 public:
  explicit Joiner(NodeSets* sets) : sets_(sets) {}
  void add(uint64_t key, size_t index) {
    auto [it, is_new] = first_.try_emplace(key, index);
    if (!is_new) sets_->join(index, it->second);
  }

 private:
  NodeSets* sets_;
  std::unordered_map<uint64_t, size_t> first_;
};

// Empty where there are too many to be followed: then the verifier does not compare them, either.
std::vector<CollectiveSequence> collectives_of(const Job& job) {
  size_t budget = VerifyOptions().max_rank_events;
  std::vector<CollectiveSequence> out;
  for (const auto& program : job.programs) {
    out.push_back(collective_sequence(*program, &budget));
    if (!out.back().complete) return {};
  }
  return out;
}

uint64_t call_key(const CollectiveEvent& e) { return uint64_t{e.group} << 32 | e.call; }

void join_families(const std::vector<CollectiveSequence>& collectives, NodeSets* sets) {
  Joiner calls(sets);
  for (size_t p = 0; p < collectives.size(); ++p)
    for (const CollectiveEvent& e : collectives[p].events)
      if (!e.is_wait) calls.add(call_key(e), sets->index(p, e.top));
}

void join_names(const Job& job, const std::vector<CollectiveSequence>& collectives, NodeSets* sets) {
  Joiner names(sets);
  for (size_t p = 0; p < job.programs.size(); ++p) {
    const Graph& graph = job.programs[p]->graph;
    std::vector<uint8_t> launches(graph.node_id_limit(), 0);
    if (!collectives.empty())
      for (const CollectiveEvent& e : collectives[p].events)
        if (!e.is_wait) launches[e.top.index] = 1;
    for (NodeId n : graph.nodes())
      if (!launches[n.index]) names.add(graph.node(n).label.index, sets->index(p, n));
  }
}

// Joins what the members of each communicator call.
void join_members(const Job& job, const std::vector<CollectiveSequence>& collectives, NodeSets* sets) {
  if (collectives.empty() || job.is_spmd()) return;
  std::unordered_map<uint32_t, size_t> program_of;
  for (size_t p = 0; p < job.programs.size(); ++p)
    for (uint32_t r : job.programs[p]->ranks) program_of.emplace(r, p);
  for (uint32_t g = 0; g < job.groups.size(); ++g)
    for (const GroupPart& part : job.groups[g].parts) {
      Joiner calls(sets);
      for (uint32_t r : part.ranks) {
        auto found = program_of.find(r);
        if (found == program_of.end()) continue;
        const CollectiveSequence& sequence = collectives[found->second];
        for (size_t launch : sequence.of_group(g)) {
          const CollectiveEvent& e = sequence.events[launch];
          calls.add(e.call, sets->index(found->second, e.top));
        }
      }
    }
}

}  // namespace

ShrinkParts::ShrinkParts(const Job& job, PartScope scope) {
  NodeSets sets(job);
  const std::vector<CollectiveSequence> collectives = collectives_of(job);
  if (scope == PartScope::each_rank) {
    join_members(job, collectives, &sets);
  } else {
    join_families(collectives, &sets);
    join_names(job, collectives, &sets);
  }
  std::unordered_map<size_t, uint32_t> number;  // by root
  for (size_t p = 0; p < job.programs.size(); ++p) {
    const Graph& graph = job.programs[p]->graph;
    std::vector<uint32_t>& parts = part_.emplace_back(graph.node_id_limit(), 0);
    for (NodeId n : graph.nodes()) {
      auto [it, is_new] = number.try_emplace(sets.root(sets.index(p, n)), count_);
      count_ += is_new;
      parts[n.index] = it->second;
    }
  }
}

}  // namespace sg
