// Rules about the structure of one graph: results, order, names, links, inputs, outputs, metadata.
#include "libgraph/base/human.h"
#include "libgraph/data/constant_data.h"
#include "libgraph/expr/sizes.h"
#include "libgraph/verify/verify_rules.h"

namespace sg {
namespace {

// Valid UTF-8 without control characters: readable on a terminal.
bool is_printable(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    auto byte = [&](size_t k) { return static_cast<uint8_t>(s[k]); };
    uint8_t b = byte(i);
    if (b < 0x20 || b == 0x7F) return false;
    size_t length = b < 0x80                ? 1
                    : b >= 0xC2 && b < 0xE0 ? 2
                    : b >= 0xE0 && b < 0xF0 ? 3
                    : b >= 0xF0 && b < 0xF5 ? 4
                                            : 0;
    if (length == 0 || i + length > s.size()) return false;
    for (size_t k = 1; k < length; ++k)
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    bool overlong = (b == 0xE0 && byte(i + 1) < 0xA0) || (b == 0xF0 && byte(i + 1) < 0x90);
    bool outside = (b == 0xED && byte(i + 1) >= 0xA0) || (b == 0xF4 && byte(i + 1) >= 0x90);
    bool control = b == 0xC2 && byte(i + 1) < 0xA0;
    if (overlong || outside || control) return false;
    i += length;
  }
  return true;
}

// Checks a name: `names` marks those taken in this graph, `texts` those checked to be printable (once per job).
void check_name(Check& c, StrId name, ValueId v, NodeId n) {
  auto fail = [&](std::string message, std::string hint) {
    if (n) c.fail(n, std::move(message), std::move(hint));
    else c.fail(v, std::move(message), std::move(hint));
  };
  if (!c.names.first(name.index, c.graph_round))
    fail("the name %" + std::string(c.str(name)) + " occurs twice in this graph", "rename one of the two");
  if (c.str(name).empty()) fail("a name is empty", "give it one");
  if (c.texts.first(name.index, 1) && !is_printable(c.str(name)))
    fail("a name has control characters or is not UTF-8", "rename it");
}

}  // namespace

void check_results(Check& c, NodeId n) {
  const Node& node = c.graph->node(n);
  for (uint32_t i = 0; i < node.result_count; ++i) {
    const Value& v = c.graph->value(node.result(i));
    if (v.def != n || v.index != i) c.fail(n, "result " + std::to_string(i) + " belongs to another node");
  }
  if (node.result_count > 1 && !node.is_tuple)
    c.fail(n, plural(node.result_count, "result") + " of an op that is not marked as returning several");
  const OpInfo* info = c.graph->op_info(n);
  if (!info) return;
  if (info->returns_list) {
    if (!node.is_tuple)
      c.fail(n, "the op returns a list, but the node is not marked so", "write a comma after the result");
  } else if (info->results.size() > 1 && node.result_count != info->results.size()) {
    c.fail(n, plural(node.result_count, "result") + ", but the op returns " + std::to_string(info->results.size()),
           "name every result, used or not");
  }
}

void check_order(Check& c, NodeId n) {
  const Graph& g = *c.graph;
  for (const Arg& arg : g.node(n).args)
    arg.walk([&](const Arg& a) {
      if (!a.is(ArgKind::value)) return;
      NodeId def = g.value(a.as_value()).def;
      if (!def || g.before(def, n)) return;
      c.fail(n, "uses " + c.name(a.as_value()) + ", which " + (def == n ? "it defines itself" : "is defined later"),
             "move it after " + c.label(def));
    });
}

void check_names(Check& c) {
  for (const Input& in : c.graph->inputs()) check_name(c, c.graph->value(in.value).name, in.value, NodeId());
  for (NodeId n : c.graph->nodes()) {
    const Node& node = c.graph->node(n);
    bool label_is_result = false;
    for (uint32_t i = 0; i < node.result_count; ++i) {
      StrId name = c.graph->value(node.result(i)).name;
      label_is_result |= name == node.label;
      check_name(c, name, node.result(i), n);
    }
    if (!label_is_result) check_name(c, node.label, ValueId(), n);
  }
}

