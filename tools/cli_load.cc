// Reading jobs: by content, from one file or a rank set, with findings placed in the text they came from.
#include <algorithm>
#include <optional>

#include "libgraph/binary.h"
#include "libgraph/infer.h"
#include "libgraph/merge.h"
#include "libgraph/text.h"
#include "libgraph/verify.h"
#include "tools/cli_job.h"

namespace sg::cli {
namespace {

constexpr size_t kMaxErrors = 20;
constexpr size_t kMaxPlaced = 1000;     // findings that are looked up in the text: the walk is lines x findings

Result<Job> parse_loaded(const Args& args, const Bytes& bytes) {
  Diagnostics diagnostics(kMaxErrors);
  Result<Job> job = parse_text(bytes.data, bytes.name, &diagnostics);
  args.report().add(diagnostics);
  if (!job.ok() && diagnostics.has_errors()) {
    return Error{ErrorKind::unreadable, "not a valid text: " + counted(diagnostics.error_count(), "error"),
                 {bytes.name}, {}};
  }
  if (job.ok())
    for (auto& program : job->programs) infer_missing_types(*program);
  return job;
}

Error not_a_graph(const Bytes& bytes) {
  Location where{bytes.name};
  if (bytes.form == Form::json || bytes.form == Form::gzip)
    return {ErrorKind::unreadable, "this looks like a capture, not a graph", where,
            "import it first: sg-import " + bytes.name};
  if (bytes.form == Form::zip)
    return {ErrorKind::unreadable, "this looks like an archive (.pt2?), not a graph", where,
            "this version imports capture JSON; see sg-import --help"};
  where.line = 1;
  where.column = 1;
  return {ErrorKind::unreadable, "not a graph: neither a .sg file nor a text that begins with `sg 1.0`", where,
          "a .sg file is written by sg-import or sg-parse; the text form begins with `sg 1.0 job \"NAME\" world N`"};
}

Result<Job> job_of(const Args& args, const Bytes& bytes) {
  if (bytes.form == Form::binary) return read_binary(bytes.data, bytes.name);
  if (bytes.form == Form::text) return parse_loaded(args, bytes);
  return not_a_graph(bytes);
}

// "graph mask of rank 0 1, node %x" -> its parts (job.h, place_of).
struct Place {
  std::string nested;      // empty = the rank's main graph
  std::string ranks;       // "rank 0 1"
  std::string label;
};

std::optional<Place> parse_place(std::string_view path) {
  size_t node = path.rfind(", node %");
  if (path.rfind("graph ", 0) != 0 || node == std::string_view::npos) return std::nullopt;
  Place out;
  out.label = path.substr(node + 8);
  std::string_view graph = path.substr(6, node - 6);
  size_t of = graph.rfind(" of rank ");
  out.ranks = of == std::string_view::npos ? graph : graph.substr(of + 4);
  if (of != std::string_view::npos) out.nested = graph.substr(0, of);
  return out;
}

bool is_name_end(std::string_view line, size_t at) {
  return at >= line.size() || std::string_view(" ,=:\t#").find(line[at]) != std::string_view::npos;
}

// Where `line` defines %label: its column, 1-based.
std::optional<uint32_t> definition_column(std::string_view line, const std::string& label) {
  std::string_view left = line.substr(0, line.find(" = "));
  for (const std::string& name : {"%" + label, "%\"" + label + "\""}) {
    size_t at = left.find(name);
    while (at != std::string_view::npos && !is_name_end(line, at + name.size())) at = left.find(name, at + 1);
    if (at != std::string_view::npos && left.size() < line.size()) return static_cast<uint32_t>(at) + 1;
  }
  return std::nullopt;
}

bool heads(std::string_view line, const Place& place) {
  std::string head = "graph " + place.ranks;
  if (line.rfind(head, 0) != 0) return false;
  std::string_view rest = line.substr(head.size());
  rest = rest.substr(0, std::min(rest.find('#'), rest.find_last_not_of(" \t\r") + 1));
  if (place.nested.empty()) return rest.find_first_not_of(" \t") == std::string_view::npos;
  return rest.rfind(" nested ", 0) == 0 && rest.find(place.nested) != std::string_view::npos;
}

// Puts the line that defines the finding's node beside it: one walk over the text for all findings.
void place_in_text(std::string_view text, std::vector<Diagnostic>* findings) {
  std::vector<std::pair<Place, Diagnostic*>> wanted;
  for (Diagnostic& d : *findings)
    if (std::optional<Place> place = parse_place(d.where.path); place && d.where.line == 0 && wanted.size() < kMaxPlaced)
      wanted.emplace_back(*place, &d);
  std::vector<bool> inside(wanted.size());
  for (uint32_t number = 1; !text.empty() && !wanted.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    bool is_head = line.rfind("graph ", 0) == 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      auto& [place, d] = wanted[i];
      if (is_head) inside[i] = heads(line, place);
      if (!inside[i] || d->where.line != 0) continue;
      std::optional<uint32_t> column = definition_column(line, place.label);
      if (!column) continue;
      d->where.line = number;
      d->where.column = *column;
      d->source_line = line;
    }
  }
}

}  // namespace

Result<Loaded> load_job(const Args& args, const std::string& operand) {
  SG_ASSIGN(std::vector<std::string> files, files_of(operand));
  std::vector<Job> jobs;
  Loaded out{Job(), operand == "-" ? "<stdin>" : operand, {}};
  for (const std::string& file : files) {
    SG_ASSIGN(Bytes bytes, read_bytes(file));
    SG_ASSIGN(Job job, job_of(args, bytes));
    jobs.push_back(std::move(job));
    if (bytes.form == Form::text && !is_rank_pattern(operand)) out.text = std::move(bytes.data);
  }
  if (!is_rank_pattern(operand)) return Loaded{std::move(jobs[0]), std::move(out.file), std::move(out.text)};
  Diagnostics notes;
  SG_ASSIGN(Job merged, merge_ranks(std::move(jobs), files, &notes));
  if (args.has("explain")) args.report().add(notes);
  return Loaded{std::move(merged), std::move(out.file), {}};
}

Diagnostics check_loaded(const Loaded& loaded, size_t max_errors) {
  Diagnostics found(max_errors);
  verify(loaded.job, {}, &found);
  std::vector<Diagnostic> list = found.list();
  for (Diagnostic& d : list)
    if (d.where.file.empty()) d.where.file = loaded.file;
  place_in_text(loaded.text, &list);
  Diagnostics out(max_errors);
  for (Diagnostic& d : list) out.add(std::move(d));
  for (size_t i = 0; i < found.hidden(); ++i) out.error({}, {});       // counted, not kept
  return out;
}

Status require_valid(const Args& args, const Loaded& loaded) {
  Diagnostics findings = check_loaded(loaded);
  args.report().add(findings);
  if (!findings.has_errors()) return ok_status();
  return Error{ErrorKind::unreadable, "not a valid graph: " + counted(findings.error_count(), "finding"),
               {loaded.file}, {}};
}

Result<Job> read_job(const Args& args, const std::string& operand) {
  SG_ASSIGN(Loaded loaded, load_job(args, operand));
  SG_TRY(require_valid(args, loaded));
  return std::move(loaded.job);
}

}  // namespace sg::cli
