#include "tools/import/import_sources.h"

#include <algorithm>

#include "libgraph/base/parallel.h"
#include "libgraph/base/sha256.h"
#include "libgraph/import/capture.h"
#include "libgraph/import/fx_import.h"
#include "libgraph/import/pt2.h"
#include "tools/cli/cli_input.h"
#include "tools/import/import_trace_files.h"

namespace sg::cli {
namespace {

// Moves the files' bytes out.
std::vector<CaptureFile> ranks_of(Sources* sources) {
  std::vector<CaptureFile> ranks;
  for (SourceFile& file : sources->files) ranks.push_back({std::move(file.name), std::move(file.bytes), file.rank});
  return ranks;
}

Result<Imported> import_capture_files(const Args& args, Sources* sources, Diagnostics* notes) {
  SG_ASSIGN(Job job, import_captures(ranks_of(sources), {args.has("spmd"), args.threads()}, notes));
  return Imported{std::move(job), {}, nullptr};
}

Result<Imported> import_fx_files(const Args& args, Sources* sources, Diagnostics* notes) {
  SG_ASSIGN(Job job, import_fx(ranks_of(sources), fx_options(args), notes));
  return Imported{std::move(job), {}, nullptr};
}

Result<Imported> import_pt2_file(const Args& args, Sources* sources, Diagnostics* notes) {
  const SourceFile& file = sources->files[0];
  SG_ASSIGN(Pt2Import import, import_pt2(file.bytes, file.name, {args.text("model")}, notes));
  return Imported{std::move(import.job), std::move(import.tensors), std::move(import.owner)};
}

Result<Listing> list_pt2_file(const Args&, Sources* sources, Diagnostics*) {
  SG_ASSIGN(Pt2Listing listing, list_pt2(sources->files[0].bytes, sources->files[0].name));
  return Listing{std::move(listing.text), std::move(listing.json)};
}

constexpr std::string_view kSpmdOption[] = {"spmd"}, kPt2Options[] = {"model", "data"},
                           kFxOptions[] = {"spmd", "world"}, kTraceOptions[] = {"spmd", "world", "rank", "compile-id"};

constexpr ImportSource kSources[] = {
    {.kind = SourceKind::capture,
     .what = "capture JSON, plain or gzipped",
     .takes_many = true,
     .options = kSpmdOption,
     .import = import_capture_files},
    {.kind = SourceKind::pt2,
     .what = "torch.export archives (.pt2)",
     .options = kPt2Options,
     .import = import_pt2_file,
     .list = list_pt2_file},
    {.kind = SourceKind::fx,
     .what = "the text of a graph that FX prints",
     .takes_many = true,
     .options = kFxOptions,
     .import = import_fx_files},
    {.kind = SourceKind::torch_trace,
     .what = "a TORCH_TRACE log or tlparse's output folder",
     .takes_many = true,
     .takes_folder = true,
     .options = kTraceOptions,
     .import = import_trace_files,
     .list = list_trace_files},
};

const ImportSource* source_of(SourceKind kind) {
  for (const ImportSource& source : kSources)
    if (source.kind == kind) return &source;
  return nullptr;
}

std::string understood() {
  std::string out = "sg-import reads ";
  for (size_t i = 0; i < std::size(kSources); ++i)
    out += (i == 0 ? "" : i + 1 == std::size(kSources) ? " and " : ", ") + std::string(kSources[i].what);
  return out;
}

SourceKind asked_for(const Args& args, SourceKind found) {
  return args.has("from") ? source_kind_named(args.text("from")).value_or(SourceKind::unknown) : found;
}

// Whether this version reads the kind, and reads it from a file or folder such as this.
Status check_kind(const SourceFile& file) {
  Location where{file.name};
  if (file.kind == SourceKind::unknown)
    return Error{ErrorKind::unreadable,
                 std::string(file.is_folder ? "a folder" : "a source") + " of unknown kind: " + understood(), where,
                 file.is_folder ? "name the file in it, or a rank pattern such as 'rank{r}/step.json'"
                                : "name its kind with --from"};
  const ImportSource* source = source_of(file.kind);
  std::string kind(source_kind_name(file.kind));
  if (source == nullptr)
    return Error{ErrorKind::unreadable, "a " + kind + " source, which this version cannot read", where, understood()};
  if (file.is_folder && !source->takes_folder)
    return Error{ErrorKind::unreadable, "a folder is not a " + kind + " source", where, "name the file in it"};
  return ok_status();
}

Result<SourceFile> read_folder(const Args& args, const std::string& name) {
  SG_ASSIGN(std::vector<std::string> entries, entries_of(name));
  SourceFile file{name, {}, true, asked_for(args, source_kind_of_folder(entries))};
  SG_TRY(check_kind(file));
  return file;
}

Result<SourceFile> read_file(const Args& args, const std::string& name) {
  if (is_folder(name)) return read_folder(args, name);
  SG_ASSIGN(Bytes bytes, read_bytes(name, [&](std::string_view head) {
              return asked_for(args, source_kind_of(head)) != SourceKind::unknown;
            }));
  if (bytes.form == Form::binary || bytes.form == Form::text)
    return Error{ErrorKind::unreadable, "this is a graph already", {bytes.name}, "read it with sg-print"};
  SourceFile file{std::move(bytes.name), std::move(bytes.data), false, SourceKind::unknown};
  file.kind = asked_for(args, source_kind_of(file.bytes));
  SG_TRY(check_kind(file));
  return file;
}

// All files must be of one kind, and no more than it allows.
Status check_together(const std::vector<SourceFile>& files) {
  const SourceFile& first = files[0];
  for (size_t i = 1; i < files.size(); ++i) {
    Error error{ErrorKind::unreadable, {}, {files[i].name}, "import them one by one"};
    if (files[i].kind != first.kind)
      error.message = "a " + std::string(source_kind_name(files[i].kind)) + " source beside " + first.name + ", a " +
                      std::string(source_kind_name(first.kind)) + " source";
    else if (!source_of(first.kind)->takes_many)
      error.message = "a second " + std::string(source_kind_name(first.kind)) + " source: one is one job";
    if (!error.message.empty()) return error;
  }
  return ok_status();
}

Status check_options(const Args& args, SourceKind kind) {
  for (const ImportSource& other : kSources)
    for (std::string_view option : other.options) {
      if (!args.has(option) || std::ranges::count(source_of(kind)->options, option) != 0) continue;
      const std::string name = "--" + std::string(option);
      const bool is_rank = option == "rank" && source_of(kind)->takes_many;
      return Error{ErrorKind::usage,
                   name + " does not apply to a " + std::string(source_kind_name(kind)) + " source",
                   {},
                   is_rank ? "name the file of that rank" : name + " is for " + std::string(other.what)};
    }
  return ok_status();
}

// Whether the file is there, or that of any rank.
bool is_there(const std::string& pattern) {
  Diagnostics gaps;
  const auto files = files_of(pattern, &gaps);
  return files.ok() && is_plain_file(files->front());
}

// The capture, or the rank pattern of captures, in a folder that holds exactly one.
std::string capture_of(const std::string& operand) {
  if (!is_folder(operand)) return operand;
  std::string folder = operand.substr(0, operand.find_last_not_of('/') + 1);
  std::vector<std::string> found;
  for (std::string_view name : {"/step.json", "/step.json.gz", "/rank{r}/step.json", "/rank{r}/step.json.gz"})
    if (std::string pattern = folder + std::string(name); is_there(pattern)) found.push_back(std::move(pattern));
  return found.size() == 1 ? found[0] : operand;
}

struct Named {
  std::string file;
  std::optional<uint32_t> rank;  // by a rank pattern
};

Result<std::vector<Named>> names_of(const Args& args, Diagnostics* left_out) {
  std::vector<Named> names;
  for (const std::string& operand : args.operands().empty() ? std::vector<std::string>{"-"} : args.operands()) {
    const std::string pattern = capture_of(operand);
    SG_ASSIGN(std::vector<std::string> files, files_of(pattern, left_out));
    uint32_t rank = 0;  // some may be left out
    for (std::string& file : files) {
      if (!is_rank_pattern(pattern)) names.push_back({std::move(file), std::nullopt});
      else {
        while (file != file_of_rank(pattern, rank)) ++rank;
        names.push_back({std::move(file), rank++});
      }
    }
  }
  return names;
}

}  // namespace

ImportOptions fx_options(const Args& args) {
  ImportOptions options{args.has("spmd"), args.threads(), {}};
  if (args.has("world")) options.world = static_cast<uint32_t>(std::min<int64_t>(args.number("world", 1), UINT32_MAX));
  return options;
}

Result<Sources> read_sources(const Args& args) {
  Diagnostics left_out;
  bool best_effort = args.has("best-effort");
  SG_ASSIGN(std::vector<Named> names, names_of(args, best_effort ? &left_out : nullptr));
  std::vector<Result<SourceFile>> read(names.size(), Error());
  std::vector<std::string> digests(names.size());
  parallel_for(names.size(), args.threads(), [&](size_t i) {
    read[i] = read_file(args, names[i].file);
    if (!read[i].ok()) return;
    read[i]->rank = names[i].rank;
    digests[i] = sha256_tag(read[i]->bytes);
  });
  Sources out;
  std::string all_digests;
  for (size_t i = 0; i < read.size(); ++i) {
    if (!read[i].ok()) {
      const Error& e = read[i].error();
      if (!best_effort || names.size() == 1) return e;
      leave_out(e, &left_out);
      continue;
    }
    all_digests += digests[i] + "\n";
    out.bytes += read[i]->bytes.size();
    out.files.push_back(std::move(*read[i]));
  }
  args.report().add(left_out);
  if (out.files.empty()) return read[0].error();
  SG_TRY(check_together(out.files));
  bool is_one = out.files.size() == 1;
  out.kind = out.files[0].kind;
  SG_TRY(check_options(args, out.kind));
  out.name = is_one ? out.files[0].name : args.input();
  out.digest = is_one ? all_digests.substr(0, all_digests.size() - 1) : sha256_tag(all_digests);
  return out;
}

Result<Imported> import_source(const Args& args, Sources* sources, Diagnostics* notes) {
  return source_of(sources->kind)->import(args, sources, notes);
}

Result<std::optional<Listing>> list_source(const Args& args, Sources* sources, Diagnostics* notes) {
  const ImportSource* source = source_of(sources->kind);
  if (source->list == nullptr) return std::optional<Listing>();
  SG_ASSIGN(Listing listing, source->list(args, sources, notes));
  return std::optional(std::move(listing));
}

}  // namespace sg::cli
