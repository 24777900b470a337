// sg-overlap: its options, and the pass: isolate, measure, find orders, and keep them if the job is better for it.
#include "libpasses/overlap/overlap.h"

#include <optional>

#include "libgraph/base/human.h"
#include "libpasses/overlap/overlap_job.h"

namespace sg {
namespace {

constexpr PassOption kOverlapOptions[] = {
    {"strategy", 's', "model|reference", "search for the shortest step, or use TorchTitan's phases for chunks",
     "model"},
    {"machine", 'm', "MACHINE|FILE", "hardware that the model assumes (sg-sim --list)", "h100-8"},
    {"peak", 0, "SIZE", "model: limit on the planned peak (default: the peak of the input)"},
    {"assume", 0, "balanced|max|SYMBOL=N", "numbers for data-dependent sizes", "balanced", true},
    {"dense-fsdp", 0, {}, "reference: launch gathers and reductions during a neighbouring layer's dense compute"},
    {"isolate-only", 0, {}, "give token exchanges their own communicators, and move no node"},
    {"gathers", 0, {}, "likewise for parameter gathers, so that they can run concurrently with reductions"},
};

Result<OverlapOptions> read_overlap_options(const PassOptions& options) {
  OverlapOptions out;
  out.isolate.gathers = options.has("gathers");
  if (options.has("isolate-only")) {
    for (const char* other : {"strategy", "machine", "peak", "assume", "dense-fsdp"})
      if (options.has(other))
        return option_error("isolate-only", std::string(" does not reorder: it cannot be combined with --") + other,
                            "leave one out");
    return out;
  }
  if (const std::string strategy = options.text("strategy", "model"); strategy == "reference")
    out.strategy = OverlapStrategy::reference;
  out.machine = options.text("machine", "h100-8");
  SG_ASSIGN(out.peak_bytes, options.bytes("peak", 0));
  if (options.has("peak") && out.peak_bytes == 0) return option_error("peak", " of 0 bytes leaves no order");
  const std::vector<std::string> assume = options.all("assume");
  const std::vector<std::string_view> items(assume.begin(), assume.end());
  SG_ASSIGN(out.assume, parse_assume(items));
  out.dense_fsdp = options.has("dense-fsdp");
  const bool model = out.strategy == OverlapStrategy::model;
  if (model && out.dense_fsdp)
    return option_error("dense-fsdp", " belongs to --strategy reference", "the model chooses places by simulated cost");
  if (!model && out.peak_bytes != 0)
    return option_error("peak", " belongs to --strategy model",
                        "the reference has one order, whatever memory it needs");
  return out;
}

Result<Change> run_overlap(Job* job, const PassOptions& options, PassContext& context) {
  SG_ASSIGN(const OverlapOptions read, read_overlap_options(options));
  return options.has("isolate-only") ? isolate(job, read.isolate, context) : overlap(job, read, context);
}

Status check_overlap(const PassOptions& options) {
  SG_TRY(read_overlap_options(options));
  return ok_status();
}

}  // namespace

namespace overlap_parts {
namespace {

// Whether a job that cannot be measured is an error. The reference's order does not depend on figures.
bool must_be_measured(const Error& why_not, const OverlapOptions& options, const PassContext& context) {
  return why_not.kind == ErrorKind::usage || why_not.kind == ErrorKind::unreadable ||
         (options.strategy == OverlapStrategy::model && !context.best_effort);
}

Change left_as_it_is(const Error& why, Diagnostics* notes) {
  notes->warning("overlap", "left as it is: " + why.message);
  Change change;
  change.summary = "unchanged: " + why.message;
  return change;
}

// With best effort only a warning: the shortest order that is no worse is kept.
Status check_peak(const OverlapOptions& options, const Verdict& verdict, const PassContext& context) {
  const int64_t peak = verdict.after.peak_bytes;
  if (options.peak_bytes == 0 || !verdict.measured || peak <= options.peak_bytes) return ok_status();
  const std::string message = "no order comes under --peak " + human_bytes(static_cast<double>(options.peak_bytes)) +
                              ": the lowest peak that was found is " + human_bytes(static_cast<double>(peak));
  const std::string hint = "sg-remat --peak lowers it by recomputing values";
  if (!context.best_effort)
    return Error{
        ErrorKind::cannot_apply, message, {}, hint + "; --best-effort keeps the shortest order that is no worse"};
  context.notes->warning("overlap", message + "; " + hint);
  return ok_status();
}

Change change_of(const Isolation& isolation, const OverlapOptions& options, const JobOrder& orders,
                 const Verdict& verdict) {
  Change change;
  const size_t moved = verdict.kept ? moved_nodes(orders) : 0;
  change.summary = summary_of(options, orders, verdict, moved);
  if (!verdict.kept) return change;
  const bool was_isolated = !isolation.moves.empty();
  if (was_isolated) change.summary = isolation.summary + "; " + change.summary;
  change.changed = options.strategy == OverlapStrategy::model || was_isolated || moved != 0 || !orders.dense.empty() ||
                   regions_of(orders) != 0;
  return change;
}

}  // namespace
}  // namespace overlap_parts

Result<Change> overlap(Job* job, const OverlapOptions& options, PassContext& context) {
  using namespace overlap_parts;
  const bool model = options.strategy == OverlapStrategy::model;
  Job next(*job);
  const Isolation isolation = isolate_traffic(&next, options.isolate);
  std::optional<Job> before;  // isolated, but in its own order
  if (context.explain) before.emplace(next);

  Result<Measure> measure = Measure::make(next, options);
  if (!measure.ok() && must_be_measured(measure.error(), options, context)) return std::move(measure.error());
  if (!measure.ok() && model) return left_as_it_is(measure.error(), context.notes);
  Verdict verdict;
  verdict.measured = measure.ok();
  if (verdict.measured) {
    SG_ASSIGN(verdict.before, measure->figures(*job));
  }
  JobOrder orders;
  if (model) SG_TRY(run_model(&next, !isolation.moves.empty(), options, context, *measure, &orders, &verdict));
  else SG_TRY(run_reference(&next, options, context, measure.ok() ? &*measure : nullptr, &orders, &verdict));
  if (!verdict.kept) verdict.after = verdict.before;

  SG_TRY(check_peak(options, verdict, context));
  for (const Error& error : orders.refused) context.notes->warning("overlap", error.where.path + ": " + error.message);
  Change change = change_of(isolation, options, orders, verdict);
  if (context.explain) explain_change(*before, verdict.kept ? next : *before, options, orders, verdict, &change);
  if (verdict.kept) *job = std::move(next);
  return change;
}

// Buckets use the communicator of their members.
constexpr LaterPass kOverlapPrecedes[] = {{.name = "bucket", .if_with = "isolate-only"}};

constexpr PassInfo overlap_pass = {
    .name = "overlap",
    .summary = "reorder nodes so that token exchanges and FSDP traffic overlap with compute",
    .precedes = kOverlapPrecedes,
    .options = kOverlapOptions,
    .examples = {{"sg-overlap step.sg -o fast.sg", "the shortest step found, without more memory"},
                 {"sg-overlap step.sg --strategy reference --explain -o phases.sg",
                  "TorchTitan's phases, explained region by region"}},
    .run = run_overlap,
    .check = check_overlap,
};

}  // namespace sg
