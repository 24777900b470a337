// Rewrites the members of a bucket into packing, one collective, and unpacking.
#include <algorithm>
#include <cassert>
#include <map>
#include <set>

#include "libgraph/infer/infer.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libpasses/bucket/bucket_parts.h"
#include "libpasses/schedule.h"

namespace sg::bucket_parts {
namespace {

// Merges the buckets of one program one after the other; facts about memory are those of the original graph.
class Merger {
 public:
  Merger(Program* program, const Members& members, const Plan& plan, const std::vector<Site>& sites)
      : program_(*program),
        graph_(program->graph),
        pool_(graph_.pool()),
        members_(members),
        plan_(plan),
        sites_(sites),
        alias_(*program, graph_),
        schedule_(graph_, alias_),
        known_values_(graph_.value_id_limit()) {}

  void merge(const Bucket& bucket, int32_t id) {
    if (bucket.members.size() == 1) return mark(sites_[bucket.members[0]], info_of(bucket, id));
    const Member& first = members_.list[bucket.members[0]];
    if (first.kind == MemberKind::gather && distinct(bucket).size() == 1) return share(bucket, id);
    Draft draft = begin(bucket, id);
    if (first.kind == MemberKind::gather) merge_gathers(bucket, &draft);
    else merge_reductions(bucket, first.kind == MemberKind::scatter ? first.ranks : 1, &draft);
    for (size_t m : bucket.members) retire(m, &draft);
  }

  // Infers the types of views and writes again where an operand was cut out of a bucket, since its layout changed.
  void renew_types() {
    TypeInferrer inferrer(program_);
    for (NodeId n : graph_.nodes()) {
      const OpInfo* op = graph_.op_info(n);
      if (op == nullptr || !(op->has(kView) || op->has(kMayAlias) || op->writes())) continue;
      bool is_cut = false;
      for_operands(graph_, n, [&](ValueId v) { is_cut = is_cut || cut_.contains(v); });
      if (!is_cut) continue;
      Result<std::vector<Type>> types = inferrer.infer(graph_, n);
      if (!types.ok() || types->size() != graph_.node(n).result_count) continue;
      for (uint32_t i = 0; i < types->size(); ++i) {
        graph_.set_type(graph_.node(n).result(i), pool_.types.intern(std::move((*types)[i])));
        cut_.insert(graph_.node(n).result(i));
      }
    }
  }

 private:
  // What the new nodes of a bucket have in common, and the replacement of each member's result.
  struct Draft {
    std::string name;  // "bucket3"
    NodeSpec like;     // phase, module, source, metadata
    Node sample;       // the launch of the member that comes first
    StrId device;
    std::vector<ValueId> results;  // by member of the bucket
    size_t retired = 0;
    std::set<ValueId> named;
  };

  CollectiveInfo info_of(const Bucket& bucket, int32_t id) const {
    const Member& m = members_.list[bucket.members[0]];
    CollectiveInfo out{
        m.kind == MemberKind::gather ? CollectiveRole::unshard : CollectiveRole::reduce, m.direction, id, {}};
    for (const std::string& module : plan_.modules(bucket)) out.plan.push_back(pool_.str(module));
    return out;
  }

  // A collective alone in its bucket is only marked.
  void mark(const Site& site, const CollectiveInfo& info) {
    for (NodeId n : {site.launch, site.wait}) {
      NodeMeta meta = graph_.meta(n);
      meta.collective = info;
      graph_.set_meta(n, std::move(meta));
    }
  }

  // Several gathers of one parameter: the first serves all, and is waited for where the first wait was.
  void share(const Bucket& bucket, int32_t id) {
    const size_t first = first_launched(bucket);
    const NodeId wait = first_wait(bucket);
    if (wait != site(first).wait) graph_.move_before(site(first).wait, wait);
    mark(site(first), info_of(bucket, id));
    Draft draft = begin(bucket, id);
    draft.named.insert(output_of(first));
    for (size_t m : bucket.members)
      if (m != first) draft.results.push_back(output_of(first)), retire(m, &draft);
  }

