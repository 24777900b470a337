// sg-overlap: its options, and what runs for them.
#include "libpasses/overlap/overlap.h"

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
