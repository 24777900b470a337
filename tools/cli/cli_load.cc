// Reads jobs: by content, from one file or a rank set, with findings located in the text they came from.
#include "tools/cli/cli_load.h"

#include <algorithm>
#include <optional>

#include "libgraph/base/human.h"
#include "libgraph/base/parallel.h"
#include "libgraph/binary/binary.h"
#include "libgraph/edit/merge.h"
#include "libgraph/facts/recompute_tags.h"
#include "libgraph/import/source_kind.h"
#include "libgraph/infer/infer.h"
#include "libgraph/text/text.h"
#include "libgraph/verify/verify.h"
#include "tools/cli/cli_describe.h"
#include "tools/cli/cli_input.h"

namespace sg::cli {
namespace {

constexpr size_t kMaxErrors = 20;
constexpr size_t kMaxSorted = 1000;  // findings that are put in the order of lines, before those beyond a limit go

// What the bytes are instead, where sg-import reads it.
std::string_view source_phrase(const Bytes& bytes) {
  if (bytes.form == Form::json || bytes.form == Form::gzip) return "looks like a capture";
  if (bytes.form == Form::zip) return "looks like an archive (.pt2?)";
  switch (source_kind_of(bytes.data)) {
    case SourceKind::torch_trace: return "is a log of TORCH_TRACE";
    case SourceKind::fx: return "looks like FX text";
    default: return {};
  }
}

Error not_a_graph(const Bytes& bytes) {
  Location where{bytes.name};
  if (const std::string_view source = source_phrase(bytes); !source.empty())
    return {ErrorKind::unreadable, "this " + std::string(source) + ", not a graph", where,
            "import it first: sg-import " + bytes.name};
  where.line = 1;
  where.column = 1;
  return {ErrorKind::unreadable, "not a graph: neither a .sg file nor a text that begins with `sg 1.0`", where,
          "a .sg file is written by sg-import or sg-parse; the text form begins with `sg 1.0 job \"NAME\" world N`"};
}

// One file of an operand, loaded on any thread; its messages are held back until all files are loaded.
struct LoadedFile {
  std::string name;
  Result<Job> job = Error();
  Diagnostics said;
  std::string text;  // empty for a binary file
  size_t bytes = 0;
};

// A text has no seal: cut between two lines, it is a smaller graph that lacks its last lines.
void warn_of_a_cut(const Bytes& bytes, const Job& job, Diagnostics* said) {
  const std::string hint = "a text that was cut looks like a smaller graph; the binary form detects it";
  if (!bytes.data.ends_with('\n'))
    said->warning("cut-text", "the last line has no newline: was the text cut short?", {bytes.name}, hint);
  for (const auto& program : job.programs)
    if (program->graph.outputs().empty() && program->graph.node_count() > 0)
      return said->warning("cut-text", "a graph without outputs: was the text cut short?", {bytes.name}, hint);
}

Result<Job> parse_loaded(const Bytes& bytes, Diagnostics* said) {
  Result<Job> job = parse_text(bytes.data, bytes.name, said);
  if (!job.ok() && said->has_errors())
    return Error{ErrorKind::unreadable, "not a valid text: " + plural(said->error_count(), "error"), {bytes.name}, {}};
  if (!job.ok()) return job;
  for (auto& program : job->programs) infer_missing_types(*program);
  warn_of_a_cut(bytes, *job, said);
  return job;
}

LoadedFile load_file(const std::string& file, size_t max_errors) {
  LoadedFile out{.said = Diagnostics(max_errors)};
  Result<Bytes> bytes = read_bytes(file);
  out.name = bytes.ok() ? bytes->name : file;
  if (!bytes.ok()) {
    out.job = bytes.error();
    return out;
  }
  out.bytes = bytes->data.size();
  if (bytes->form == Form::binary) out.job = read_binary(bytes->data, bytes->name);
  else if (bytes->form == Form::text) out.job = parse_loaded(*bytes, &out.said);
  else out.job = not_a_graph(*bytes);
  if (bytes->form == Form::text) out.text = std::move(bytes->data);
  return out;
}

// Collects the jobs of all readable files. Without --best-effort the first unreadable one is an error; with it, each is
// a warning as long as at least one file is left.
Result<std::vector<LoadedFile>> load_files(const std::vector<std::string>& files, const LoadOptions& options,
                                           Diagnostics* said) {
  std::vector<LoadedFile> all(files.size()), out;
  parallel_for(files.size(), options.threads, [&](size_t i) { all[i] = load_file(files[i], options.max_errors); });
  for (LoadedFile& file : all) {
    said->add(file.said);
    if (file.job.ok()) {
      out.push_back(std::move(file));
      continue;
    }
    const Error& e = file.job.error();
    if (!options.best_effort || files.size() == 1) return e;
    leave_out(e, said);
  }
  if (out.empty()) return all[0].job.error();
  return out;
}

// What is about no line stands first, in the verifier's order.
void sort_by_line(const std::vector<SourceText>& texts, std::vector<Diagnostic>* list) {
  const auto place = [&](const Diagnostic& d) -> std::pair<size_t, uint32_t> {
    if (d.where.line == 0) return {0, 0};
    const auto text = std::ranges::find(texts, d.where.file, &SourceText::file);
    return {static_cast<size_t>(text - texts.begin()) + 1, d.where.line};
  };
  std::ranges::stable_sort(*list, std::ranges::less(), place);
}

}  // namespace

Result<Loaded> load_job(const std::string& operand, const LoadOptions& options, Diagnostics* said) {
  SG_ASSIGN(std::vector<std::string> names, files_of(operand, options.best_effort ? said : nullptr));
  SG_ASSIGN(std::vector<LoadedFile> files, load_files(names, options, said));
  Loaded out{Job(), operand == "-" ? "<stdin>" : operand, {}, 0};
  std::vector<Job> jobs;
  names.clear();
  for (LoadedFile& file : files) {
    out.bytes += file.bytes;
    if (!file.text.empty())
      out.texts.push_back(
          {file.name, std::move(file.text), file.job->is_spmd() ? std::vector<uint32_t>() : ranks_held(*file.job)});
    names.push_back(std::move(file.name));
    jobs.push_back(std::move(*file.job));
  }
  if (!is_rank_pattern(operand)) {
    out.job = std::move(jobs[0]);
    return out;
  }
  Diagnostics notes;
  SG_ASSIGN(out.job, merge_ranks(std::move(jobs), names, &notes));
  if (options.explain) said->add(notes);
  return out;
}

LoadOptions load_options(const Args& args) {
  return {.threads = args.threads(), .best_effort = args.has("best-effort"), .explain = args.has("explain")};
}

void place_in(const Loaded& loaded, std::vector<Diagnostic>* list) {
  place_in_texts(loaded.texts, list);
  for (Diagnostic& d : *list)
    if (d.where.file.empty()) d.where.file = loaded.file;
}

Diagnostics check_loaded(const Loaded& loaded, size_t max_errors, size_t threads) {
  Diagnostics found(std::max(max_errors, kMaxSorted));
  verify(loaded.job, {.threads = threads}, &found);
  std::vector<Diagnostic> list = found.list();
  place_in(loaded, &list);
  sort_by_line(loaded.texts, &list);
  Diagnostics out(max_errors);
  for (Diagnostic& d : list) out.add(std::move(d));
  for (size_t i = 0; i < found.hidden(); ++i) out.error({}, {});  // counted, but not kept
  return out;
}

Status require_valid(const Args& args, const Loaded& loaded) {
  Diagnostics findings = check_loaded(loaded, kMaxErrors, args.threads());
  args.report().add(findings);
  args.report().phase("verify", plural(findings.error_count(), "finding"));
  if (!findings.has_errors()) return ok_status();
  return Error{
      ErrorKind::unreadable, "not a valid graph: " + plural(findings.error_count(), "finding"), {loaded.file}, {}};
}

Result<Loaded> read_loaded(const Args& args, const std::string& operand) {
  Diagnostics said(kMaxErrors);
  Result<Loaded> loaded = load_job(operand, load_options(args), &said);
  args.report().add(said);
  if (!loaded.ok()) return loaded.error();
  args.report().phase("read", plural(loaded->bytes, "byte") + ", " + describe(loaded->job));
  SG_TRY(require_valid(args, *loaded));
  return loaded;
}

Result<Job> read_job(const Args& args, const std::string& operand) {
  SG_ASSIGN(Loaded loaded, read_loaded(args, operand));
  return std::move(loaded.job);
}

Result<uint32_t> held_rank(const Args& args, const Job& job) {
  const auto rank = static_cast<uint32_t>(std::min<int64_t>(args.number("rank", 0), UINT32_MAX));
  if (rank < job.world && job.program_of(rank) != nullptr) return rank;
  const std::vector<uint32_t> held = ranks_held(job);
  const bool has_gap = !held.empty() && held.back() - held.front() + 1 != held.size();
  std::string hint;
  if (held.size() == 1) hint = "it holds rank " + std::to_string(held[0]);
  else if (!held.empty())
    hint = "it holds ranks " + std::to_string(held.front()) + " to " + std::to_string(held.back()) +
           (has_gap ? ", with gaps" : "");
  return Error{ErrorKind::cannot_apply, "the job holds no rank " + args.text("rank"), {}, hint};
}

void warn_of_tags(const Args& args, const Job& job) {
  const size_t tagged = unapplied_recompute_tags(job);
  if (tagged == 0) return;
  Diagnostics notes;
  notes.warning("tags-not-applied",
                plural(tagged, "forward node") + " tagged for recomputation " + (tagged == 1 ? "is" : "are") +
                    " kept for the backward: the tags have not been applied",
                {}, "sg-remat --policy tags");
  args.report().add(notes);
}

}  // namespace sg::cli
