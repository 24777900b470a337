#include "tools/run/run_plan.h"

#include <algorithm>

#include "libgraph/base/json.h"
#include "libgraph/expr/countable.h"
#include "libgraph/expr/input_sizes.h"
#include "libgraph/expr/range_infer.h"
#include "libgraph/plan/plan_report.h"
#include "librun/values/inputs.h"
#include "tools/cli/cli_write.h"
#include "tools/run/run_options.h"

namespace sg::cli {
namespace {

// The sizes that a run with these options would have: bound, from files, or captured. Data-dependent sizes have none.
Result<SymbolValues> planned_sizes(const Args& args, const Job& job, const Program& program,
                                   std::span<const SizeBinding> bindings) {
  const uint32_t rank = program.ranks.empty() ? 0 : program.ranks[0];
  InputSource source;
  SG_ASSIGN(const uint64_t step, first_step(args, rank));
  set_files(args.all("inputs"), args.text("state"), rank, step, &source);
  source.may_miss = true;
  source.may_spare = args.has("spare-inputs");
  source.bindings = bindings;
  SG_ASSIGN(InputSet inputs, load_inputs(job, rank, source));
  return std::move(inputs.symbols);
}

// Counts of elements in a tensor are bounded once the input sizes are known.
void bound_counts(const Program& program, const SymbolValues& sizes, const std::vector<Count>& counts, Facts* facts) {
  std::vector<Facts::Bound> known;
  for (const Symbol& s : program.symbols)
    if (const std::optional<int64_t> size = sizes.value(s.name)) known.push_back({s.name, Interval::of(*size, *size)});
  facts->tighten(known);
  for (const Count& count : counts)
    if (const Interval most = facts->range(count.most); most.has_max() && most.max >= 0)
      facts->tighten(std::vector<Facts::Bound>{{count.symbol, {0, most.max}}});
}

}  // namespace

Result<int> print_plans(const Args& args, const Job& job) {
  SG_ASSIGN(std::vector<SizeBinding> bindings, size_bindings(args));
  SG_TRY(check_bindings(job, bindings));
  RangeInference ranges = infer_ranges(job);
  JsonWriter json;
  std::string text;
  int64_t most = 0;  // beyond the inputs
  json.begin_object().member("schema", "sg-run-plan").member("version", 1).key("plans").begin_array();
  for (size_t i = 0; i < job.programs.size(); ++i) {
    const Program& program = *job.programs[i];
    SG_ASSIGN(SymbolValues sizes, planned_sizes(args, job, program, bindings));
    SG_TRY(check_countable(program, [&sizes](StrId s) { return sizes.value(s); }));
    bound_counts(program, sizes, ranges.counts[i], &ranges.facts[i]);
    PlanReport report = report_plan(
        job, program, [&sizes](StrId s) { return sizes.value(s); }, &ranges.facts[i],
        args.has("allocator") ? allocator_named(args.text("allocator")) : std::nullopt);
    text += (text.empty() ? "" : "\n") + print_plan(report);
    write_plan(report, &json);
    most = std::max(most, report.peak_bytes);
  }
  json.end_array().end_object();
  SG_TRY(write_text(args, args.has("json") ? json.take() + "\n" : text));
  if (!args.has("memory-limit")) return 0;
  SG_ASSIGN(const int64_t limit, args.bytes("memory-limit"));
  if (most <= limit) return 0;
  return Error{
      ErrorKind::negative,
      "the plan needs " + std::to_string(most) + " bytes beyond the inputs, the limit is " + std::to_string(limit),
      {},
      "sg-remat --peak lowers it"};
}

}  // namespace sg::cli
