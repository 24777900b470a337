// sg-stat: what a graph consists of, and what a step of it costs.
//
// Counts, parameters, flops, bytes moved, live memory, communication; a table by phase, module or op. --assume gives
// numbers to data-dependent sizes.
#include "libgraph/story/stat_text.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_sizes.h"
#include "tools/cli/cli_write.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"by", 'b', "phase|module|op", "what the rows of the table are", "module"},
    {"depth", 'd', "N", "components of a module path to group by; 0 = all", "3"},
    {"rows", 0, "N", "rows of the table; the rest is summed in one", "20"},
    {"allocator", 0, "exact|cuda-caching", "report the memory of such an allocator, overall and by phase"},
    kAssume,
};

Result<StatOptions> stat_options(const Args& args, const Job& job) {
  StatOptions options;
  if (args.has("allocator")) options.allocator = allocator_named(args.text("allocator"));
  options.module_depth = static_cast<size_t>(args.number("depth", 3));
  SG_ASSIGN(auto values, assumed_values_if_known(args, job));
  if (values) options.sizes = sizes_of(job, std::move(*values));
  return options;
}

Result<int> run(const Args& args) {
  SG_ASSIGN(Job job, read_job(args, args.input()));
  warn_of_tags(args, job);
  SG_ASSIGN(StatOptions options, stat_options(args, job));
  Stats stats = collect_stats(job, options);
  args.report().phase("count", "");
  size_t rows = static_cast<size_t>(args.number("rows", 20));
  SG_TRY(write_text(
      args, args.has("json") ? stats_json(stats) + "\n" : print_stats(stats, stat_table_named(args.text("by")), rows)));
  return leave(args, 0);
}

constexpr Tool kTool = {
    .name = "sg-stat",
    .summary = "count nodes, parameters, flops, bytes and communication",
    .operands = "[GRAPH]",
    .details = "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.",
    .options = kOptions,
    .examples = {{"sg-stat step.sg --by op", "nodes, flops and bytes of each op"},
                 {"sg-stat step.sg --json", "all counts as JSON"}},
    .run = run,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
