// Graphs: inputs, nodes with their arguments, outputs.
#include "libgraph/binary/binary_reader.h"

namespace sg {

bool FileReader::read_graph(const fb::Graph& in, uint32_t nested_count, Graph* out) {
  GraphState state{out, &in, size_of(in.value_names()), size_of(in.nodes()), nested_count, {}, {}};
  if (size_of(in.value_types()) != state.value_count) return fail("value_types", "is not as long as value_names");
  if (!charge(8 * size_t{state.value_count}, "value_names")) return false;
  if ((node_count_ += state.node_count) > kMaxNodes) return fail("nodes", "are more than 16,777,216 in all");
  if (size_of(in.inputs()) > state.value_count) return fail("inputs", "are more than value_names");
  out->reserve(state.node_count, state.value_count);
  bool ok = each(in.inputs(), "inputs", [&](const fb::Input& i, uint32_t at) { return read_input(i, at, &state); }) &&
            each(in.nodes(), "nodes", [&](const fb::Node& n, uint32_t) { return read_node(n, &state); }) &&
            each(in.outputs(), "outputs", [&](const fb::Output& o, uint32_t) { return read_output(o, &state); });
  if (!ok) return false;
  return out->value_id_limit() == state.value_count || fail("value_names", "are more than inputs and results");
}

bool FileReader::read_input(const fb::Input& in, uint32_t index, GraphState* state) {
  Input out;
  StrId name;
  TypeId value_type;
  bool ok = required_string(state->file->value_names()->Get(index), "name", &name) &&
            type(state->file->value_types()->Get(index), "type", &value_type) &&
            enumerator(in.kind(), "kind", &out.kind) && string(in.fqn(), "fqn", &out.fqn) &&
            sharding(in.sharding(), &out.sharding) && string(in.of(), "of", &out.of) &&
            string(in.attribute(), "attribute", &out.attribute) && string(in.digest(), "digest", &out.digest) &&
            key_values(in.extra(), "extra", &out.extra);
  if (!ok) return false;
  if (name == StringTable::kEmpty) return fail("name", "is empty");
  if (state->graph->has_name(name)) return fail("name", "is taken by another input");
  state->graph->add_input(job_.pool->strings[name], value_type, std::move(out));
  return true;
}

bool FileReader::read_results(const fb::Node& in, GraphState* state) {
  size_t first = state->graph->value_id_limit(), count = in.result_count();
  if (count > state->value_count - first) return fail("result_count", "passes the end of value_names");
  state->names.resize(count);
  state->types.resize(count);
  for (size_t i = 0; i < count; ++i) {
    auto at = static_cast<uint32_t>(first + i);
    if (!required_string(state->file->value_names()->Get(at), "results", &state->names[i]) ||
        !type(state->file->value_types()->Get(at), "results", &state->types[i]))
      return false;
  }
  return true;
}

bool FileReader::read_node(const fb::Node& in, GraphState* state) {
  Node out;
  if (in.op() >= ops_.size()) return bad_index("op", in.op(), ops_.size());
  out.op = ops_[in.op()];
  out.is_tuple = in.is_tuple();
  bool ok = read_results(in, state) && read_args(in.args(), *state, 1, false, &out.args) &&
            string(in.label(), "label", &out.label) && enumerator(in.phase(), "phase", &out.phase) &&
            string(in.module_(), "module", &out.module) && source(in.source(), "source", &out.source);
  if (!ok) return false;
  if (in.meta() != kNoIndex) {
    if (in.meta() >= metas_.size()) return bad_index("meta", in.meta(), metas_.size());
    out.meta = metas_[in.meta()];
    size_t chunks = job_.pool->metas[out.meta].result_chunks.size();
    if (chunks != 0 && chunks != in.result_count()) return fail("meta", "has result_chunks for another result_count");
  }
  if (in.forward() != kNoIndex && in.forward() >= state->node_count)
    return bad_index("forward", in.forward(), state->node_count);
  out.forward = NodeId(in.forward());  // node ids equal positions
  NodeId added = state->graph->append_exact(std::move(out), state->names, state->types);
  return added || fail("name", "a name of this node is missing, empty or taken");
}

bool FileReader::read_args(const Tables<fb::Arg>* in, const GraphState& state, size_t depth, bool need_keys,
                           ArgList* out) {
  uint32_t count = size_of(in);
  if (count != 0 && depth > kMaxArgDepth) return fail("args", "are nested more than 32 deep");
  const char* field = depth == 1 ? "args" : "items";
  if (!charge(4 * size_t{count}, field)) return false;
  out->resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    Arg& arg = (*out)[i];
    if (!read_arg(*in->Get(i), state, depth, &arg)) return under(field, i);
    if (need_keys && arg.key().is_none()) return fail("key", "is required"), under(field, i);
  }
  return true;
}

