// OrderFacts: the one answer to "may A move before B", and why not.
//
// Two nodes may change places unless one of these holds:
//   data        the later one uses a result of the earlier
//   memory      one writes what the other may read or write (libgraph/facts/alias.h; a wait writes its buffer)
//   symbol      the later one uses a symbol that the earlier defines
//   host sync   both sync the host or assert. They keep their order so that the host takes the same steps on every rank
//               and the assertion that fails first stays the first to be reported
//   collective  both launch on one group family: ranks must launch in the same order, or they deadlock. Families with
//               equal ranks but a different axis or ordinal are separate communicators, and independent
//   opaque      one is an unknown op, and the other writes, syncs, asserts, communicates or is opaque too
// Random ops impose no order: their bits are a function of the node's stream, not of the time at which they are drawn.
//
// The two rules that exist for the other ranks (host sync, collective) do not apply to a caller that decides for all
// ranks of the job at once: OrderScope::job. Assertions still keep their order. A caller that uses this scope must
// prove that the ranks still agree.
//
// Facts are about pairs and do not depend on the nodes' positions: after legal moves they still hold. Inserting,
// erasing or changing a node needs new facts. Building is linear.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libgraph/facts/alias.h"

namespace sg {

enum class OrderReason : uint8_t {
  none,
  data,
  read_after_write,
  write_after_read,
  write_after_write,
  symbol,
  host_sync,
  collective,
  opaque,
};

// A node that must stay before the one asked about, and why.
struct Constraint {
  NodeId before;
  OrderReason reason = OrderReason::none;
  ValueId value;  // data: the result; memory: the owner of the storage in question
  GroupId group;  // collective
  StrId symbol;   // symbol
};

struct MoveVerdict {
  bool allowed = true;
  Constraint why;  // when not allowed: `why.before` is the node in the way
  explicit operator bool() const { return allowed; }
};

enum class OrderScope : uint8_t { rank, job };

class OrderFacts {
 public:
  OrderFacts(const Program& program, const Graph& graph, OrderScope scope = OrderScope::rank);

  // May `later`, which stands after `earlier`, be placed before it? About these two alone.
  MoveVerdict may_swap(NodeId earlier, NodeId later) const;

  // May `mover` be moved to just before (after) `position`, across all nodes between? Linear in those. Names the first
  // node in the way. Moving in the other direction than asked, or not at all, is allowed when nothing is crossed.
  MoveVerdict may_move_before(NodeId mover, NodeId position) const;
  MoveVerdict may_move_after(NodeId mover, NodeId position) const;

  // Nodes that n must follow, in schedule order, each once. The lists of all nodes together imply every pair that may
  // not be swapped, and have linear length: what follows through another node is mostly left out.
  std::span<const Constraint> constraints_into(NodeId n) const;

  const AliasAnalysis& alias() const { return alias_; }

 private:
  friend class ConstraintBuilder;
  struct Access {
    uint32_t alias_class;
    bool write;
    StorageId storage;
  };
  struct Part {
    uint32_t begin = 0, count = 0;
  };
  std::span<const Access> accesses(NodeId n) const;
  bool has_order_effect(NodeId n) const;  // what opaque ops are ordered against
  bool check_memory(NodeId earlier, NodeId later, Constraint* why) const;
  bool check_symbols(NodeId earlier, NodeId later, Constraint* why) const;
  bool check_effects(NodeId earlier, NodeId later, Constraint* why) const;
  bool mentions(NodeId n, StrId symbol) const;
  void collect_accesses();

  const Program& program_;
  const Graph& graph_;
  OrderScope scope_;
  uint32_t host_order_;  // effects that keep their order among themselves
  AliasAnalysis alias_;
  std::vector<Access> access_list_;
  std::vector<Part> accesses_;  // by node; ascending by class, each once
  std::vector<Constraint> constraint_list_;
  std::vector<Part> constraints_;  // by node
};

// "%mm_3 reads %buf, which %add__1 writes": one sentence without a full stop.
std::string explain(const Job& job, const Graph& graph, NodeId mover, const Constraint& why);

}  // namespace sg
