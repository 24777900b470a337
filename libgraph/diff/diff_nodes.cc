#include "libgraph/diff/diff_nodes.h"

#include <algorithm>
#include <bit>

#include "libgraph/names.h"
#include "libgraph/op.h"

namespace sg {
namespace {

std::string percent(std::string_view name) { return "%" + std::string(name); }

// "argument dim" if the op table knows the parameter, else by key or position.
std::string argument_name(const Graph& graph, const Node& node, size_t i) {
  const Pool& pool = graph.pool();
  if (i < node.args.size() && node.args[i].key()) return "argument " + pool.strings.str(node.args[i].key());
  const OpInfo* info = pool.ops[node.op].info;
  if (info != nullptr && i < info->params.size()) return "argument " + std::string(info->params[i].name);
  return "argument " + std::to_string(i);
}

}  // namespace

void NodeComparer::add(Aspect aspect, std::string what, std::string before, std::string after) {
  out_.push_back({aspect, std::move(what), std::move(before), std::move(after)});
}

std::vector<Difference> NodeComparer::nodes(uint32_t x, uint32_t y) {
  out_.clear(), by_number_.clear();
  NodeId m = diff_.side_a.nodes[x], n = diff_.side_b.nodes[y];
  if (diff_.side_a.op[x] != diff_.side_b.op[y])
    add(Aspect::op, "op", std::string(graph_a().op_name(m)), std::string(graph_b().op_name(n)));
  arguments(x, y);
  types(m, n);
  if (!options_.ignore_meta) context(m, n), metadata(m, n);
  if (!options_.ignore_loc && !terms_.same_source(graph_a().node(m).source, graph_b().node(n).source))
    add(Aspect::loc, "source", print_.a.source_alone(graph_a().node(m).source),
        print_.b.source_alone(graph_b().node(n).source));
  if (!options_.ignore_name) names(m, n);
  return std::move(out_);
}

void NodeComparer::names(NodeId m, NodeId n) {
  const Node& x = graph_a().node(m);
  const Node& y = graph_b().node(n);
  for (uint32_t r = 0; r < std::min(x.result_count, y.result_count); ++r)
    if (graph_a().name(x.result(r)) != graph_b().name(y.result(r)))
      add(Aspect::name, "name", percent(graph_a().name(x.result(r))), percent(graph_b().name(y.result(r))));
  bool label_follows = x.result_count && y.result_count && graph_a().label(m) == graph_a().name(x.first_result) &&
                       graph_b().label(n) == graph_b().name(y.first_result);
  if (!label_follows && graph_a().label(m) != graph_b().label(n))
    add(Aspect::name, "label", percent(graph_a().label(m)), percent(graph_b().label(n)));
}

// --- arguments ---

bool NodeComparer::same_value(ValueId v, ValueId w) const {
  return diff_.match.values[0][diff_.side_a.value_of[v.index]] == diff_.side_b.value_of[w.index];
}

void NodeComparer::arguments(uint32_t x, uint32_t y) {
  const Node& p = graph_a().node(diff_.side_a.nodes[x]);
  const Node& q = graph_b().node(diff_.side_b.nodes[y]);
  bool same_literals = diff_.side_a.key[x] == diff_.side_b.key[y] && !diff_.side_a.blank[x] &&
                       (!terms_.has_numbers() || diff_.side_a.commutative[x]);  // keys equate symbols with numbers
  if (same_literals) {
    std::span<const uint32_t> a = diff_.side_a.operands(x), b = diff_.side_b.operands(y);
    auto same = [&](size_t i, size_t j) { return diff_.match.values[0][a[i]] == b[j]; };
    bool crossed = diff_.side_a.commutative[x] && same(0, 1) && same(1, 0);
    size_t equal = 0;
    while (equal < a.size() && same(equal, equal)) ++equal;
    if (crossed || equal == a.size()) return;
    if (diff_.side_a.commutative[x] && !same(0, 0) && !same(1, 1) && (same(0, 1) || same(1, 0))) {
      size_t i = same(0, 1) ? 1 : 0;  // the one without a partner, in either position
      return add(Aspect::operand, argument_name(graph_a(), p, i),
                 print_.a.arg_alone(*diff_.side_a.program, graph_a(), p.args[i]),
                 print_.b.arg_alone(*diff_.side_b.program, graph_b(), q.args[1 - i]));
    }
  }
  for (size_t i = 0; i < std::max(p.args.size(), q.args.size()); ++i) argument(p, q, i);
}

void NodeComparer::argument(const Node& p, const Node& q, size_t i) {
  const Arg* a = i < p.args.size() ? &p.args[i] : nullptr;
  const Arg* b = i < q.args.size() ? &q.args[i] : nullptr;
  Likeness likeness = a && b ? compare(*a, *b) : Likeness::different;
  if (likeness == Likeness::same) return;
  auto text = [](text::TextPrinter& printer, const MatchSide& side, const Arg* arg) {
    return arg ? printer.arg_alone(*side.program, *side.graph, *arg) : std::string("-");
  };
  add(likeness == Likeness::other_values ? Aspect::operand : Aspect::attribute,
      a ? argument_name(graph_a(), p, i) : argument_name(graph_b(), q, i), text(print_.a, diff_.side_a, a),
      text(print_.b, diff_.side_b, b));
  if (likeness == Likeness::other_numbers) by_number_.push_back(std::move(out_.back())), out_.pop_back();
}

// The number an argument stands for on side s, once symbols have become numbers.
std::optional<int64_t> NodeComparer::number(int s, const Arg& arg) const {
  const Graph& graph = s == 0 ? graph_a() : graph_b();
  if (arg.is(ArgKind::integer)) return arg.as_int();
  if (arg.is(ArgKind::expr)) return number_of(graph.pool(), arg.as_expr(), terms_.numbers(s));
  if (arg.is(ArgKind::value)) return number_of(graph.pool(), graph.value(arg.as_value()).type, terms_.numbers(s));
  return std::nullopt;
}

bool NodeComparer::same_number(const Arg& a, const Arg& b) const {
  if (!terms_.has_numbers() || (a.is(ArgKind::integer) && b.is(ArgKind::integer))) return false;
  std::optional<int64_t> n = number(0, a);
  return n && n == number(1, b);
}

NodeComparer::Likeness NodeComparer::compare(const Arg& a, const Arg& b) {
  Likeness plain = compare_plainly(a, b);
  bool is_number = plain != Likeness::same && terms_.same_text(a.key(), b.key()) && same_number(a, b);
  return is_number ? Likeness::other_numbers : plain;
}

NodeComparer::Likeness NodeComparer::compare_plainly(const Arg& a, const Arg& b) {
  auto verdict = [](bool same) { return same ? Likeness::same : Likeness::different; };
  if (a.kind() != b.kind() || !terms_.same_text(a.key(), b.key())) return Likeness::different;
  switch (a.kind()) {
    case ArgKind::none: return Likeness::same;
    case ArgKind::value: return same_value(a.as_value(), b.as_value()) ? Likeness::same : Likeness::other_values;
    case ArgKind::expr:
      if (terms_.same_expr(a.as_expr(), b.as_expr())) return Likeness::same;
      return terms_.same_expr_by_number(a.as_expr(), b.as_expr()) ? Likeness::other_numbers : Likeness::different;
    case ArgKind::group: return verdict(terms_.same_group(a.as_group(), b.as_group()));
    case ArgKind::floating:
      return verdict(std::bit_cast<uint64_t>(a.as_float()) == std::bit_cast<uint64_t>(b.as_float()));
    case ArgKind::boolean:
    case ArgKind::integer: return verdict(a.as_int() == b.as_int());
    case ArgKind::dtype: return verdict(a.as_dtype() == b.as_dtype());
    case ArgKind::graph:
      return verdict(a.as_graph().index < nested_of_a_.size() && nested_of_a_[a.as_graph().index] == b.as_graph());
    default: return a.is_text() ? verdict(terms_.same_text(a.as_text(), b.as_text())) : compare_items(a, b);
  }
}

NodeComparer::Likeness NodeComparer::compare_items(const Arg& a, const Arg& b) {
  if (!a.has_items() || !b.has_items() || a.items().size() != b.items().size()) return Likeness::different;
  Likeness worst = Likeness::same;
  for (size_t i = 0; i < a.items().size(); ++i) worst = std::max(worst, compare(a.items()[i], b.items()[i]));
  return worst;
}

// --- types ---

void NodeComparer::type(const std::string& what, ValueId v, ValueId w) {
  TypeId x = graph_a().value(v).type, y = graph_b().value(w).type;
  if (terms_.same_type(x, y)) return;
  const Type &t = graph_a().pool().types[x], &u = graph_b().pool().types[y];
  if (options_.ignore_name && t.kind == TypeKind::opaque && u.kind == TypeKind::opaque)
    return;  // its text is a class name
  Difference change{Aspect::type, what, print_.a.type_alone(x), print_.b.type_alone(y)};
  (terms_.same_type_by_number(x, y) ? by_number_ : out_).push_back(std::move(change));
}

void NodeComparer::types(NodeId m, NodeId n) {
  const Node& x = graph_a().node(m);
  const Node& y = graph_b().node(n);
  if (x.result_count != y.result_count || x.is_tuple != y.is_tuple)
    add(Aspect::type, "results", std::to_string(x.result_count), std::to_string(y.result_count));
  for (uint32_t r = 0; r < std::min(x.result_count, y.result_count); ++r)
    type(x.result_count == 1 ? "type" : "type of result " + std::to_string(r), x.result(r), y.result(r));
}

// --- metadata ---

void NodeComparer::context(NodeId m, NodeId n) {
  const Node& x = graph_a().node(m);
  const Node& y = graph_b().node(n);
  if (x.phase != y.phase) add(Aspect::meta, "phase", std::string(name_of(x.phase)), std::string(name_of(y.phase)));
  auto text = [](const Pool& pool, StrId s) { return s ? pool.strings.str(s) : std::string("-"); };
  if (!terms_.same_text(x.module, y.module))
    add(Aspect::meta, "module", text(terms_.pool_a(), x.module), text(terms_.pool_b(), y.module));
  uint32_t f = x.forward ? diff_.side_a.position_of[x.forward.index] : MatchSide::kNone;
  uint32_t g = y.forward ? diff_.side_b.position_of[y.forward.index] : MatchSide::kNone;
  bool same = f == MatchSide::kNone || g == MatchSide::kNone ? f == g : diff_.match.nodes[0][f] == g;
  auto name = [](const Graph& graph, NodeId node) { return node ? percent(graph.label(node)) : std::string("-"); };
  if (!same) add(Aspect::meta, "of", name(graph_a(), x.forward), name(graph_b(), y.forward));
}

bool NodeComparer::same_named(StrId a, StrId b) {
  if (!a || !b) return a.is_none() && b.is_none();
  NodeId m = graph_a().find_node(terms_.pool_a().strings[a]), n = graph_b().find_node(terms_.pool_b().strings[b]);
  if (m && n) {
    uint32_t x = diff_.side_a.position_of[m.index], y = diff_.side_b.position_of[n.index];
    if (diff_.match.nodes[0][x] == y) return true;
  }
  return options_.ignore_name || terms_.same_text(a, b);
}

template <class Get>
void NodeComparer::field(const std::string& what, const NodeMeta& x, const NodeMeta& y, bool same, const Get& get) {
  if (same) return;
  auto only = [&](text::TextPrinter& printer, const NodeMeta& meta) {
    NodeMeta one;
    get(one, meta);
    std::string text = printer.meta_alone(one);
    return text.empty() ? std::string("-") : text;
  };
  add(Aspect::meta, what, only(print_.a, x), only(print_.b, y));
}

void NodeComparer::exchange(const NodeMeta& x, const NodeMeta& y) {
  field("recompute", x, y, x.recompute == y.recompute && x.recompute_region == y.recompute_region,
        [](NodeMeta& to, const NodeMeta& from) {
          to.recompute = from.recompute, to.recompute_region = from.recompute_region;
        });
  field("ep", x, y, x.ep_role == y.ep_role && x.ep_step == y.ep_step,
        [](NodeMeta& to, const NodeMeta& from) { to.ep_role = from.ep_role, to.ep_step = from.ep_step; });
  bool same = x.collective.role == y.collective.role && x.collective.direction == y.collective.direction &&
              x.collective.bucket == y.collective.bucket && terms_.same_texts(x.collective.plan, y.collective.plan);
  field("collective", x, y, same, [](NodeMeta& to, const NodeMeta& from) { to.collective = from.collective; });
  same = x.random.stream == y.random.stream && x.random.rank_local == y.random.rank_local &&
         terms_.same_exprs(x.random.origin_shape, y.random.origin_shape) &&
         terms_.same_exprs(x.random.origin_offset, y.random.origin_offset);
  field("random", x, y, same, [](NodeMeta& to, const NodeMeta& from) { to.random = from.random; });
}

void NodeComparer::copies(const NodeMeta& x, const NodeMeta& y) {
  const ChunkInfo& c = x.chunk;
  const ChunkInfo& d = y.chunk;
  bool same = terms_.same_text(c.region, d.region) && c.index == d.index && terms_.same_text(c.role, d.role) &&
              terms_.same_text(c.producer, d.producer) && same_named(c.original, d.original) &&
              c.is_backward == d.is_backward;
  field("chunk", x, y, same, [](NodeMeta& to, const NodeMeta& from) { to.chunk = from.chunk; });
  same = std::equal(x.result_chunks.begin(), x.result_chunks.end(), y.result_chunks.begin(), y.result_chunks.end(),
                    [&](const ResultChunk& p, const ResultChunk& q) {
                      return p.index == q.index && same_named(p.original, q.original);
                    });
  field("chunks", x, y, same, [](NodeMeta& to, const NodeMeta& from) { to.result_chunks = from.result_chunks; });
  field("copy", x, y, x.copy.kind == y.copy.kind && same_named(x.copy.of, y.copy.of),
        [](NodeMeta& to, const NodeMeta& from) { to.copy = from.copy; });
}

void NodeComparer::metadata(NodeId m, NodeId n) {
  const NodeMeta& x = graph_a().meta(m);
  const NodeMeta& y = graph_b().meta(n);
  if (graph_a().node(m).meta == Pool::kDefaultMeta && graph_b().node(n).meta == Pool::kDefaultMeta) return;
  exchange(x, y), copies(x, y);
  field("also", x, y, terms_.same_texts(x.more_modules, y.more_modules),
        [](NodeMeta& to, const NodeMeta& from) { to.more_modules = from.more_modules; });
  field("binds", x, y,
        x.binds.has_value() == y.binds.has_value() && (!x.binds || terms_.same_symbols(*x.binds, *y.binds)),
        [](NodeMeta& to, const NodeMeta& from) { to.binds = from.binds; });
  field("extra", x, y, terms_.same_key_values(x.extra, y.extra),
        [](NodeMeta& to, const NodeMeta& from) { to.extra = from.extra; });
}

// --- inputs and outputs ---

void NodeComparer::sharding(const Sharding& x, const Sharding& y) {
  if (terms_.same_sharding(x, y)) return;
  bool by_number = terms_.same_exprs_by_number(x.global_shape, y.global_shape) &&
                   terms_.same_texts(x.placements, y.placements) && terms_.same_texts(x.mesh_axes, y.mesh_axes);
  (by_number ? by_number_ : out_)
      .push_back({Aspect::meta, "sharding", print_.a.sharding_alone(x), print_.b.sharding_alone(y)});
}

std::vector<Difference> NodeComparer::inputs(uint32_t i, uint32_t j) {
  out_.clear(), by_number_.clear();
  const Input& x = graph_a().inputs()[i];
  const Input& y = graph_b().inputs()[j];
  auto text = [](const Pool& pool, StrId s) { return s ? pool.strings.str(s) : std::string("-"); };
  auto field = [&](Aspect aspect, const char* what, StrId s, StrId t) {
    if (!terms_.same_text(s, t)) add(aspect, what, text(terms_.pool_a(), s), text(terms_.pool_b(), t));
  };
  if (!options_.ignore_meta) {
    if (x.kind != y.kind) add(Aspect::meta, "kind", std::string(name_of(x.kind)), std::string(name_of(y.kind)));
    field(Aspect::meta, "fqn", x.fqn, y.fqn), field(Aspect::meta, "of", x.of, y.of);
    field(Aspect::meta, "attribute", x.attribute, y.attribute), sharding(x.sharding, y.sharding);
    if (!terms_.same_key_values(x.extra, y.extra)) add(Aspect::meta, "extra", "-", "other free keys");
  }
  field(Aspect::attribute, "data", x.digest, y.digest);
  type("type", x.value, y.value);
  if (!options_.ignore_name && graph_a().name(x.value) != graph_b().name(y.value))
    add(Aspect::name, "name", percent(graph_a().name(x.value)), percent(graph_b().name(y.value)));
  return std::move(out_);
}

std::vector<Difference> NodeComparer::outputs(uint32_t i, uint32_t j) {
  out_.clear(), by_number_.clear();
  const Output& x = graph_a().outputs()[i];
  const Output& y = graph_b().outputs()[j];
  auto name = [](const Graph& graph, ValueId v) { return v ? percent(graph.name(v)) : std::string("-"); };
  auto same = [&](ValueId v, ValueId w) { return v && w ? same_value(v, w) : v.is_none() && w.is_none(); };
  if (!same(x.value, y.value)) add(Aspect::operand, "value", name(graph_a(), x.value), name(graph_b(), y.value));
  if (options_.ignore_meta) return std::move(out_);
  if (x.kind != y.kind) add(Aspect::meta, "kind", std::string(name_of(x.kind)), std::string(name_of(y.kind)));
  if (!same(x.of, y.of)) add(Aspect::meta, "of", name(graph_a(), x.of), name(graph_b(), y.of));
  if (!terms_.same_text(x.of_name, y.of_name) || !terms_.same_text(x.attribute, y.attribute))
    add(Aspect::meta, "what it is", print_.a.output_alone(graph_a(), x), print_.b.output_alone(graph_b(), y));
  sharding(x.sharding, y.sharding);
  if (!terms_.same_key_values(x.extra, y.extra)) add(Aspect::meta, "extra", "-", "other free keys");
  return std::move(out_);
}

}  // namespace sg