bool FileReader::read_arg(const fb::Arg& in, const GraphState& state, size_t depth, Arg* out) {
  StrId key;
  ArgKind kind = ArgKind::none;
  if (!enumerator(in.kind(), "kind", &kind) || !string(in.key(), "key", &key)) return false;
  bool has_items = kind == ArgKind::list || kind == ArgKind::slice || kind == ArgKind::dict || kind == ArgKind::complex;
  if (!(has_items ? read_items(in, state, depth, out) : read_leaf(in, state, out))) return false;
  out->set_key(key);
  return true;
}

bool FileReader::read_items(const fb::Arg& in, const GraphState& state, size_t depth, Arg* out) {
  ArgList items;
  auto kind = static_cast<ArgKind>(in.kind());
  if (!read_args(in.items(), state, depth + 1, kind == ArgKind::dict, &items)) return false;
  switch (kind) {
    case ArgKind::slice:
      if (items.size() != 3) return fail("items", "of a slice are three");
      *out = Arg::slice(std::move(items[0]), std::move(items[1]), std::move(items[2]));
      return true;
    case ArgKind::complex:
      if (items.size() != 2 || !items[0].is(ArgKind::floating) || !items[1].is(ArgKind::floating))
        return fail("items", "of a complex number are two floats");
      *out = Arg::complex(items[0].as_float(), items[1].as_float());
      return true;
    default: *out = kind == ArgKind::dict ? Arg::dict(std::move(items)) : Arg::list(std::move(items)); return true;
  }
}

bool FileReader::read_leaf(const fb::Arg& in, const GraphState& state, Arg* out) {
  auto kind = static_cast<ArgKind>(in.kind());
  uint32_t index = in.index();
  switch (kind) {
    case ArgKind::none: return true;
    case ArgKind::boolean:
      *out = Arg::boolean(index != 0);
      return index <= 1 || unknown_enumerator(static_cast<int>(index), "index");
    case ArgKind::integer: *out = Arg::integer(in.number()); return true;
    case ArgKind::floating:
      if (!in.real().has_value()) return fail("real", "is required");
      *out = Arg::floating(canonical_float(*in.real()));
      return true;
    case ArgKind::expr: {
      Expr e;
      if (!required_expr(index, "index", &e)) return false;
      *out = Arg::expr(e);
      return true;
    }
    case ArgKind::value:
      if (index >= state.graph->value_id_limit())
        return index < state.value_count
                   ? fail("index", "value " + std::to_string(index) + " is used before it is made")
                   : bad_index("index", index, state.value_count);
      *out = Arg::value(ValueId(index));  // value ids equal numbers in the file
      return true;
    case ArgKind::dtype: {
      DType t;
      if (!dtype(index, "index", &t)) return false;
      *out = Arg::dtype(t);
      return true;
    }
    case ArgKind::graph:
      *out = Arg::graph(NestedId(index));
      return index < state.nested_count || bad_index("index", index, state.nested_count);
    case ArgKind::group:
      *out = Arg::group(GroupId(index));
      return index < job_.groups.size() || bad_index("index", index, job_.groups.size());
    default: {
      StrId text;
      if (!required_string(index, "index", &text)) return false;
      *out = Arg::text(kind, text);
      return true;
    }
  }
}

bool FileReader::read_output(const fb::Output& in, GraphState* state) {
  Output out;
  bool ok = enumerator(in.kind(), "kind", &out.kind) && string(in.of_name(), "of_name", &out.of_name) &&
            sharding(in.sharding(), &out.sharding) && string(in.attribute(), "attribute", &out.attribute) &&
            key_values(in.extra(), "extra", &out.extra);
  if (!ok) return false;
  size_t values = state->graph->value_id_limit(), inputs = state->graph->inputs().size();
  if (in.value() != kNoIndex && in.value() >= values) return bad_index("value", in.value(), values);
  if (in.of() != kNoIndex && in.of() >= inputs) return bad_index("of", in.of(), inputs);
  out.value = ValueId(in.value());
  out.of = ValueId(in.of());
  state->graph->add_output(std::move(out));
  return true;
}

}  // namespace sg
