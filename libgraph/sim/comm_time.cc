#include "libgraph/sim/comm_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sg {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

bool goes_round_twice(CollectivePattern kind) {
  return kind == CollectivePattern::all_reduce || kind == CollectivePattern::all_to_all;
}

// Number of steps of the ring.
double steps_of(CollectivePattern kind, double ranks) { return goes_round_twice(kind) ? 2 * (ranks - 1) : ranks - 1; }

// How many of the steps cross nodes.
double hops_between(CollectivePattern kind, double nodes) {
  if (nodes <= 1) return 0;
  if (kind == CollectivePattern::all_reduce) return 2 * nodes;
  return kind == CollectivePattern::point_to_point ? 1 : nodes - 1;
}

// The message's share of the bus bandwidth: each step moves 1/ranks of the message, but the pieces of a broadcast
// stream through all links.
double share_of_bus(CollectivePattern kind, double ranks) {
  return kind == CollectivePattern::broadcast ? 1 : ranks / steps_of(kind, ranks);
}

double simple_time_us(const Machine::Network& network, CollectivePattern kind, double bytes, double ranks,
                      double nodes) {
  double bus = nodes > 1 ? network.simple.more_nodes_gbps : network.simple.one_node_gbps;
  if (bus <= 0) return std::numeric_limits<double>::infinity();
  CollectivePattern ring = kind == CollectivePattern::all_to_all ? CollectivePattern::all_gather : kind;
  return network.simple.base_us + steps_of(ring, ranks) * network.simple.hop_us +
         bytes / (bus * share_of_bus(ring, ranks)) * 1e-3;
}

// Shares for peers within and beyond the node are sent concurrently.
double exchange_time_us(const Machine::Network& network, double bytes, double ranks, double nodes) {
  const auto& x = network.exchange;
  if (x.within_gbps <= 0 || (nodes > 1 && x.between_gbps <= 0)) return std::numeric_limits<double>::infinity();
  double near = std::max(0.0, ranks / nodes - 1) / ranks, far = (ranks - ranks / nodes) / ranks;
  double near_us = bytes * near / x.within_gbps * 1e-3;
  double far_us = nodes > 1 ? bytes * far / x.between_gbps * 1e-3 : 0;
  return x.base_us + std::max(near_us, far_us);
}

}  // namespace

CollectivePattern collective_kind(std::string_view kind) {
  if (kind == "all_gather") return CollectivePattern::all_gather;
  if (kind == "reduce_scatter") return CollectivePattern::reduce_scatter;
  if (kind == "all_reduce") return CollectivePattern::all_reduce;
  if (kind == "all_to_all" || kind == "shard_dim_alltoall") return CollectivePattern::all_to_all;
  return kind == "broadcast" ? CollectivePattern::broadcast : CollectivePattern::point_to_point;
}

double ll_time_us(const Machine::Network& network, CollectivePattern kind, double bytes, double ranks, double nodes) {
  if (ranks <= 1) return 0;
  if (kind == CollectivePattern::point_to_point) ranks = 2;
  const auto& ll = network.ll;
  double link = nodes > 1 ? ll.between_gbps : ll.within_gbps;
  double cap = nodes <= 1 ? ll.cap_one_node_gbps : nodes <= 2 ? ll.cap_two_nodes_gbps : ll.cap_more_nodes_gbps;
  double share = nodes > 1 || kind == CollectivePattern::all_reduce ? 1.0 / 4 : 1.0 / 3;
  double bus = std::min(cap, 2 * link * share);
  double steps = steps_of(kind, ranks), between = hops_between(kind, nodes);
  double hop = nodes > 1 ? std::max(ll.hop_one_node_us, ll.hop_within_us) : ll.hop_one_node_us;
  double latency_us = ll.base_us + (steps - between) * hop + between * ll.hop_between_us;
  return bytes / kGiB / (bus * share_of_bus(kind, ranks)) * 1e6 + latency_us;  // the model divides GiB by GB/s
}

double collective_time_us(const Machine::Network& network, CollectivePattern kind, double bytes, double ranks,
                          double nodes) {
  if (ranks <= 1) return 0;
  if (kind == CollectivePattern::point_to_point) ranks = 2;
  double direct = kind == CollectivePattern::all_to_all ? exchange_time_us(network, bytes, ranks, nodes)
                                                        : std::numeric_limits<double>::infinity();
  if (std::isfinite(direct)) return direct;
  return std::min(ll_time_us(network, kind, bytes, ranks, nodes), simple_time_us(network, kind, bytes, ranks, nodes));
}

}  // namespace sg
