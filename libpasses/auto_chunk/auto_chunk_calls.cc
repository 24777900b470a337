#include "libpasses/auto_chunk/auto_chunk_outliner.h"

#include "libgraph/edit/rewrite.h"
#include "libgraph/infer/infer_sizes.h"
#include "libpasses/pass_bug.h"

namespace sg {

Status AutoOutliner::call(int64_t c) {
  SG_ASSIGN(const NestedId body, body_of(c));
  std::vector<Arg> list;
  for (const In& in : ins_) list.push_back(Arg::value(in.along ? in.parts[static_cast<size_t>(c)] : in.value));
  NodeSpec spec = like_call(c, "call");
  for (const Out& out : outs_) {
    list.push_back(Arg::value(out.is_sum ? out.whole : out.parts[static_cast<size_t>(c)]));
    if (!out.is_sum) continue;
    spec.names.push_back(std::string(graph_.name(out.value)) + "_chunk" + std::to_string(c));
    spec.result_types.push_back(graph_.value(out.whole).type);
  }
  spec.label = std::string(graph_.label(plan_.amplifier)) + "_chunk" + std::to_string(c);
  spec.op = pool_.op("sg.call"), spec.args = {Arg::graph(body), Arg::list(std::move(list))}, spec.is_tuple = true;
  const NodeId n = graph_.insert_before(main_.position, spec);
  uint32_t at = 0;
  for (Out& out : outs_)
    if (out.is_sum) out.whole = graph_.node(n).result(at++);
  return ok_status();
}

Result<NestedId> AutoOutliner::body_of(int64_t c) {
  const Expr rows = cuts_.sizes[static_cast<size_t>(c)];
  if (auto it = bodies_.find(rows.index); it != bodies_.end()) return it->second;
  std::string name = "chunk_" + std::string(graph_.label(plan_.amplifier));
  if (!bodies_.empty()) name += "_rest";
  while (program_.find_nested(pool_.str(name)) != nullptr) name += "_";
  const NestedId id(static_cast<uint32_t>(program_.nested.size()));
  program_.nested.push_back(std::make_unique<Nested>(Nested{pool_.str(name), Graph(&pool_)}));
  SG_TRY(fill_body(&program_.nested.back()->graph, c));
  bodies_.emplace(rows.index, id);
  counts_.body_nodes = plan_.body.size(), ++counts_.bodies;
  return id;
}

ValueId AutoOutliner::add_input(Graph* body, ValueId given, std::string_view name) {
  Type type = graph_.type(given);
  if (type.kind == TypeKind::tensor) type.offset = pool_.exprs.constant(0);
  return body->add_input(name, pool_.types.intern(std::move(type)), Input{});
}

Status AutoOutliner::fill_body(Graph* body, int64_t c) {
  ChunkBuilder builder(&program_, body);
  std::vector<ValueId> ins, outs;
  for (const In& in : ins_)
    ins.push_back(add_input(body, in.along ? in.parts[static_cast<size_t>(c)] : in.value, graph_.name(in.value)));
  for (const Out& out : outs_)
    outs.push_back(add_input(body, out.is_sum ? out.whole : out.parts[static_cast<size_t>(c)],
                             std::string(graph_.name(out.value)) + (out.is_sum ? "_sum" : "_rows")));
  for (size_t k = 0; k < ins_.size() && chunks() > 1; ++k) {
    if (!ins_[k].along || !ins_[k].along->runs) continue;
    SG_ASSIGN(ins[k], put_together(ins[k], ins_[k], &builder));
  }
  ValueMap made;
  NodeMap copies;
  for (const AutoNode& node : plan_.body) {
    const NodeId copy = body->insert_before(NodeId(), spec_in(node, c, ins, made, copies));
    copies.emplace(node.node, copy);
    SG_TRY(builder.infer(copy));
    for (uint32_t i = 0; i < graph_.node(node.node).result_count; ++i) {
      const ValueId whole = graph_.node(node.node).result(i), part = body->node(copy).result(i);
      SG_TRY(check_part(node.node, whole, body->type(part), c));
      made.emplace(whole, part);
    }
  }
  for (size_t i = 0; i < outs_.size(); ++i) {
    const std::string name(graph_.name(outs_[i].value));
    ValueId part = made.at(outs_[i].value);
    if (const Along& along = outs_[i].along; !outs_[i].is_sum && along.runs && chunks() > 1) {
      const std::vector<Expr> apart = runs_apart(body->type(part).shape, along, cuts_.sizes[static_cast<size_t>(c)]);
      SG_ASSIGN(part, builder.make("aten.view.default", {Arg::value(part), builder.sizes_of(apart)}, name + "_runs",
                                   like_call(-1, "materialization")));
    }
    if (outs_[i].is_sum) {
      Output output;
      SG_ASSIGN(output.value, add_to(outs[i], part, name + "_added", &builder));
      body->add_output(output);
    } else {
      SG_TRY(builder.make("aten.copy_.default", {Arg::value(outs[i]), Arg::value(part)}, name + "_written",
                          like_call(-1, "materialization")));
    }
  }
  return ok_status();
}

Result<ValueId> AutoOutliner::put_together(ValueId part, const In& in, ChunkBuilder* builder) {
  const NodeSpec like = like_call(-1, "chunk_input");
  const std::string name(graph_.name(in.value));
  std::vector<Expr> shape = builder->graph().type(part).shape;
  shape[in.along->axis] = pool_.exprs.mul(shape[in.along->axis], shape[in.along->axis + 1]);
  shape.erase(shape.begin() + in.along->axis + 1);
  const Arg format =
      builder->keyword("memory_format", Arg::text(ArgKind::memory_format, pool_.str("contiguous_format")));
  SG_ASSIGN(const ValueId dense,
            builder->make("aten.clone.default", {Arg::value(part), format}, name + "_dense", like));
  return builder->make("aten.view.default", {Arg::value(dense), builder->sizes_of(shape)}, name + "_chunk", like);
}

Result<ValueId> AutoOutliner::add_to(ValueId sum, ValueId part, const std::string& name, ChunkBuilder* builder) {
  Graph& body = builder->graph();
  const NodeId product = body.value(part).def;
  const NodeSpec like = like_call(-1, "materialization");
  if (body.op_name(product) != "aten.mm.default" || body.is_used(part) || body.type(part).dtype != body.type(sum).dtype)
    return builder->make("aten.add_.Tensor", {Arg::value(sum), Arg::value(part)}, name, like);
  const std::vector<Arg>& factors = body.node(product).args;
  builder->position = product;
  auto done = builder->make("aten.addmm_.default", {Arg::value(sum), factors[0], factors[1]}, name, like);
  builder->position = NodeId();
  body.erase(product);
  return done;
}

NodeSpec AutoOutliner::spec_in(const AutoNode& node, int64_t c, const std::vector<ValueId>& ins, const ValueMap& made,
                               const NodeMap& copies) {
  NodeSpec spec = spec_of(graph_, node.node);
  for (Arg& arg : spec.args)
    arg.walk_mutable([&](Arg& a) {
      if (!a.is(ArgKind::value)) return;
      const ValueId v = a.as_value();
      const SliceWish* wish = wish_for(node, v);
      if (auto it = made.find(v); it != made.end() && !wish) return a.set_value(it->second);
      if (const In* in = find_input(v, wish ? std::optional(wish->along) : std::nullopt))
        return a.set_value(ins[static_cast<size_t>(in - ins_.data())]);
      const StrId key = a.key();
      a = as_number(v)->set_key(key);
    });
  for (const SizeEdit& edit : node.edits) {
    Arg& target = edit.item ? spec.args[edit.arg].mutable_items()[*edit.item] : spec.args[edit.arg];
    const StrId key = target.key();
    target = main_.size_of(extent(edit.along, c)).set_key(key);
  }
  spec.result_types.assign(graph_.node(node.node).result_count, Pool::kUnknownType);
  for (uint32_t i = 0; i < graph_.node(node.node).result_count; ++i)
    spec.names.emplace_back(graph_.name(graph_.node(node.node).result(i)));
  spec.label = graph_.label(node.node);
  spec.forward = NodeId();
  if (const NodeId forward = graph_.node(node.node).forward)
    if (auto it = copies.find(forward); it != copies.end()) spec.forward = it->second;
  NodeMeta meta = graph_.meta(node.node);
  meta.chunk = {pool_.str(region()),
                -1,
                pool_.str("body"),
                pool_.str("graph"),
                graph_.node(node.node).label,
                static_cast<int8_t>(spec.phase == Phase::backward)};
  spec.meta = pool_.metas.intern(std::move(meta));
  return spec;
}

Status AutoOutliner::check_part(NodeId n, ValueId whole, const Type& part, int64_t c) const {
  const AxisState& s = state(whole);
  if (s.kind != AxisKind::along) return ok_status();
  if (part.kind == TypeKind::tensor && s.along.axis < part.shape.size()) {
    Sizes sizes(&pool_, &program_);
    if (sizes.same(part.shape[s.along.axis], extent(s.along, c))) return ok_status();
  }
  return pass_bug(program_, graph_, n, "%" + std::string(graph_.name(whole)) + " is not as long as the chunk");
}

}  // namespace sg