  const Site& site(size_t member) const { return sites_[member]; }
  auto earlier(NodeId Site::*end) const {
    return [this, end](size_t a, size_t b) { return graph_.before(site(a).*end, site(b).*end); };
  }
  size_t first_launched(const Bucket& bucket) const {
    return *std::ranges::min_element(bucket.members, earlier(&Site::launch));
  }
  NodeId last_launch(const Bucket& bucket) const {
    return site(*std::ranges::max_element(bucket.members, earlier(&Site::launch))).launch;
  }
  NodeId first_wait(const Bucket& bucket) const {
    return site(*std::ranges::min_element(bucket.members, earlier(&Site::wait))).wait;
  }
  ValueId input_of(size_t member) const { return graph_.node(site(member).launch).args[0].as_value(); }
  ValueId output_of(size_t member) const { return graph_.node(site(member).wait).result(0); }

  Draft begin(const Bucket& bucket, int32_t id) {
    const size_t first = first_launched(bucket);
    const std::vector<std::string> modules = plan_.modules(bucket);
    Draft out;
    out.name = "bucket" + std::to_string(id);
    out.sample = graph_.node(site(first).launch);
    out.device = graph_.type(input_of(first)).device;
    out.like.phase = out.sample.phase;
    out.like.source = out.sample.source;
    out.like.module = modules.size() == 1 ? pool_.str(modules[0]) : out.sample.module;
    NodeMeta meta;
    meta.collective = info_of(bucket, id);
    out.like.meta = pool_.metas.intern(std::move(meta));
    return out;
  }

  // --- new nodes ---

  TypeId tensor(DType dtype, std::initializer_list<int64_t> shape, const Draft& draft) {
    std::vector<Expr> sizes;
    for (int64_t size : shape) sizes.push_back(pool_.exprs.constant(size));
    return pool_.tensor(dtype, std::move(sizes), draft.device);
  }

  NodeId add(NodeId before, const Draft& draft, std::string_view op, ArgList args, std::vector<TypeId> types,
             const std::string& suffix) {
    NodeSpec spec = draft.like;
    spec.op = pool_.op(op);
    spec.args = std::move(args);
    spec.result_types = std::move(types);
    spec.names.clear();
    for (size_t i = 0; i < spec.result_types.size(); ++i)
      spec.names.push_back(draft.name + suffix + (spec.result_types.size() > 1 ? "_" + std::to_string(i) : ""));
    spec.is_tuple = graph_.pool().ops[spec.op].info->returns_list;
    return graph_.insert_before(before, spec);
  }

  ValueId add_view(NodeId before, Draft* draft, ValueId of, DType dtype, std::vector<Expr> shape,
                   const std::string& suffix) {
    ArgList sizes;
    for (Expr e : shape) sizes.push_back(Arg::integer(*pool_.exprs.constant_value(e)));
    const TypeId type = pool_.tensor(dtype, std::move(shape), draft->device);
    return graph_
        .node(add(before, *draft, "aten.view.default", {Arg::value(of), Arg::list(std::move(sizes))}, {type}, suffix))
        .result(0);
  }

  // Views `of` as `dtype`; the last size changes accordingly. REQUIRES: contiguous, and the bytes divide evenly
  ValueId add_reading(NodeId before, const Draft& draft, ValueId of, DType dtype, const std::string& suffix) {
    const Type& type = graph_.type(of);
    std::vector<Expr> shape = type.shape;
    const int64_t bytes = *pool_.exprs.constant_value(shape.back()) * dtype_bytes(type.dtype);
    shape.back() = pool_.exprs.constant(bytes / dtype_bytes(dtype));
    const TypeId to = pool_.tensor(dtype, std::move(shape), draft.device);
    return graph_.node(add(before, draft, "aten.view.dtype", {Arg::value(of), Arg::dtype(dtype)}, {to}, suffix))
        .result(0);
  }

