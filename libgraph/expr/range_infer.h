// Ranges of symbols that follow from the graph: what an exchange brings is bounded by what its senders may send.
//
// What     Three sources, repeated until nothing gets tighter: the guards (Facts); counts of what an op
//          finds in a tensor (nonzero: at most as many as there are elements); and exchanges with split
//          sizes. The received split sizes of an exchange lie in the range of the sent ones over all ranks
//          of the group: the n-th exchange on a group is the same exchange on each of its ranks. Split sizes
//          are never negative.
// Limits   Senders that the job does not hold may send anything: an exchange with one of them bounds nothing. What
//          stays open is reported.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "libgraph/expr/symbols.h"
#include "libgraph/job.h"

namespace sg {

// One exchange with split sizes, as one program sees it.
struct Exchange {
  const Graph* graph = nullptr;
  NodeId node;
  GroupId group;
  std::vector<Expr> received;  // split sizes of the result, by group rank; kInvalid where they are not known
  std::vector<Expr> sent;      // split sizes of the argument, likewise
};

// A count of what an op finds in a tensor: at most one per element, however many those are.
struct Count {
  StrId symbol;
  Expr most;
};

struct InferredRange {
  size_t program = 0;  // index into Job::programs
  StrId symbol;
  Interval range;      // tighter than the declaration says
  std::string reason;  // "guards", or the node that bounds it
};

struct RangeInference {
  std::vector<Facts> facts;                      // by program, with everything that was inferred
  std::vector<std::vector<Exchange>> exchanges;  // by program, in schedule order
  std::vector<std::vector<Count>> counts;        // by program
  // By program: the symbols that a type, an argument or a binding mentions. Captures declare others, left over.
  std::vector<std::unordered_set<StrId, IdHash>> used;
  std::vector<InferredRange> tightened;  // by program, in declaration order
  struct Open {
    size_t program = 0;
    StrId symbol;
  };
  std::vector<Open> unbounded;  // used symbols that have no upper bound still
};

RangeInference infer_ranges(const Job& job);

}  // namespace sg
