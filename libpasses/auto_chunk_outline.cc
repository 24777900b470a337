#include "libpasses/auto_chunk_outline.h"

#include <algorithm>
#include <map>

#include "libgraph/dtype.h"
#include "libgraph/infer.h"
#include "libgraph/infer_sizes.h"
#include "libgraph/op.h"
#include "libgraph/rewrite.h"
#include "libpasses/auto_chunk_rewrite.h"
#include "libpasses/chunk_layout.h"

namespace sg {
namespace {

// The nodes that are put in for the region's: types follow from arguments.
class Builder {
 public:
  Builder(Program* program, Graph* graph) : program_(*program), graph_(*graph), pool_(graph->pool()), types_(*program) {}

  Graph& graph() { return graph_; }

  Arg size_of(Expr e) const {
    const auto number = pool_.exprs.constant_value(e);
    return number ? Arg::integer(*number) : Arg::expr(e);
  }
  Arg sizes_of(const std::vector<Expr>& shape) const {
    std::vector<Arg> list;
    for (Expr e : shape) list.push_back(size_of(e));
    return Arg::list(std::move(list));
  }
  Arg keyword(std::string_view key, Arg arg) { return arg.set_key(pool_.str(key)); }

  Status infer(NodeId n) {
    auto types = types_.infer(graph_, n);
    if (!types.ok())
      return Error{ErrorKind::cannot_apply, place_of(program_, graph_, n) + ": " + std::string(graph_.op_name(n)) + ": " + types.error().message, {}, "this is not expected: please report it"};
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) graph_.set_type(graph_.node(n).result(i), pool_.types.intern((*types)[i]));
    return ok_status();
  }

  Result<ValueId> make(std::string_view op, std::vector<Arg> args, const std::string& name, const NodeSpec& like) {
    SG_ASSIGN(const std::vector<ValueId> all, make_all(op, std::move(args), {name}, false, like));
    return all[0];
  }

  Result<std::vector<ValueId>> make_all(std::string_view op, std::vector<Arg> args, const std::vector<std::string>& names, bool is_tuple, NodeSpec like) {
    like.op = pool_.op(op), like.args = std::move(args), like.is_tuple = is_tuple;
    like.result_types.assign(names.size(), Pool::kUnknownType);
    like.names.assign(names.begin(), names.end());
    const NodeId n = graph_.insert_before(position, like);
    SG_TRY(infer(n));
    std::vector<ValueId> out;
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) out.push_back(graph_.node(n).result(i));
    return out;
  }

  // A new tensor of the type's shape and layout.
  Result<ValueId> make_tensor(std::string_view op, const Type& type, DType dtype, const std::string& name, const NodeSpec& like) {
    const auto order = axes_in_memory(&pool_, program_, type);
    if (!order) return Error{ErrorKind::cannot_apply, "%" + name + " has a layout that no new tensor has", {}, "make it contiguous"};
    std::vector<Expr> shape;
    for (uint32_t axis : *order) shape.push_back(type.shape[axis]);
    SG_ASSIGN(ValueId out, make(op, {sizes_of(shape), keyword("dtype", Arg::dtype(dtype)), keyword("device", Arg::text(ArgKind::device, type.device))}, name, like));
    if (is_identity(*order)) return out;
    return make("aten.permute.default", {Arg::value(out), axes_arg(inverse(*order))}, name, like);
  }

  NodeId position;                    // new nodes stand before it

 private:
  Program& program_;
  Graph& graph_;
  Pool& pool_;
  TypeInferrer types_;
};

class Outliner {
 public:
  Outliner(Program* program, const AutoPlan& plan, const AutoCuts& cuts, bool sums_in_f32)
      : program_(*program), graph_(program->graph), pool_(graph_.pool()), plan_(plan), cuts_(cuts), sums_in_f32_(sums_in_f32), main_(program, &program->graph) {}

  Result<AutoCounts> run() {
    main_.position = place();
    collect_inputs();
    SG_TRY(cut_inputs());
    SG_TRY(make_results());
    for (int64_t c = 0; c < chunks(); ++c) SG_TRY(call(c));
    SG_TRY(replace_results());
    for (NodeId n : plan_.behind) graph_.move_before(n, main_.position);
    erase_body();
    return counts_;
  }