  // The value that packing copies for a member: the operand of a cast that serves the member alone, since packing
  // casts.
  ValueId source_of(size_t member) const {
    const ValueId input = input_of(member);
    const NodeId cast = graph_.value(input).def;
    if (!cast || graph_.op_name(cast) != "aten._to_copy.default" || graph_.value(input).use_count != 1) return input;
    const Node& node = graph_.node(cast);
    if (node.args.size() != 2 || !node.args[0].is(ArgKind::value) || !node.args[1].is(ArgKind::dtype)) return input;
    const ValueId source = node.args[0].as_value();
    if (graph_.type(source).device != graph_.type(input).device) return input;
    if (source.index >= known_values_) return source;
    const uint32_t memory = class_of(alias_, source);
    const bool written = members_.list[member].kind != MemberKind::gather && memory != kNoClass &&
                         schedule_.is_written_after(memory, schedule_.position(cast));
    return written ? input : source;
  }

  ArgList collective_args(const Draft& draft, ValueId input) const {
    ArgList args = draft.sample.args;
    args[0] = Arg::value(input);
    return args;
  }

  // --- gathers ---

  void merge_gathers(const Bucket& bucket, Draft* draft) {
    const NodeId launch = site(first_launched(bucket)).launch, wait = first_wait(bucket);
    DType dtype = members_.list[bucket.members[0]].dtype;
    int64_t largest = 1;
    for (size_t m : bucket.members) {
      if (dtype_bytes(members_.list[m].dtype) < dtype_bytes(dtype)) dtype = members_.list[m].dtype;
      largest = std::max<int64_t>(largest, dtype_bytes(members_.list[m].dtype));
    }
    for (size_t m : bucket.members) bring_before(site(m).before, launch);
    ArgList shards;
    std::vector<int64_t> sizes;
    int64_t total = 0;
    for (size_t m : distinct(bucket)) {
      const Member& member = members_.list[m];
      const bool same = member.dtype == dtype;
      shards.push_back(Arg::value(same ? source_of(m) : add_reading(launch, *draft, input_of(m), dtype, "_bytes")));
      sizes.push_back(member.elements * dtype_bytes(member.dtype) / dtype_bytes(dtype));
      total += sizes.back();
    }
    const int64_t step = largest / dtype_bytes(dtype);
    if (const int64_t rest = (step - total % step) % step; rest != 0) {
      shards.push_back(Arg::value(add_padding(launch, *draft, dtype, rest)));
      total += rest, sizes.push_back(rest);
    }
    const int64_t ranks = members_.list[bucket.members[0]].ranks;
    const ValueId packed = add_pack(launch, *draft, std::move(shards), dtype, total, 1);
    const ValueId gathered =
        graph_
            .node(add(launch, *draft, graph_.pool().op_name(draft->sample.op), collective_args(*draft, packed),
                      {tensor(dtype, {total * ranks}, *draft)}, "_gather"))
            .result(0);
    const ValueId waited = graph_
                               .node(add(wait, *draft, "_c10d_functional.wait_tensor.default", {Arg::value(gathered)},
                                         {graph_.value(gathered).type}, "_wait"))
                               .result(0);
    cut_apart(bucket, wait, waited, dtype, ranks, sizes, draft);
  }

  // Each rank's shards lie together, so each member's data is a range of columns of [ranks, total].
  void cut_apart(const Bucket& bucket, NodeId at, ValueId waited, DType dtype, int64_t ranks,
                 const std::vector<int64_t>& sizes, Draft* draft) {
    int64_t total = 0;
    for (int64_t size : sizes) total += size;
    const ValueId rows =
        add_view(at, draft, waited, dtype, {pool_.exprs.constant(ranks), pool_.exprs.constant(total)}, "_rows");
    ArgList widths;
    std::vector<TypeId> types;
    for (int64_t size : sizes)
      widths.push_back(Arg::integer(size)), types.push_back(tensor(dtype, {ranks, size}, *draft));
    const NodeId parts =
        add(at, *draft, "aten.split_with_sizes_copy.default",
            {Arg::value(rows), Arg::list(std::move(widths)), Arg::integer(1)}, std::move(types), "_part");
    std::map<uint32_t, ValueId> by_call;
    uint32_t next = 0;
    for (size_t m : distinct(bucket)) {
      ValueId part = graph_.node(parts).result(next++);
      const Type type = graph_.type(output_of(m));
      if (type.dtype != dtype) part = add_reading(at, *draft, part, type.dtype, "_elements");
      by_call[call_for(m)] = add_view(at, draft, part, type.dtype, type.shape, "_whole");
    }
    for (size_t m : bucket.members) draft->results.push_back(by_call.at(call_for(m)));
  }

