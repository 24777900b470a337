#include "libpasses/chunk/chunk.h"

#include "libgraph/human.h"
#include "libgraph/json.h"
#include "libpasses/auto_chunk/auto_chunk.h"
#include "libpasses/chunk/chunk_copy.h"
#include "libpasses/chunk/chunk_plan.h"
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
constexpr LaterPass kChunkPrecedes[] = {{"offload"}, {"bucket"}, {"overlap"}, {"concretize"}};

bool has_chunks(const Job& job, std::span<const std::string>) {
  return has_mark(
      job, [&](const NodeMeta& m) { return m.chunk.producer && job.pool->strings[m.chunk.producer] == "graph"; });
}

Status refuse_options_of_auto(const PassOptions& options) {
  for (std::string_view own : {"rows-per-chunk", "peak", "amplify-ratio", "min-output", "accumulate"})
    if (options.has(own))
      return Error{ErrorKind::usage, "--" + std::string(own) + " needs --auto", {}, "--modules takes --chunks"};
  return ok_status();
}

Result<TorchTitanChunking> read_torchtitan(const PassOptions& options) {
  SG_TRY(refuse_options_of_auto(options));
  for (std::string_view own : {"modules", "chunks", "along", "grad-accumulation"})
    if (options.has(own))
      return Error{ErrorKind::usage,
                   "--torchtitan cannot be combined with --" + std::string(own),
                   {},
                   "TorchTitan's options determine all of it; there are two chunks"};
  SG_ASSIGN(TorchTitanChunking out, parse_torchtitan(options.all("torchtitan")));
  SG_ASSIGN(out.options.least_rows, options.whole("min-rows", 1, 1));
  return out;
}

Result<AutoChunkOptions> read_auto(const PassOptions& options) {
  for (std::string_view other : {"modules", "along", "grad-accumulation", "torchtitan"})
    if (options.has(other))
      return Error{ErrorKind::usage,
                   "--auto cannot be combined with --" + std::string(other),
                   {},
                   "--auto finds what to chunk; --modules names it"};
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

bool is_by_row(const Graph& graph, const ChunkRegion& region) {
  return graph.pool().exprs.constant_value(region.along.unit) == 1;
}

std::string axis_name(const Graph& graph, const ChunkRegion& region) {
  const std::string out =
      "axis " + std::to_string(region.along.axis) + " of %" + std::string(graph.name(region.activation));
  const ExprPool& exprs = graph.pool().exprs;
  return out + (is_by_row(graph, region) ? "" : ", at entries of " + exprs.print(region.along.unit) + " rows,");
}

// --explain: for each region, what is cut, what is shared and what leaves it.
void describe(const Program& program, const ChunkPlan& plan, int64_t chunks, Change* change) {
  const Graph& graph = program.graph;
  JsonWriter json;
  json.begin_array();
  for (uint32_t r = 0; r < plan.regions.size(); ++r) {
    const ChunkRegion& region = plan.regions[r];
    size_t forward = 0, backward = 0;
    for (const BodyNode& body : plan.body)
      if (body.region == r) ++(graph.node(body.node).phase == Phase::forward ? forward : backward);
    if (!region.refusal.empty()) {
      change->plan += region.module + ": left whole: " + region.refusal + "\n";
      json.begin_object().member("module", region.module).member("refusal", region.refusal).end_object();
      continue;
    }
    change->plan += region.module + ": " + axis_name(graph, region) + " in " + std::to_string(chunks) + " chunks; " +
                    plural(forward, "node") + " forward, " + std::to_string(backward) + " backward\n";
    json.begin_object()
        .member("module", region.module)
        .member("activation", graph.name(region.activation))
        .member("axis", region.along.axis);
    if (!is_by_row(graph, region)) json.member("entry_rows", graph.pool().exprs.print(region.along.unit));
    json.member("forward", forward).member("backward", backward).key("results").begin_array();
    for (const BodyNode& body : plan.body)
      for (uint32_t i = 0; body.region == r && i < graph.node(body.node).result_count; ++i) {
        const ValueId v = graph.node(body.node).result(i);
        if (!plan.full_use[v.index]) continue;
        const AxisState& s = plan.world.states[v.index];
        const std::string how = s.kind == AxisKind::partial ? "summed"
                                : s.kind == AxisKind::size  ? "a number"
                                                            : "concatenated along axis " + std::to_string(s.along.axis);
        change->plan += "  %" + std::string(graph.name(v)) + " is " + how + "\n";
        json.begin_object().member("value", graph.name(v)).member("how", how).end_object();
      }
    json.end_array().end_object();
  }
  json.end_array();
  change->plan_json = json.take();
}

struct Totals {
  size_t regions = 0, left = 0;
  ChunkCounts counts;
};

Result<Totals> chunk_program(Program* program, const ChunkOptions& options, const ModulePattern& modules,
                             PassContext& context, Change* change) {
  std::vector<Error> refused;
  SG_ASSIGN(const ChunkPlan plan, plan_chunks(*program, options, modules, context.best_effort ? &refused : nullptr));
  for (const Error& e : refused) context.notes->warning("chunk", "left whole: " + e.message, e.where, e.hint);
  if (context.explain) describe(*program, plan, options.chunks, change);
  Totals out;
  for (const ChunkRegion& region : plan.regions) ++(region.refusal.empty() ? out.regions : out.left);
  if (out.regions == 0) return out;
  SG_ASSIGN(out.counts, copy_chunks(program, plan, options.chunks));
  return out;
}

}  // namespace

Result<Change> chunk(Job* job, const ChunkOptions& options, PassContext& context) {
  SG_ASSIGN(const ModulePattern modules, ModulePattern::parse(options.modules));
  Change change;
  std::optional<Totals> first;
  for (auto& program : job->programs) {
    SG_ASSIGN(const Totals totals, chunk_program(program.get(), options, modules, context, &change));
    if (first && (first->regions != totals.regions || first->counts.collectives != totals.counts.collectives))
      return Error{ErrorKind::cannot_apply,
                   "ranks would chunk different collectives, and the step would hang",
                   {},
                   "chunk modules that are the same on all ranks"};
    if (!first) first = totals;
  }
  if (!first) return change;
  const ChunkCounts& n = first->counts;
  change.changed = n.copies > 0;
  change.summary = !change.changed
                       ? "nothing is chunked: " + plural(first->left, "region") + " left whole"
                       : plural(first->regions, "region") + " in " + std::to_string(options.chunks) +
                             " chunks: " + plural(n.nodes, "node") + " copied, " + std::to_string(n.slices) +
                             " sliced, " + std::to_string(n.joined) + " concatenated, " + std::to_string(n.summed) +
                             " summed" + (first->left > 0 ? "; " + plural(first->left, "region") + " left whole" : "");
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
