// ChunkBuilder: creates nodes around the chunks of sg-chunk --auto, and infers their types. Internal to it.
#pragma once

#include <string>
#include <vector>

#include "libgraph/infer/infer.h"
#include "libgraph/job.h"

namespace sg {

class ChunkBuilder {
 public:
  ChunkBuilder(Program* program, Graph* graph)
      : program_(*program), graph_(*graph), pool_(graph->pool()), types_(*program) {}

  Graph& graph() { return graph_; }

  Arg size_of(Expr e) const {
    const auto number = pool_.exprs.constant_value(e);
    return number ? Arg::integer(*number) : Arg::expr(e);
  }
  Arg sizes_of(const std::vector<Expr>& shape) const;

  Arg keyword(std::string_view key, Arg arg) { return arg.set_key(pool_.str(key)); }

  Status infer(NodeId n);
  Result<ValueId> make(std::string_view op, std::vector<Arg> args, const std::string& name, const NodeSpec& like);
  Result<std::vector<ValueId>> make_all(std::string_view op, std::vector<Arg> args,
                                        const std::vector<std::string>& names, bool is_tuple, NodeSpec like);
  // A new tensor with the type's shape and layout.
  Result<ValueId> make_tensor(std::string_view op, const Type& type, DType dtype, const std::string& name,
                              const NodeSpec& like);

  NodeId position;  // new nodes are inserted before it

 private:
  Program& program_;
  Graph& graph_;
  Pool& pool_;
  TypeInferrer types_;
};

}  // namespace sg
