#include "tools/reports.h"

#include "libgraph/check_types.h"
#include "libgraph/json.h"
#include "libgraph/nearest.h"
#include "libgraph/sha256.h"
#include "libgraph/source_kind.h"
#include "libgraph/text.h"
#include "libgraph/verify.h"
#include "tools/cli_job.h"

namespace sg::cli {
namespace {

void print_with_users(const Job& job, const Program& program, const Graph& graph, const std::string& name,
                      std::string* out) {
  NodeId n = graph.find_node(name);
  if (!n) return;
  *out += "# " + place_of(program, graph, n) + "\n" + print_node(job, program, graph, n) + "\n";
  for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
    for (NodeId user : graph.users(graph.node(n).result(i)))
      *out += "  " + print_node(job, program, graph, user) + "\n";
}

Result<CaptureFile> read_source(const Args& args, const std::string& file) {
  SG_ASSIGN(Bytes bytes, read_bytes(file));
  Location where{bytes.name};
  if (bytes.form == Form::binary || bytes.form == Form::text)
    return Error{ErrorKind::unreadable, "this is a graph already", where, "read it with sg-print"};
  std::string kind(source_kind_name(source_kind_of(bytes.data)));
  if (args.has("from")) kind = args.text("from");
  if (kind == "capture") return CaptureFile{std::move(bytes.name), std::move(bytes.data)};
  if (kind == "unknown")
    return Error{ErrorKind::unreadable, "a source of unknown kind", where, "a capture is JSON, plain or gzipped"};
  return Error{ErrorKind::unreadable, "a " + kind + " source, which this version cannot read", where,
               "this version reads captures: JSON with \"format\": \"step-capture\""};
}

std::string type_text(const Job& job, const Type& type) {
  return type.kind == TypeKind::unknown ? "nothing" : print_type(job, job.pool->types.intern(type));
}

void add_disagreement(const Job& job, const Program& program, const TypeDisagreement& d, std::string* text,
                      JsonWriter& json) {
  const Graph& graph = *d.graph;
  std::string place = place_of(program, graph, d.node);
  std::string result(graph.name(graph.node(d.node).result(d.result)));
  std::string inferred = type_text(job, d.inferred), recorded = type_text(job, d.recorded);
  *text += place + ", %" + result + " = " + std::string(graph.op_name(d.node)) + ": recorded " + recorded +
           ", inferred " + inferred + (d.reason.empty() ? "" : ": " + d.reason) + "\n";
  if (d.exception != nullptr) *text += "  known: " + std::string(d.exception->reason) + "\n";
  json.begin_object().key("place").string(place).key("result").string(result);
  json.key("op").string(graph.op_name(d.node)).key("recorded").string(recorded).key("inferred").string(inferred);
  if (!d.reason.empty()) json.key("reason").string(d.reason);
  if (d.exception != nullptr) json.key("known").string(d.exception->reason);
  json.end_object();
}

}  // namespace

Result<std::string> node_report(const Job& job, std::string name) {
  if (name.rfind('%', 0) == 0) name.erase(0, 1);
  std::string out;
  Nearest nearest(name);
  for (const auto& program : job.programs) {
    print_with_users(job, *program, program->graph, name, &out);
    for (const auto& nested : program->nested) print_with_users(job, *program, nested->graph, name, &out);
    for (NodeId n : program->graph.nodes()) nearest.offer(program->graph.label(n));
  }
  if (!out.empty()) return out;
  return Error{ErrorKind::cannot_apply, "no node is named %" + name, {}, nearest.hint("%")};
}

Verdict judge(const Args& args, const std::string& operand, const Result<Loaded>& loaded, size_t max_findings) {
  Diagnostics findings(max_findings);
  if (loaded.ok()) findings = check_loaded(*loaded, max_findings);
  args.report().add(findings);
  if (!loaded.ok()) args.report().error(loaded.error());
  Verdict out;
  out.code = !loaded.ok() ? static_cast<int>(loaded.error().kind) : findings.has_errors() ? 1 : 0;
  std::string word = out.code == 0 ? "valid" : out.code == 1 ? "invalid" : "unreadable";
  out.line = operand + ": " + word;
  if (out.code == 0) out.line += ", " + describe(loaded->job);
  if (out.code == 1) out.line += ", " + counted(findings.error_count(), "finding");
  JsonWriter json;
  json.begin_object().key("file").string(operand).key("verdict").string(word);
  out.json = json.key("findings").natural(findings.error_count()).end_object().take();
  return out;
}

std::string rules_report() {
  std::string out;
  for (const VerifyRule& rule : verify_rules()) out += std::string(rule.name) + ": " + std::string(rule.promise) + "\n";
  return out;
}

Result<Sources> read_sources(const Args& args) {
  Sources out;
  std::string digests;
  for (const std::string& operand : args.operands().empty() ? std::vector<std::string>{"-"} : args.operands()) {
    SG_ASSIGN(std::vector<std::string> files, files_of(operand));
    for (const std::string& file : files) {
      SG_ASSIGN(CaptureFile source, read_source(args, file));
      digests += sha256_tag(source.bytes) + "\n";
      out.files.push_back(std::move(source));
    }
  }
  bool is_one = out.files.size() == 1;
  out.name = is_one ? out.files[0].name : args.input();
  out.digest = is_one ? digests.substr(0, digests.size() - 1) : sha256_tag(digests);
  return out;
}

TypeReport type_report(const Job& job, const std::string& name) {
  TypeReport out;
  size_t known = 0;
  JsonWriter json;
  json.begin_object().key("schema").string("sg-import-check").key("version").integer(1).key("file").string(name);
  json.key("disagreements").begin_array();
  for (const auto& program : job.programs)
    for (const TypeDisagreement& d : check_types(*program)) {
      add_disagreement(job, *program, d, &out.text, json);
      (d.exception != nullptr ? known : out.count) += 1;
    }
  json.end_array().key("unexplained").natural(out.count).key("known").natural(known).end_object();
  out.json = json.take() + "\n";
  out.text += name + ": " + (out.count == 0 ? "recorded and inferred types agree" : counted(out.count, "disagreement"));
  out.text += known == 0 ? "\n" : ", " + std::to_string(known) + " known to be the recorder's\n";
  return out;
}

}  // namespace sg::cli
