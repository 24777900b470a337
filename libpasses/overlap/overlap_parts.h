// The parts of sg-overlap: who must come before whom, what an order costs in time and memory, and those who find
// orders. Internal to the pass.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libgraph/facts/order.h"
#include "libgraph/plan/liveness.h"
#include "libgraph/sim/step_clock.h"
#include "libpasses/overlap/overlap.h"

namespace sg::overlap_parts {

// --- communicators of their own ---

// Traffic that has a group family of its own now.
struct GroupMove {
  GroupId from, to;
  size_t count = 0;  // collectives, of the program that has most
  bool gathers = false;
};
struct Isolation {
  size_t roles = 0;  // nodes that a role was stored with
  std::vector<GroupMove> moves;
  std::string summary;  // of the moves
};
Isolation isolate_traffic(Job* job, const IsolateOptions& options);

// --- orders ---

// An order of a graph's nodes: their places in the schedule that the graph has.
using Order = std::vector<uint32_t>;

// Lists of numbers, one list a number; in one piece of memory.
class Lists {
 public:
  // `pairs` of (list, entry); entries keep their order.
  Lists(size_t count, const std::vector<std::pair<uint32_t, uint32_t>>& pairs);
  Lists() = default;
  std::span<const uint32_t> operator[](uint32_t i) const {
    return std::span<const uint32_t>(entries_).subspan(begin_[i], begin_[i + 1] - begin_[i]);
  }
  size_t size() const { return begin_.empty() ? 0 : begin_.size() - 1; }
  bool operator==(const Lists&) const = default;

 private:
  std::vector<uint32_t> begin_, entries_;
};

// Which node must come before which: libgraph/facts/order.h, and for a rank that is ordered apart from the others what
// keeps them from waiting for each other in a circle. Places instead of ids.
class Precedence {
 public:
  Precedence(const Program& program, const Graph& graph, OrderScope scope);

  size_t size() const { return nodes_.size(); }
  NodeId node(uint32_t place) const { return nodes_[place]; }
  uint32_t place(NodeId n) const { return place_[n.index]; }
  std::span<const uint32_t> before(uint32_t place) const { return before_[place]; }
  std::span<const uint32_t> after(uint32_t place) const { return after_[place]; }
  const OrderFacts& facts() const { return facts_; }
  // Whether the same nodes, by id, bind each other.
  bool same_rules(const Precedence& other) const {
    return nodes_ == other.nodes_ && before_ == other.before_ && after_ == other.after_;
  }

  // The proof of an order: a pair that stands the wrong way round; none when there is none. Linear.
  std::optional<std::pair<uint32_t, uint32_t>> violated(const Order& order) const;
  // The schedule with edges (before, after) on top: the earliest ready node first. Empty when they make a circle.
  Order sorted(const std::vector<std::pair<uint32_t, uint32_t>>& edges) const;

 private:
  std::vector<std::pair<uint32_t, uint32_t>> launches_before_waits() const;

  OrderFacts facts_;
  std::vector<NodeId> nodes_;
  std::vector<uint32_t> place_;  // by node id
  Lists before_, after_;
};

// Live bytes while nodes are played in any order: the rules of libgraph/plan/liveness.h, with the reuse that it found
// for the graph's own order where the argument still ends there.
class StepMemory {
 public:
  StepMemory(const Program& program, const Precedence& precedence, const SizeValues& values);

  void reset();
  int64_t peak_if(uint32_t place) const;  // live bytes while this node runs next
  void play(uint32_t place);
  int64_t peak_bytes() const { return peak_; }
  int64_t live_bytes() const { return live_; }
  // What peak_if() is above live_bytes(), where that does not depend on the order.
  std::optional<int64_t> fixed_need(uint32_t place) const;
  bool makes_memory(uint32_t place) const { return !made_[place].empty(); }
  bool same_needs(const StepMemory& other) const {
    return pieces_ == other.pieces_ && made_ == other.made_ && touched_ == other.touched_ &&
           body_bytes_ == other.body_bytes_;
  }

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  struct Piece {
    int64_t bytes = 0;
    uint32_t uses = 0;  // nodes that need it; one more for outputs
    uint32_t takes_over = kNone;
    bool operator==(const Piece&) const = default;
  };
  bool ends_at(uint32_t piece) const { return left_[piece] == 1; }