  // The call that is gathered for a member and its twins.
  uint32_t call_for(size_t m) const {
    return members_.list[m].twin != Member::kNone ? members_.list[m].twin : members_.list[m].call;
  }

  std::vector<size_t> distinct(const Bucket& bucket) const {
    std::vector<size_t> out;
    std::set<uint32_t> seen;
    for (size_t m : bucket.members)
      if (seen.insert(call_for(m)).second) out.push_back(m);
    return out;
  }

  ValueId add_padding(NodeId before, const Draft& draft, DType dtype, int64_t elements) {
    ArgList args = {Arg::list({Arg::integer(elements)}), Arg::dtype(dtype).set_key(pool_.str("dtype")),
                    Arg::text(ArgKind::device, draft.device).set_key(pool_.str("device"))};
    return graph_
        .node(add(before, draft, "aten.zeros.default", std::move(args), {tensor(dtype, {elements}, draft)}, "_padding"))
        .result(0);
  }

  ValueId add_pack(NodeId before, const Draft& draft, ArgList tensors, DType dtype, int64_t total, int64_t parts) {
    ArgList args = {Arg::list(std::move(tensors)), Arg::dtype(dtype).set_key(pool_.str("dtype"))};
    if (parts > 1) args.push_back(Arg::integer(parts).set_key(pool_.str("parts")));
    return graph_.node(add(before, draft, "sg.pack", std::move(args), {tensor(dtype, {total}, draft)}, "_pack"))
        .result(0);
  }

  // Moves those of `nodes` that stand after `place` before it, in their order.
  void bring_before(const std::vector<NodeId>& nodes, NodeId place) {
    for (NodeId n : nodes)
      if (graph_.alive(n) && graph_.before(place, n)) graph_.move_before(n, place);
  }

  // --- reductions ---

  void merge_reductions(const Bucket& bucket, int64_t parts, Draft* draft) {
    const NodeId launch = last_launch(bucket);
    const DType dtype = members_.list[bucket.members[0]].dtype;
    ArgList gradients, shapes;
    std::vector<TypeId> types;
    int64_t total = 0, offset = 0;
    for (size_t m : bucket.members) {
      gradients.push_back(Arg::value(source_of(m)));
      total += members_.list[m].elements;
      Type type = graph_.type(output_of(m));
      ArgList shape;
      int64_t elements = 1;
      for (Expr e : type.shape)
        shape.push_back(Arg::integer(*pool_.exprs.constant_value(e))), elements *= *pool_.exprs.constant_value(e);
      shapes.push_back(Arg::list(std::move(shape)));
      type.stride = pool_.contiguous_strides(type.shape);
      type.offset = pool_.exprs.constant(offset);
      offset += elements;
      types.push_back(pool_.types.intern(std::move(type)));
    }
    const ValueId packed = add_pack(launch, *draft, std::move(gradients), dtype, total, parts);
    const NodeId reduced = add(launch, *draft, graph_.pool().op_name(draft->sample.op), collective_args(*draft, packed),
                               {tensor(dtype, {total / parts}, *draft)}, "_reduce");
    const ValueId flat = graph_.node(reduced).result(0);
    const NodeId wait = add(launch, *draft, "_c10d_functional.wait_tensor.default", {Arg::value(flat)},
                            {graph_.value(flat).type}, "_wait");
    const NodeId unpack =
        add(launch, *draft, "sg.unpack", {Arg::value(graph_.node(wait).result(0)), Arg::list(std::move(shapes))},
            std::move(types), "_part");
    for (size_t i = 0; i < bucket.members.size(); ++i)
      draft->results.push_back(graph_.node(unpack).result(static_cast<uint32_t>(i)));
    send_behind(bucket, unpack);
  }

