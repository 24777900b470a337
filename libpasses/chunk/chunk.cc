#include "libpasses/chunk/chunk.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libpasses/auto_chunk/auto_chunk.h"
#include "libpasses/chunk/chunk_copy.h"
#include "libpasses/chunk/chunk_plan.h"
#include "libpasses/chunk/chunk_ranks.h"
#include "libpasses/chunk/chunk_report.h"
#include "libpasses/chunk/chunk_torchtitan.h"
#include "libpasses/pass_order.h"

namespace sg {
namespace {

constexpr PassOption kChunkOptions[] = {
    {"modules", 'm', "PATTERN", "the modules to run in chunks, as 'layers.*.moe'"},
    {"auto", 'a', "", "chunk the loss head and other ops with outputs far larger than their inputs"},
    {"chunks", 'n', "N", "number of chunks (default: 2; with --auto as few as suffice)"},
    {"along", 0, "batch|seq|tokens", "axis to split: batch = first, seq = second, tokens = first (flat tokens)",
     "batch"},
    {"grad-accumulation", 0, "early|eager", "sum parameter gradients before their collectives (early) or after",
     "early"},
    {"min-rows", 0, "N", "refuse chunks of fewer rows", "1"},
    {"rows-per-chunk", 0, "N", "--auto: N rows in each chunk"},
    {"peak", 0, "SIZE", "--auto: the fewest chunks whose planned peak is at most this, as 14GiB"},
    {"amplify-ratio", 0, "R", "--auto: nodes with output bytes above R times their inputs (default: twice the data)"},
    {"min-output", 0, "SIZE", "--auto: nodes with outputs larger than this", "1MiB"},
    {"accumulate", 0, "f32|same", "--auto: sum over chunks in f32, or in the type of the summands", "f32"},
    {"torchtitan", 0, "KEY=VALUE", "an option of TorchTitan's EP overlap, as module_fqn=layers.*.moe", {}, true},
};
constexpr LaterPass kChunkPrecedes[] = {{"offload"}, {"bucket"}, {"overlap"}};

bool has_chunks(const Job& job, std::span<const std::string>) {
  return has_mark(
      job, [&](const NodeMeta& m) { return m.chunk.producer && job.pool->strings[m.chunk.producer] == "graph"; });
}

Status refuse_options_of_auto(const PassOptions& options) {
  for (std::string_view own : {"rows-per-chunk", "peak", "amplify-ratio", "min-output", "accumulate"})
    if (options.has(own)) return option_error(own, " needs --auto", "--modules takes --chunks");
  return ok_status();
}

Result<TorchTitanChunking> read_torchtitan(const PassOptions& options) {
  SG_TRY(refuse_options_of_auto(options));
  for (std::string_view own : {"modules", "chunks", "along", "grad-accumulation"})
    if (options.has(own))
      return option_error("torchtitan", " cannot be combined with --" + std::string(own),
                          "TorchTitan's options determine all of it; there are two chunks");
  SG_ASSIGN(TorchTitanChunking out, parse_torchtitan(options.all("torchtitan")));
  SG_ASSIGN(out.options.least_rows, options.whole("min-rows", 1, 1));
  return out;
}

Result<AutoChunkOptions> read_auto(const PassOptions& options) {
  for (std::string_view other : {"modules", "along", "grad-accumulation", "torchtitan"})
    if (options.has(other))
      return option_error("auto", " cannot be combined with --" + std::string(other),
                          "--auto finds what to chunk; --modules names it");
  AutoChunkOptions out;
  size_t counts = 0;
  if (options.has("chunks")) {
    SG_ASSIGN(out.chunks, options.whole("chunks", 2, 2));
    ++counts;
  }
  if (options.has("rows-per-chunk")) {
    SG_ASSIGN(out.rows_per_chunk, options.whole("rows-per-chunk", 1, 1));
    ++counts;
  }
  if (options.has("peak")) {
    SG_ASSIGN(out.peak_bytes, options.bytes("peak", 0));
    ++counts;
  }
  if (counts > 1)
    return Error{ErrorKind::usage, "--chunks, --rows-per-chunk and --peak cannot be combined", {}, "give one of them"};
  if (options.has("amplify-ratio")) {
    SG_ASSIGN(out.ratio, options.number("amplify-ratio", 0));
  }
  SG_ASSIGN(out.min_output, options.bytes("min-output", out.min_output));
  SG_ASSIGN(out.least_rows, options.whole("min-rows", 1, 1));
  out.sums_in_f32 = options.text("accumulate", "f32") == "f32";
  return out;
}

Result<ChunkOptions> read_modules(const PassOptions& options) {
  SG_TRY(refuse_options_of_auto(options));
  ChunkOptions out;
  out.modules = options.text("modules");
  if (!options.has("modules"))
    return Error{ErrorKind::usage,
                 "--modules is missing: which modules to run in chunks",
                 {},
                 "--modules 'layers.*.moe'; or --auto for the loss head"};
  SG_ASSIGN(out.chunks, options.whole("chunks", 2, 2));
  SG_ASSIGN(out.least_rows, options.whole("min-rows", 1, 1));
  const std::string along = options.text("along", "batch");
  out.along = along == "seq" ? ChunkAlong::sequence : along == "tokens" ? ChunkAlong::tokens : ChunkAlong::batch;
  out.early_sums = options.text("grad-accumulation", "early") == "early";
  return out;
}

Result<Change> run_chunk(Job* job, const PassOptions& options, PassContext& context) {
  if (options.has("auto")) {
    SG_ASSIGN(const AutoChunkOptions read, read_auto(options));
    return auto_chunk(job, read, context);
  }
  if (options.has("torchtitan")) {
    SG_ASSIGN(const TorchTitanChunking read, read_torchtitan(options));
    if (read.enabled) return chunk(job, read.options, context);
    return Change{false, "nothing is chunked: EP overlap is off; --torchtitan enabled=true turns it on", {}, {}};
  }
  SG_ASSIGN(const ChunkOptions read, read_modules(options));
  return chunk(job, read, context);
}

Status check_chunk(const PassOptions& options) {
  if (options.has("auto")) SG_TRY(read_auto(options));
  else if (options.has("torchtitan")) SG_TRY(read_torchtitan(options));
  else SG_TRY(read_modules(options));
  return ok_status();
}

// Of one program, or of all together.
struct Totals {
  size_t regions = 0, left = 0;
  ChunkCounts counts;
  friend bool operator==(const Totals&, const Totals&) = default;

