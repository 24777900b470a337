// Graphs: nodes, arguments, inputs, outputs.
#include "libgraph/binary/binary_writer.h"

namespace sg {

FileWriter::GraphNumbers FileWriter::number(const Graph& g) {
  GraphNumbers out;
  out.value.assign(g.value_id_limit(), kNoIndex);
  out.node.assign(g.node_id_limit(), kNoIndex);
  uint32_t next_value = 0, next_node = 0;
  for (const Input& in : g.inputs()) out.value[in.value.index] = next_value++;
  for (NodeId n : g.nodes()) {
    out.node[n.index] = next_node++;
    for (uint32_t i = 0; i < g.node(n).result_count; ++i) out.value[g.node(n).result(i).index] = next_value++;
  }
  return out;
}

uint32_t FileWriter::arg_index(const Arg& a, const GraphNumbers& numbers) {
  switch (a.kind()) {
    case ArgKind::boolean: return a.as_bool() ? 1 : 0;
    case ArgKind::expr: return expr(a.as_expr());
    case ArgKind::value: {
      uint32_t id = a.as_value().index;
      uint32_t dense = id < numbers.value.size() ? numbers.value[id] : kNoIndex;
      if (dense == kNoIndex) fail(ErrorKind::internal, "a node uses a value that was removed");
      return dense;
    }
    case ArgKind::dtype: return static_cast<uint32_t>(a.as_dtype());
    case ArgKind::graph: return a.as_graph().index;
    case ArgKind::group: return a.as_group().index;
    default: return a.is_text() ? string(a.as_text()) : 0;
  }
}

FileWriter::Offset<fb::Arg> FileWriter::arg(const Arg& a, const GraphNumbers& numbers, size_t depth) {
  if (depth > kMaxArgDepth) {
    fail(ErrorKind::cannot_apply, "an argument is a list nested more than 32 deep");
    return 0;
  }
  uint32_t key = string(a.key());
  Tables<fb::Arg> items = a.has_items() ? args(a.items(), numbers, depth + 1) : 0;
  uint32_t index = arg_index(a, numbers);
  if (!room(64)) return 0;
  fb::ArgBuilder out(builder_);
  if (a.is(ArgKind::integer)) out.add_number(a.as_int());
  if (a.is(ArgKind::floating)) out.add_real(canonical_float(a.as_float()));
  out.add_items(items);
  out.add_key(key);
  out.add_index(index);
  out.add_kind(static_cast<fb::ArgKind>(a.kind()));
  return builder_.share(out.Finish());
}

FileWriter::Tables<fb::Arg> FileWriter::args(const ArgList& list, const GraphNumbers& numbers, size_t depth) {
  std::vector<Offset<fb::Arg>> out;
  out.reserve(list.size());
  for (const Arg& a : list) out.push_back(arg(a, numbers, depth));
  return tables(out);
}

FileWriter::Offset<fb::Node> FileWriter::node(const Graph& g, NodeId n, const GraphNumbers& numbers) {
  const Node& node = g.node(n);
  auto arg_list = args(node.args, numbers, 1);
  bool is_named_by_result = node.result_count != 0 && node.label == g.value(node.result(0)).name;
  uint32_t label = is_named_by_result ? kNoIndex : string(node.label);
  // Links to erased nodes are dropped.
  bool has_forward = node.forward && g.alive(node.forward);
  uint32_t forward = has_forward ? numbers.node[node.forward.index] : kNoIndex;
  uint32_t module = string(node.module), source_index = source(node.source), meta_index = meta(node.meta);
  if (!room(96)) return 0;
  return builder_.share(fb::CreateNode(builder_, op(node.op), arg_list, node.result_count, node.is_tuple, label,
                                       static_cast<fb::Phase>(node.phase), module, source_index, meta_index, forward));
}

FileWriter::Offset<fb::Input> FileWriter::input(const Input& in) {
  uint32_t fqn = string(in.fqn), of = string(in.of), attribute = string(in.attribute), digest = string(in.digest);
  auto shards = sharding(in.sharding);
  auto extra = key_values(in.extra);
  if (!room(96)) return 0;
  return builder_.share(
      fb::CreateInput(builder_, static_cast<fb::InputKind>(in.kind), fqn, shards, of, attribute, digest, extra));
}

FileWriter::Offset<fb::Output> FileWriter::output(const Graph& g, const Output& out, const GraphNumbers& numbers) {
  uint32_t value = out.value ? numbers.value[out.value.index] : kNoIndex;
  uint32_t of = out.of && g.value(out.of).def.is_none() ? numbers.value[out.of.index] : kNoIndex;
  if ((out.value && value == kNoIndex) || (out.of && of == kNoIndex))
    fail(ErrorKind::internal, "an output refers to a value that was removed, or to an input that is none");
  uint32_t of_name = string(out.of_name), attribute = string(out.attribute);
  auto shards = sharding(out.sharding);
  auto extra = key_values(out.extra);
  if (!room(96)) return 0;
  return builder_.share(
      fb::CreateOutput(builder_, value, static_cast<fb::OutputKind>(out.kind), of, of_name, shards, attribute, extra));
}

FileWriter::Offset<fb::Graph> FileWriter::graph(const Graph& g) {
  if ((node_count_ += g.node_count()) > kMaxNodes) {
    fail(ErrorKind::cannot_apply, "the job has more than 16,777,216 nodes, the limit of one file",
         "write fewer ranks into one file (-o 'out/rank{r}.sg')");
    return 0;
  }
  GraphNumbers numbers_of = number(g);
  std::vector<uint32_t> names, types;
  auto add_value = [&](ValueId v) {
    names.push_back(string(g.value(v).name));
    types.push_back(type(g.value(v).type));
  };
  std::vector<Offset<fb::Input>> inputs;
  for (const Input& in : g.inputs()) {
    add_value(in.value);
    inputs.push_back(input(in));
  }
  std::vector<Offset<fb::Node>> nodes;
  nodes.reserve(g.node_count());
  for (NodeId n : g.nodes()) {
    for (uint32_t i = 0; i < g.node(n).result_count; ++i) add_value(g.node(n).result(i));
    nodes.push_back(node(g, n, numbers_of));
  }
  std::vector<Offset<fb::Output>> outputs;
  for (const Output& out : g.outputs()) outputs.push_back(output(g, out, numbers_of));
  auto input_list = tables(inputs);
  auto node_list = tables(nodes);
  auto output_list = tables(outputs);
  auto name_list = numbers(names);
  auto type_list = numbers(types);
  if (!room(64)) return 0;
  return builder_.share(fb::CreateGraph(builder_, input_list, node_list, output_list, name_list, type_list));
}

}  // namespace sg
