#include "tools/import/import_trace_files.h"

#include <algorithm>

#include "libgraph/base/sha256.h"
#include "libgraph/import/source_kind.h"
#include "libgraph/import/trace_log.h"
#include "tools/cli/cli_input.h"

namespace sg::cli {
namespace {

// Collects a folder's graph files; in some, ranks have subfolders. Links are skipped, so that nothing outside the
// folder is read and nothing twice; so are pipes and devices.
constexpr int kMaxFolderDepth = 3;
constexpr size_t kMaxFolderFiles = 100000;

Status collect(const std::string& root, const std::string& inside, int depth, std::vector<TraceFile>* out) {
  SG_ASSIGN(std::vector<std::string> entries, entries_of(inside.empty() ? root : root + "/" + inside));
  for (const std::string& entry : entries) {
    std::string path = inside.empty() ? entry : inside + "/" + entry;
    if (is_link(root + "/" + path)) continue;
    if (is_folder(root + "/" + path)) {
      if (depth < kMaxFolderDepth) SG_TRY(collect(root, path, depth + 1, out));
    } else if (is_trace_graph_file(path) && is_plain_file(root + "/" + path) && out->size() < kMaxFolderFiles) {
      SG_ASSIGN(Bytes bytes, read_bytes(root + "/" + path, [](std::string_view) { return true; }));
      out->push_back({path, root + "/" + path, std::move(bytes.data)});
    }
  }
  return ok_status();
}

// Collects the logs in the folder itself, if it is the one that TORCH_TRACE names, or tlparse's copy of a log.
Status collect_logs(const std::string& root, std::vector<TraceFile>* out) {
  SG_ASSIGN(std::vector<std::string> entries, entries_of(root));
  for (const std::string& entry : entries) {
    if (!is_trace_log_name(entry) && entry != "raw.log") continue;
    if (!is_plain_file(root + "/" + entry)) continue;
    if (out->size() >= kMaxFolderFiles) break;
    SG_ASSIGN(Bytes bytes, read_bytes(root + "/" + entry, [](std::string_view) { return true; }));
    out->push_back({entry, root + "/" + entry, std::move(bytes.data)});
  }
  return ok_status();
}

// The logs, and the files they refer to.
struct Traces {
  std::vector<std::vector<TraceFile>> folders;
  std::vector<TraceLog> logs;
};

Result<Traces> read_traces(Sources* sources) {
  Traces out;
  out.folders.resize(sources->files.size());
  std::string digests;  // of all files, those in folders among them
  bool has_folders = false;
  for (size_t i = 0; i < sources->files.size(); ++i) {
    SourceFile& file = sources->files[i];
    if (!file.is_folder) {
      SG_ASSIGN(TraceLog log, read_trace_log(file.name, file.bytes));
      out.logs.push_back(std::move(log));
      digests += sha256_tag(file.bytes) + "\n";
      continue;
    }
    has_folders = true;
    SG_TRY(collect_logs(file.name, &out.folders[i]));
    const bool holds_logs = !out.folders[i].empty();
    if (!holds_logs) SG_TRY(collect(file.name, "", 0, &out.folders[i]));
    for (const TraceFile& f : out.folders[i]) {
      digests += sha256_tag(f.bytes) + "\n";
      sources->bytes += f.bytes.size();
    }
    for (const TraceFile& f : out.folders[i]) {
      if (!holds_logs) break;
      SG_ASSIGN(TraceLog log, read_trace_log(f.name, f.bytes));
      out.logs.push_back(std::move(log));
    }
    if (holds_logs) continue;
    SG_ASSIGN(TraceLog log, read_trace_folder(out.folders[i]));
    out.logs.push_back(std::move(log));
  }
  if (has_folders) sources->digest = sha256_tag(digests);
  return out;
}

}  // namespace

Result<Imported> import_trace_files(const Args& args, Sources* sources, Diagnostics* notes) {
  SG_ASSIGN(Traces traces, read_traces(sources));
  TraceOptions options;
  if (args.has("rank")) options.rank = static_cast<uint32_t>(std::min<int64_t>(args.number("rank", 0), UINT32_MAX));
  options.compile = args.has("compile-id") ? args.text("compile-id") : "";
  options.import = fx_options(args);
  Result<Job> job = import_trace(traces.logs, options, notes);
  if (!job.ok() && job.error().where.file.empty()) job.error().where.file = sources->files[0].name;
  if (!job.ok()) return std::move(job.error());
  return Imported{std::move(*job), {}, nullptr};
}

Result<Listing> list_trace_files(const Args&, Sources* sources, Diagnostics*) {
  SG_ASSIGN(Traces traces, read_traces(sources));
  return Listing{describe_trace(traces.logs), trace_json(traces.logs)};
}

}  // namespace sg::cli
