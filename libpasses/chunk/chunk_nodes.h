// ChunkNodes: creates the nodes that sg-chunk --modules adds besides the copies of bodies, and infers their types.
// Internal to the pass.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/infer/infer.h"
#include "libpasses/chunk/chunk_plan.h"

namespace sg {

class ChunkNodes {
 public:
  // Both must outlive this object.
  ChunkNodes(Program* program, const ChunkPlan& plan);

  Program& program() const { return program_; }
  Graph& graph() const { return graph_; }
  Pool& pool() const { return pool_; }

  Arg size_arg(Expr e) const;  // a number if constant
  Arg sizes_arg(const std::vector<Expr>& sizes) const;
  // The shape of `v` with axis `axis` split in two: the runs, and one run of `length`.
  std::vector<Expr> runs_apart(ValueId v, uint32_t axis, Expr runs, Expr length) const;

  // Metadata of a node at a region's boundary; `role` says what it does there.
  NodeMeta boundary_meta(const BodyNode& body, std::string_view role) const;

  // Inserts a node before the original of `body`, attributed to the parent of its region; returns its result.
  Result<ValueId> add(std::string_view op, std::vector<Arg> args, const std::string& name, const BodyNode& body,
                      NodeMeta meta);
  // The same for a node with one result per chunk: NAME_chunk0 and so on.
  Result<NodeId> add_split(std::string_view op, std::vector<Arg> args, const std::string& name, size_t chunks,
                           const BodyNode& body, NodeMeta meta);

  Status infer(NodeId n);  // sets the types of its results
  // For a plan that cannot be applied, which is a bug in the pass.
  Error fail(NodeId n, const std::string& why) const;

 private:
  Result<NodeId> insert(std::string_view op, std::vector<Arg> args, const std::vector<std::string>& names,
                        const BodyNode& body, NodeMeta meta);

  Program& program_;
  Graph& graph_;
  Pool& pool_;
  const ChunkPlan& plan_;
  TypeInferrer types_;
};

}  // namespace sg
