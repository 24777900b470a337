// What the chunks of sg-chunk --modules have of a value, put together before the next node: laid out as the whole was,
// since what reads it may see it by strides. Internal to the pass.
#pragma once

#include <vector>

#include "libpasses/chunk/chunk_nodes.h"

namespace sg {

class ChunkJoiner {
 public:
  explicit ChunkJoiner(ChunkNodes* nodes) : nodes_(*nodes), graph_(nodes->graph()), pool_(nodes->pool()) {}

  // `parts`: what chunk 0, 1, ... has of `v`, a result of `body`.
  // In the backward the last chunk comes first, as autograd adds.
  Result<ValueId> sum(const BodyNode& body, ValueId v, const std::vector<ValueId>& parts);
  // Concatenated with their axes in the order in which the whole lies in memory; axes along which it repeats itself are
  // left out, and widened again.
  Result<ValueId> concatenate(const BodyNode& body, ValueId v, std::vector<ValueId> parts, uint32_t axis);
  // The same along an axis in runs; `lengths`: of a run of each part.
  Result<ValueId> concatenate_runs(const BodyNode& body, ValueId v, std::vector<ValueId> parts, const Along& along,
                                   const std::vector<Expr>& lengths);
  // `whole` in the layout of `v`. An Error where `v` shows one row again and again, which no copy would.
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
