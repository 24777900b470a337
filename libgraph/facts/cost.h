// What a node costs: floating point operations, bytes that the device moves, bytes that it sends to other ranks.
//
// Rules     The cost column of op.def names one of the functions below; `none` there means: decided by the traits.
//           Views, waits, asserts and arithmetic on sizes are free; pointwise ops count one operation per element of
//           the result, reductions one per element of the argument; everything else only moves bytes.
// Flops     A multiply-add is two. Attention counts all pairs: no discount for causal masks; its backward recomputes
//           the scores, so it has five products to the forward's two. A complex multiply counts as one.
// Bytes     Each argument is read once and each result written once (expanded axes count once); anything written
//           in place is read and written. So it is a lower bound for one kernel per node, without fusion.
// Symbols   take the values of `SizeValues`; a symbol without one makes the cost incomplete, and counts as 0.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "libgraph/expr/sizes.h"
#include "libgraph/graph.h"
#include "libgraph/job.h"
#include "libgraph/op.h"

namespace sg {

// What a cost rule sees: arguments by the schema's names, with sizes as numbers.
struct CostCall {
  const Graph& graph;
  const Node& node;
  const OpInfo& op;
  const SizeValues& values;
  mutable bool complete = true;  // false: some size is not known

  const Arg* argument(std::string_view name) const;  // null when it is left out
  const Type* tensor(std::string_view name) const;   // null when it is no tensor
  const Type* first_tensor() const;                  // by position; null when no argument is one
  const Type* result(uint32_t i) const;              // null when it is no tensor
  double elements(const Type* type) const;           // 0 for null
  double bytes(const Type* type) const;              // distinct elements; 0 for null
  double dim(const Type* type, int index) const;     // negative: from the end; 1 when there is none
  double bytes_in(const Arg& arg) const;             // all tensors in it
  double argument_bytes() const;                     // all tensor arguments
  double result_bytes() const;
};

namespace cost {

inline constexpr CostRule none = nullptr;
OpCost free(const CostCall& call);           // allocations: nothing is touched
OpCost fill(const CostCall& call);           // the result is written, arguments give only sizes
OpCost gather(const CostCall& call);         // reads as much as it returns, and the indices
OpCost scatter(const CostCall& call);        // reads and writes what is scattered, and the indices
OpCost scan(const CostCall& call);           // one an element of the first argument
OpCost sort(const CostCall& call);           // n log2 n
OpCost softmax(const CostCall& call);        // five an element: max, subtract, exp, sum, divide
OpCost normalization(const CostCall& call);  // eight an element
OpCost matmul(const CostCall& call);         // 2 m n k of the first two of self/mat1/batch1/mat/input ...
OpCost grouped_mm(const CostCall& call);
OpCost convolution(const CostCall& call);
OpCost convolution_backward(const CostCall& call);
OpCost distance(const CostCall& call);  // three an element of each pair of rows
OpCost fourier(const CostCall& call);   // 5 n log2 n an element of what is transformed
// Of matrices m x n, the leading terms of what LAPACK's algorithms take; a right side counts with each of its columns.
OpCost cholesky(const CostCall& call);    // n^3 / 3
OpCost lu(const CostCall& call);          // k^2 (max - k / 3), k the smaller size
OpCost inverse(const CostCall& call);     // 2 n^3
OpCost solve_once(const CostCall& call);  // n^2 a right side
OpCost solve_twice(const CostCall& call);
OpCost solve(const CostCall& call);       // lu, then twice
OpCost qr(const CostCall& call);          // the factors and Q: 4 k^2 (max - k / 3)
OpCost reflect(const CostCall& call);     // 4 numbers of what is reflected for each number of a reflection
OpCost eigen(const CostCall& call);       // 9 n^3, values alone 4 / 3 n^3
OpCost svd(const CostCall& call);         // 8 k^2 max + 12 k^3, values alone 4 k^2 (max - k / 3)
OpCost matrix_exp(const CostCall& call);  // 15 n^3: how often it squares only the data says
OpCost attention(const CostCall& call);
OpCost attention_backward(const CostCall& call);

}  // namespace cost

struct NodeCost {
  double flops = 0;
  double bytes = 0;
  bool complete = true;  // false: a size or the op itself is not known
};

// Costs of one program's nodes; sg.call costs what its body does, each body once computed.
class CostModel {
 public:
  CostModel(const Program& program, SizeValues values);
  ~CostModel();
  NodeCost node(const Graph& graph, NodeId n);
  const SizeValues& values() const { return values_; }

 private:
  NodeCost body(NestedId id);

  const Program& program_;
  SizeValues values_;
  struct Body {
    enum class State : uint8_t { unknown, in_progress, done } state = State::unknown;
    NodeCost cost;
  };
  std::vector<Body> bodies_;
  int depth_ = 0;
};

// One collective as each of its ranks sees it.
//   payload_bytes  what the rank hands in: its shard for all_gather; the whole unreduced tensor for reduce_scatter and
//                  all_reduce; all rows it sends, its own included, for all_to_all; the tensor for broadcast
//   wire_bytes     what leaves the rank when the algorithm wastes nothing, for a group of n: all_gather (n-1) payload,
//                  reduce_scatter and all_to_all (n-1)/n payload, all_reduce 2 (n-1)/n payload, broadcast payload;
//                  of an all_to_all whose split sizes are numbers, all but what the rank sends to itself
//   received_bytes of an all_to_all whose split sizes are numbers, what the others send to the rank; else 0
struct Communication {
  std::string_view kind;  // "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", or the op's name
  GroupId group;          // none = a group that the file does not declare
  double payload_bytes = 0;
  double wire_bytes = 0;
  double received_bytes = 0;
  bool complete = true;
};

// Communication::kind of an op by its full name.
std::string_view communication_kind(std::string_view op);

// REQUIRES: the op of n has the trait kCollective. `ranks` of the program, for the group's size.
Communication communication_of(const Job& job, const Program& program, const Graph& graph, NodeId n,
                               const SizeValues& values);

}  // namespace sg
