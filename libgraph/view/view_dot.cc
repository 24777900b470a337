#include <map>

#include "libgraph/modules/module_path.h"
#include "libgraph/operands.h"
#include "libgraph/text/text_printer.h"
#include "libgraph/view/view_columns.h"
#include "libgraph/view/view_formats.h"

namespace sg {
namespace {

std::string quoted(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out + "\"";
}

// A module and its submodules.
struct Cluster {
  std::map<std::string, Cluster> parts;
  std::vector<size_t> nodes;
};

constexpr size_t kDeepest = 256;  // clusters in each other; what is deeper stands in the last

constexpr const char* kFill[] = {"#dbeafe", "#fde7d2", "#e3f5df"};  // by phase

class DotWriter {
 public:
  explicit DotWriter(const ViewGraph& view) : view_(view), print_(*view.job) {}

  std::string write() {
    out_ =
        "digraph step {\n  node [shape=box style=filled fontname=\"monospace\" fontsize=10]\n  edge [arrowsize=0.6]\n";
    Cluster root;
    for (size_t i = 0; i < view_.nodes.size(); ++i) cluster_of(&root, i)->nodes.push_back(i);
    cluster(root, 1);
    for (size_t i = 0; i < view_.graph->inputs().size(); ++i)
      if (ValueId v = view_.graph->inputs()[i].value; view_.graph->is_used(v))
        out_ += "  i" + std::to_string(i) +
                " [shape=ellipse fillcolor=\"#eeeeee\" label=" + quoted(view_.graph->name(v)) + "]\n";
    for (size_t i = 0; i < view_.nodes.size(); ++i) edges(i);
    return out_ + "}\n";
  }

 private:
  Cluster* cluster_of(Cluster* root, size_t i) {
    const Node& node = view_.graph->node(view_.nodes[i]);
    if (node.module.is_none()) return root;
    std::string_view module = view_.graph->pool().strings[node.module];
    Cluster* at = root;
    size_t depth = 0;
    for (const ModulePart& part : parts_of_module(module)) {
      if (++depth > kDeepest) break;
      at = &at->parts[std::string(part.name)];
    }
    return at;
  }

  void cluster(const Cluster& c, size_t depth) {
    std::string indent(2 * depth, ' ');
    for (size_t i : c.nodes) {
      NodeId n = view_.nodes[i];
      std::string label = std::string(view_.graph->label(n)) + "\n" + std::string(view_.graph->op_name(n));
      if (view_.graph->node(n).result_count != 0)
        label += "\n" + print_.type_alone(view_.graph->value(view_.graph->node(n).first_result).type);
      out_ += indent + "n" + std::to_string(i) + " [fillcolor=\"" +
              kFill[static_cast<size_t>(view_.graph->node(n).phase) % 3] + "\" label=" + quoted(label) + "]\n";
    }
    for (const auto& [name, part] : c.parts) {
      out_ += indent + "subgraph cluster_" + std::to_string(clusters_++) + " {\n" + indent + "  label=" + quoted(name) +
              "\n";
      cluster(part, depth + 1);
      out_ += indent + "}\n";
    }
  }

  void edges(size_t i) {
    for_operands(*view_.graph, view_.nodes[i], [&](ValueId v) {
      int64_t maker = view_.maker_of(v);
      out_ += "  " + (maker < 0 ? "i" + std::to_string(-1 - maker) : "n" + std::to_string(maker)) + " -> n" +
              std::to_string(i) + "\n";
    });
  }

  const ViewGraph& view_;
  text::TextPrinter print_;
  std::string out_;
  size_t clusters_ = 0;
};

}  // namespace

std::string view_dot(const Job& job) {
  const Program& program = *job.programs.front();
  ViewGraph view(job, program, program.graph);
  return DotWriter(view).write();
}

}  // namespace sg