 private:
  // An operand of the body: whole, or a slice of each chunk's own.
  struct In {
    ValueId value;
    std::optional<Along> along;
    std::vector<ValueId> parts;       // by chunk; whole: none
  };
  struct Out {
    ValueId value;                    // of the body
    bool is_sum = false;
    Along along;
    ValueId whole;                    // what is written; of sums the last
    std::vector<ValueId> parts;       // by chunk; not of sums
  };

  int64_t chunks() const { return static_cast<int64_t>(cuts_.sizes.size()); }
  const AxisState& state(ValueId v) const { return plan_.world.states[v.index]; }
  bool is_body(NodeId n) const { return n && n.index < plan_.is_body.size() && plan_.is_body[n.index]; }
  Expr extent(const Along& a, int64_t c) const { return pool_.exprs.mul(a.unit, cuts_.sizes[static_cast<size_t>(c)]); }

  // The node before which the calls stand outlives the body.
  NodeId place() const {
    NodeId n = plan_.place;
    while (is_body(n)) n = graph_.next(n);
    return n;
  }

  NodeSpec like_call(int64_t index, std::string_view role) const {
    const Node& amplifier = graph_.node(plan_.amplifier);
    NodeSpec out;
    out.phase = Phase::backward;
    out.module = amplifier.module, out.source = amplifier.source;
    NodeMeta meta;
    meta.chunk = {pool_.str(region()), static_cast<int32_t>(index), pool_.str(role), pool_.str("graph"), StrId(), -1};
    out.meta = pool_.metas.intern(std::move(meta));
    return out;
  }
  std::string region() const {
    const StrId module = graph_.node(plan_.amplifier).module;
    return module.is_none() ? std::string(graph_.label(plan_.amplifier)) : std::string(pool_.strings[module]);
  }

  // --- what goes in ---

  static const SliceWish* wish_for(const AutoNode& body, ValueId v) {
    for (const SliceWish& wish : body.slices)
      if (wish.value == v) return &wish;
    return nullptr;
  }

  // Numbers that are known go into the body as they are.
  std::optional<Arg> as_number(ValueId v) const {
    const Type& t = graph_.type(v);
    if (t.kind != TypeKind::integer || !t.value) return std::nullopt;
    const auto number = pool_.exprs.constant_value(t.value);
    return number ? Arg::integer(*number) : Arg::expr(t.value);
  }

  void collect_inputs() {
    for (const AutoNode& body : plan_.body)
      for (const Arg& arg : graph_.node(body.node).args)
        arg.walk([&](const Arg& a) {
          if (!a.is(ArgKind::value)) return;
          const ValueId v = a.as_value();
          const SliceWish* wish = wish_for(body, v);
          if (!wish && (is_body(graph_.value(v).def) || as_number(v))) return;
          if (find_input(v, wish ? std::optional(wish->along) : std::nullopt) == nullptr) ins_.push_back({v, wish ? std::optional(wish->along) : std::nullopt, {}});
        });
    counts_.inputs = ins_.size();
  }

  const In* find_input(ValueId v, const std::optional<Along>& along) const {
    for (const In& in : ins_)
      if (in.value == v && in.along == along) return &in;
    return nullptr;
  }

  Result<std::vector<ValueId>> cut(ValueId v, const Along& along, std::string_view role) {
    if (chunks() == 1) return std::vector<ValueId>{v};
    std::vector<Arg> sizes;
    std::vector<std::string> names;
    NodeMeta meta = pool_.metas[like_call(-1, role).meta];
    for (int64_t c = 0; c < chunks(); ++c) {
      sizes.push_back(main_.size_of(extent(along, c)));
      names.push_back(std::string(graph_.name(v)) + "_chunk" + std::to_string(c));
      meta.result_chunks.push_back({static_cast<int32_t>(c), {}});
    }
    NodeSpec like = like_call(-1, role);
    like.meta = pool_.metas.intern(std::move(meta));
    std::vector<Arg> args{Arg::value(v), Arg::list(std::move(sizes))};
    if (along.axis != 0) args.push_back(Arg::integer(along.axis));
    return main_.make_all("aten.split_with_sizes.default", std::move(args), names, true, like);
  }

  Status cut_inputs() {
    for (In& in : ins_)
      if (in.along) {
        SG_ASSIGN(in.parts, cut(in.value, *in.along, "split_boundary"));
      }
    return ok_status();
  }

