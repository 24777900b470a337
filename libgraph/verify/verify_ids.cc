// Rule `index`: every index refers to something that exists. All other rules, and everything after them, rely on it.
#include "libgraph/verify/verify_rules.h"

namespace sg {
namespace {

constexpr uint32_t kMaxTypeDepth = 32;  // nested lists: bounds all recursion over types
constexpr size_t kMaxListDepth = 31;    // as deep as a file has them

bool known(const Check& c, StrId s) { return s.index < c.pool.strings.size(); }
bool known_or_none(const Check& c, StrId s) { return s.is_none() || known(c, s); }
bool known(const Check& c, Expr e) { return e.index < c.pool.exprs.size(); }
bool known_or_none(const Check& c, Expr e) { return e.is_none() || known(c, e); }

template <class List>
bool all_known(const Check& c, const List& list) {
  for (const auto& item : list)
    if (!known(c, item)) return false;
  return true;
}

bool keys_known(const Check& c, const std::vector<KeyValue>& list) {
  for (const KeyValue& kv : list)
    if (!known(c, kv.key) || !known(c, kv.json)) return false;
  return true;
}

bool sharding_known(const Check& c, const Sharding& s) {
  return all_known(c, s.global_shape) && all_known(c, s.placements) && all_known(c, s.mesh_axes);
}

bool type_known(const Check& c, const Type& t) {
  if (t.kind > TypeKind::opaque || static_cast<int>(t.dtype) >= kDTypeCount) return false;
  bool tensor = t.kind == TypeKind::tensor;
  if (tensor ? !known(c, t.offset) || !known(c, t.device) : !known_or_none(c, t.offset) || !known_or_none(c, t.device))
    return false;
  bool counted = t.has_value && (t.kind == TypeKind::integer || t.kind == TypeKind::boolean);
  if (counted ? !known(c, t.value) : !known_or_none(c, t.value)) return false;
  if (t.kind == TypeKind::opaque ? !known(c, t.text) : !known_or_none(c, t.text)) return false;
  return all_known(c, t.shape) && all_known(c, t.stride);
}

void ids_of_types(Check& c) {
  std::vector<uint32_t> depth(c.pool.types.size(), 0);
  for (uint32_t i = 0; i < depth.size(); ++i) {
    const Type& t = c.pool.types[TypeId(i)];
    bool fine = type_known(c, t);
    for (TypeId e : t.elements) {
      if (e.index >= i) fine = false;  // elements are interned before their list, which excludes cycles
      else depth[i] = std::max(depth[i], depth[e.index] + 1);
    }
    if (!fine) c.fail("type " + std::to_string(i) + " refers to something that is not in the job");
    else if (depth[i] > kMaxTypeDepth) c.fail("type " + std::to_string(i) + " nests lists too deeply");
  }
}

bool meta_known(const Check& c, const NodeMeta& m) {
  bool chunks = true;
  for (const ResultChunk& r : m.result_chunks) chunks = chunks && known_or_none(c, r.original);
  return m.recompute <= Recompute::must_recompute && m.ep_role <= EpRole::combine &&
         m.ep_step <= EpStep::token_exchange_wait && m.collective.role <= CollectiveRole::reduce &&
         m.collective.direction <= BucketDirection::backward && m.copy.kind <= CopyKind::offload && chunks &&
         known_or_none(c, m.chunk.region) && known_or_none(c, m.chunk.role) && known_or_none(c, m.chunk.producer) &&
         known_or_none(c, m.chunk.original) && all_known(c, m.collective.plan) && known_or_none(c, m.copy.of) &&
         all_known(c, m.random.origin_shape) && all_known(c, m.random.origin_offset) && all_known(c, m.more_modules) &&
         (!m.binds || all_known(c, *m.binds)) && keys_known(c, m.extra);
}

// Whether the graph has this value: an input, or a result of a live node.
bool value_alive(const Graph& g, ValueId v) {
  if (v.index >= g.value_id_limit()) return false;
  const Value& value = g.value(v);
  if (value.def) return g.alive(value.def);
  return value.index < g.inputs().size() && g.inputs()[value.index].value == v;
}

struct ArgCheck {
  Check& c;
  const char* wrong = nullptr;

