#include "libpasses/chunk/chunk_copy.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "libgraph/edit/rewrite.h"
#include "libgraph/infer/infer_sizes.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libpasses/chunk/chunk_join.h"
#include "libpasses/chunk/chunk_sizes.h"

namespace sg {
namespace {

class ChunkCopier {
 public:
  ChunkCopier(Program* program, const ChunkPlan& plan, ChunkSizes sizes)
      : program_(*program),
        graph_(program->graph),
        pool_(graph_.pool()),
        plan_(plan),
        sizes_(std::move(sizes)),
        chunks_(sizes_.chunks()),
        nodes_(program, plan),
        join_(&nodes_) {}

  Result<ChunkCounts> run() {
    for (const BodyNode& body : plan_.body) {
      SG_TRY(slice_operands(body));
      for (int64_t c = 0; c < chunks_; ++c) SG_TRY(copy_body(body, c));
      SG_TRY(join_results(body));
    }
    for (size_t i = plan_.body.size(); i-- > 0;) graph_.erase(plan_.body[i].node);
    SG_TRY(move_views());
    return counts_;
  }

 private:
  // --- operands ---

  using SliceKey = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>;
  static SliceKey key_of(const SliceWish& s) {
    return {s.value.index, s.along.domain, s.along.axis, s.along.unit.index, s.along.runs.index};
  }

  Status slice_operands(const BodyNode& body) {
    for (const SliceWish& wish : body.slices) {
      auto [it, fresh] = slices_.try_emplace(key_of(wish));
      if (!fresh) continue;
      ValueId whole = put_together(wish.value);
      if (wish.along.runs) SG_TRY(take_runs_apart(&whole, wish.along, body));
      const uint32_t axis = wish.along.axis + (wish.along.runs ? 1 : 0);
      std::vector<Arg> sizes;
      for (int64_t c = 0; c < chunks_; ++c) sizes.push_back(nodes_.size_arg(sizes_.extent(wish.along.one_run(), c)));
      std::vector<Arg> args{Arg::value(whole), Arg::list(std::move(sizes))};
      if (axis != 0) args.push_back(Arg::integer(axis));
      NodeMeta meta = nodes_.boundary_meta(body, "split_boundary");
      for (int64_t c = 0; c < chunks_; ++c) meta.result_chunks.push_back({static_cast<int32_t>(c), {}});
      SG_ASSIGN(const NodeId split,
                nodes_.add_split("aten.split_with_sizes.default", std::move(args), std::string(graph_.name(wish.value)),
                                 static_cast<size_t>(chunks_), body, meta));
      ++counts_.slices;
      for (int64_t c = 0; c < chunks_; ++c) {
        ValueId part = graph_.node(split).result(static_cast<uint32_t>(c));
        if (axis != 0) SG_TRY(copy_slice(&part, body, c));
        if (wish.along.runs) SG_TRY(put_runs_together(&part, wish, body, c));
        it->second.push_back(part);
      }
    }
    return ok_status();
  }

  Status take_runs_apart(ValueId* whole, const Along& a, const BodyNode& body) {
    const std::vector<Expr> apart = nodes_.runs_apart(*whole, a.axis, a.runs, sizes_.whole(a.one_run()));
    SG_ASSIGN(*whole, nodes_.add("aten.reshape.default", {Arg::value(*whole), nodes_.sizes_arg(apart)},
                                 std::string(graph_.name(*whole)), body, nodes_.boundary_meta(body, "split_boundary")));
    return ok_status();
  }

  Status put_runs_together(ValueId* part, const SliceWish& wish, const BodyNode& body, int64_t c) {
    std::vector<Expr> shape = graph_.type(wish.value).shape;
    shape[wish.along.axis] = sizes_.extent(wish.along, c);
    NodeMeta meta = nodes_.boundary_meta(body, "chunk_input");
    meta.chunk.index = static_cast<int32_t>(c);
    SG_ASSIGN(*part, nodes_.add("aten.view.default", {Arg::value(*part), nodes_.sizes_arg(shape)},
                                std::string(graph_.name(*part)), body, meta));
    return ok_status();
  }

  // Makes an inner slice contiguous, as it would be if the module were called with it.
  Status copy_slice(ValueId* part, const BodyNode& body, int64_t c) {
    Sizes sizes(&pool_, &program_);
    if (sizes.is_contiguous(graph_.type(*part))) return ok_status();
    NodeMeta meta = nodes_.boundary_meta(body, "chunk_input");
    meta.chunk.index = static_cast<int32_t>(c);
    Arg format = Arg::text(ArgKind::memory_format, pool_.str("contiguous_format"));
    format.set_key(pool_.str("memory_format"));
    SG_ASSIGN(*part, nodes_.add("aten.clone.default", {Arg::value(*part), format}, std::string(graph_.name(*part)),
                                body, meta));
    return ok_status();
  }

