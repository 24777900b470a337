// RematModel: what becomes of a graph's memory when some of its forward nodes are recomputed, without changing the
// graph. Internal to sg-remat.
//
// A decision says for each node whether it may be recomputed. `place` finds the copies that the backward then pulls,
// and `simulate` what the new graph needs at each moment: what compute_liveness would say of it, at a hundredth of the
// price. Nodes are called by their schedule position here.
//
// Copies   Each non-forward node pulls copies of what it needs, and what those need, up to values that stay. They stand
//          right before it, in the order of the forward; later nodes share the last copy. A copy is made only when what
//          it reads is what the original read. An original that nobody asks for any more is gone.
// Cost     A pass over the nodes each: a few tenths of a millisecond for ten thousand (remat_simulate.cc).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libgraph/plan/liveness.h"
#include "libpasses/schedule.h"

namespace sg {

struct RematCopy {
  uint32_t node = 0, before = 0;  // positions
};

struct RematDecision {
  std::vector<uint8_t> recompute;  // by position: the backward computes it again
  // From `before` on, what was there of `node` until then is not used any more: it is computed (again, or for the first
  // time). Sorted by `before`.
  std::vector<RematCopy> renew;
};

// Why a node is never computed again.
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

// The most that any decision leaves alive at one moment.
struct RematBound {
  struct Held {
    uint32_t maker = 0;  // the node that makes the memory
    int64_t bytes = 0;
    enum class Why : uint8_t { taken, made, output, later, barred, kept } why = Why::taken;
  };
  int64_t bytes = 0;
  uint32_t at = 0;         // the node that runs then
  std::vector<Held> held;  // largest first
};

// What a decision comes to.
struct RematOutcome {
  std::vector<RematCopy> copies;                     // in the order in which they are made
  std::vector<uint32_t> gone;                        // originals that nobody uses any more; ascending
  std::vector<std::pair<uint32_t, uint32_t>> stale;  // node, and before whom it could not be made again
  int64_t peak_bytes = 0;
  uint32_t peak_at = 0;             // the node that runs there, or before which copies run
  double cost = 0;                  // of the copies, less what is gone; see node_cost
  std::vector<int64_t> live_bytes;  // by position: the most while it and the copies before it run
};

// The same in short.
struct RematWeight {
  int64_t peak_bytes = 0;
  uint32_t peak_at = 0;
  double cost = 0;
};

class RematModel {
 public:
  // kept_groups: by group, whose collectives are not computed again; the rest are free.
  RematModel(const Program& program, const Graph& graph, const SizeValues& sizes,
             const std::vector<bool>& kept_groups = {});

  RematOutcome place(const RematDecision& decision);
  RematOutcome simulate(const RematDecision& decision);
  RematWeight weigh(const RematDecision& decision);  // for searches: lists nothing
  double cost(const RematDecision& decision);        // does not look at memory

  // By position: the node behind the forward before which the memory of the last copy has waited longest for a use
  // since the one before; kNone = it is used once, or not copied.
  std::vector<uint32_t> longest_waits(const RematDecision& decision);

  // False where some memory may be one piece or several: then `simulate` may say a little more than is needed.
  bool is_exact() const { return classes_.empty(); }

  const Graph& graph() const { return graph_; }
  // Below this no decision comes that recomputes nothing but what is `allowed`, by position.
  RematBound bound(const std::vector<uint8_t>& allowed) const;

  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  NodeId node(uint32_t at) const { return nodes_[at].id; }
  uint32_t position(NodeId n) const { return position_[n.index]; }
  RematBar bar(uint32_t at) const { return nodes_[at].bar; }
  bool is_forward(uint32_t at) const { return nodes_[at].is_forward; }

  // Of computing the node once more, in bytes that the device moves: see remat_model.cc.
  double node_cost(uint32_t at) const { return nodes_[at].cost; }

