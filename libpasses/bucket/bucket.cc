#include "libpasses/bucket/bucket.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "libgraph/base/human.h"
#include "libgraph/base/joined.h"
#include "libgraph/base/json.h"
#include "libgraph/base/whole_file.h"
#include "libgraph/expr/assume.h"
#include "libgraph/facts/collective_roles.h"
#include "libgraph/group_name.h"
#include "libgraph/op.h"
#include "libgraph/plan/plan.h"
#include "libgraph/sim/simulate.h"
#include "libpasses/agreement.h"
#include "libpasses/bucket/bucket_parts.h"
#include "libpasses/exact_bytes.h"
#include "libpasses/pass_order.h"
#include "libpasses/planned_peak.h"

namespace sg {
namespace {

using namespace bucket_parts;

// A job with the buckets of a plan in it.
struct Bucketed {
  Plan plan;
  Job job;
  int64_t prefetch = 0;
  size_t gone = 0, moved = 0;  // nodes merged away, nodes placed elsewhere
};

// A lower bound of the planned peak: the most bytes live at once in any program.
int64_t most_live(const Job& job) {
  const std::vector<SymbolValues> values = usual_values(job);
  int64_t most = 0;
  for (size_t i = 0; i < job.programs.size(); ++i) {
    const SizeValues sizes = [&](StrId symbol) { return values[i].value(symbol); };
    most = std::max(most, compute_liveness(*job.programs[i], job.programs[i]->graph, sizes).lower_bound_bytes);
  }
  return most;
}

Bucketed merged(const Job& job, const Members& members, Plan plan) {
  Bucketed out{std::move(plan), job};
  out.gone = merge_buckets(&out.job, members, out.plan);
  return out;
}

Bucketed placed(Bucketed merged, int64_t prefetch) {
  merged.prefetch = prefetch;
  merged.moved = place_buckets(&merged.job, prefetch);
  return merged;
}

// Parameters gathered once instead of twice: a gather launched at the beginning of the backward is live beside the loss
// anyway; if keeping the forward's result does not raise the peak, it is not gathered again.
Bucketed without_regathers(const Job& job, const Members& members, Bucketed now) {
  constexpr int kMostTries = 4;
  if (now.prefetch == 0) return now;
  int64_t peak = -1;
  const size_t buckets = now.plan.buckets.size();
  const size_t least = buckets - std::min(buckets, static_cast<size_t>(now.prefetch));
  for (int tries = 0; tries < kMostTries && now.plan.buckets.size() > least; ++tries) {
    std::optional<Plan> fewer = with_one_kept(members, now.plan);
    if (!fewer) break;
    if (peak < 0) peak = most_live(now.job);
    Bucketed tried = placed(merged(job, members, std::move(*fewer)), now.prefetch);
    const int64_t with = most_live(tried.job);
    if (with > peak) break;
    now = std::move(tried), peak = with;
  }
  return now;
}

// Buckets with the deepest prefetch that the limit allows. A distance beyond the number of buckets is as good as all;
// without buckets nothing would lower the peak.
Result<Bucketed> carry_out(const Job& job, const Members& members, Plan plan, const BucketOptions& options) {
  Bucketed base = merged(job, members, std::move(plan));
  const int64_t most = std::max<int64_t>(BucketOptions::kMaxPrefetch, static_cast<int64_t>(base.plan.buckets.size()));
  int64_t prefetch = options.prefetch < 0 ? BucketOptions::kMaxPrefetch : std::min(options.prefetch, most);
  if (options.peak_bytes == 0 || base.plan.buckets.empty())
    return without_regathers(job, members, placed(std::move(base), prefetch));
  int64_t peak = 0;
  for (; prefetch >= 0; --prefetch) {
    Bucketed with_regathers = placed(base, prefetch);
    peak = planned_peak(with_regathers.job);
    const bool fits = peak <= options.peak_bytes;
    Bucketed out = without_regathers(job, members, fits ? with_regathers : std::move(with_regathers));
    if (planned_peak(out.job) <= options.peak_bytes) return out;
    if (fits) return with_regathers;
  }
  return Error{
      ErrorKind::cannot_apply,
      "the planned peak is " + exact_bytes(peak) + " without prefetch, above --peak " + exact_bytes(options.peak_bytes),
      {},
      "use smaller buckets (--plan by-size:SIZE), a larger --prefetch where one is given, or sg-remat before"};
}

// --- plans ---

Result<double> simulated_us(const Job& job, const std::string& machine) {
  SimOptions options;
  SG_ASSIGN(options.machine, find_machine(machine));
  options.events = false;
  SG_ASSIGN(std::vector<SymbolValues> values, assume_values(job, infer_ranges(job), {}));
  SG_ASSIGN(Simulation simulation, simulate(job, values, options));
  return simulation.worst().makespan_us;
}

// The plan with the shortest simulated step; of equals the first.
Result<Plan> choose_plan(const Job& job, const Members& members, const BucketOptions& options, std::string* said) {
  constexpr int64_t kSizes[] = {8 << 20, 32 << 20, 128 << 20, 512 << 20};
  std::vector<std::pair<std::string, Plan>> candidates = {{"per-block", plan_per_block(members)}};
  for (int64_t size : kSizes)
    candidates.emplace_back("by-size:" + human_bytes(static_cast<double>(size)), plan_by_size(members, size));
  double best = 0;
  std::optional<Plan> chosen;
  for (auto& [name, plan] : candidates) {
    Result<Bucketed> tried = carry_out(job, members, plan, options);
    if (!tried.ok()) {
      if (!chosen && &plan == &candidates.back().second) return std::move(tried.error());
      continue;
    }
    SG_ASSIGN(const double us, simulated_us(tried->job, options.machine));
    if (chosen && us >= best) continue;
    best = us, chosen = std::move(plan), *said = name + " on " + options.machine;
  }
  return std::move(*chosen);
}

Result<Plan> make_plan(const Job& job, const Members& members, const BucketOptions& options, std::string* said) {
  switch (options.plan) {
    case BucketPlanKind::per_block: return plan_per_block(members);
    case BucketPlanKind::per_module: return plan_per_module(members, options.modules, options.modules_name);
    case BucketPlanKind::by_size: return plan_by_size(members, options.size_bytes);
    case BucketPlanKind::automatic: return choose_plan(job, members, options, said);
  }
  return Plan{};
}

// --- reports ---

std::string line_of(const Job& job, const Members& members, const Plan& plan, const Bucket& bucket) {
  const Member& first = members.list[bucket.members[0]];
  int64_t bytes = 0;
  std::vector<std::string> types, modules = plan.modules(bucket);
  for (size_t m : bucket.members) {
    const bool again = std::ranges::any_of(bucket.members, [&](size_t other) {
      return members.list[m].twin == members.list[other].call && other != m && members.list[m].twin != Member::kNone;
    });
    if (again) continue;  // the other member stands for both
    bytes += members.list[m].whole_bytes();
    const std::string type(dtype_name(members.list[m].dtype));
    if (std::ranges::find(types, type) == types.end()) types.push_back(type);
  }
  const std::string kind = first.kind == MemberKind::gather    ? "gather"
                           : first.kind == MemberKind::scatter ? "reduce_scatter"
                                                               : "all_reduce";
  std::string out = plural(bucket.members.size(), kind) +
                    (first.direction == BucketDirection::forward ? ", forward, " : ", backward, ") +
                    human_bytes(static_cast<double>(bytes)) + " of " + joined(types, " and ");
  return out + " on " + group_name(job, GroupId(first.group)) + ": " + joined(modules, " ");
}

std::vector<std::string> lines_of(const Job& job, const Members& members, const Plan& plan) {
  std::vector<std::string> out;
  for (const Bucket& bucket : plan.buckets) out.push_back(line_of(job, members, plan, bucket));
  out.insert(out.end(), members.left.begin(), members.left.end());
  return out;
}

bool has_collective(const Graph& graph) {
  for (NodeId n : graph.nodes())
    if (const OpInfo* op = graph.op_info(n); op != nullptr && op->has(kCollective)) return true;
  return false;
}

// A collective in place, as captures write it: its result is copied into the tensor that it was given.
bool copies_reduced(const Graph& graph) {
  for (NodeId n : graph.nodes()) {
    if (graph.op_name(n) != "aten.copy_.default" || graph.node(n).args.size() < 2) continue;
    const Arg& from = graph.node(n).args[1];
    const NodeId by = from.is(ArgKind::value) ? graph.value(from.as_value()).def : NodeId();
    const OpInfo* op = by ? graph.op_info(by) : nullptr;
    if (op != nullptr && op->has(kWait)) return true;
  }
  return false;
}

// Why a job has no members at all.
std::string idle_reason(const Job& job) {
  bool parameters = false, main = false, nested = false, copies = false;
  for (const auto& program : job.programs) {
    for (const Input& input : program->graph.inputs()) parameters |= input.kind == InputKind::parameter;
    main |= has_collective(program->graph);
    copies |= copies_reduced(program->graph);
    for (const auto& body : program->nested) nested |= has_collective(body->graph);
  }
  std::string out = "no collective gathers parameters or reduces gradients";
  if (copies) out += "; results of some are copied to where they came from: sg-clean first";
  if (main && !parameters) out += "; no input is a parameter: the graph's source does not say which are";
  if (nested) out += "; those of nested graphs stay as they are";
  return out;
}

std::string summary_of(const Job& job, const Members& members, const Bucketed& done, const std::string& said) {
  if (members.list.empty() && done.moved == 0)
    return members.bucketed != 0
               ? "nothing to bucket: what gathers parameters and reduces gradients is in buckets already (" +
                     std::to_string(members.bucketed) + ")"
               : "nothing to bucket: " + (members.left.empty() ? idle_reason(job) : members.left[0]);
  std::string out = members.list.empty() ? plural(members.bucketed, "bucket")
                                         : plural(members.list.size(), "collective") + " -> " +
                                               plural(done.plan.buckets.size(), "bucket");
  if (!said.empty()) out += " (" + said + ")";
  return out + (done.prefetch == 0 ? std::string(", no prefetch") : ", prefetch " + std::to_string(done.prefetch));
}

std::string json_of(const Members& members, const Bucketed& done, const std::vector<std::string>& lines) {
  JsonWriter json;
  json.begin_object().key("collectives").natural(members.list.size()).key("buckets").natural(done.plan.buckets.size());
  json.key("prefetch").integer(done.prefetch).key("decisions").begin_array();
  for (const std::string& line : lines) json.string(line);
  json.end_array().end_object();
  return json.take();
}

// --- options ---

bool has_buckets(const Job& job, std::span<const std::string>) {
  return has_mark(job, [](const NodeMeta& m) { return m.collective.bucket >= 0; });
}

constexpr LaterPass kBucketPrecedes[] = {{"overlap", "isolate-only"}};
constexpr PassOption kBucketOptions[] = {
    {"plan", 'p', "per-block|per-module:FILE|by-size:SIZE|auto", "what shares a bucket", "per-block"},
    {"prefetch", 0, "N|auto", "buckets to launch ahead of use; auto: as many as --peak allows", "1"},
    {"peak", 0, "SIZE", "limit on the planned peak: prefetch less rather than exceed it"},
    {"machine", 'm', "MACHINE|FILE", "machine that --plan auto simulates", "h100-8"},
};

Result<std::string> read_modules(const std::string& name) {
  constexpr std::string_view kHint = "a line of it names the modules of one bucket";
  if (name.empty()) return option_error("plan", " per-module: names no file", std::string(kHint));
  constexpr size_t kMostBytes = 16 << 20;
  Result<std::string> text = read_whole_file(name, kMostBytes);
  if (!text.ok())
    return Error{ErrorKind::unreadable,
                 "--plan per-module: " + name + ": " + text.error().message,
                 {},
                 std::string(kHint),
                 "plan"};
  return text;
}

Status parse_plan(const std::string& word, BucketOptions* out) {
  constexpr std::string_view kModules = "per-module:", kSize = "by-size:";
  if (word == "per-block") return ok_status();
  if (word == "auto") {
    out->plan = BucketPlanKind::automatic;
    return ok_status();
  }
  if (word.starts_with(kModules)) {
    out->plan = BucketPlanKind::per_module;
    out->modules_name = word.substr(kModules.size());
    SG_ASSIGN(out->modules, read_modules(out->modules_name));
    return ok_status();
  }
  if (word.starts_with(kSize)) {
    out->plan = BucketPlanKind::by_size;
    Result<int64_t> bytes = parse_bytes(std::string_view(word).substr(kSize.size()));
    if (!bytes.ok()) return option_error("plan", " by-size: " + bytes.error().message, bytes.error().hint);
    out->size_bytes = *bytes;
    if (out->size_bytes == 0)
      return option_error("plan", " by-size: a bucket of 0 bytes holds nothing", "as in by-size:512MiB");
    return ok_status();
  }
  return option_error("plan", " \"" + word + "\" does not exist",
                      "use per-block, per-module:FILE, by-size:SIZE or auto");
}

Result<BucketOptions> read_bucket_options(const PassOptions& options) {
  BucketOptions out;
  SG_TRY(parse_plan(options.text("plan", "per-block"), &out));
  SG_ASSIGN(out.peak_bytes, options.bytes("peak", 0));
  if (options.has("peak") && out.peak_bytes == 0) return option_error("peak", " of 0 bytes leaves no plan");
  if (options.text("prefetch") == "auto") {
    if (out.peak_bytes == 0)
      return option_error("prefetch", " auto needs a limit", "say how much memory there is: --peak 60GiB");
    out.prefetch = -1;
  } else {
    SG_ASSIGN(out.prefetch, options.whole("prefetch", 1, 0));
  }
  if (options.has("machine") && out.plan != BucketPlanKind::automatic)
    return option_error("machine", " needs --plan auto, which simulates it");
  out.machine = options.text("machine", "h100-8");
  return out;
}

Result<Change> run_bucket(Job* job, const PassOptions& options, PassContext& context) {
  SG_ASSIGN(const BucketOptions read, read_bucket_options(options));
  return bucket(job, read, context);
}

Status check_bucket(const PassOptions& options) {
  SG_TRY(read_bucket_options(options));
  return ok_status();
}

}  // namespace

Result<Change> bucket(Job* job, const BucketOptions& options, PassContext& context) {
  Job known(*job);
  size_t roles = 0;
  for (auto& program : known.programs) roles += store_roles(&program->graph, CollectiveRoles(*program, program->graph));
  const Members members = find_members(known);
  std::string said;
  SG_ASSIGN(Plan plan, make_plan(known, members, options, &said));
  SG_ASSIGN(Bucketed done, carry_out(known, members, std::move(plan), options));
  Change change;
  if (const std::string why = disagreement(*job, &done.job, context.threads); !why.empty()) {
    if (done.prefetch > 0) {
      context.notes->warning("bucket", "nothing is launched ahead, as ranks would not agree: " + why);
      BucketOptions in_place = options;
      in_place.prefetch = 0;
      return bucket(job, in_place, context);
    }
    context.notes->warning("bucket", "ranks would not agree on their collectives: " + why);
    change.summary = "nothing to bucket: ranks would not agree on their collectives";
    return change;
  }
  change.changed = done.gone + done.moved + roles > 0;
  change.summary = summary_of(done.job, members, done, said);
  if (context.explain) {
    const std::vector<std::string> lines = lines_of(known, members, done.plan);
    for (const std::string& line : lines) change.plan += line + "\n";
    change.plan_json = json_of(members, done, lines);
  }
  *job = std::move(done.job);
  return change;
}

constexpr PassInfo bucket_pass = {
    .name = "bucket",
    .summary = "merge the gathers of a block into one collective, and its reductions into one, launched early",
    .precedes = kBucketPrecedes,
    .options = kBucketOptions,
    .examples = {{"sg-bucket step.sg -o bucketed.sg", "one bucket per block and direction, gathered one block ahead"},
                 {"sg-bucket step.sg --plan by-size:512MiB --prefetch auto --peak 60GiB",
                  "buckets by size, launched as early as memory allows"}},
    .run = run_bucket,
    .check = check_bucket,
    .has_left_traces = has_buckets,
};

}  // namespace sg
