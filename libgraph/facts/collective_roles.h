// CollectiveRoles: which collectives bring sharded parameters together, which reduce gradients, and which exchange
// tokens.
//
// Recognised by data flow, groups and kinds of inputs and outputs, never by names:
//   unshard   an all_gather whose input is made of parameters and nothing else by pure ops (casts, views, pads, scales,
//             other gathers), none of whose memory is written before it. It may be launched anywhere earlier.
//   reduce    a reduce_scatter or all_reduce whose result reaches gradients among the graph's outputs, and nothing
//             else, through waits, pure ops that move elements or compute them one by one (views, casts, scales,
//             additions), pointwise writes into memory that they made, and other reductions. What they read is written
//             by none but them. It may be waited for anywhere later, in front of those who take it without passing it
//             on (consumers.h). A reduction whose input is such a consumer's result gets no role, nor does one of
//             gradients of activations, as tensor parallel layers have it: products or norms stand behind it.
//   exchange  every all_to_all; counts when its elements are integers, else tokens.
// Only the functional forms of the main graph are looked at; what a nested body launches has no role.
//
// A pure function of a const graph, linear in time and memory but for the chains, which are listed one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/graph.h"
#include "libgraph/job.h"

namespace sg {

// Whether a node launches an exchange.
bool is_exchange(const Graph& graph, NodeId n);

// One unshard or reduction with what belongs to it.
struct CollectiveChain {
  CollectiveRole role = CollectiveRole::none;
  NodeId launch;
  NodeId wait;  // the one user of the launch, when it is a wait; none otherwise
  // Unshard: all that its input is made by; reduce: casts, views and scales that serve it alone.
  std::vector<NodeId> before;
  std::vector<NodeId> after;  // behind the wait. unshard: views and casts up to the first other op. reduce: all of it
  std::vector<uint32_t> parameters;  // graph inputs that it gathers, or whose gradients it reduces; ascending
  NodeId consumer;                   // reduce: the first node that takes it without passing it on; none otherwise
  uint32_t depth = 0;  // unshard: the most gathers one behind the other before it. reduce: reductions behind it
};

class CollectiveRoles {
 public:
  CollectiveRoles(const Program& program, const Graph& graph);

  const std::vector<CollectiveChain>& chains() const { return chains_; }  // by launch, in schedule order
  const std::vector<NodeId>& exchanges() const { return exchanges_; }     // in schedule order

 private:
  std::vector<CollectiveChain> chains_;
  std::vector<NodeId> exchanges_;
};

// Writes the roles to the nodes' metadata (collective role; exchange step, where the capture says none). Returns how
// many nodes have changed.
size_t store_roles(Graph* graph, const CollectiveRoles& roles);

}  // namespace sg
