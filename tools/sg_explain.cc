// sg-explain: what made a node and why, its operands and users, its lifetime, the collectives it feeds.
#include <unistd.h>

#include "libgraph/story/node_story.h"
#include "libpasses/replay.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_sizes.h"
#include "tools/cli/cli_write.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"rank", 'r', "N", "rank to use when ranks run different programs", "0"},
    kAssume,
};

Result<const Program*> program_of(const Args& args, const Job& job) {
  if (!args.has("rank") && !job.programs.empty()) return job.programs[0].get();
  SG_ASSIGN(const uint32_t rank, held_rank(args, job));
  return job.program_of(rank);
}

Result<int> run(const Args& args) {
  if (args.operands().size() != 2)
    return Error{ErrorKind::usage, "sg-explain takes a graph and a node", {}, "sg-explain step.sg %mm_3"};
  const std::string &graph = args.operands()[0], &node = args.operands()[1];
  if (!is_rank_pattern(graph) && is_plain_file(node) && graph != "-" && ::access(graph.c_str(), F_OK) != 0)
    return Error{
        ErrorKind::unreadable, "no such file", {graph}, "the graph comes first: sg-explain " + node + " " + graph};
  SG_ASSIGN(Job job, read_job(args, graph));
  SG_ASSIGN(const Program* program, program_of(args, job));
  SG_ASSIGN(SizeValues sizes, assumed_sizes_if_known(args, job, program));
  StoryHistory history;
  for (const HistoryStep& step : history_of(job)) history.push_back(step.command());
  SG_ASSIGN(NodeStory story, tell_node(job, *program, node, sizes, history));
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
        "(layers.0.weight); the % may be omitted. `loss` is the node that makes the loss.",
    .max_operands = 2,
    .reads_stdin = false,
    .options = kOptions,
    .examples = {{"sg-explain step.sg mm_1", "the origin, type, memory and users of one node"},
                 {"sg-remat -q step.sg --policy full | sg-explain - mm_1", "the same after a pass: its copies, too"}},
    .run = run,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