void check_links(Check& c, NodeId n) {
  const Graph& g = *c.graph;
  NodeId to = g.node(n).forward;
  if (!to) return;
  if (!g.alive(to)) {
    c.fail(n, "the link to its forward node points to a node that was removed",
           "clear the link, or point it to what replaced the node");
  } else if (to == n) {
    c.fail(n, "the link to its forward node points to itself", "clear the link");
  } else if (g.node(to).phase != Phase::forward) {
    c.fail(n, "the link to its forward node points to " + c.label(to) + ", which is not in the forward",
           "clear the link");
  }
}

// --- inputs and outputs ---

namespace {

bool is_tensor_kind(InputKind k) {
  return k == InputKind::parameter || k == InputKind::buffer || k == InputKind::optimizer_state ||
         k == InputKind::tangent || k == InputKind::constant;
}

// A set of ranks without a regular stride has no mesh: then the groups of the axis define it (librun/values/shard.h).
bool has_axis(const Job& job, StrId axis) {
  for (const Mesh& m : job.meshes)
    if (std::find(m.axes.begin(), m.axes.end(), axis) != m.axes.end()) return true;
  const std::string name = "/" + job.pool->strings.str(axis) + "/";
  return std::ranges::any_of(job.groups, [&](const Group& group) {
    return ("/" + job.pool->strings.str(group.axis) + "/").find(name) != std::string::npos;
  });
}

void check_sharding(Check& c, const Sharding& s, const Type& type, std::string_view port, size_t index) {
  if (s.empty()) return;
  if (s.placements.size() != s.mesh_axes.size())
    c.fail_item(port, index,
                plural(s.placements.size(), "placement") + " for " + plural(s.mesh_axes.size(), "mesh axis"));
  if (type.kind == TypeKind::tensor && !s.global_shape.empty() && s.global_shape.size() != type.shape.size())
    c.fail_item(port, index,
                "the global shape has " + plural(s.global_shape.size(), "dimension") + ", the tensor " +
                    std::to_string(type.shape.size()));
  for (Expr e : s.global_shape)
    if (c.pool.exprs.is_invalid(e)) c.fail_item(port, index, "a size of the global shape is not a number");
  for (StrId axis : s.mesh_axes)
    if (!has_axis(c.job, axis))
      c.fail_item(port, index, "no mesh and no group has an axis \"" + std::string(c.str(axis)) + "\"",
                  "declare the mesh in the header");
}

bool has_text(const Check& c, StrId s) { return s && !c.str(s).empty(); }

// A constant stored in the graph must have as many bytes as its type needs.
void check_held(Check& c, const Input& input, const Type& type, size_t index) {
  if (!input.digest || !held_digits(c.str(input.digest))) return;
  const std::optional<std::string> bytes = held_bytes(c.str(input.digest));
  if (!bytes) return c.fail_item("input", index, "its data is not made of whole bytes of two hexadecimal digits each");
  if (type.kind != TypeKind::tensor) return;
  const auto elements = element_count(c.pool, type, [](StrId) { return std::optional<int64_t>(); });
  if (!elements) return c.fail_item("input", index, "has data, and a size that is not a number");
  const auto needed = static_cast<uint64_t>(*elements) * static_cast<uint64_t>(dtype_bytes(type.dtype));
  if (bytes->size() != needed)
    return c.fail_item("input", index,
                       "has " + plural(bytes->size(), "byte") + " of data for a tensor of " + std::to_string(needed));
  if (type.dtype == DType::boolean && bytes->find_first_not_of(std::string_view("\0\1", 2)) != std::string::npos)
    c.fail_item("input", index, "its data have a bool that is neither 0 nor 1");
}

}  // namespace

void check_inputs(Check& c) {
  const Graph& g = *c.graph;
  for (size_t i = 0; i < g.inputs().size(); ++i) {
    const Input& in = g.inputs()[i];
    const Type& type = g.type(in.value);
    if (g.value(in.value).index != i || g.value(in.value).def) c.fail_item("input", i, "this value is not an input");
    if (is_tensor_kind(in.kind) && type.kind != TypeKind::tensor && type.kind != TypeKind::unknown)
      c.fail_item("input", i, "an input of this kind is a tensor", "make it a plain `input`, or give it a tensor type");
    if (in.kind != InputKind::opaque && (has_text(c, in.of) || has_text(c, in.attribute)))
      c.fail_item("input", i, "only opaque inputs describe an attribute of a parameter");
    if (in.kind == InputKind::opaque)
      g.for_each_use(in.value, [&](Use use) {
        if (use.user)
          c.fail(use.user, "uses " + c.name(in.value) + ", an opaque input", "opaque inputs only keep their place");
      });
    if (in.kind != InputKind::constant && has_text(c, in.digest)) c.fail_item("input", i, "only constants have data");
    check_held(c, in, type, i);
    check_sharding(c, in.sharding, type, "input", i);
  }
}