  // Memory that the node makes; 0 for views.
  int64_t made_bytes(uint32_t at) const { return nodes_[at].made_bytes; }
  // The node that made the memory of its first result; itself, or kNone for what lies in an input.
  uint32_t maker(uint32_t at) const { return nodes_[at].maker; }
  // The last forward and the first later node that use the memory it makes; kNone = there is none.
  uint32_t last_forward_use(uint32_t at) const { return nodes_[at].last_forward; }
  uint32_t first_later_use(uint32_t at) const { return nodes_[at].first_later; }
  bool is_output(uint32_t at) const { return nodes_[at].is_output; }

  // Positions of the nodes whose results it takes, inputs left out.
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
    uint32_t good_until = kNone;  // the next write to its memory behind the node that takes it
    bool is_certain = true;       // it lies in that memory whatever the sizes are
    uint32_t launch = kNone;      // of waits: the collective that is waited for
  };
  // A piece of memory that results of a node lie in.
  struct ResultMemory {
    uint32_t storage = kNone;
    bool is_made = false;
    uint32_t operand = kNone;  // of a view: which operand lies in the same memory
  };
  struct Reuse {
    uint32_t result = 0, operand = 0;  // which of the node's
  };
  struct CopyState {
    uint32_t node = 0, before = 0;
    uint32_t pieces = 0;      // into copy_pieces_
    uint32_t operands = 0;    // into resolved_
    uint32_t launch = kNone;  // of waits: the copy of the launch
    bool is_used = false;
  };
  struct Resolved {
    uint32_t copy = kNone, piece = kNone;
  };
  struct Step {
    uint32_t at = 0, copy = kNone;
  };
  // Facts of a node that a run looks at.
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

  const Graph& graph_;
  std::vector<uint32_t> position_;  // by NodeId
  std::vector<NodeFacts> nodes_;
  std::vector<Operand> operands_;
  std::vector<ResultMemory> results_;
  std::vector<Reuse> reuses_;
  std::vector<int64_t> original_bytes_;         // by storage of the graph
  std::vector<uint8_t> is_single_;              // by storage: no other may be the same memory
  std::vector<std::vector<uint32_t>> classes_;  // storages that may be one piece of memory
  std::vector<Operand> outputs_;

  // The same in the order and size that runs want: a run looks at little else.
  std::vector<uint8_t> traits_;                         // by position
  std::vector<uint32_t> operand_begin_, result_begin_;  // by position, and the end
  std::vector<uint32_t> operand_def_;                   // by operand
  std::vector<uint32_t> moving_nodes_;                  // those with operands that may lie elsewhere in some runs
  std::vector<uint32_t> moving_, moving_begin_;         // these operands, by moving_nodes_
  std::vector<uint32_t> all_uses_;                      // by position, outputs too

  // Of one run. A piece is memory: the storages of the graph, then what copies make.
  std::vector<int64_t> bytes_;          // by piece, as those that follow
  std::vector<uint32_t> first_, last_;  // steps in use
  std::vector<uint8_t> is_taken_, is_output_piece_;
  std::vector<CopyState> copies_;
  std::vector<uint32_t> copy_of_, asked_for_, uses_;  // by position
  std::vector<uint32_t> stack_, needed_;
  std::vector<uint8_t> wanted_, expired_, is_stale_, is_gone_;  // by position
  std::vector<uint32_t> gone_;                                  // descending
  std::vector<std::pair<uint32_t, uint32_t>> stale_;            // RematOutcome::stale
  // By operand, of originals; those that do not move stay.
  std::vector<uint32_t> read_piece_, read_copy_, read_launch_;
  std::vector<uint32_t> lies_in_;      // by results_: the piece, of originals
  std::vector<uint32_t> redirected_;   // operands of originals that read copies
  std::vector<uint32_t> copy_pieces_;  // by CopyState::pieces + which of the node's results_
  std::vector<Resolved> resolved_;     // by CopyState::operands + which of the node's operands
  std::vector<Step> steps_;            // the new schedule
  std::vector<uint32_t> launches_;     // steps
  std::vector<uint32_t> landing_;      // by position, then by copy: when the last wait is through
  std::vector<int64_t> change_;        // by step: of the live bytes
};

}  // namespace sg
