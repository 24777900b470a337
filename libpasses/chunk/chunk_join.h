// Joins the chunks of a value in sg-chunk --modules, in the memory layout of the original, because readers may depend
// on its strides. Internal to the pass.
#pragma once

#include <vector>

#include "libpasses/chunk/chunk_nodes.h"

namespace sg {

class ChunkJoiner {
 public:
  explicit ChunkJoiner(ChunkNodes* nodes) : nodes_(*nodes), graph_(nodes->graph()), pool_(nodes->pool()) {}

  // `parts`: chunk 0, 1, ... of `v`, a result of `body`. In the backward the last chunk comes first, as autograd adds.
  Result<ValueId> sum(const BodyNode& body, ValueId v, const std::vector<ValueId>& parts);
  // Concatenated with their axes in memory order of the original; axes along which it repeats elements (stride 0) are
  // left out, and expanded again afterwards.
  Result<ValueId> concatenate(const BodyNode& body, ValueId v, std::vector<ValueId> parts, uint32_t axis);
  // The same along an axis in runs; `lengths`: the length of a run in each part.
  Result<ValueId> concatenate_runs(const BodyNode& body, ValueId v, std::vector<ValueId> parts, const Along& along,
                                   const std::vector<Expr>& lengths);
  // `whole` in the layout of `v`. An Error if `v` repeats one row, which no copy would do.
  Result<ValueId> lay_out(const BodyNode& body, ValueId v, ValueId whole);

 private:
  Result<ValueId> add(std::string_view op, std::vector<Arg> args, const std::string& name, const BodyNode& body) {
    return nodes_.add(op, std::move(args), name, body, nodes_.boundary_meta(body, "materialization"));
  }

  ChunkNodes& nodes_;
  Graph& graph_;
  Pool& pool_;
};

}  // namespace sg
