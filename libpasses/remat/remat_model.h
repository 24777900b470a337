// RematModel: computes how recomputing forward nodes changes a graph's memory, without changing the graph. Internal to
// sg-remat.
//
// A decision says for each node whether it may be recomputed. `place` finds the copies that the backward then pulls,
// and `simulate` also the memory that the new graph needs at each moment: the same as compute_liveness on the new
// graph, at a hundredth of the cost. Here nodes are identified by schedule position.
//
// Copies   Each non-forward node pulls copies of what it needs, and of what those need, up to values that stay. They
//          stand right before it, in forward order; later nodes share the latest copy. A copy is made only if it reads
//          what the original read. An original without users is removed.
// Cost     A pass over the nodes each: a few tenths of a millisecond for ten thousand nodes (remat_simulate.cc).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libgraph/plan/liveness.h"

namespace sg {

struct RematCopy {
  uint32_t node = 0, before = 0;  // positions
  bool operator==(const RematCopy&) const = default;
};

struct RematDecision {
  std::vector<uint8_t> recompute;  // by position: recomputed for the backward
  // From `before` on, earlier copies of `node` are no longer used: it is recomputed (again, or for the first time).
  // Sorted by `before`.
  std::vector<RematCopy> renew;
  bool operator==(const RematDecision&) const = default;
};

// Why a node is never recomputed.
enum class RematBar : uint8_t {
  none,
  not_forward,
  unknown_op,
  effect,
  size,
  exchange,
  written,
  shared_memory,
  no_result,
};
std::string_view remat_bar_text(RematBar bar);  // "it has an effect"

// A lower bound of the peak for all decisions: the memory that must be live at one moment.
struct RematBound {
  struct Held {
    uint32_t maker = 0;  // the node that allocates the memory
    int64_t bytes = 0;
    enum class Why : uint8_t { taken, made, output, later, barred, kept } why = Why::taken;
  };
  int64_t bytes = 0;
  uint32_t at = 0;         // the node that runs at that moment
  std::vector<Held> held;  // largest first
};

// The effects of a decision.
struct RematOutcome {
  std::vector<RematCopy> copies;                     // in the order of creation
  std::vector<uint32_t> gone;                        // originals left without users; ascending
  std::vector<std::pair<uint32_t, uint32_t>> stale;  // node, and the node before which it could not be recomputed
  int64_t peak_bytes = 0;
  uint32_t peak_at = 0;             // the node that runs then, or before which copies run
  double cost = 0;                  // of the copies, minus that of removed originals; see node_cost
  std::vector<int64_t> live_bytes;  // by position: the maximum while it and the copies before it run
};

// A summary of RematOutcome.
struct RematWeight {
  int64_t peak_bytes = 0;
  uint32_t peak_at = 0;
  double cost = 0;
};

class RematModel {
 public:
  // kept_groups: by group, whether its collectives are not recomputed; beyond its end they may be.
  RematModel(const Program& program, const Graph& graph, const SizeValues& sizes,
             const std::vector<bool>& kept_groups = {});

  RematOutcome place(const RematDecision& decision);
  RematOutcome simulate(const RematDecision& decision);
  RematWeight weigh(const RematDecision& decision);  // for searches: lists nothing
  double cost(const RematDecision& decision);        // does not look at memory

  // By position: the node after the forward before which the memory of the last copy has been idle longest since its
  // previous use; kNone = it has a single use, or is not copied.
  std::vector<uint32_t> longest_waits(const RematDecision& decision);

  // Positions of the nodes whose memory lives at the peak (theirs or a copy's), and of those that are copied together
  // with what runs then; ascending.
  std::vector<uint32_t> at_peak(const RematDecision& decision);

  // False if storages may share memory depending on sizes: `simulate` may then overestimate slightly.
  bool is_exact() const { return classes_.empty(); }

