#include "libgraph/import/capture.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/base/parallel.h"
#include "libgraph/composite/composite.h"
#include "libgraph/edit/merge.h"
#include "libgraph/import/capture_read.h"
#include "libgraph/infer/infer.h"

namespace sg {
namespace {

// A DOM takes a dozen times the memory of its text. Beyond so many bytes of text it is made a second time, for the
// program, when that is read.
constexpr size_t kParsedBytes = size_t{8} << 20;

// --- ranks ---

Result<std::vector<RankCapture>> read_headers(ImportContext* context, std::vector<CaptureFile> files, size_t threads) {
  std::vector<std::unique_ptr<CaptureText>> texts(files.size());
  std::vector<Status> parsed(files.size(), ok_status());
  std::vector<RankCapture> captures;
  size_t ahead = 0, kept_bytes = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i == ahead) {
      const size_t begin = ahead;
      ahead = std::min(files.size(), begin + std::max<size_t>(threads, 1));
      parallel_for(ahead - begin, threads, [&](size_t k) {
        CaptureFile& file = files[begin + k];
        texts[begin + k] = std::make_unique<CaptureText>(std::move(file.name), std::move(file.bytes));
        parsed[begin + k] = texts[begin + k]->parse();
      });
    }
    SG_TRY(std::move(parsed[i]));
    SG_ASSIGN(RankCapture capture, read_header(context, std::move(texts[i])));
    if (files[i].rank && *files[i].rank != capture.rank)
      return Error{
          ErrorKind::unreadable,
          "this is rank " + std::to_string(capture.rank) + ", and its name says rank " + std::to_string(*files[i].rank),
          {capture.text->name()},
          "inputs and results are found by the name: put each rank's files in its folder"};
    kept_bytes += capture.text->json().size();
    if (kept_bytes > kParsedBytes && i > 0) capture.text->forget_dom();
    captures.push_back(std::move(capture));
  }
  std::stable_sort(captures.begin(), captures.end(),
                   [](const RankCapture& a, const RankCapture& b) { return a.rank < b.rank; });
  return captures;
}

Status parse_again(RankCapture& capture) { return capture.text->is_parsed() ? ok_status() : capture.text->parse(); }

bool same_meshes(const std::vector<Mesh>& a, const std::vector<Mesh>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Mesh& x, const Mesh& y) {
    return x.name == y.name && x.axes == y.axes && x.shape == y.shape;
  });
}

Status check_ranks(const std::vector<RankCapture>& captures) {
  const RankCapture& first = captures[0];
  for (size_t i = 1; i < captures.size(); ++i) {
    const RankCapture& capture = captures[i];
    Error error{ErrorKind::unreadable, {}, {capture.text->name()}, "a rank set holds the ranks of one job, each once"};
    error.where.path = "world";
    if (capture.world != first.world)
      error.message = "the world has " + plural(capture.world, "rank") + " here and " + std::to_string(first.world) +
                      " in " + first.text->name();
    else if (capture.rank == captures[i - 1].rank)
      error.message = "this is rank " + std::to_string(capture.rank) + ", and so is " + captures[i - 1].text->name();
    else if (!same_meshes(capture.meshes, first.meshes))
      error.message = "the mesh is not that of " + first.text->name();
    if (!error.message.empty()) return error;
  }
  return ok_status();
}

// Ranks may be left out on purpose, to inspect one graph, but such a job is not the whole.
void warn_missing_ranks(const Job& job, Diagnostics* notes) {
  if (notes == nullptr || job.is_spmd()) return;
  const std::vector<uint32_t> held = ranks_held(job);
  if (held.size() >= job.world) return;
  uint32_t first = 0;
  while (first < held.size() && held[first] == first) ++first;
  const size_t missing = job.world - held.size();
  notes->warning("ranks",
                 "the job has " + std::to_string(job.world) + " ranks, and rank " + std::to_string(first) +
                     (missing > 1 ? " and " + std::to_string(missing - 1) + " more are" : " is") +
                     " missing: it cannot be run, nor checked against them",
                 {}, "import all ranks ('rank{r}/step.json'), or --spmd where one rank's capture stands for all");
}

// A text is given up once it is read, and a program that another rank has, too, is that of both at once: so memory does
// not grow with the ranks.
Status read_programs(ImportContext* context, std::vector<RankCapture>* captures, ProgramSharer* sharer) {
  for (RankCapture& capture : *captures) {
    SG_TRY(parse_again(capture));
    Program& program = context->job.add_program();
    SG_TRY(read_program(context, capture, &program));
    expand_composites(&program, capture.world > 1, &context->tally);
    infer_missing_types(program);  // before the merge: ranks may differ in what was recorded
    program.ranks = {capture.rank};
    sharer->share_last();
    capture.text->give_up();
  }
  return ok_status();
}

}  // namespace

Result<Job> import_captures(std::vector<CaptureFile> files, const ImportOptions& options, Diagnostics* notes) {
  if (files.empty()) return Error{ErrorKind::usage, "there is no capture to import", {}, {}};
  if (options.spmd && files.size() != 1)
    return Error{ErrorKind::usage,
                 "one capture stands for all ranks; here are " + std::to_string(files.size()),
                 {},
                 "omit --spmd to import a rank set"};
  ImportContext context(options.spmd);
  SG_ASSIGN(std::vector<RankCapture> captures, read_headers(&context, std::move(files), options.threads));
  SG_TRY(check_ranks(captures));
  context.job.world = captures[0].world;
  context.job.meshes = captures[0].meshes;
  SG_TRY(parse_again(captures[0]));
  SG_TRY(read_people(&context, captures[0]));
  SG_TRY(make_families(&context, &captures));
  ProgramSharer sharer(&context.job);
  SG_TRY(read_programs(&context, &captures, &sharer));
  context.job.extra = context.job_extras.take(&context.pool());

  sharer.finish(notes);
  if (options.spmd) context.job.programs[0]->ranks.clear();
  warn_missing_ranks(context.job, notes);
  if (notes != nullptr && !context.job.note.empty()) notes->note(context.job.note);
  if (notes != nullptr)
    context.tally.report(options.spmd && context.job.world > 1 ? captures[0].rank : ImportTally::kNoRank, notes);
  return std::move(context.job);
}

}  // namespace sg
