// sg-import: captures of a PyTorch training step to a graph file.
//
// One capture is one rank; several, or a rank pattern, are a rank set and become one job: proven SPMD, or kept apart.
#include "libgraph/capture.h"
#include "libgraph/infer.h"
#include "libgraph/sha256.h"
#include "libgraph/source_kind.h"
#include "tools/cli_job.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"from", 0, "capture|pt2|fx|torch-trace", "what kind of source it is, instead of telling it by its content"},
    {"spmd", 0, "", "one rank's capture stands for every rank of its world"},
    {"list", 0, "", "say what the source holds, and write no graph"},
};

Result<CaptureFile> read_source(const Args& args, const std::string& file) {
  SG_ASSIGN(Bytes bytes, read_bytes(file));
  std::string kind(source_kind_name(source_kind_of(bytes.data)));
  if (args.has("from")) kind = args.text("from");
  if (kind == "capture") return CaptureFile{std::move(bytes.name), std::move(bytes.data)};
  bool is_graph = bytes.form == Form::binary || bytes.form == Form::text;
  if (is_graph) return Error{ErrorKind::unreadable, "this is a graph already", {bytes.name}, "read it with sg-print"};
  if (kind == "unknown")
    return Error{ErrorKind::unreadable, "a source of unknown kind", {bytes.name}, "a capture is JSON, plain or gzipped"};
  return Error{ErrorKind::unreadable, "a " + kind + " source, which this version cannot read", {bytes.name},
               "this version reads captures: JSON with \"format\": \"step-capture\""};
}

Result<int> run(const Args& args) {
  std::vector<CaptureFile> sources;
  std::string digests;
  for (const std::string& operand : args.operands().empty() ? std::vector<std::string>{"-"} : args.operands()) {
    SG_ASSIGN(std::vector<std::string> files, files_of(operand));
    for (const std::string& file : files) {
      SG_ASSIGN(CaptureFile source, read_source(args, file));
      digests += sha256_tag(source.bytes) + "\n";
      sources.push_back(std::move(source));
    }
  }
  bool is_one = sources.size() == 1;
  std::string name = is_one ? sources[0].name : args.input();
  Diagnostics notes;
  Result<Job> job = import_captures(std::move(sources), {args.has("spmd")}, &notes);
  args.report().add(notes);
  if (!job.ok()) return job.error();
  for (auto& program : job->programs) infer_missing_types(*program);
  add_provenance(args, {"from", "spmd"}, is_one ? digests.substr(0, digests.size() - 1) : sha256_tag(digests), &*job);
  Loaded loaded{std::move(*job), name, {}};
  SG_TRY(require_valid(args, loaded));
  if (args.has("list")) {
    SG_TRY(write_text(args, args.has("json") ? describe_json(args, loaded.job, name) + "\n" : describe_long(loaded.job)));
    return 0;
  }
  if (output_of(args) == "-") args.report().line("sg-import: read " + name + ": " + describe(loaded.job));
  SG_TRY(write_job(args, loaded.job));
  return 0;
}

constexpr Tool kTool = {"sg-import", "turn captures of a training step into a graph", "[SOURCE]...",
                        "SOURCE is capture JSON, plain or gzipped, or a rank pattern such as 'rank{r}/step.json'.",
                        SIZE_MAX, true, Writes::graph, false, kOptions,
                        {{"sg-import step.json -o step.sg", "one rank"},
                         {"sg-import 'rank{r}/step.json' | sg-print | less", "all ranks into one job, read as text"}}, run};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