  const Graph& graph() const { return graph_; }
  // A lower bound for every decision that recomputes only `allowed` nodes (by position).
  RematBound bound(const std::vector<uint8_t>& allowed) const;

  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  NodeId node(uint32_t at) const { return nodes_[at].id; }
  uint32_t position(NodeId n) const { return position_[n.index]; }
  RematBar bar(uint32_t at) const { return nodes_[at].bar; }
  bool is_forward(uint32_t at) const { return nodes_[at].is_forward; }

  // Cost of running the node once more, in equivalent bytes of device memory traffic: see remat_model.cc.
  double node_cost(uint32_t at) const { return nodes_[at].cost; }

  // Bytes that the node allocates; 0 for views.
  int64_t made_bytes(uint32_t at) const { return nodes_[at].made_bytes; }
  // The node that allocated the memory of its first result (possibly itself); kNone for memory of an input.
  uint32_t maker(uint32_t at) const { return nodes_[at].maker; }
  // The last forward node and the first later node that use the memory it allocates; kNone = none.
  uint32_t last_forward_use(uint32_t at) const { return nodes_[at].last_forward; }
  uint32_t first_later_use(uint32_t at) const { return nodes_[at].first_later; }
  bool is_output(uint32_t at) const { return nodes_[at].is_output; }

  // Positions of its operands' defining nodes; inputs are skipped.
  template <class Fn>
  void for_each_source(uint32_t at, const Fn& fn) const {
    for (uint32_t i = nodes_[at].operands; i < nodes_[at].operands_end; ++i)
      if (operands_[i].def != kNone) fn(operands_[i].def);
  }

  static constexpr uint32_t kNone = 0xFFFFFFFFu;

 private:
  friend class RematBoundFinder;
  struct NodeFacts {
    NodeId id;
    RematBar bar = RematBar::none;
    bool is_forward = false, is_output = false, is_wait = false, is_launch = false, lands = true;
    double cost = 0;
    int64_t made_bytes = 0, call_bytes = 0;
    uint32_t maker = kNone, last_forward = kNone, first_later = kNone;
    uint32_t operands = 0, operands_end = 0;
    uint32_t results = 0, results_end = 0;
    uint32_t reuses = 0, reuses_end = 0;
  };
  struct Operand {
    uint32_t def = kNone;         // none = an input
    uint32_t result = kNone;      // which of the definer's results_; none = no memory
    uint32_t storage = kNone;     // none = no memory
    uint32_t good_until = kNone;  // the position before the next write to its memory after the user
    bool is_certain = true;       // it lies in that memory for all sizes
    uint32_t launch = kNone;      // of waits: the collective waited for
  };
  // A piece of memory that holds results of a node.
  struct ResultMemory {
    uint32_t storage = kNone;
    bool is_made = false;
    uint32_t operand = kNone;  // of a view: the operand in the same memory
  };
  struct Reuse {
    uint32_t result = 0, operand = 0;  // indices within the node
  };
  struct CopyState {
    uint32_t node = 0, before = 0;
    uint32_t pieces = 0;      // index into copy_pieces_
    uint32_t operands = 0;    // index into resolved_
    uint32_t launch = kNone;  // of waits: the copy of the launch
    bool is_used = false;
  };
  struct Resolved {
    uint32_t copy = kNone, piece = kNone;
  };
  struct Step {
    uint32_t at = 0, copy = kNone;
  };
  // Facts of a node that a run needs.
  enum Trait : uint8_t { kForward = 1, kMayCopy = 2, kLaunches = 4, kWaits = 8, kMayReuse = 16, kCalls = 32 };
  struct Learner;
  void add_storage(uint32_t s, const Learner& known);
  void add_node(NodeId n, const Learner& known);
  Operand operand_for(ValueId v, const AliasAnalysis& alias) const;
  void add_operand(const NodeFacts& facts, ValueId v, const Learner& known);
  void add_result(NodeFacts* facts, StorageId s, const AliasAnalysis& alias);
  void add_reuses(const NodeFacts& facts, const Learner& known);
  RematBar bar_of_launch(const NodeFacts& wait) const;
  void add_calls(const Liveness& live);
  void add_uses();
  void find_traits();
  void find_moving();
  // one run: remat_simulate.cc
  void find_copies(const RematDecision& decision);
  void reset(const RematDecision& decision);
  void pull(uint32_t b, std::span<const uint32_t> moving);
  bool try_copy(uint32_t n, uint32_t b);
  bool can_copy(const CopyState& copy) const;
  void ask_for(uint32_t def, uint32_t b);
  void place_views(uint32_t at);
  Resolved resolve(uint32_t operand) const;
  void mark_used();
  void find_gone();
  double cost_of_run() const;
  void walk();
  void step(uint32_t at);
  void step_copy(uint32_t copy);
  void pass_waits(const Step& now, uint32_t time);
  uint32_t piece_read(const Step& s, uint32_t which) const;
  uint32_t piece_made(const Step& s, uint32_t which) const;
  void touch(uint32_t piece, uint32_t time);
  void land();
  int64_t reused_at(uint32_t time);
  RematWeight sum_up(std::vector<int64_t>* live_bytes);
  RematOutcome listed() const;
  uint32_t first_beside(uint32_t time) const;