  // --- what comes out ---

  DType sum_type(DType own) const {
    return sums_in_f32_ && is_floating(own) && dtype_bytes(own) < dtype_bytes(DType::f32) ? DType::f32 : own;
  }

  Status make_results() {
    for (ValueId v : plan_.results) {
      const AxisState& s = state(v);
      const Type type = graph_.type(v);
      if (s.kind == AxisKind::size) continue;
      Out out{v, s.kind == AxisKind::partial, s.along, {}, {}};
      const std::string name(graph_.name(v));
      const NodeSpec like = like_call(-1, "materialization");
      if (out.is_sum) {
        SG_ASSIGN(out.whole, main_.make_tensor("aten.zeros.default", type, sum_type(type.dtype), name + "_sum", like));
        ++counts_.sums;
      } else {
        SG_ASSIGN(out.whole, main_.make_tensor("aten.empty.memory_format", type, type.dtype, name + "_rows", like));
        SG_ASSIGN(out.parts, cut(out.whole, s.along, "materialization"));
        ++counts_.joined;
      }
      outs_.push_back(std::move(out));
    }
    return ok_status();
  }

  // --- the body ---

  Status call(int64_t c) {
    SG_ASSIGN(const NestedId body, body_of(c));
    std::vector<Arg> list;
    for (const In& in : ins_) list.push_back(Arg::value(in.along ? in.parts[static_cast<size_t>(c)] : in.value));
    std::vector<std::string_view> names;
    std::vector<std::string> texts;
    NodeSpec spec = like_call(c, "call");
    for (const Out& out : outs_) {
      list.push_back(Arg::value(out.is_sum ? out.whole : out.parts[static_cast<size_t>(c)]));
      if (!out.is_sum) continue;
      texts.push_back(std::string(graph_.name(out.value)) + "_chunk" + std::to_string(c));
      spec.result_types.push_back(graph_.value(out.whole).type);
    }
    spec.names.assign(texts.begin(), texts.end());
    const std::string label = std::string(graph_.label(plan_.amplifier)) + "_chunk" + std::to_string(c);
    spec.op = pool_.op("sg.call"), spec.args = {Arg::graph(body), Arg::list(std::move(list))}, spec.is_tuple = true, spec.label = label;
    const NodeId n = graph_.insert_before(main_.position, spec);
    uint32_t at = 0;
    for (Out& out : outs_)
      if (out.is_sum) out.whole = graph_.node(n).result(at++);
    return ok_status();
  }

  // One for each size of a chunk.
  Result<NestedId> body_of(int64_t c) {
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

  ValueId add_input(Graph* body, ValueId given, std::string_view name) {
    Type type = graph_.type(given);
    if (type.kind == TypeKind::tensor) type.offset = pool_.exprs.constant(0);
    return body->add_input(name, pool_.types.intern(std::move(type)), Input{});
  }

  Status fill_body(Graph* body, int64_t c) {
    Builder builder(&program_, body);
    std::vector<ValueId> ins, outs;
    for (const In& in : ins_) ins.push_back(add_input(body, in.along ? in.parts[static_cast<size_t>(c)] : in.value, graph_.name(in.value)));
    for (const Out& out : outs_) outs.push_back(add_input(body, out.is_sum ? out.whole : out.parts[static_cast<size_t>(c)], std::string(graph_.name(out.value)) + (out.is_sum ? "_sum" : "_rows")));
    std::unordered_map<ValueId, ValueId, IdHash> made;
    std::unordered_map<NodeId, NodeId, IdHash> copies;
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
      const ValueId part = made.at(outs_[i].value);
      NodeSpec like = like_call(-1, "materialization");
      const bool sum = outs_[i].is_sum;
      const std::string name = std::string(graph_.name(outs_[i].value)) + (sum ? "_added" : "_written");
      SG_ASSIGN(const ValueId done, builder.make(sum ? "aten.add_.Tensor" : "aten.copy_.default", {Arg::value(outs[i]), Arg::value(part)}, name, like));
      if (!sum) continue;
      Output output;
      output.value = done;
      body->add_output(output);
    }
    return ok_status();
  }

