// ChunkNodes: what sg-chunk --modules adds to a program beside the copies of its bodies; types are inferred as nodes
// come. Internal to the pass.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/infer/infer.h"
#include "libpasses/chunk/chunk_plan.h"

namespace sg {

class ChunkNodes {
 public:
  // Both outlive this.
  ChunkNodes(Program* program, const ChunkPlan& plan);

  Program& program() const { return program_; }
  Graph& graph() const { return graph_; }
  Pool& pool() const { return pool_; }

  Arg size_arg(Expr e) const;  // a number where it is one
  Arg sizes_arg(const std::vector<Expr>& sizes) const;
  // The shape of `v` with its axis `axis` as an axis of runs and one of a run, `length` long.
  std::vector<Expr> runs_apart(ValueId v, uint32_t axis, Expr runs, Expr length) const;

  // Of a node where a region begins or ends: `role` is what it does there.
  NodeMeta boundary_meta(const BodyNode& body, std::string_view role) const;

  // A node before the original of `body`, attributed to the parent of its region; its result.
  Result<ValueId> add(std::string_view op, std::vector<Arg> args, const std::string& name, const BodyNode& body,
                      NodeMeta meta);
  // The same of one with a result a chunk: NAME_chunk0 and so on.
  Result<NodeId> add_split(std::string_view op, std::vector<Arg> args, const std::string& name, size_t chunks,
                           const BodyNode& body, NodeMeta meta);

  Status infer(NodeId n);  // sets the types of its results
  // Of a plan that could not be carried out, which is a mistake of ours.
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
