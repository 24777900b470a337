// sg-explain: what made a node and why, its operands and users, its lifetime, the collectives it feeds.
#include "libgraph/node_story.h"
#include "libpasses/replay.h"
#include "tools/cli_job.h"
#include "tools/cli_sizes.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"rank", 'r', "N", "rank to use when ranks run different programs", "0"},
    kAssume,
};

Result<const Program*> program_of(const Args& args, const Job& job) {
  int64_t rank = args.number("rank", 0);
  if (!args.has("rank") && !job.programs.empty()) return job.programs[0].get();
  const Program* program = rank >= 0 && rank < job.world ? job.program_of(static_cast<uint32_t>(rank)) : nullptr;
  if (program == nullptr) return Error{ErrorKind::cannot_apply, "the job has no rank " + std::to_string(rank), {}, {}};
  return program;
}

Result<SizeValues> sizes_in(const Args& args, const Job& job, const Program* program) {
  SG_ASSIGN(auto values, assumed_values_if_known(args, job));
  if (!values) return SizeValues([](StrId) -> std::optional<int64_t> { return std::nullopt; });
  return SizeValues([program, sizes = sizes_of(job, std::move(*values))](StrId s) { return sizes(*program, s); });
}

Result<int> run(const Args& args) {
  if (args.operands().size() != 2)
    return Error{ErrorKind::usage, "sg-explain takes a graph and a node", {}, "sg-explain step.sg %mm_3"};
  SG_ASSIGN(Job job, read_job(args, args.operands()[0]));
  SG_ASSIGN(const Program* program, program_of(args, job));
  SG_ASSIGN(SizeValues sizes, sizes_in(args, job, program));
  StoryHistory history;
  for (const HistoryStep& step : history_of(job)) history.push_back(step.command());
  SG_ASSIGN(NodeStory story, tell_node(job, *program, args.operands()[1], sizes, history));
  SG_TRY(write_text(args, args.has("json") ? story_json(story) + "\n" : print_story(story)));
  return leave(args, 0);
}

constexpr Tool kTool = {
    .name = "sg-explain",
    .summary = "show what made a node, from what, and what uses it",
    .operands = "GRAPH NODE",
    .details =
        "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.\n"
        "NODE is the name of a node, of one of its results, or of an input, which may also be given by FQN\n"
        "(layers.0.weight); the % may be omitted.",
    .max_operands = 2,
    .reads_stdin = false,
    .options = kOptions,
    .examples = {{"sg-explain step.sg mm_1", "the origin, type, memory and users of one node"},
                 {"sg-remat -q step.sg --policy full | sg-explain - mm_1", "the same after a pass: its copies, too"}},
    .run = run,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