namespace {

bool is_one_element(const Check& c, const Type& t) {
  if (t.kind != TypeKind::tensor || !is_floating(t.dtype)) return false;
  for (Expr e : t.shape)
    if (c.pool.exprs.constant_value(e) != std::optional<int64_t>(1)) return false;
  return true;
}

void check_gradient(Check& c, const Output& out, size_t i) {
  const Graph& g = *c.graph;
  if (!out.of && !has_text(c, out.of_name))
    return c.fail_item("output", i, "a gradient of nothing", "say `of` which input");
  if (!out.of || !out.value) return;
  InputKind kind = g.inputs()[g.value(out.of).index].kind;
  if (kind == InputKind::opaque || kind == InputKind::constant)
    c.fail_item("output", i, "a gradient of " + c.name(out.of) + ", which is neither a parameter nor a user input");
  const Type& value = g.type(out.value);
  const Type& input = g.type(out.of);
  if (value.kind == TypeKind::tensor && input.kind == TypeKind::tensor && !same_sizes(c, value.shape, input.shape))
    c.fail_item("output", i, "the gradient " + c.name(out.value) + " does not have the shape of " + c.name(out.of));
}

}  // namespace

void check_outputs(Check& c) {
  const Graph& g = *c.graph;
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const Output& out = g.outputs()[i];
    if (out.of && out.of_name) c.fail_item("output", i, "belongs to an input and to a name at once");
    switch (out.kind) {
      case OutputKind::loss:
        if (!out.value || (g.type(out.value).kind != TypeKind::unknown && !is_one_element(c, g.type(out.value))))
          c.fail_item("output", i, "the loss is not one floating-point number", "reduce it (aten.sum, aten.mean)");
        break;
      case OutputKind::gradient: check_gradient(c, out, i); break;
      case OutputKind::buffer:
        if (!out.value) c.fail_item("output", i, "an updated buffer without a value");
        if (out.of && g.inputs()[g.value(out.of).index].kind == InputKind::opaque)
          c.fail_item("output", i, "updates " + c.name(out.of) + ", which is opaque");
        break;
      case OutputKind::none:
        if (out.value) c.fail_item("output", i, "an output of kind `none` has a value", "make it `output`");
        break;
      case OutputKind::other:
      case OutputKind::opaque:
        if (!out.value) c.fail_item("output", i, "has no value", "what stands for nothing is a line `none`");
        break;
    }
    check_sharding(c, out.sharding, out.value ? g.type(out.value) : c.pool.types[Pool::kUnknownType], "output", i);
  }
}

// --- metadata ---

void check_metadata(Check& c, NodeId n) {
  const Node& node = c.graph->node(n);
  if (node.meta == Pool::kDefaultMeta) return;
  const NodeMeta& m = c.graph->meta(n);
  if (m.chunk.index < -1 || m.collective.bucket < -1 || m.recompute_region < -1)
    c.fail(n, "a chunk, bucket or region number below -1");
  if (m.chunk.index >= 0 && !has_text(c, m.chunk.region)) c.fail(n, "in a chunk of no region", "name the region");
  if (m.chunk.is_backward < -1 || m.chunk.is_backward > 1)
    c.fail(n, "the direction of its chunk is neither yes nor no");
  if (!m.result_chunks.empty() && m.result_chunks.size() != node.result_count)
    c.fail(n, "chunks for " + plural(m.result_chunks.size(), "result") + " of " + std::to_string(node.result_count));
  for (const ResultChunk& r : m.result_chunks)
    if (r.index < -1) c.fail(n, "a result's chunk number is below -1");
  if ((m.copy.kind == CopyKind::none) == has_text(c, m.copy.of))
    c.fail(n, "a copy without its original, or an original without the kind of copy");
  for (StrId module : m.more_modules)
    if (!has_text(c, module)) c.fail(n, "one of its further modules has no name");
}

}  // namespace sg