  // The sum over chunks, once it has been added up; else the value itself.
  ValueId put_together(ValueId v) const {
    auto it = wholes_.find(v);
    return it == wholes_.end() ? v : it->second;
  }

  ValueId operand(const BodyNode& body, ValueId v, int64_t c) const {
    const bool whole = std::ranges::find(body.whole_reads, v) != body.whole_reads.end();
    const ValueId taken = whole ? put_together(v) : v;
    for (const SliceWish& wish : body.slices)
      if (wish.value == v || put_together(wish.value) == taken) return slices_.at(key_of(wish))[static_cast<size_t>(c)];
    if (whole) return taken;
    const NodeId def = graph_.value(v).def;
    if (!def || def.index >= plan_.is_body.size() || !plan_.is_body[def.index]) return v;
    auto it = copies_.find(def);
    if (it == copies_.end() || !plan_.world.states[v.index].is_chunked()) return v;
    return part(v, c);
  }

  // Chunk `c` of a body's result.
  ValueId part(ValueId v, int64_t c) const {
    if (auto it = shares_.find(v); it != shares_.end()) return it->second[static_cast<size_t>(c)];
    return graph_.node(copies_.at(graph_.value(v).def)[static_cast<size_t>(c)]).result(graph_.value(v).index);
  }

  std::vector<Arg> arguments(const BodyNode& body, int64_t c) {
    std::vector<Arg> args = graph_.node(body.node).args;
    for (size_t i = 0; i < args.size(); ++i)
      args[i].walk_mutable([&](Arg& a) {
        if (a.is(ArgKind::value)) a.set_value(operand(body, a.as_value(), c));
        if (a.is(ArgKind::expr)) a = keep_key(nodes_.size_arg(sizes_.own(a.as_expr(), c)), a);
      });
    for (const SizeEdit& edit : body.edits) {
      Arg& target = edit.item ? args[edit.arg].mutable_items()[*edit.item] : args[edit.arg];
      target = keep_key(nodes_.size_arg(sizes_.extent(edit.along, c)), target);
    }
    for (const WordEdit& edit : body.words) args[edit.arg] = edit.word;
    if (body.accumulates && c > 0)
      args[0].set_value(graph_.node(copies_.at(body.node)[static_cast<size_t>(c - 1)]).result(0));
    return args;
  }

  static Arg keep_key(Arg fresh, const Arg& old) { return fresh.set_key(old.key()); }

  // --- copies ---

  Status copy_body(const BodyNode& body, int64_t c) {
    NodeSpec spec = spec_of(graph_, body.node);
    spec.args = arguments(body, c);
    NodeMeta meta = graph_.meta(body.node);
    const Node& node = graph_.node(body.node);
    meta.chunk = {pool_.str(plan_.regions[body.region].module),
                  static_cast<int32_t>(c),
                  pool_.str("body"),
                  pool_.str("graph"),
                  node.label,
                  static_cast<int8_t>(node.phase == Phase::backward)};
    meta.result_chunks.clear();
    if (meta.binds)
      for (StrId& s : *meta.binds) s = sizes_.own_symbol(s, c).value_or(s);
    if (draws_random(graph_, body.node)) place_random(body, c, &meta.random);
    spec.meta = pool_.metas.intern(std::move(meta));
    if (node.forward)
      if (auto it = copies_.find(node.forward); it != copies_.end()) spec.forward = it->second[static_cast<size_t>(c)];
    const std::string suffix = "_chunk" + std::to_string(c);
    for (uint32_t i = 0; i < node.result_count; ++i)
      spec.names.push_back(std::string(graph_.name(node.result(i))) + suffix);
    spec.label = std::string(graph_.label(body.node)) + suffix;
    const NodeId copy = graph_.insert_before(body.node, spec);
    copies_[body.node].push_back(copy);
    ++counts_.copies;
    counts_.nodes += c == 0;
    SG_TRY(type_copy(body, copy, c));
    return body.share ? weigh(body, copy, c) : ok_status();
  }

