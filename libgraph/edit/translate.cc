#include "libgraph/edit/translate.h"

namespace sg {

StrId Translator::str(StrId s) { return s ? to_.str(from_.strings[s]) : s; }

std::vector<StrId> Translator::strs(const std::vector<StrId>& list) {
  std::vector<StrId> out;
  for (StrId s : list) out.push_back(str(s));
  return out;
}

StrId Translator::symbol(StrId s) {
  if (symbol_names_ == nullptr) return str(s);
  auto at = symbol_names_->find(s);
  return at == symbol_names_->end() ? str(s) : at->second;
}

Expr Translator::atom(const Atom& a) {
  if (a.kind == AtomKind::symbol) {
    if (symbol_numbers_ != nullptr)
      if (auto at = symbol_numbers_->find(a.symbol); at != symbol_numbers_->end())
        return to_.exprs.constant(at->second);
    return to_.exprs.symbol(symbol(a.symbol));
  }
  Expr out = expr(a.operands[0]);
  for (size_t i = 1; i < a.operands.size(); ++i) {
    Expr next = expr(a.operands[i]);
    switch (a.kind) {
      case AtomKind::floordiv: out = to_.exprs.floordiv(out, next); break;
      case AtomKind::mod: out = to_.exprs.mod(out, next); break;
      case AtomKind::min: out = to_.exprs.min(out, next); break;
      default: out = to_.exprs.max(out, next); break;
    }
  }
  return out;
}

Expr Translator::expr(Expr e) {
  if (!e || from_.exprs.is_invalid(e)) return e ? ExprPool::kInvalid : e;
  if (auto known = expr_memo_.find(e); known != expr_memo_.end()) return known->second;
  std::vector<Expr> sum;
  for (const Term& term : from_.exprs.terms(e)) {
    Expr product = to_.exprs.constant(term.coefficient);
    for (const Factor& f : term.factors)
      product = to_.exprs.mul(product, to_.exprs.pow(atom(from_.exprs.atom(f.atom)), f.power));
    sum.push_back(product);
  }
  Expr out = to_.exprs.sum(sum);
  expr_memo_.emplace(e, out);
  return out;
}

std::vector<Expr> Translator::exprs(const std::vector<Expr>& list) {
  std::vector<Expr> out;
  for (Expr e : list) out.push_back(expr(e));
  return out;
}

TypeId Translator::type(TypeId t) {
  if (auto known = type_memo_.find(t); known != type_memo_.end()) return known->second;
  Type copy = from_.types[t];
  copy.device = str(copy.device);
  copy.offset = expr(copy.offset);
  copy.value = expr(copy.value);
  copy.text = str(copy.text);
  copy.shape = exprs(copy.shape);
  copy.stride = exprs(copy.stride);
  for (TypeId& element : copy.elements) element = type(element);
  TypeId out = to_.types.intern(std::move(copy));
  type_memo_.emplace(t, out);
  return out;
}

SourceId Translator::source(SourceId s) {
  if (!s) return s;
  const Source& from = from_.sources[s];
  return to_.sources.intern({str(from.file), from.line, str(from.function)});
}

std::vector<KeyValue> Translator::key_values(const std::vector<KeyValue>& list) {
  std::vector<KeyValue> out;
  for (const KeyValue& kv : list) out.push_back({str(kv.key), str(kv.json)});
  return out;
}

MetaId Translator::meta(MetaId m) {
  if (auto known = meta_memo_.find(m); known != meta_memo_.end()) return known->second;
  NodeMeta copy = from_.metas[m];
  copy.chunk.region = str(copy.chunk.region);
  copy.chunk.role = str(copy.chunk.role);
  copy.chunk.producer = str(copy.chunk.producer);
  copy.chunk.original = str(copy.chunk.original);
  for (ResultChunk& r : copy.result_chunks) r.original = str(r.original);
  copy.collective.plan = strs(copy.collective.plan);
  copy.copy.of = str(copy.copy.of);
  copy.random.origin_shape = exprs(copy.random.origin_shape);
  copy.random.origin_offset = exprs(copy.random.origin_offset);
  copy.more_modules = strs(copy.more_modules);
  if (copy.binds) copy.binds = strs(*copy.binds);
  copy.extra = key_values(copy.extra);
  MetaId out = to_.metas.intern(std::move(copy));
  meta_memo_.emplace(m, out);
  return out;
}

OpId Translator::op(OpId o) { return to_.op(from_.op_name(o)); }

Arg Translator::arg(const Arg& a, const std::vector<ValueId>& values) {
  ArgList items;
  if (a.has_items())
    for (const Arg& item : a.items()) items.push_back(arg(item, values));
  Arg out = a;
  switch (a.kind()) {
    case ArgKind::value: out = Arg::value(values[a.as_value().index]); break;
    case ArgKind::expr: out = Arg::expr(expr(a.as_expr())); break;
    case ArgKind::group: out = Arg::group(groups_[a.as_group().index]); break;
    default:
      if (a.is_text()) out = Arg::text(a.kind(), str(a.as_text()));
      else if (a.has_items()) out.mutable_items() = std::move(items);
  }
  return out.set_key(str(a.key()));
}

Sharding Translator::sharding(const Sharding& s) {
  return {exprs(s.global_shape), strs(s.placements), strs(s.mesh_axes)};
}

void Translator::graph(const Graph& source, Graph* target) {
  Mapping map{std::vector<ValueId>(source.value_id_limit()), std::vector<NodeId>(source.node_id_limit())};
  inputs(source, target, &map);
  for (NodeId n : source.nodes()) node(source, n, target, &map);
  for (NodeId n : source.nodes())
    if (NodeId f = source.node(n).forward; f && source.alive(f))
      target->set_forward(map.nodes[n.index], map.nodes[f.index]);
  outputs(source, target, map);
}

void Translator::inputs(const Graph& source, Graph* target, Mapping* map) {
  for (const Input& input : source.inputs()) {
    Input copy = input;
    copy.fqn = str(copy.fqn);
    copy.sharding = sharding(copy.sharding);
    copy.of = str(copy.of);
    copy.attribute = str(copy.attribute);
    copy.digest = str(copy.digest);
    copy.extra = key_values(copy.extra);
    map->values[input.value.index] =
        target->add_input(source.name(input.value), type(source.value(input.value).type), std::move(copy));
  }
}

void Translator::node(const Graph& source, NodeId n, Graph* target, Mapping* map) {
  const Node& node = source.node(n);
  NodeSpec spec;
  spec.op = op(node.op);
  for (const Arg& a : node.args) spec.args.push_back(arg(a, map->values));
  for (uint32_t i = 0; i < node.result_count; ++i) {
    spec.result_types.push_back(type(source.value(node.result(i)).type));
    spec.names.emplace_back(source.name(node.result(i)));
  }
  bool has_own_label = node.result_count == 0 || node.label != source.value(node.first_result).name;
  if (has_own_label) spec.label = source.label(n);
  spec.is_tuple = node.is_tuple;
  spec.phase = node.phase;
  spec.module = str(node.module);
  spec.source = this->source(node.source);
  spec.meta = meta(node.meta);
  NodeId copy = target->append(spec);
  map->nodes[n.index] = copy;
  for (uint32_t i = 0; i < node.result_count; ++i) map->values[node.result(i).index] = target->node(copy).result(i);
}

void Translator::outputs(const Graph& source, Graph* target, const Mapping& map) {
  for (const Output& output : source.outputs()) {
    Output copy = output;
    if (copy.value) copy.value = map.values[copy.value.index];
    if (copy.of) copy.of = map.values[copy.of.index];
    copy.of_name = str(copy.of_name);
    copy.sharding = sharding(copy.sharding);
    copy.attribute = str(copy.attribute);
    copy.extra = key_values(copy.extra);
    target->add_output(std::move(copy));
  }
}

void Translator::program(const Program& source, Program* target) {
  target->ranks = source.ranks;
  for (Symbol s : source.symbols) {
    s.name = str(s.name);
    s.source = str(s.source);
    target->symbols.push_back(s);
  }
  for (const Guard& g : source.guards)
    target->guards.push_back({g.relation, expr(g.left), expr(g.right), this->source(g.source)});
  for (const auto& nested : source.nested) {
    target->nested.push_back(std::make_unique<Nested>(Nested{str(nested->name), Graph(&to_)}));
    graph(nested->graph, &target->nested.back()->graph);
  }
  graph(source.graph, &target->graph);
}

}  // namespace sg
