#include "tools/import/import_command.h"

#include <unistd.h>

#include "libgraph/base/human.h"
#include "libgraph/import/repair_types.h"
#include "libgraph/infer/infer.h"
#include "tools/cli/cli_describe.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_provenance.h"
#include "tools/cli/cli_targets.h"
#include "tools/cli/cli_write.h"
#include "tools/cli/write_ahead.h"
#include "tools/import/import_sources.h"
#include "tools/import/import_types.h"

namespace sg::cli {
namespace {

Result<int> write_listing(const Args& args, const Listing& listing) {
  SG_TRY(write_text(args, args.has("json") ? listing.json : listing.text));
  return 0;
}

// The file for the tensors: --data, else beside the output, with its name. Empty = nowhere.
std::string data_place(const Args& args) {
  if (args.has("data")) return args.text("data");
  std::string path = output_of(args);
  if (path == "-") return {};
  if (is_rank_pattern(path)) path = file_of_rank(path, 0);
  for (std::string_view end : {".txt", ".sg"})
    if (path.size() > end.size() && path.compare(path.size() - end.size(), end.size(), end) == 0)
      path.resize(path.size() - end.size());
  return path + ".safetensors";
}

// An unnamed file beside the output is replaced only if an import wrote it. A named one is among the targets already.
Status check_data_place(const Args& args, const std::string& place) {
  if (args.has("data")) return ok_status();
  SG_TRY(check_targets_again(args, {{"the file of weights", place}}));
  if (::access(place.c_str(), F_OK) != 0 || is_written_by_import(place)) return ok_status();
  return Error{ErrorKind::usage,
               "the weights would replace " + place + ", which no import has written",
               {},
               "--data FILE says where they go"};
}

// Writes the graph and its tensors: both or neither.
Status write_all(const Args& args, const Job& job, const Imported& imported, WriteAhead* ahead) {
  std::string place = data_place(args);
  if (imported.tensors.empty() || place.empty()) {
    SG_TRY(write_job(args, job, {}, ahead));
    if (!imported.tensors.empty())
      args.report().line("sg-import: " + plural(imported.tensors.size(), "tensor") +
                         " of weights and constants not written: name a file with --data");
    return ok_status();
  }
  SG_TRY(check_data_place(args, place));
  SG_ASSIGN(OutputFile tensors,
            stage_tensors(place, imported.tensors, {{{std::string(kWrittenBy), "sg-import"}}, false}));
  OutputSet beside;
  if (!args.has("dry-run")) beside.add(std::move(tensors));
  SG_TRY(write_job(args, job, {}, ahead, std::move(beside)));
  args.report().line(std::string("sg-import: ") + (args.has("dry-run") ? "would write " : "wrote ") + place + ": " +
                     plural(imported.tensors.size(), "tensor"));
  return ok_status();
}

// Prints the report of --list or --check instead of a graph; returns the exit code.
Result<int> report(const Args& args, const Job& job, const std::string& name) {
  TypeReport types;
  if (args.has("check")) types = type_report(job, name);
  else types = {describe_long(job), describe_json(args, job, name) + "\n"};
  SG_TRY(write_text(args, args.has("json") ? types.json : types.text));
  return types.count == 0 ? 0 : static_cast<int>(ErrorKind::negative);
}

}  // namespace

Result<int> run_import(const Args& args) {
  if (args.has("list") && args.has("check"))
    return Error{ErrorKind::usage, "--list and --check write a report each: give one of them", {}, {}};
  SG_ASSIGN(Sources sources, read_sources(args));
  args.report().phase("read", plural(sources.files.size(), "file") + ", " + plural(sources.bytes, "byte"));
  Diagnostics notes;
  if (args.has("list")) {
    SG_ASSIGN(std::optional<Listing> listing, list_source(args, &sources, &notes));
    args.report().add(notes);
    if (listing) return write_listing(args, *listing);
  }
  Result<Imported> imported = import_source(args, &sources, &notes);
  args.report().add(notes);
  if (!imported.ok()) return imported.error();
  Job* job = &imported->job;
  args.report().phase("import", describe(*job));
  if (args.has("check") || args.has("list")) return report(args, *job, sources.name);
  size_t repaired = 0;
  for (auto& program : job->programs) {
    infer_missing_types(*program);
    repaired += repair_recorded_types(*program);
  }
  if (repaired > 0)
    args.report().note(plural(repaired, "recorded type") + " contradicted by the op: corrected (--check lists them)");
  add_provenance(args, {"from", "model", "spmd", "world", "rank", "compile-id"}, sources.digest, job);
  Loaded loaded{std::move(*job), sources.name, {}, sources.bytes};
  WriteAhead ahead(loaded.job, writes_one_binary(args) ? args.threads() : 1);
  SG_TRY(require_valid(args, loaded));
  if (output_of(args) == "-") args.report().line("sg-import: read " + sources.name + ": " + describe(loaded.job));
  SG_TRY(write_all(args, loaded.job, *imported, &ahead));
  return leave(args, 0);
}

}  // namespace sg::cli
