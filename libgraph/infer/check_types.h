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

// A kind of disagreement that is known: it is reported with its reason, and is no fault of the program.
struct TypeException {
  std::string_view when;  // "axis", "layout", "mask", "offset", "symbols", "statistics"
  std::string_view ops;   // comma-separated full names; "*" = any
  std::string_view reason;

  bool is_error() const;  // of the recorder: the inferred type is the right one
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
  // False: no disagreement of this node is an error of the recorder.
  bool may_be_error(const Graph& graph, NodeId n) const;

 private:
  const TypeException* exception_for(const TypeDisagreement& d);
  bool is_chunk_copy(const Graph& graph, NodeId n) const;
  bool touches_chunk_copy(const Graph& graph, NodeId n) const;

  TypeInferrer inferrer_;
  AlikeCalls agreed_;  // those of which every recorded type is the inferred one
  const Pool& pool_;
  StrId graph_producer_;  // the word "graph"; none = no node can say it
  bool was_chunked_ = false;
};

// Whether results of this call are made in memory of their own, in an order of axes that nothing in the call says. Any
// dense order is right then: what takes the results goes by the recorded one, and kernels write any.
bool layout_is_free(const Graph& graph, NodeId n);

// Every disagreement of a program in schedule order, nested graphs after the program's; nodes without any recorded type
// are passed over.
std::vector<TypeDisagreement> check_types(const Program& program);

}  // namespace sg
