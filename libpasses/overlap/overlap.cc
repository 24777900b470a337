// sg-overlap: its options, and the pass: isolate, measure, find orders, and keep them if the job is better for it.
#include "libpasses/overlap/overlap.h"

#include <optional>

#include "libgraph/human.h"
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

Error wrong(std::string what, std::string hint) { return {ErrorKind::usage, std::move(what), {}, std::move(hint)}; }

Result<OverlapOptions> read_overlap_options(const PassOptions& options) {
  OverlapOptions out;
  out.isolate.gathers = options.has("gathers");
  if (options.has("isolate-only")) {
    for (const char* other : {"strategy", "machine", "peak", "assume", "dense-fsdp"})
      if (options.has(other))
        return wrong(std::string("--isolate-only does not reorder: it cannot be combined with --") + other,
                     "leave one out");
    return out;
  }
  if (const std::string strategy = options.text("strategy", "model"); strategy == "reference")
    out.strategy = OverlapStrategy::reference;
  out.machine = options.text("machine", "h100-8");
  SG_ASSIGN(out.peak_bytes, options.bytes("peak", 0));
  const std::vector<std::string> assume = options.all("assume");
  const std::vector<std::string_view> items(assume.begin(), assume.end());
  SG_ASSIGN(out.assume, parse_assume(items));
  out.dense_fsdp = options.has("dense-fsdp");
  const bool model = out.strategy == OverlapStrategy::model;
  if (model && out.dense_fsdp)
    return wrong("--dense-fsdp belongs to --strategy reference", "the model chooses places by simulated cost");
  if (!model && out.peak_bytes != 0)
    return wrong("--peak belongs to --strategy model", "the reference has one order, whatever memory it needs");
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

Result<Change> overlap(Job* job, const OverlapOptions& options, PassContext& context) {
  using namespace overlap_parts;
  Job next(*job);
  const Isolation isolation = isolate_traffic(&next, options.isolate);
  const bool was_isolated = !isolation.moves.empty();

  Verdict out;
  const bool model = options.strategy == OverlapStrategy::model;
  Result<Measure> measure = Measure::make(next, options);
  if (!measure.ok() && (measure.error().kind == ErrorKind::usage || measure.error().kind == ErrorKind::unreadable))
    return std::move(measure.error());
  if (!measure.ok() && model && !context.best_effort) return std::move(measure.error());
  Change change;
  if (!measure.ok() && model) {
    context.notes->warning("overlap", "left as it is: " + measure.error().message);
    change.summary = "unchanged: " + measure.error().message;
    return change;
  }
  if (measure.ok()) {
    SG_ASSIGN(out.before, measure->figures(*job));
    out.measured = true;
  }
  std::optional<Job> before;  // isolated, but in its own order
  if (context.explain) before.emplace(next);
  JobOrder orders;
  if (model) {
    SG_TRY(run_model(&next, was_isolated, options, context, *measure, &orders, &out));
  } else {
    SG_TRY(run_reference(&next, options, context, &orders, &out));
  }
  if (out.kept && out.measured && !model) {
    SG_ASSIGN(out.after, measure->figures(next));
  }
  if (!out.kept) out.after = out.before;
  if (options.peak_bytes != 0 && out.measured && out.after.peak_bytes > options.peak_bytes)
    context.notes->warning("overlap", "no order comes under --peak " +
                                          human_bytes(static_cast<double>(options.peak_bytes)) + ": the peak is " +
                                          human_bytes(static_cast<double>(out.after.peak_bytes)) +
                                          "; sg-remat --peak lowers it by recomputing values");
  for (const Error& error : orders.refused) context.notes->warning("overlap", error.where.path + ": " + error.message);
  const size_t moved = out.kept ? moved_nodes(orders) : 0;
  change.summary =
      (out.kept && was_isolated ? isolation.summary + "; " : std::string()) + summary_of(options, orders, out, moved);
  if (context.explain) explain_change(*before, out.kept ? next : *before, options, orders, out, &change);
  change.changed = out.kept && (model || moved + orders.dense.size() + regions_of(orders) > 0 || was_isolated);
  if (out.kept) *job = std::move(next);
  return change;
}

constexpr PassInfo overlap_pass = {
    .name = "overlap",
    .summary = "reorder nodes so that token exchanges and FSDP traffic overlap with compute",
    .options = kOverlapOptions,
    .examples = {{"sg-overlap step.sg -o fast.sg", "the shortest step found, without more memory"},
                 {"sg-overlap step.sg --strategy reference --explain -o phases.sg",
                  "TorchTitan's phases, explained region by region"}},
    .run = run_overlap,
    .check = check_overlap,
};

}  // namespace sg