  const Graph& graph_;
  std::vector<uint32_t> position_;  // by NodeId
  std::vector<NodeFacts> nodes_;
  std::vector<Operand> operands_;
  std::vector<ResultMemory> results_;
  std::vector<Reuse> reuses_;
  std::vector<int64_t> original_bytes_;         // by storage of the graph
  std::vector<uint8_t> is_single_;              // by storage: no other can be the same memory
  std::vector<std::vector<uint32_t>> classes_;  // storages that may share memory
  std::vector<Operand> outputs_;
  std::vector<uint32_t> maker_of_;  // by storage of the graph: the node that allocates it

  // The same facts in the order and width that runs read; a run reads little else.
  std::vector<uint8_t> traits_;                         // by position
  std::vector<uint32_t> operand_begin_, result_begin_;  // by position, plus the end
  std::vector<uint32_t> operand_def_;                   // by operand
  std::vector<uint32_t> moving_nodes_;                  // nodes with operands that may be elsewhere in some runs
  std::vector<uint32_t> moving_, moving_begin_;         // these operands, by moving_nodes_
  std::vector<uint32_t> all_uses_;                      // by position, including outputs

  // State of one run. A piece is memory: first the storages of the graph, then those that copies allocate.
  std::vector<int64_t> bytes_;          // by piece, like the next vectors
  std::vector<uint32_t> first_, last_;  // steps in use
  std::vector<uint8_t> is_taken_, is_output_piece_;
  std::vector<CopyState> copies_;
  std::vector<uint32_t> copy_of_, asked_for_, uses_;  // by position
  std::vector<uint32_t> stack_, needed_;
  std::vector<uint8_t> wanted_, expired_, is_stale_, is_gone_;  // by position
  std::vector<uint32_t> gone_;                                  // descending
  std::vector<std::pair<uint32_t, uint32_t>> stale_;            // RematOutcome::stale
  // By operand of the originals; operands that do not move keep their entries.
  std::vector<uint32_t> read_piece_, read_copy_, read_launch_;
  std::vector<uint32_t> lies_in_;      // by results_ of the originals: the piece
  std::vector<uint32_t> redirected_;   // operands of originals that read copies
  std::vector<uint32_t> copy_pieces_;  // by CopyState::pieces + which of the node's results_
  std::vector<Resolved> resolved_;     // by CopyState::operands + index of the operand
  std::vector<Step> steps_;            // the new schedule
  std::vector<uint32_t> launches_;     // indices into steps_
  std::vector<uint32_t> landing_;      // by position, then by copy: the step of the last wait
  std::vector<int64_t> change_;        // by step: change of the live bytes
  uint32_t peak_step_ = 0;
};

}  // namespace sg
