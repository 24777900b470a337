// Recorded types against inferred ones: whether our rules and the capture agree. sg-import --check lists every result
// that differs by a letter; the verifier asks for one node at a time and lets pass what is equal by the program's
// guards.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/infer/alike_calls.h"
#include "libgraph/infer/infer.h"
#include "libgraph/job.h"

namespace sg {

// A kind of disagreement that is the recorder's fault and known to be: it is reported with its reason.
struct TypeException {
  std::string_view when;  // "axis", "layout", "mask", "offset", "symbols", "statistics"
  std::string_view ops;   // comma-separated full names; "*" = any
  std::string_view reason;
};

struct TypeDisagreement {
  const Graph* graph = nullptr;  // the program's graph or a nested one
  NodeId node;
  uint32_t result = 0;
  Type inferred;  // unknown when `reason` says why nothing could be inferred
  Type recorded;
  std::string reason;
  std::string hint;                          // to `reason`; may be empty
  const TypeException* exception = nullptr;  // null = nobody knows why
};

// For many nodes of one program, which must not change meanwhile.
class TypeChecker {
 public:
  explicit TypeChecker(const Program& program);

  // Adds each result of `n` whose recorded type is not exactly the inferred one. Results without a recorded type and
  // ops without a rule are passed over; where the rule refuses, one entry with its reason stands for the whole node.
  void check(const Graph& graph, NodeId n, std::vector<TypeDisagreement>* found);
  // False: no disagreement of this node is an exception.
  bool may_be_exception(const Graph& graph, NodeId n) const;

 private:
  const TypeException* exception_for(const TypeDisagreement& d) const;
  bool is_chunk_copy(const Graph& graph, NodeId n) const;
  bool touches_chunk_copy(const Graph& graph, NodeId n) const;

  TypeInferrer inferrer_;
  AlikeCalls agreed_;  // those of which every recorded type is the inferred one
  const Pool& pool_;
  StrId graph_producer_;  // the word "graph"; none = no node can say it
  bool was_chunked_ = false;
};

// Whether a result of this op may lie in row order, whatever its rule says at these sizes: the exception "layout".
bool may_lie_in_row_order(std::string_view op);

// Every disagreement of a program in schedule order, nested graphs after the program's; nodes without any recorded type
// are passed over.
std::vector<TypeDisagreement> check_types(const Program& program);

}  // namespace sg