  NodeSpec spec_in(const AutoNode& node, int64_t c, const std::vector<ValueId>& ins, const std::unordered_map<ValueId, ValueId, IdHash>& made,
                   const std::unordered_map<NodeId, NodeId, IdHash>& copies) {
    NodeSpec spec = spec_of(graph_, node.node);
    for (Arg& arg : spec.args)
      arg.walk_mutable([&](Arg& a) {
        if (!a.is(ArgKind::value)) return;
        const ValueId v = a.as_value();
        const SliceWish* wish = wish_for(node, v);
        if (auto it = made.find(v); it != made.end() && !wish) return a.set_value(it->second);
        if (const In* in = find_input(v, wish ? std::optional(wish->along) : std::nullopt)) return a.set_value(ins[static_cast<size_t>(in - ins_.data())]);
        const StrId key = a.key();
        a = as_number(v)->set_key(key);
      });
    for (const SizeEdit& edit : node.edits) {
      Arg& target = edit.item ? spec.args[edit.arg].mutable_items()[*edit.item] : spec.args[edit.arg];
      const StrId key = target.key();
      target = main_.size_of(extent(edit.along, c)).set_key(key);
    }
    spec.result_types.assign(graph_.node(node.node).result_count, Pool::kUnknownType);
    names_.clear();
    for (uint32_t i = 0; i < graph_.node(node.node).result_count; ++i) names_.emplace_back(graph_.name(graph_.node(node.node).result(i)));
    spec.names.assign(names_.begin(), names_.end());
    label_ = graph_.label(node.node);
    spec.label = label_;
    spec.forward = NodeId();
    if (const NodeId forward = graph_.node(node.node).forward)
      if (auto it = copies.find(forward); it != copies.end()) spec.forward = it->second;
    NodeMeta meta = graph_.meta(node.node);
    meta.chunk = {pool_.str(region()), -1, pool_.str("body"), pool_.str("graph"), graph_.node(node.node).label, static_cast<int8_t>(spec.phase == Phase::backward)};
    spec.meta = pool_.metas.intern(std::move(meta));
    return spec;
  }

  // The op's own rule must say what the axis rule proved.
  Status check_part(NodeId n, ValueId whole, const Type& part, int64_t c) const {
    const AxisState& s = state(whole);
    if (s.kind != AxisKind::along) return ok_status();
    if (part.kind == TypeKind::tensor && s.along.axis < part.shape.size()) {
      Sizes sizes(&pool_, &program_);
      if (sizes.same(part.shape[s.along.axis], extent(s.along, c))) return ok_status();
    }
    return Error{ErrorKind::cannot_apply, place_of(program_, graph_, n) + ": " + std::string(graph_.op_name(n)) + ": %" + std::string(graph_.name(whole)) + " is not as long as the chunk", {},
                 "this is not expected: please report it"};
  }

  // --- behind the calls ---

  Status replace_results() {
    for (ValueId v : plan_.results)
      if (state(v).kind == AxisKind::size) put_number(&graph_, v);
    for (const Out& out : outs_) {
      if (!out.is_sum) {
        replace(out.value, out.whole);
        continue;
      }
      const DType own = graph_.type(out.value).dtype;
      if (graph_.type(out.whole).dtype == own) {
        replace(out.value, out.whole);
        continue;
      }
      if (hand_on(out)) continue;
      SG_ASSIGN(const ValueId cast, main_.make("aten._to_copy.default", {Arg::value(out.whole), main_.keyword("dtype", Arg::dtype(own))}, std::string(graph_.name(out.value)) + "_cast",
                                               like_call(-1, "materialization")));
      replace(out.value, cast);
    }
    return ok_status();
  }

  void replace(ValueId v, ValueId by) {
    for (NodeId user : graph_.users(v))
      if (!is_body(user)) graph_.replace_uses_in(user, v, by);
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      if (graph_.outputs()[i].value == v) graph_.set_output_value(i, by);
  }

  // The one user outside of the body; none when there are more, or the value is a result of the step.
  NodeId only_user(ValueId v) const {
    NodeId out;
    for (const Output& output : graph_.outputs())
      if (output.value == v) return NodeId();
    for (NodeId user : graph_.users(v)) {
      if (is_body(user)) continue;
      if (out) return NodeId();
      out = user;
    }
    return out;
  }

