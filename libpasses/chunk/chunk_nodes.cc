#include "libpasses/chunk/chunk_nodes.h"

#include "libgraph/op.h"
#include "libpasses/pass_bug.h"

namespace sg {

ChunkNodes::ChunkNodes(Program* program, const ChunkPlan& plan)
    : program_(*program), graph_(program->graph), pool_(graph_.pool()), plan_(plan), types_(*program) {}

Arg ChunkNodes::size_arg(Expr e) const {
  const auto number = pool_.exprs.constant_value(e);
  return number ? Arg::integer(*number) : Arg::expr(e);
}

Arg ChunkNodes::sizes_arg(const std::vector<Expr>& sizes) const {
  std::vector<Arg> list;
  for (Expr e : sizes) list.push_back(size_arg(e));
  return Arg::list(std::move(list));
}

std::vector<Expr> ChunkNodes::runs_apart(ValueId v, uint32_t axis, Expr runs, Expr length) const {
  std::vector<Expr> out = graph_.type(v).shape;
  out[axis] = length;
  out.insert(out.begin() + axis, runs);
  return out;
}

NodeMeta ChunkNodes::boundary_meta(const BodyNode& body, std::string_view role) const {
  NodeMeta meta;
  meta.chunk.region = pool_.str(plan_.regions[body.region].module);
  meta.chunk.role = pool_.str(role);
  meta.chunk.producer = pool_.str("graph");
  meta.chunk.is_backward = graph_.node(body.node).phase == Phase::backward;
  return meta;
}

Result<NodeId> ChunkNodes::insert(std::string_view op, std::vector<Arg> args, const std::vector<std::string>& names,
                                  const BodyNode& body, NodeMeta meta) {
  NodeSpec spec;
  spec.op = pool_.op(op);
  spec.args = std::move(args);
  spec.result_types.assign(names.size(), Pool::kUnknownType);
  spec.names = names;
  spec.is_tuple = names.size() > 1;
  spec.phase = graph_.node(body.node).phase;
  if (const std::string& parent = plan_.regions[body.region].parent; !parent.empty()) spec.module = pool_.str(parent);
  spec.source = graph_.node(body.node).source;
  spec.meta = pool_.metas.intern(std::move(meta));
  const NodeId n = graph_.insert_before(body.node, spec);
  SG_TRY(infer(n));
  return n;
}

Result<ValueId> ChunkNodes::add(std::string_view op, std::vector<Arg> args, const std::string& name,
                                const BodyNode& body, NodeMeta meta) {
  SG_ASSIGN(const NodeId n, insert(op, std::move(args), {name}, body, std::move(meta)));
  return graph_.node(n).result(0);
}

Result<NodeId> ChunkNodes::add_split(std::string_view op, std::vector<Arg> args, const std::string& name, size_t chunks,
                                     const BodyNode& body, NodeMeta meta) {
  std::vector<std::string> names;
  for (size_t c = 0; c < chunks; ++c) names.push_back(name + "_chunk" + std::to_string(c));
  return insert(op, std::move(args), names, body, std::move(meta));
}

Status ChunkNodes::infer(NodeId n) {
  auto types = types_.infer(graph_, n);
  if (!types.ok()) return fail(n, types.error().message);
  for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
    graph_.set_type(graph_.node(n).result(i), pool_.types.intern((*types)[i]));
  return ok_status();
}

Error ChunkNodes::fail(NodeId n, const std::string& why) const { return pass_bug(program_, graph_, n, why); }

}  // namespace sg