  // Moves the nodes that use the results after `place`, in their order.
  void send_behind(const Bucket& bucket, NodeId place) {
    std::vector<NodeId> moved;
    for (size_t m : bucket.members)
      for (NodeId n : site(m).after)
        if (graph_.alive(n) && graph_.before(n, place)) moved.push_back(n);
    std::ranges::sort(moved, [&](NodeId a, NodeId b) { return graph_.before(a, b); });
    moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
    for (NodeId n : moved) graph_.move_after(n, place), place = n;
  }

  // --- retiring a member ---

  // Replaces its result by the bucket's, under its name, and erases its nodes and casts that become unused.
  void retire(size_t member, Draft* draft) {
    const Site& s = site(member);
    const ValueId by = draft->results[draft->retired++];
    NodeId last = s.wait;
    for (;;) {  // a repeated wait
      const NodeId again = graph_.only_user(graph_.node(last).result(0));
      const OpInfo* op = again ? graph_.op_info(again) : nullptr;
      if (op == nullptr || !op->has(kWait)) break;
      last = again;
    }
    const std::string name(graph_.name(graph_.node(last).result(0)));
    graph_.replace_uses(graph_.node(last).result(0), by);
    cut_.insert(by);
    while (last != s.launch) {
      const NodeId previous = graph_.value(graph_.node(last).args[0].as_value()).def;
      graph_.erase(last);
      last = previous;
    }
    graph_.erase(s.launch);
    for (size_t i = s.before.size(); i-- > 0;)
      if (graph_.alive(s.before[i]) && is_unused(s.before[i])) graph_.erase(s.before[i]);
    if (draft->named.insert(by).second) graph_.rename(by, name);  // of twins, the first one's name
  }

  const Program& program_;
  bool is_unused(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    return op != nullptr && op->has(kPure) && !graph_.has_used_result(n);
  }

  Graph& graph_;
  Pool& pool_;
  const Members& members_;
  const Plan& plan_;
  const std::vector<Site>& sites_;
  AliasAnalysis alias_;
  Schedule schedule_;
  size_t known_values_;
  std::set<ValueId> cut_;  // results of members, and views of their memory
};

int32_t first_free_number(const Job& job) {
  int32_t out = 0;
  for (const auto& program : job.programs)
    for (NodeId n : program->graph.nodes()) out = std::max(out, program->graph.meta(n).collective.bucket + 1);
  return out;
}

}  // namespace

size_t merge_buckets(Job* job, const Members& members, const Plan& plan) {
  const int32_t base = first_free_number(*job);
  // Buckets are numbered in schedule order but merged in order of dependence: gathers of gathers last, reductions
  // before reductions first.
  std::vector<size_t> order(plan.buckets.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  auto rank = [&](size_t b) {
    const Member& m = members.list[plan.buckets[b].members[0]];
    return m.kind == MemberKind::gather ? static_cast<int64_t>(m.depth) : -1 - static_cast<int64_t>(m.depth);
  };
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return rank(a) < rank(b); });
  size_t gone = 0;
  for (size_t p = 0; p < job->programs.size(); ++p) {
    Merger merger(job->programs[p].get(), members, plan, members.sites[p]);
    for (size_t b : order)
      if (members.sites[p][plan.buckets[b].members[0]].launch)
        merger.merge(plan.buckets[b], base + static_cast<int32_t>(b));
    merger.renew_types();
  }
  for (const Bucket& bucket : plan.buckets) gone += bucket.members.size() - 1;
  return gone;
}

}  // namespace sg::bucket_parts