  void add(const Totals& other) {
    regions += other.regions, left += other.left;
    counts.nodes += other.counts.nodes, counts.copies += other.counts.copies;
    counts.slices += other.counts.slices, counts.joined += other.counts.joined, counts.summed += other.counts.summed;
  }
};

Result<Totals> chunk_program(Program* program, const ChunkPlan& plan, int64_t chunks) {
  Totals out;
  for (const ChunkRegion& region : plan.regions) ++(region.refusal.empty() ? out.regions : out.left);
  if (out.regions == 0) return out;
  SG_ASSIGN(out.counts, copy_chunks(program, plan, chunks));
  return out;
}

// Ranks that do the same are said once.
Change change_of(const std::vector<Totals>& of_ranks, int64_t chunks) {
  Totals all = of_ranks[0];
  const bool alike = std::ranges::count(of_ranks, all) == std::ssize(of_ranks);
  for (size_t i = 1; !alike && i < of_ranks.size(); ++i) all.add(of_ranks[i]);
  const ChunkCounts& n = all.counts;
  Change out;
  out.changed = n.copies > 0;
  out.summary = !out.changed
                    ? "nothing is chunked: " + plural(all.left, "region") + " left whole"
                    : plural(all.regions, "region") + " in " + std::to_string(chunks) +
                          " chunks: " + plural(n.nodes, "node") + " copied, " + std::to_string(n.slices) + " sliced, " +
                          std::to_string(n.joined) + " concatenated, " + std::to_string(n.summed) + " summed" +
                          (all.left > 0 ? "; " + plural(all.left, "region") + " left whole" : "");
  if (!alike) out.summary += ", over the graphs of all ranks";
  return out;
}

}  // namespace

Result<Change> chunk(Job* job, const ChunkOptions& options, PassContext& context) {
  std::vector<Error> refused;
  SG_ASSIGN(const auto plans, plan_chunks_of_ranks(*job, options, context.best_effort ? &refused : nullptr));
  for (const Error& e : refused) context.notes->warning("chunk", "left whole: " + e.message, e.where, e.hint);
  ChunkReport report(options.chunks, plans.size() > 1);
  std::vector<Totals> totals;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (context.explain) report.add(*job->programs[i], plans[i]);
    SG_ASSIGN(const Totals of_rank, chunk_program(job->programs[i].get(), plans[i], options.chunks));
    totals.push_back(of_rank);
  }
  Change change = change_of(totals, options.chunks);
  if (context.explain) change.plan = report.take_text(), change.plan_json = report.take_json();
  return change;
}

constexpr PassInfo chunk_pass = {
    .name = "chunk",
    .summary = "run modules, or the loss head, once per chunk of their rows",
    .details =
        "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.\n"
        "Modules that cannot be proven to give the same rows are refused (exit 4) with the node and rule; "
        "--best-effort\n"
        "leaves them whole.",
    .results = Results::reassociated,
    .precedes = kChunkPrecedes,
    .options = kChunkOptions,
    .examples = {{"sg-chunk step.sg --modules '{layer,layers.*.moe}' --chunks 2 -o chunked.sg",
                  "these modules in two halves of their rows"},
                 {"sg-chunk step.sg --auto --peak 14GiB --explain -o chunked.sg",
                  "the loss head in as few chunks as that peak needs"}},
    .run = run_chunk,
    .check = check_chunk,
    .has_left_traces = has_chunks,
};

}  // namespace sg
