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

}  // namespace

Result<Loaded> load_job(const Args& args, const std::string& operand) {
  SG_ASSIGN(std::vector<std::string> files, files_of(operand));
  std::vector<Job> jobs;
  Loaded out{Job(), operand == "-" ? "<stdin>" : operand, {}};
  for (const std::string& file : files) {
    SG_ASSIGN(Bytes bytes, read_bytes(file));
    SG_ASSIGN(Job job, job_of(args, bytes));
    if (bytes.form == Form::text)
      out.texts.push_back({bytes.name, std::move(bytes.data), job.is_spmd() ? std::vector<uint32_t>() : ranks_held(job)});
    jobs.push_back(std::move(job));
  }
  if (!is_rank_pattern(operand)) return Loaded{std::move(jobs[0]), std::move(out.file), std::move(out.texts)};
  Diagnostics notes;
  SG_ASSIGN(Job merged, merge_ranks(std::move(jobs), files, &notes));
  if (args.has("explain")) args.report().add(notes);
  return Loaded{std::move(merged), std::move(out.file), std::move(out.texts)};
}

Diagnostics check_loaded(const Loaded& loaded, size_t max_errors) {
  Diagnostics found(max_errors);
  verify(loaded.job, {}, &found);
  std::vector<Diagnostic> list = found.list();
  place_in_texts(loaded.texts, &list);
  for (Diagnostic& d : list)
    if (d.where.file.empty()) d.where.file = loaded.file;
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
