#include "libpasses/auto_chunk/auto_chunk_outliner.h"

#include <algorithm>

#include "libgraph/dtype.h"
#include "libgraph/operands.h"

namespace sg {

NodeId AutoOutliner::place() const {
  NodeId n = plan_.place;
  while (is_body(n)) n = graph_.next(n);
  return n;
}

NodeSpec AutoOutliner::like_call(int64_t index, std::string_view role) const {
  const Node& amplifier = graph_.node(plan_.amplifier);
  NodeSpec out;
  out.phase = Phase::backward;
  out.module = amplifier.module, out.source = amplifier.source;
  NodeMeta meta;
  meta.chunk = {pool_.str(region()), static_cast<int32_t>(index), pool_.str(role), pool_.str("graph"), StrId(), -1};
  out.meta = pool_.metas.intern(std::move(meta));
  return out;
}

std::string AutoOutliner::region() const {
  const StrId module = graph_.node(plan_.amplifier).module;
  return module.is_none() ? std::string(graph_.label(plan_.amplifier)) : std::string(pool_.strings[module]);
}

std::optional<Arg> AutoOutliner::as_number(ValueId v) const {
  const Type& t = graph_.type(v);
  if (t.kind != TypeKind::integer || !t.value) return std::nullopt;
  const auto number = pool_.exprs.constant_value(t.value);
  return number ? Arg::integer(*number) : Arg::expr(t.value);
}

void AutoOutliner::collect_inputs() {
  for (const AutoNode& body : plan_.body)
    for_operands(graph_, body.node, [&](ValueId v) {
      const SliceWish* wish = wish_for(body, v);
      if (!wish && (is_body(graph_.value(v).def) || as_number(v))) return;
      if (find_input(v, wish ? std::optional(wish->along) : std::nullopt) == nullptr)
        ins_.push_back({v, wish ? std::optional(wish->along) : std::nullopt, {}});
    });
  counts_.inputs = ins_.size();
}

const AutoOutliner::In* AutoOutliner::find_input(ValueId v, const std::optional<Along>& along) const {
  for (const In& in : ins_)
    if (in.value == v && in.along == along) return &in;
  return nullptr;
}

std::vector<Expr> AutoOutliner::runs_apart(std::vector<Expr> shape, const Along& along, Expr entries) const {
  shape[along.axis] = along.one_run().length(&pool_.exprs, entries);
  shape.insert(shape.begin() + along.axis, along.runs);
  return shape;
}

Result<std::vector<ValueId>> AutoOutliner::cut(ValueId v, const Along& along, std::string_view role) {
  if (chunks() == 1) return std::vector<ValueId>{v};
  if (along.runs) {
    const std::vector<Expr> apart = runs_apart(graph_.type(v).shape, along, plan_.rows());
    SG_ASSIGN(const ValueId runs, main_.make("aten.view.default", {Arg::value(v), main_.sizes_of(apart)},
                                             std::string(graph_.name(v)) + "_runs", like_call(-1, role)));
    return cut(runs, {along.domain, along.axis + 1, along.unit, Expr()}, role);
  }
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

Status AutoOutliner::cut_inputs() {
  for (In& in : ins_)
    if (in.along) {
      SG_ASSIGN(in.parts, cut(in.value, *in.along, "split_boundary"));
    }
  return ok_status();
}

DType AutoOutliner::sum_type(DType own) const {
  return sums_in_f32_ && is_floating(own) && dtype_bytes(own) < dtype_bytes(DType::f32) ? DType::f32 : own;
}

Status AutoOutliner::make_results() {
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

AutoCuts cut_into(ExprPool* exprs, Expr rows, int64_t chunks) {
  AutoCuts out;
  if (const auto known = exprs->constant_value(rows)) {
    const int64_t count = std::max<int64_t>(*known, 1), n = std::min(chunks, count), each = (count + n - 1) / n;
    return cut_by(exprs, rows, each, (count + each - 1) / each);
  }
  out.symbolic = true;
  const Expr each = exprs->floordiv(rows, exprs->constant(chunks));
  out.sizes.assign(static_cast<size_t>(chunks), each);
  if (chunks > 1) out.sizes.back() = exprs->sub(rows, exprs->mul(each, exprs->constant(chunks - 1)));
  return out;
}

AutoCuts cut_by(ExprPool* exprs, Expr rows, int64_t rows_per_chunk, int64_t chunks) {
  AutoCuts out;
  out.sizes.assign(static_cast<size_t>(chunks), exprs->constant(rows_per_chunk));
  out.sizes.back() = exprs->sub(rows, exprs->constant(rows_per_chunk * (chunks - 1)));
  return out;
}

Result<AutoCounts> outline_auto_chunk(Program* program, const AutoPlan& plan, const AutoCuts& cuts, bool sums_in_f32) {
  if (cuts.symbolic) {
    Guard guard;
    guard.relation = Relation::ge;
    guard.left = plan.rows(),
    guard.right = program->graph.pool().exprs.constant(static_cast<int64_t>(cuts.sizes.size()));
    program->guards.push_back(guard);
  }
  return AutoOutliner(program, plan, cuts, sums_in_f32).run();
}

}  // namespace sg