  std::vector<Piece> pieces_;
  Lists made_, touched_;             // by place: pieces that begin there; pieces that it needs, those included
  std::vector<int64_t> body_bytes_;  // by place: of a call, beyond its results
  std::vector<uint32_t> left_;       // by piece: uses to come
  int64_t live_ = 0, peak_ = 0;
};

// One program as a question of order.
struct Step {
  Step(const Job& job, const Program& program, const SymbolValues& values, const SimOptions& options, OrderScope scope);

  Precedence precedence;
  StepCosts costs;
  SizeValues sizes;
  StepMemory memory;

  // Whether find_order has the same answer for both, as programs that differ in numbers alone have.
  bool same_question(const Step& other) const {
    return precedence.same_rules(other.precedence) && costs.same_times(other.costs) && memory.same_needs(other.memory);
  }
};

struct Played {
  double makespan_us = 0;
  int64_t peak_bytes = 0;
};
Played play(Step& step, StepClock& clock, const Order& order);

// --- strategy model ---

enum class OrderStart : uint8_t {
  as_it_is,        // the graph's own order, and others that are given
  launched_early,  // launched_early()
};
struct ModelLimits {
  int64_t peak_bytes = 0;  // by StepMemory
  OrderStart start = OrderStart::as_it_is;
  const Lists* launches = nullptr;  // chains of places in the order that another program has chosen; null = free
  bool polish = true;               // small graphs: move single nodes at the end
};
// The best order that was found: never longer than the graph's own, and within the limit where the graph's own is,
// except when another program dictates the launch order: then the order may be longer. Empty when it cannot have those
// launches. `starts`: orders to begin with.
Order find_order(Step& step, const ModelLimits& limits, const std::vector<Order>& starts);

// An order to search from: the graph's own, but launches stand directly behind the compute that they wait for.
Order launched_early(const Step& step);

// --- strategy reference ---

struct RegionPhases {
  std::string region;
  bool is_backward = false;
  std::string phases;   // "r0 c0 | D0 D1 | ...": what each phase holds, for people
  std::string skipped;  // not empty: left as it is, and why
};
struct ReferenceOrder {
  Order order;
  std::vector<RegionPhases> regions;
  std::vector<std::pair<uint32_t, bool>> copies;  // token counts to the host: place, non_blocking
  std::vector<uint32_t> exchange_waits;           // nodes to mark as EpStep::token_exchange_wait
};
// Strict: what the reference refuses is an Error with node and rule; with `refused`, it goes there and the region
// stays.
Result<ReferenceOrder> reference_order(const Program& program, const Precedence& precedence,
                                       std::vector<Error>* refused);

// Launches of gathers and reductions into dense compute, waits of reductions to the end.
struct DenseMove {
  NodeId launch;
  std::string what;  // "gather of layers.3, forward: at %mm_12 of layers.2.attention"
};
Result<std::vector<DenseMove>> schedule_dense(Job* job, std::vector<Error>* refused);

// --- what both need ---

// By group family: places of the nodes that launch on it, in the schedule.
Lists launches_of(const Precedence& precedence, size_t groups);

// Nodes that stay, when others move around them: the longest rising run of the order. By place.
std::vector<bool> staying(const Order& order);
void apply_order(Graph* graph, const Precedence& precedence, const Order& order);

// --- what is said ---

// What moved in one program, for people: launches, waits, syncs with the node that each now stands next to, others by
// number.
struct MoveLine {
  std::string node, kind;              // "launch", "wait", "sync", "copy"
  int64_t nodes = 0;                   // later by so many nodes; negative = earlier
  double before_us = 0, after_us = 0;  // waits: how long compute stands still
  std::string why;                     // what it cannot pass
};
struct MoveReport {
  size_t moved = 0;
  std::vector<MoveLine> lines;
};
MoveReport report_moves(const Job& job, const Program& program, const Precedence& precedence, const StepCosts* costs,
                        const Order& order);
// The exchanges of each chunked region in the order of the graph: "layers.1.moe forward: D0 D1 Dw0 C0 Dw1 C1 Cw0 Cw1".
std::vector<RegionPhases> region_phases(const Graph& graph);

}  // namespace sg::overlap_parts