  // Weights a mean over a chunk's rows by the chunk's share of the rows.
  Status weigh(const BodyNode& body, NodeId copy, int64_t c) {
    const Expr own = sizes_.extent(*body.share, c), all = sizes_.whole(*body.share);
    const auto own_rows = pool_.exprs.constant_value(own), all_rows = pool_.exprs.constant_value(all);
    for (uint32_t i = 0; i < graph_.node(copy).result_count; ++i) {
      const ValueId whole = graph_.node(body.node).result(i);
      ValueId v = graph_.node(copy).result(i);
      if (graph_.type(v).kind != TypeKind::tensor) continue;
      const NodeMeta meta = graph_.meta(copy);
      const std::string name = std::string(graph_.name(v)) + "_share";
      auto scale = [&](std::string_view op, Arg by) -> Status {
        SG_ASSIGN(v, nodes_.add(op, {Arg::value(v), std::move(by)}, name, body, meta));
        return ok_status();
      };
      if (own_rows && all_rows) {
        SG_TRY(
            scale("aten.mul.Scalar", Arg::floating(static_cast<double>(*own_rows) / static_cast<double>(*all_rows))));
      } else {
        SG_TRY(scale("aten.mul.Scalar", nodes_.size_arg(own)));
        SG_TRY(scale("aten.div.Scalar", nodes_.size_arg(all)));
      }
      shares_[whole].push_back(v);
    }
    NodeMeta raw = graph_.meta(copy);  // the chunk's own mean does not correspond to the original
    raw.chunk.original = StrId();
    graph_.set_meta(copy, std::move(raw));
    return ok_status();
  }

  static bool is_reshaping(const OpInfo& op) {
    return op.name == "aten.view.default" || op.name == "aten._unsafe_view.default";
  }

  // Types come from the op's type rule; numbers that the data decides are the chunk's own symbols.
  Status type_copy(const BodyNode& body, NodeId copy, int64_t c) {
    const OpInfo& op = *graph_.op_info(copy);
    const bool is_found = op.has(kBindsSymbol) && !op.has(kPure);  // a pure op in chunks is given its size
    if (is_found || graph_.node(copy).result_count == 0) {
      for (uint32_t i = 0; i < graph_.node(copy).result_count; ++i) {
        Type t = graph_.type(graph_.node(body.node).result(i));
        if (t.kind == TypeKind::integer && t.value) t.value = sizes_.own(t.value, c);
        graph_.set_type(graph_.node(copy).result(i), pool_.types.intern(std::move(t)));
      }
      return ok_status();
    }
    if (Status viewed = nodes_.infer(copy); !viewed.ok()) {
      if (!body.may_copy || !is_reshaping(op)) return viewed;
      graph_.set_op(copy, pool_.op("aten.reshape.default"));
      SG_TRY(nodes_.infer(copy));
    }
    for (uint32_t i = 0; i < graph_.node(copy).result_count; ++i) {
      const AxisState& s = plan_.world.states[graph_.node(body.node).result(i).index];
      if (s.kind != AxisKind::along || !plan_.world.domains[s.along.domain].is_rows) continue;
      const Type& t = graph_.type(graph_.node(copy).result(i));
      const Type& whole = graph_.type(graph_.node(body.node).result(i));
      const uint32_t axis = s.along.axis;
      const bool counted = axis < whole.shape.size() && !pool_.exprs.constant_value(whole.shape[axis]);
      const bool fits = axis < t.shape.size() && (t.shape[axis] == sizes_.extent(s.along, c) ||
                                                  (counted && t.shape[axis] == sizes_.own(whole.shape[axis], c)));
      if (!fits) return nodes_.fail(copy, "its result is not as long as the chunk");
    }
    return ok_status();
  }

  void place_random(const BodyNode& body, int64_t c, RandomInfo* random) const {
    const ValueId result = graph_.node(body.node).result(0);
    const Along& a = plan_.world.states[result.index].along;
    if (random->origin_shape.empty()) {
      random->origin_shape = graph_.type(result).shape;
      random->origin_offset.assign(random->origin_shape.size(), pool_.exprs.constant(0));
    }
    Expr& at = random->origin_offset[a.axis];
    at = pool_.exprs.add(at, sizes_.begin(a, c));
  }

  // --- results ---

  std::vector<ValueId> parts_of(const BodyNode& body, uint32_t i) const {
    std::vector<ValueId> out;
    for (int64_t c = 0; c < chunks_; ++c) out.push_back(part(graph_.node(body.node).result(i), c));
    return out;
  }

  Status join_results(const BodyNode& body) {
    for (uint32_t i = 0; i < graph_.node(body.node).result_count; ++i) {
      const ValueId v = graph_.node(body.node).result(i);
      const std::vector<ValueId> parts = parts_of(body, i);
      const AxisState& s = plan_.world.states[v.index];
      const Settle settle = i < body.settles.size() ? body.settles[i] : Settle::none;
      if (body.accumulates) {
        graph_.replace_uses(v, parts.back());
      } else if (settle != Settle::none) {
        SG_ASSIGN(const ValueId whole, settled(body, i, settle));
        graph_.replace_uses(v, whole);
      } else if (plan_.full_use[v.index]) {
        if (s.kind == AxisKind::size) {
          put_number(v);
          continue;
        }
        SG_ASSIGN(const ValueId whole,
                  s.kind == AxisKind::partial ? sum(body, v, parts) : concatenate(body, v, parts, s.along));
        wholes_[v] = whole;
        replace_whole_uses(v, whole);
      } else if (graph_.type(v).kind == TypeKind::none) {
        replace_whole_uses(v, parts.back());
      }
    }
    return ok_status();
  }

