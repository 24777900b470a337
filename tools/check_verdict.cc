#include "tools/check_verdict.h"

#include <chrono>
#include <cstdio>

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/base/parallel.h"
#include "libgraph/infer/missing_type.h"
#include "libgraph/verify/verify.h"
#include "tools/cli/cli_describe.h"

namespace sg::cli {
namespace {

// "read 0.012 s": the time since `from`, which is then reset to now.
std::string lap(std::string_view name, std::chrono::steady_clock::time_point* from) {
  auto now = std::chrono::steady_clock::now();
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, " %.3f s", std::chrono::duration<double>(now - *from).count());
  *from = now;
  return std::string(name) + seconds;
}

constexpr std::string_view kNoType = "result-type";

bool lacks_type(const Graph& graph, NodeId n) {
  for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
    if (graph.pool().types[graph.value(graph.node(n).result(i)).type].kind == TypeKind::unknown) return true;
  return false;
}

// Told of the first node, from which others follow.
Diagnostics missing_types(const Loaded& loaded) {
  std::vector<Diagnostic> list;
  size_t count = 0;
  const auto look = [&](const Program& program, const Graph& graph) {
    for (NodeId n : graph.nodes()) {
      if (!lacks_type(graph, n) || count++ > 0) continue;
      Diagnostic d{
          Severity::warning, std::string(kNoType), {}, {}, std::string(missing_type_hint(graph.op_info(n))), {}};
      d.message = "the result of " + std::string(graph.op_name(n)) + " has no type";
      d.where.path = place_of(program, graph, n);
      list.push_back(std::move(d));
    }
  };
  for (const auto& program : loaded.job.programs) {
    look(*program, program->graph);
    for (const auto& nested : program->nested) look(*program, nested->graph);
  }
  place_in(loaded, &list);
  Diagnostics out;
  for (Diagnostic& d : list) {
    if (count > 1) d.message += ", nor has that of " + plural(count - 1, "further node");
    d.message += ": sg-run refuses such a graph";
    out.add(std::move(d));
  }
  return out;
}

Verdict judge(const std::string& operand, const LoadOptions& options, bool keep) {
  const size_t max_findings = options.max_errors;
  Verdict out{.said = Diagnostics(max_findings)};
  auto clock = std::chrono::steady_clock::now();
  Result<Loaded> loaded = load_job(operand, options, &out.said);
  out.phases = lap("read", &clock);
  Diagnostics findings(max_findings);
  if (loaded.ok()) findings = check_loaded(*loaded, max_findings, options.threads);
  out.phases += ", " + lap("verify", &clock);
  out.code = !loaded.ok() ? static_cast<int>(loaded.error().kind) : findings.has_errors() ? 1 : 0;
  std::string word = out.code == 0 ? "valid" : out.code == 1 ? "invalid" : "unreadable";
  out.line = operand + ": " + word;
  if (out.code == 0) out.line += ", " + describe(loaded->job);
  if (out.code == 1) out.line += ", " + plural(findings.error_count(), "finding");
  if (!loaded.ok()) out.error = loaded.error();
  JsonWriter json;
  json.begin_object().member("file", operand).member("verdict", word);
  out.json = json.member("findings", findings.error_count()).end_object().take();
  // Messages from reading do not count against the cap on findings.
  Diagnostics said(out.said.max_errors() + max_findings);
  said.add(out.said);
  said.add(findings);
  if (out.code == 0) said.add(missing_types(*loaded));
  out.said = std::move(said);
  if (keep && loaded.ok()) out.kept = std::move(*loaded);
  return out;
}

}  // namespace

std::vector<Verdict> judge_all(const std::vector<std::string>& operands, const Args& args, size_t max_findings) {
  std::vector<Verdict> verdicts(operands.size());
  LoadOptions options = load_options(args);
  options.max_errors = max_findings;
  size_t at_once = std::min(args.threads(), operands.size());
  options.threads = std::max<size_t>(1, args.threads() / at_once);
  parallel_for(operands.size(), at_once,
               [&](size_t i) { verdicts[i] = judge(operands[i], options, operands.size() == 1); });
  return verdicts;
}

std::string rules_report() {
  std::string out;
  for (const VerifyRule& rule : verify_rules()) out += std::string(rule.name) + ": " + std::string(rule.promise) + "\n";
  return out;
}

}  // namespace sg::cli
