// Completion of values from the graph on the command line.
#include <sys/stat.h>

#include <cstdlib>
#include <map>
#include <optional>

#include "libgraph/base/human.h"
#include "libgraph/modules/module_path.h"
#include "tools/cli/cli_complete.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_load.h"

namespace sg::cli {
namespace {

constexpr int64_t kMaxCompletedBytes = int64_t{256} << 20;
constexpr size_t kMaxCandidates = 5000;  // shells are slow with more

// The path as the shell would expand it: `~/step.sg`; for a rank pattern the first file.
std::string path_of(const std::string& operand) {
  const char* home = std::getenv("HOME");
  std::string path = operand.starts_with("~/") && home != nullptr ? home + operand.substr(1) : operand;
  return is_rank_pattern(path) ? file_of_rank(path, 0) : path;
}

std::optional<Job> graph_on(const TypedLine& line) {
  struct stat is {};
  const std::string path = path_of(line.graph);
  if (path.empty() || ::stat(path.c_str(), &is) != 0 || !S_ISREG(is.st_mode) || is.st_size > kMaxCompletedBytes)
    return {};
  Diagnostics said;
  Result<Loaded> loaded = load_job(path, {}, &said);
  if (!loaded.ok()) return {};
  return std::move(loaded->job);
}

using Words = std::map<std::string, std::string>;  // word -> description

Words nodes_of(const Job& job, std::string_view typed) {
  Words out;
  job.for_each_graph([&](const Graph& graph) {
    for (NodeId n : graph.nodes())
      if (graph.label(n).starts_with(typed) && out.size() < kMaxCandidates)
        out.emplace(graph.label(n), graph.op_name(n));
  });
  return out;
}

// Patterns of numbered modules; every prefix of a name is a module. Once digits are typed, also the modules themselves.
Words modules_of(const Job& job, std::string_view typed) {
  std::map<std::string, size_t> counts;
  job.for_each_graph([&](const Graph& graph) {
    for (NodeId n : graph.nodes()) {
      if (graph.node(n).module.is_none()) continue;
      std::string_view module = graph.pool().strings[graph.node(n).module];
      for (const ModulePart& part : parts_of_module(module)) {
        ++counts[pattern_of_module(part.path)];
        if (typed.find_first_of("0123456789") != typed.npos) ++counts[std::string(part.path)];
      }
    }
  });
  Words out;
  for (const auto& [name, nodes] : counts) out.emplace(name, plural(nodes, "node"));
  return out;
}

Words ops_of(const Job& job) {
  std::map<std::string, size_t> counts;
  job.for_each_graph([&](const Graph& graph) {
    for (NodeId n : graph.nodes()) ++counts[std::string(graph.op_name(n))];
  });
  Words out;
  for (const auto& [name, nodes] : counts) out.emplace(name, plural(nodes, "node"));
  return out;
}

Words symbols_of(const Job& job) {
  Words out;
  for (const auto& program : job.programs)
    for (const Symbol& s : program->symbols) {
      std::string about = s.hint ? std::to_string(*s.hint) + " in the capture" : "known only when it runs";
      if (!s.source.is_none()) about += ", " + job.pool->strings.str(s.source);
      out.emplace(job.pool->strings.str(s.name) + "=", about);
    }
  return out;
}

}  // namespace

bool offer_from_graph(const ValueRequest& request) {
  const std::string_view kind = request.kind;
  if (kind != "NODE" && kind != "PATTERN" && kind != "OP" && kind != "SYMBOL") return false;
  std::optional<Job> job = graph_on(request.line);
  if (!job) return true;
  const bool percent = kind == "NODE" && request.typed.starts_with('%');  // as in the text form
  const size_t before = request.out->candidates.size();
  const Words words = kind == "NODE"      ? nodes_of(*job, std::string_view(request.typed).substr(percent))
                      : kind == "PATTERN" ? modules_of(*job, request.typed)
                      : kind == "OP"      ? ops_of(*job)
                                          : symbols_of(*job);
  for (const auto& [word, about] : words) request.offer((percent ? "%" : "") + word, about);
  request.out->open |= kind == "SYMBOL" && request.out->candidates.size() != before;
  return true;
}

}  // namespace sg::cli
