#include "tools/reports.h"

#include <chrono>
#include <cstdio>

#include "libgraph/human.h"
#include "libgraph/infer/check_types.h"
#include "libgraph/json.h"
#include "libgraph/nearest.h"
#include "libgraph/node_story.h"
#include "libgraph/parallel.h"
#include "libgraph/text/text_printer.h"
#include "libgraph/verify/verify.h"
#include "tools/cli_job.h"

namespace sg::cli {
namespace {

void print_with_users(text::TextPrinter* print, const Program& program, const Graph& graph, const std::string& name,
                      std::string* out) {
  NodeId n = graph.find_node(name);
  if (!n) return;
  *out += "# " + place_of(program, graph, n) + "\n" + print->node_alone(program, graph, n) + "\n";
  for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
    for (NodeId user : graph.users(graph.node(n).result(i)))
      *out += "  " + print->node_alone(program, graph, user) + "\n";
}

std::string type_text(text::TextPrinter* print, Pool* pool, const Type& type) {
  return type.kind == TypeKind::unknown ? "nothing" : print->type_alone(pool->types.intern(type));
}

void add_disagreement(text::TextPrinter* print, const Program& program, const TypeDisagreement& d, std::string* text,
                      JsonWriter& json) {
  const Graph& graph = *d.graph;
  std::string place = place_of(program, graph, d.node);
  std::string result(graph.name(graph.node(d.node).result(d.result)));
  std::string inferred = type_text(print, &graph.pool(), d.inferred),
              recorded = type_text(print, &graph.pool(), d.recorded);
  *text += place + ", %" + result + " = " + std::string(graph.op_name(d.node)) + ": recorded " + recorded +
           ", inferred " + inferred + (d.reason.empty() ? "" : ": " + d.reason) + "\n";
  if (d.exception != nullptr) *text += "  known: " + std::string(d.exception->reason) + "\n";
  json.begin_object().member("place", place).member("result", result);
  json.member("op", graph.op_name(d.node)).member("recorded", recorded).member("inferred", inferred);
  if (!d.reason.empty()) json.member("reason", d.reason);
  if (d.exception != nullptr) json.member("known", d.exception->reason);
  json.end_object();
}

}  // namespace

Result<std::string> node_report(const Job& job, std::string name) {
  if (name.starts_with('%')) name.erase(0, 1);
  std::string out;
  Nearest nearest(name);
  text::TextPrinter print(job);
  for (const auto& program : job.programs) {
    print_with_users(&print, *program, program->graph, name, &out);
    for (const auto& nested : program->nested) print_with_users(&print, *program, nested->graph, name, &out);
    for (NodeId n : program->graph.nodes()) nearest.offer(program->graph.label(n));
  }
  if (!out.empty()) return out;
  std::string hint;
  for (const auto& program : job.programs)
    if (hint.empty()) hint = hint_of_module(program->graph, name);
  return Error{ErrorKind::cannot_apply, "no node is named %" + name, {}, hint.empty() ? nearest.hint("%") : hint};
}

namespace {

// "read 0.012 s": the time since `from`, which is then reset to now.
std::string lap(std::string_view name, std::chrono::steady_clock::time_point* from) {
  auto now = std::chrono::steady_clock::now();
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, " %.3f s", std::chrono::duration<double>(now - *from).count());
  *from = now;
  return std::string(name) + seconds;
}

Verdict judge(const std::string& operand, const LoadOptions& options, size_t max_findings, bool keep) {
  Verdict out;
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
  out.said = std::move(said);
  if (keep && loaded.ok()) out.kept = std::move(*loaded);
  return out;
}

}  // namespace

std::vector<Verdict> judge_all(const std::vector<std::string>& operands, const Args& args, size_t max_findings) {
  std::vector<Verdict> verdicts(operands.size());
  LoadOptions options = load_options(args);
  size_t at_once = std::min(args.threads(), operands.size());
  options.threads = std::max<size_t>(1, args.threads() / at_once);
  parallel_for(operands.size(), at_once,
               [&](size_t i) { verdicts[i] = judge(operands[i], options, max_findings, operands.size() == 1); });
  return verdicts;
}

std::string rules_report() {
  std::string out;
  for (const VerifyRule& rule : verify_rules()) out += std::string(rule.name) + ": " + std::string(rule.promise) + "\n";
  return out;
}

TypeReport type_report(const Job& job, const std::string& name) {
  TypeReport out;
  size_t known = 0;
  text::TextPrinter print(job);
  JsonWriter json;
  json.begin_object().member("schema", "sg-import-check").member("version", 1).member("file", name);
  json.key("disagreements").begin_array();
  for (const auto& program : job.programs)
    for (const TypeDisagreement& d : check_types(*program)) {
      add_disagreement(&print, *program, d, &out.text, json);
      (d.exception != nullptr ? known : out.count) += 1;
    }
  json.end_array().member("unexplained", out.count).member("known", known).end_object();
  out.json = json.take() + "\n";
  out.text += name + ": " + (out.count == 0 ? "recorded and inferred types agree" : plural(out.count, "disagreement"));
  out.text += known == 0 ? "\n" : ", " + std::to_string(known) + " known to be the recorder's\n";
  return out;
}

}  // namespace sg::cli
