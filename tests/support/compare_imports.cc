// compare_imports CAPTURE TEXT: whether an FX text gives the graph of the capture of the same step.
//
// Compares inputs, nodes (name, op, arguments, element types, shapes, devices, phase, module), nested graphs and
// outputs one by one, in order. Differences of strides, which text may lack, and of offsets, which it always lacks, are
// only counted, on the last line. `--strides`: strides must be equal too. `--ports`: so must the kinds of inputs and
// outputs. Exit 0: equal, 1: not.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>

#include "libgraph/import/capture.h"
#include "libgraph/import/fx_import.h"
#include "libgraph/names.h"
#include "libgraph/verify/verify.h"

using namespace sg;

namespace {

std::string read_file(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Side {
  const Job* job;
  const Program* program;
  const Graph* graph;
  const Pool& pool() const { return *job->pool; }

  std::string sizes(const std::vector<Expr>& list) const {
    std::string out = "[";
    for (size_t i = 0; i < list.size(); ++i) out += (i == 0 ? "" : ", ") + pool().exprs.print(list[i]);
    return out + "]";
  }

  std::string type(TypeId id, bool layout) const {
    const Type& t = pool().types[id];
    if (t.kind == TypeKind::tensor && layout) return sizes(t.stride);
    if (layout) return "";
    if (t.kind == TypeKind::tensor)
      return std::string(dtype_name(t.dtype)) + sizes(t.shape) + std::string(pool().strings[t.device]);
    std::string out(name_of(t.kind));
    if (t.has_value && t.kind == TypeKind::integer) out += " " + pool().exprs.print(t.value);
    for (TypeId element : t.elements) out += " " + type(element, false);
    return out;
  }

  // The name that its producer gave the group.
  std::string group(GroupId id) const {
    for (const GroupPart& part : job->groups[id.index].parts)
      for (const GroupPart::Alias& alias : part.aliases) return std::string(pool().strings[alias.name]);
    return "?";
  }

  std::string arg(const Arg& a) const {
    std::string out = a.key() ? std::string(pool().strings[a.key()]) + "=" : "";
    out += std::string(name_of(a.kind())) + ":";
    char number[40];
    switch (a.kind()) {
      case ArgKind::none: break;
      case ArgKind::boolean: out += a.as_bool() ? "true" : "false"; break;
      case ArgKind::integer: out += std::to_string(a.as_int()); break;
      case ArgKind::floating:
        std::snprintf(number, sizeof number, "%a", a.as_float());
        out += number;
        break;
      case ArgKind::expr: out += pool().exprs.print(a.as_expr()); break;
      case ArgKind::value: out += std::string(graph->name(a.as_value())); break;
      case ArgKind::dtype: out += std::string(dtype_name(a.as_dtype())); break;
      case ArgKind::graph: out += std::string(pool().strings[program->nested[a.as_graph().index]->name]); break;
      case ArgKind::group: out += group(a.as_group()); break;
      case ArgKind::list:
      case ArgKind::slice:
      case ArgKind::dict:
      case ArgKind::complex:
        for (const Arg& item : a.items()) out += " " + arg(item);
        out += ";";
        break;
      default: out += std::string(pool().strings[a.as_text()]);
    }
    return out;
  }

  // FX text cuts longer names.
  std::string module(StrId id) const {
    if (!id) return "-";
    std::string out(pool().strings[id]);
    return out.size() > 40 ? out.substr(0, 40) + "..." : out;
  }

  std::string node(NodeId n) const {
    const Node& node = graph->node(n);
    std::string out = std::string(graph->label(n)) + " = " + std::string(graph->op_name(n)) + "(";
    for (const Arg& a : node.args) out += arg(a) + ", ";
    out += node.is_tuple ? ") tuple " : ") ";
    for (uint32_t i = 0; i < node.result_count; ++i)
      out += std::string(graph->name(node.result(i))) + ":" + type(graph->value(node.result(i)).type, false) + " ";
    out += " in " + module(node.module);
    const NodeMeta& meta = graph->meta(n);
    out += " " + std::string(name_of(meta.ep_role)) + " " + std::string(name_of(meta.ep_step)) + " chunk " +
           std::to_string(meta.chunk.index);
    return out;
  }
};

struct Comparison {
  size_t differences = 0, layouts = 0, values = 0, offsets = 0;
  bool strides = false, ports = false;

  void text(const std::string& a, const std::string& b) {
    if (a == b) return;
    if (++differences <= 5) std::printf("capture: %s\ntext:    %s\n", a.c_str(), b.c_str());
  }
  void layout(const Side& a, TypeId ta, const Side& b, TypeId tb, const std::string& what) {
    ++values;
    const Type &x = a.pool().types[ta], &y = b.pool().types[tb];
    if (x.kind == TypeKind::tensor && y.kind == TypeKind::tensor &&
        a.pool().exprs.print(x.offset) != b.pool().exprs.print(y.offset))
      ++offsets;
    std::string la = a.type(ta, true), lb = b.type(tb, true);
    if (la == lb) return;
    if (++layouts <= 5 || strides)
      std::printf("strides of %s: capture %s, text %s\n", what.c_str(), la.c_str(), lb.c_str());
  }

  void graph(const Side& a, const Side& b) {
    text(std::to_string(a.graph->inputs().size()) + " inputs", std::to_string(b.graph->inputs().size()) + " inputs");
    for (size_t i = 0; i < std::min(a.graph->inputs().size(), b.graph->inputs().size()); ++i) {
      const Input &x = a.graph->inputs()[i], &y = b.graph->inputs()[i];
      TypeId tx = a.graph->value(x.value).type, ty = b.graph->value(y.value).type;
      std::string kind_x, kind_y;
      if (ports || x.kind == InputKind::opaque || y.kind == InputKind::opaque)
        kind_x = name_of(x.kind), kind_y = name_of(y.kind);
      text(std::string(a.graph->name(x.value)) + " " + a.type(tx, false) + " " + kind_x,
           std::string(b.graph->name(y.value)) + " " + b.type(ty, false) + " " + kind_y);
      layout(a, tx, b, ty, std::string(a.graph->name(x.value)));
    }
    text(std::to_string(a.graph->node_count()) + " nodes", std::to_string(b.graph->node_count()) + " nodes");
    NodeId m = b.graph->first();
    for (NodeId n : a.graph->nodes()) {
      if (m.is_none()) break;
      text(a.node(n), b.node(m));
      const Node &x = a.graph->node(n), &y = b.graph->node(m);
      // Without a source line a node's phase is unknown: text states it with the line only.
      if (x.source && y.source)
        text(std::string(a.graph->label(n)) + " " + std::string(name_of(x.phase)),
             std::string(b.graph->label(m)) + " " + std::string(name_of(y.phase)));
      for (uint32_t i = 0; i < std::min(x.result_count, y.result_count); ++i)
        layout(a, a.graph->value(x.result(i)).type, b, b.graph->value(y.result(i)).type,
               std::string(a.graph->name(x.result(i))));
      m = b.graph->next(m);
    }
    text(std::to_string(a.graph->outputs().size()) + " outputs",
         std::to_string(b.graph->outputs().size()) + " outputs");
    for (size_t i = 0; i < std::min(a.graph->outputs().size(), b.graph->outputs().size()); ++i)
      text(output(a, a.graph->outputs()[i]), output(b, b.graph->outputs()[i]));
  }

  std::string output(const Side& side, const Output& o) const {
    std::string out = o.value ? std::string(side.graph->name(o.value)) : "none";
    if (ports) out += " " + std::string(name_of(o.kind)) + " " + (o.of ? std::string(side.graph->name(o.of)) : "");
    return out;
  }
};

Result<Job> import_or_say(bool is_text, const char* path) {
  Diagnostics notes;
  std::vector<CaptureFile> files{{path, read_file(path)}};
  Result<Job> job = is_text ? import_fx(std::move(files), {}, &notes) : import_captures(std::move(files), {}, &notes);
  if (!job.ok()) std::printf("%s: %s\n", print_location(job.error().where).c_str(), job.error().message.c_str());
  return job;
}

}  // namespace

int main(int argc, char** argv) {
  Comparison compare;
  std::vector<const char*> files;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--strides") compare.strides = true;
    else if (word == "--ports") compare.ports = true;
    else files.push_back(argv[i]);
  }
  if (files.size() != 2) return std::printf("compare_imports CAPTURE TEXT [--strides] [--ports]\n"), 2;
  Result<Job> a = import_or_say(false, files[0]), b = import_or_say(true, files[1]);
  if (!a.ok() || !b.ok()) return 3;
  const Program &pa = *a->programs[0], &pb = *b->programs[0];
  compare.graph({&*a, &pa, &pa.graph}, {&*b, &pb, &pb.graph});
  for (const auto& nested : pa.nested) {
    StrId name = b->pool->strings.find(a->pool->strings[nested->name]);
    const Nested* other = name ? pb.find_nested(name) : nullptr;
    if (other == nullptr) compare.text("graph " + std::string(a->pool->strings[nested->name]), "no such graph");
    else compare.graph({&*a, &pa, &nested->graph}, {&*b, &pb, &other->graph});
  }
  std::printf("%zu differences; of %zu values %zu strides and %zu offsets differ\n", compare.differences,
              compare.values, compare.layouts, compare.offsets);
  return compare.differences != 0 || (compare.strides && compare.layouts != 0) ? 1 : 0;
}
