// Result types from argument types: the shape, stride and dtype rules of the op table.
//
// The rules follow PyTorch's own results on CPU, strides included: on every node of a real capture the inferred type
// equals the recorded one (sg-import --check). They are used to fill in what a capture or a pass left out, and by the
// verifier to find a type that cannot be.
#pragma once

#include <memory>
#include <vector>

#include "libgraph/graph.h"
#include "libgraph/job.h"
#include "libgraph/op.h"

namespace sg {

class Sizes;

// For many nodes of one program: keeps what it learns about the program's symbols from node to node. The program's
// symbols and guards must not change meanwhile.
class TypeInferrer {
 public:
  explicit TypeInferrer(const Program& program);
  ~TypeInferrer();
  Result<std::vector<Type>> infer(const Graph& graph, NodeId n);
  bool is_dense(const Type& tensor);  // no gaps, no overlap, in any order of the axes

 private:
  const Program& program_;
  std::unique_ptr<Sizes> sizes_;
};

// The result types of node `n` from its arguments' types. One entry a result; for a list-returning op as many as it
// returns. Fails with the reason when the op has no rule or its arguments contradict the rule.
Result<std::vector<Type>> infer_types(const Program& program, const Graph& graph, NodeId n);

// Gives a type to every result that has none (TypeKind::unknown). Returns how many it set; results whose type cannot
// be inferred stay unknown and are reported to `missing` as node ids.
size_t infer_missing_types(Program& program, std::vector<NodeId>* missing = nullptr);

}  // namespace sg
