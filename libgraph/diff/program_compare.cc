#include "libgraph/diff/program_compare.h"

#include "libgraph/base/hashing.h"

namespace sg {
namespace {

using Difference = std::optional<std::string>;

std::string node_name(const Graph& graph, NodeId n) { return "node %" + std::string(graph.label(n)); }

// A short form of an argument, for "4 against 0".
std::string print_arg(const Pool& pool, const Graph& graph, const Arg& arg) {
  switch (arg.kind()) {
    case ArgKind::none: return "none";
    case ArgKind::boolean: return arg.as_bool() ? "true" : "false";
    case ArgKind::integer: return std::to_string(arg.as_int());
    case ArgKind::floating: return std::to_string(arg.as_float());
    case ArgKind::expr: return pool.exprs.print(arg.as_expr());
    case ArgKind::value: return "%" + std::string(graph.name(arg.as_value()));
    case ArgKind::dtype: return std::string(dtype_name(arg.as_dtype()));
    default: return arg.is_text() ? "\"" + pool.strings.str(arg.as_text()) + "\"" : "another value";
  }
}

// The innermost pair of arguments that differs.
std::string print_arg_difference(const Graph& a, const Arg& x, const Graph& b, const Arg& y) {
  if (x.kind() == y.kind() && x.has_items() && y.has_items()) {
    const ArgList& left = x.items();
    const ArgList& right = y.items();
    if (left.size() != right.size())
      return std::to_string(left.size()) + " items against " + std::to_string(right.size());
    for (size_t i = 0; i < left.size(); ++i)
      if (!(left[i] == right[i]))
        return "item " + std::to_string(i) + ": " + print_arg_difference(a, left[i], b, right[i]);
  }
  if (x.kind() == y.kind() && x.is(ArgKind::group)) return "another group";
  if (x.kind() == y.kind() && x.is(ArgKind::graph)) return "another graph";
  return print_arg(a.pool(), a, x) + " against " + print_arg(b.pool(), b, y);
}

Difference compare_value(const Graph& a, ValueId x, const Graph& b, ValueId y) {
  if (a.value(x).name != b.value(y).name) return "%" + std::string(a.name(x)) + " against %" + std::string(b.name(y));
  if (a.value(x).type != b.value(y).type) return "the type of %" + std::string(a.name(x));
  return std::nullopt;
}

Difference compare_nodes(const Graph& a, NodeId m, const Graph& b, NodeId n) {
  const Node& x = a.node(m);
  const Node& y = b.node(n);
  if (x.label != y.label) return node_name(a, m) + " against %" + std::string(b.label(n));
  const std::string at = node_name(a, m) + ": ";
  if (x.op != y.op) return at + std::string(a.op_name(m)) + " against " + std::string(b.op_name(n));
  if (x.args.size() != y.args.size()) return at + "the number of arguments";
  for (size_t i = 0; i < x.args.size(); ++i)
    if (!(x.args[i] == y.args[i]))
      return at + "argument " + std::to_string(i) + ": " + print_arg_difference(a, x.args[i], b, y.args[i]);
  if (x.result_count != y.result_count || x.is_tuple != y.is_tuple) return at + "the number of results";
  for (uint32_t i = 0; i < x.result_count; ++i)
    if (auto d = compare_value(a, x.result(i), b, y.result(i))) return at + *d;
  if (x.phase != y.phase) return at + "the phase";
  if (x.module != y.module) return at + "the module";
  if (x.source != y.source) return at + "the source line";
  if (x.forward != y.forward) return at + "the forward node";
  if (x.meta != y.meta) return at + "the metadata";
  return std::nullopt;
}

Difference compare_inputs(const Graph& a, const Graph& b) {
  if (a.inputs().size() != b.inputs().size()) return "the number of inputs";
  for (size_t i = 0; i < a.inputs().size(); ++i) {
    const Input& x = a.inputs()[i];
    const Input& y = b.inputs()[i];
    const std::string at = "input " + std::to_string(i) + ": ";
    if (auto d = compare_value(a, x.value, b, y.value)) return at + *d;
    if (x.kind != y.kind || x.fqn != y.fqn || x.of != y.of || x.attribute != y.attribute) return at + "what it is";
    if (!(x.sharding == y.sharding)) return at + "the sharding";
    if (x.digest != y.digest) return at + "the digest of its data";
    if (x.extra != y.extra) return at + "the free keys";
  }
  return std::nullopt;
}

Difference compare_outputs(const Graph& a, const Graph& b) {
  if (a.outputs().size() != b.outputs().size()) return "the number of outputs";
  for (size_t i = 0; i < a.outputs().size(); ++i) {
    const Output& x = a.outputs()[i];
    const Output& y = b.outputs()[i];
    bool same = x.value == y.value && x.kind == y.kind && x.of == y.of && x.of_name == y.of_name &&
                x.attribute == y.attribute && x.sharding == y.sharding && x.extra == y.extra;
    if (!same) return "output " + std::to_string(i);
  }
  return std::nullopt;
}

Difference compare_graphs(const Graph& a, const Graph& b) {
  if (auto d = compare_inputs(a, b)) return d;
  NodeId m = a.first(), n = b.first();
  for (; m && n; m = a.next(m), n = b.next(n))
    if (auto d = compare_nodes(a, m, b, n)) return d;
  if (m || n) return node_name(m ? a : b, m ? m : n) + " is on one of them only";
  return compare_outputs(a, b);
}

Difference compare_symbols(const Pool& pool, const Program& a, const Program& b) {
  if (a.symbols.size() != b.symbols.size()) return "the number of symbols";
  for (size_t i = 0; i < a.symbols.size(); ++i) {
    const Symbol& x = a.symbols[i];
    const Symbol& y = b.symbols[i];
    bool same = x.name == y.name && x.kind == y.kind && x.min == y.min && x.max == y.max && x.hint == y.hint &&
                x.divisor == y.divisor && x.source == y.source;
    if (!same) return "symbol " + pool.strings.str(x.name);
  }
  if (a.guards.size() != b.guards.size()) return "the number of guards";
  for (size_t i = 0; i < a.guards.size(); ++i) {
    const Guard& x = a.guards[i];
    const Guard& y = b.guards[i];
    if (x.relation != y.relation || x.left != y.left || x.right != y.right || x.source != y.source)
      return "guard " + std::to_string(i);
  }
  return std::nullopt;
}

void mix(const Graph& graph, Hasher* hash) {
  hash->mix(graph.inputs().size()).mix(graph.outputs().size()).mix(graph.node_count());
  for (const Input& input : graph.inputs()) hash->mix(graph.value(input.value).name).mix(graph.value(input.value).type);
  for (NodeId n : graph.nodes()) {
    const Node& node = graph.node(n);
    hash->mix(node.op).mix(node.label).mix(node.source).mix(node.meta);
    for (const Arg& arg : node.args)
      arg.walk([&](const Arg& part) {
        hash->mix(static_cast<uint64_t>(part.kind())).mix(static_cast<uint64_t>(part.bits()));
      });
    for (uint32_t i = 0; i < node.result_count; ++i) hash->mix(graph.value(node.result(i)).type);
  }
}

}  // namespace

uint64_t fingerprint(const Program& program) {
  Hasher hash;
  mix(program.graph, &hash);
  for (const auto& nested : program.nested) mix(nested->graph, &hash);
  return hash.value();
}

std::optional<std::string> first_difference(const Program& a, const Program& b) {
  const Pool& pool = a.graph.pool();
  if (auto d = compare_symbols(pool, a, b)) return d;
  if (auto d = compare_graphs(a.graph, b.graph)) return d;
  if (a.nested.size() != b.nested.size()) return "the number of nested graphs";
  for (size_t i = 0; i < a.nested.size(); ++i) {
    const std::string name = pool.strings.str(a.nested[i]->name);
    if (a.nested[i]->name != b.nested[i]->name)
      return "nested graph " + name + " against " + pool.strings.str(b.nested[i]->name);
    if (auto d = compare_graphs(a.nested[i]->graph, b.nested[i]->graph)) return "nested graph " + name + ": " + *d;
  }
  return std::nullopt;
}

}  // namespace sg