  // Views and a cast to the type of the sum follow: the views are of the sum.
  bool hand_on(const Out& out) {
    std::vector<NodeId> views;
    ValueId at = out.value;
    for (;;) {
      const NodeId user = only_user(at);
      if (!user || graph_.node(user).result_count != 1 || graph_.op_info(user) == nullptr) return false;
      const ValueId result = graph_.node(user).result(0);
      if (graph_.op_name(user) == "aten._to_copy.default") {
        Type wanted = graph_.type(at);
        wanted.dtype = graph_.type(out.whole).dtype;
        if (!(wanted == graph_.type(result))) return false;
        break;
      }
      if (!graph_.op_info(user)->has(kView) || graph_.op_name(user) == "aten.view.dtype") return false;
      views.push_back(user), at = result;
    }
    const NodeId cast = only_user(at);
    if (views.empty()) {
      replace(graph_.node(cast).result(0), out.whole);
    } else {
      replace(out.value, out.whole);
      for (NodeId view : views)
        if (!main_.infer(view).ok()) return false;
      replace(graph_.node(cast).result(0), at);
    }
    graph_.erase(cast);
    return true;
  }

  bool is_used(NodeId n) const {
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
      if (graph_.is_used(graph_.node(n).result(i))) return true;
    return false;
  }

  // The body's originals, and what only they took.
  void erase_body() {
    std::vector<NodeId> dead;
    for (const AutoNode& body : plan_.body) dead.push_back(body.node);
    while (!dead.empty()) {
      std::ranges::sort(dead, [&](NodeId a, NodeId b) { return graph_.before(a, b); });
      std::vector<NodeId> next;
      for (size_t i = dead.size(); i-- > 0;) {
        const NodeId n = dead[i];
        if (!graph_.alive(n) || is_used(n)) continue;
        for (const Arg& arg : graph_.node(n).args)
          arg.walk([&](const Arg& a) {
            if (!a.is(ArgKind::value)) return;
            const NodeId def = graph_.value(a.as_value()).def;
            if (def && !is_body(def) && graph_.op_info(def) != nullptr && graph_.op_info(def)->has(kPure)) next.push_back(def);
          });
        graph_.erase(n);
      }
      std::erase_if(next, [&](NodeId n) { return !graph_.alive(n) || is_used(n); });
      std::ranges::sort(next);
      next.erase(std::ranges::unique(next).begin(), next.end());
      dead = std::move(next);
    }
  }

  Program& program_;
  Graph& graph_;
  Pool& pool_;
  const AutoPlan& plan_;
  const AutoCuts& cuts_;
  bool sums_in_f32_;
  Builder main_;
  std::vector<In> ins_;
  std::vector<Out> outs_;
  std::map<uint32_t, NestedId> bodies_;       // by the rows of a chunk
  std::vector<std::string> names_;            // of the spec at hand
  std::string label_;
  AutoCounts counts_;
};

}  // namespace

AutoCuts cut_into(ExprPool* exprs, Expr rows, int64_t chunks) {
  AutoCuts out;
  if (const auto known = exprs->constant_value(rows)) {
    const int64_t n = std::max<int64_t>(std::min(chunks, *known), 1);
    return cut_by(exprs, *known, (*known + n - 1) / n);
  }
  out.symbolic = true;
  const Expr each = exprs->floordiv(rows, exprs->constant(chunks));
  out.sizes.assign(static_cast<size_t>(chunks), each);
  if (chunks > 1) out.sizes.back() = exprs->sub(rows, exprs->mul(each, exprs->constant(chunks - 1)));
  return out;
}

AutoCuts cut_by(ExprPool* exprs, int64_t rows, int64_t rows_per_chunk) {
  AutoCuts out;
  for (int64_t at = 0; at < rows; at += rows_per_chunk) out.sizes.push_back(exprs->constant(std::min(rows_per_chunk, rows - at)));
  return out;
}

Result<AutoCounts> outline_auto_chunk(Program* program, const AutoPlan& plan, const AutoCuts& cuts, bool sums_in_f32) {
  if (cuts.symbolic) {
    Guard guard;
    guard.relation = Relation::ge;
    guard.left = plan.rows(), guard.right = program->graph.pool().exprs.constant(static_cast<int64_t>(cuts.sizes.size()));
    program->guards.push_back(guard);
  }
  return Outliner(program, plan, cuts, sums_in_f32).run();
}

}  // namespace sg