  // Combines a result that is whole for all later nodes.
  Result<ValueId> settled(const BodyNode& body, uint32_t i, Settle settle) {
    const ValueId v = graph_.node(body.node).result(i);
    if (auto known = wholes_.find(v); known != wholes_.end()) return known->second;
    ValueId whole = part(v, 0);
    if (settle != Settle::first) {
      SG_ASSIGN(whole, sum(body, v, parts_of(body, i)));
    }
    if (settle == Settle::quotient) {
      SG_ASSIGN(const ValueId divisor, settled(body, i + 1, Settle::sum));
      SG_ASSIGN(whole,
                nodes_.add("aten.div.Tensor", {Arg::value(whole), Arg::value(divisor)},
                           std::string(graph_.name(v)) + "_mean", body, nodes_.boundary_meta(body, "materialization")));
      SG_ASSIGN(whole, join_.lay_out(body, v, whole));
    }
    return wholes_[v] = whole;
  }

  Result<ValueId> sum(const BodyNode& body, ValueId v, const std::vector<ValueId>& parts) {
    ++counts_.summed;
    return join_.sum(body, v, parts);
  }
  Result<ValueId> concatenate(const BodyNode& body, ValueId v, const std::vector<ValueId>& parts, const Along& along) {
    ++counts_.joined;
    if (!along.runs) return join_.concatenate(body, v, parts, along.axis);
    std::vector<Expr> lengths;
    for (int64_t c = 0; c < chunks_; ++c) lengths.push_back(sizes_.extent(along.one_run(), c));
    return join_.concatenate_runs(body, v, parts, along, lengths);
  }

  // Replaces uses everywhere except in the originals of bodies, which are still to be copied and use chunks.
  void replace_whole_uses(ValueId v, ValueId by) {
    if (graph_.type(v).offset != graph_.type(by).offset) moved_.insert(by);
    for (NodeId user : graph_.users(v))
      if (!is_body(user)) graph_.replace_uses_in(user, v, by);
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      if (graph_.outputs()[i].value == v) graph_.set_output_value(i, by);
  }

  // Retypes views of values that were part of other memory and now have memory of their own.
  Status move_views() {
    if (moved_.empty()) return ok_status();
    for (NodeId n : graph_.nodes()) {
      const OpInfo* op = graph_.op_info(n);
      bool moves = false;
      for_operands(graph_, n, [&](ValueId v) { moves = moves || moved_.contains(v); });
      if (!moves || op == nullptr || !op->has(kView)) continue;
      if (op->param_index("storage_offset") >= 0)
        return Error{ErrorKind::cannot_apply,
                     place_of(program_, graph_, n) + ": it counts from where the memory of its operand begins, which " +
                         "is in chunks",
                     {},
                     "leave the module that makes it whole"};
      SG_TRY(nodes_.infer(n));
      for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) moved_.insert(graph_.node(n).result(i));
    }
    return ok_status();
  }

  void put_number(ValueId v) {
    for (NodeId user : graph_.users(v)) {
      std::vector<Arg> args = graph_.node(user).args;
      for (Arg& arg : args)
        arg.walk_mutable([&](Arg& a) {
          if (a.is(ArgKind::value) && a.as_value() == v) a = keep_key(nodes_.size_arg(graph_.type(v).value), a);
        });
      if (!is_body(user)) graph_.set_args(user, std::move(args));
    }
  }
  bool is_body(NodeId n) const { return n.index < plan_.is_body.size() && plan_.is_body[n.index]; }

  Program& program_;
  Graph& graph_;
  Pool& pool_;
  const ChunkPlan& plan_;
  ChunkSizes sizes_;
  int64_t chunks_;
  ChunkNodes nodes_;
  ChunkJoiner join_;
  std::map<SliceKey, std::vector<ValueId>> slices_;
  std::unordered_map<NodeId, std::vector<NodeId>, IdHash> copies_;
  std::unordered_map<ValueId, std::vector<ValueId>, IdHash>
      shares_;                                           // by result of an original: the chunks' results, weighted
  std::unordered_map<ValueId, ValueId, IdHash> wholes_;  // the combined values
  std::unordered_set<ValueId, IdHash> moved_;  // now in memory of their own, before at an offset into other memory
  ChunkCounts counts_;
};

}  // namespace

Result<ChunkCounts> copy_chunks(Program* program, const ChunkPlan& plan, int64_t chunks) {
  SG_ASSIGN(ChunkSizes sizes, ChunkSizes::declare(program, plan, chunks));
  return ChunkCopier(program, plan, std::move(sizes)).run();
}

}  // namespace sg
