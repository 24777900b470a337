#include "libpasses/auto_chunk/auto_chunk_builder.h"

#include "libpasses/chunk/chunk_layout.h"
#include "libpasses/pass_bug.h"

namespace sg {

Arg ChunkBuilder::sizes_of(const std::vector<Expr>& shape) const {
  std::vector<Arg> list;
  for (Expr e : shape) list.push_back(size_of(e));
  return Arg::list(std::move(list));
}

Status ChunkBuilder::infer(NodeId n) {
  auto types = types_.infer(graph_, n);
  if (!types.ok()) return pass_bug(program_, graph_, n, types.error().message);
  for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
    graph_.set_type(graph_.node(n).result(i), pool_.types.intern((*types)[i]));
  return ok_status();
}

Result<ValueId> ChunkBuilder::make(std::string_view op, std::vector<Arg> args, const std::string& name,
                                   const NodeSpec& like) {
  SG_ASSIGN(const std::vector<ValueId> all, make_all(op, std::move(args), {name}, false, like));
  return all[0];
}

Result<std::vector<ValueId>> ChunkBuilder::make_all(std::string_view op, std::vector<Arg> args,
                                                    const std::vector<std::string>& names, bool is_tuple,
                                                    NodeSpec like) {
  like.op = pool_.op(op), like.args = std::move(args), like.is_tuple = is_tuple;
  like.result_types.assign(names.size(), Pool::kUnknownType);
  like.names.assign(names.begin(), names.end());
  const NodeId n = graph_.insert_before(position, like);
  SG_TRY(infer(n));
  std::vector<ValueId> out;
  for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) out.push_back(graph_.node(n).result(i));
  return out;
}

Result<ValueId> ChunkBuilder::make_tensor(std::string_view op, const Type& type, DType dtype, const std::string& name,
                                          const NodeSpec& like) {
  const auto order = axes_in_memory(&pool_, program_, type);
  if (!order)
    return Error{
        ErrorKind::cannot_apply, "%" + name + " has a layout that no new tensor has", {}, "make it contiguous"};
  std::vector<Expr> shape;
  for (uint32_t axis : *order) shape.push_back(type.shape[axis]);
  SG_ASSIGN(ValueId out, make(op,
                              {sizes_of(shape), keyword("dtype", Arg::dtype(dtype)),
                               keyword("device", Arg::text(ArgKind::device, type.device))},
                              name, like));
  if (is_identity(*order)) return out;
  return make("aten.permute.default", {Arg::value(out), axes_arg(inverse(*order))}, name, like);
}

}  // namespace sg