  void look(const Arg& a, size_t depth) {
    if (!known_or_none(c, a.key())) wrong = "an argument name that is not in the job";
    if (a.is(ArgKind::value) && !value_alive(*c.graph, a.as_value())) wrong = "a value that is not in its graph";
    if (a.is(ArgKind::expr) && !known(c, a.as_expr())) wrong = "an expression that is not in the job";
    if (a.is(ArgKind::dtype) && (static_cast<int>(a.as_dtype()) >= kDTypeCount || a.as_dtype() == DType::none))
      wrong = "an element type that does not exist";
    if (a.is(ArgKind::graph) && a.as_graph().index >= c.program->nested.size())
      wrong = "a nested graph that does not exist";
    if (a.is(ArgKind::group) && a.as_group().index >= c.job.groups.size()) wrong = "a group that does not exist";
    if (a.is_text() && !known(c, a.as_text())) wrong = "a text that is not in the job";
    if (a.kind() > ArgKind::opaque) wrong = "an argument of a kind that does not exist";
    if (!a.has_items()) return;
    if (depth >= kMaxListDepth) wrong = "lists that are nested too deeply";
    else
      for (const Arg& item : a.items()) look(item, depth + 1);
  }
};

}  // namespace

void ids_of_pool(Check& c) {
  ids_of_types(c);
  for (uint32_t i = 0; i < c.pool.metas.size(); ++i)
    if (!meta_known(c, c.pool.metas[MetaId(i)]))
      c.fail("metadata record " + std::to_string(i) + " refers to something that is not in the job");
  for (uint32_t i = 0; i < c.pool.sources.size(); ++i) {
    const Source& s = c.pool.sources[SourceId(i)];
    if (!known(c, s.file) || !known_or_none(c, s.function)) c.fail("source line " + std::to_string(i) + " has no file");
  }
  for (uint32_t i = 0; i < c.pool.ops.size(); ++i)
    if (!known(c, c.pool.ops[OpId(i)].name)) c.fail("op " + std::to_string(i) + " has no name");
}

void ids_of_job(Check& c) {
  bool fine = known(c, c.job.title) && keys_known(c, c.job.producer) && keys_known(c, c.job.extra);
  for (const Group& g : c.job.groups) {
    fine = fine && known(c, g.axis);
    for (const GroupPart& p : g.parts)
      for (const GroupPart::Alias& a : p.aliases) fine = fine && known(c, a.name);
  }
  for (const Mesh& m : c.job.meshes) fine = fine && known(c, m.name) && all_known(c, m.axes);
  for (const Provenance& p : c.job.provenance)
    fine =
        fine && known(c, p.tool) && known(c, p.version) && known_or_none(c, p.input_digest) && keys_known(c, p.options);
  if (!fine) c.fail("the header of the job refers to a text that is not in it");
}

void ids_of_program(Check& c) {
  for (size_t i = 0; i < c.program->symbols.size(); ++i) {
    const Symbol& s = c.program->symbols[i];
    if (!known(c, s.name) || !known_or_none(c, s.source) || s.kind > SymbolKind::data)
      c.fail("symbol " + std::to_string(i) + " has no name or no kind");
  }
  for (size_t i = 0; i < c.program->guards.size(); ++i) {
    const Guard& g = c.program->guards[i];
    bool source = g.source.is_none() || g.source.index < c.pool.sources.size();
    if (!known(c, g.left) || !known(c, g.right) || !source || g.relation > Relation::ge)
      c.fail("guard " + std::to_string(i) + " refers to something that is not in the job");
  }
  for (size_t i = 0; i < c.program->nested.size(); ++i)
    if (!known(c, c.program->nested[i]->name)) c.fail("nested graph " + std::to_string(i) + " has no name");
}

void ids_of_graph(Check& c) {
  const Graph& g = *c.graph;
  for (size_t i = 0; i < g.inputs().size(); ++i) {
    const Input& in = g.inputs()[i];
    bool value = in.value.index < g.value_id_limit() && g.value(in.value).type.index < c.pool.types.size() &&
                 known(c, g.value(in.value).name);
    if (!value || in.kind > InputKind::opaque || !known_or_none(c, in.fqn) || !known_or_none(c, in.of) ||
        !known_or_none(c, in.attribute) || !known_or_none(c, in.digest) || !sharding_known(c, in.sharding) ||
        !keys_known(c, in.extra))
      c.fail_item("input", i, "this input refers to something that is not in the job");
  }
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const Output& out = g.outputs()[i];
    bool of = out.of.is_none() || (out.of.index < g.value_id_limit() && value_alive(g, out.of) && !g.value(out.of).def);
    bool value = out.value.is_none() || value_alive(g, out.value);
    if (!value || !of || out.kind > OutputKind::opaque || !known_or_none(c, out.of_name) ||
        !known_or_none(c, out.attribute) || !sharding_known(c, out.sharding) || !keys_known(c, out.extra))
      c.fail_item("output", i, "this output refers to something that is not in the graph");
  }
}

void ids_of_node(Check& c, NodeId n) {
  const Node& node = c.graph->node(n);
  auto wrong = [&](std::string_view what) {
    if (known(c, node.label)) c.fail(n, "refers to " + std::string(what));
    else c.fail("node " + std::to_string(n.index) + " has no label");
  };
  bool texts = known(c, node.label) && known_or_none(c, node.module);
  bool tables = node.op.index < c.pool.ops.size() && node.meta.index < c.pool.metas.size() &&
                (node.source.is_none() || node.source.index < c.pool.sources.size()) && node.phase <= Phase::optimizer;
  bool forward = node.forward.is_none() || node.forward.index < c.graph->node_id_limit();
  size_t limit = c.graph->value_id_limit();
  bool results = node.result_count == 0 ||
                 (node.first_result.index < limit && node.result_count <= limit - node.first_result.index);
  if (!texts || !tables || !forward || !results) return wrong("something that is not in the job");
  for (uint32_t i = 0; i < node.result_count; ++i) {
    const Value& v = c.graph->value(node.result(i));
    if (v.type.index >= c.pool.types.size() || !known(c, v.name)) return wrong("a type or name that is not in the job");
  }
  ArgCheck args{c};
  for (const Arg& arg : node.args) args.look(arg, 0);
  if (args.wrong) wrong(args.wrong);
}

}  // namespace sg
