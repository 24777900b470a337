// sg-explain: who made a node and why, from what, for whom, how long it lives, which collectives it feeds.
#include "libgraph/assume.h"
#include "libgraph/node_story.h"
#include "libpasses/replay.h"
#include "tools/cli_job.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"rank", 'r', "N", "of ranks that run different programs the one that is meant", "0"},
    {"assume", 0, "balanced|max|SYMBOL=N", "numbers for symbols; balanced without it", {}, true},
};

Result<const Program*> program_of(const Args& args, const Job& job) {
  int64_t rank = args.number("rank", 0);
  if (!args.has("rank") && !job.programs.empty()) return job.programs[0].get();
  const Program* program = rank >= 0 && rank < job.world ? job.program_of(static_cast<uint32_t>(rank)) : nullptr;
  if (program == nullptr) return Error{ErrorKind::cannot_apply, "the job has no rank " + std::to_string(rank), {}, {}};
  return program;
}

// Without --assume a symbol that nothing bounds has no number, and no more has memory that depends on it.
Result<SizeValues> sizes_of(const Args& args, const Job& job, const Program* program) {
  std::vector<std::string> words = args.all("assume");
  SG_ASSIGN(Assumption assumption, parse_assume(std::vector<std::string_view>(words.begin(), words.end())));
  Result<std::vector<SymbolValues>> assumed = assume_values(job, infer_ranges(job), assumption);
  if (!assumed.ok() && !words.empty()) return assumed.error();
  if (!assumed.ok()) return SizeValues([](StrId) -> std::optional<int64_t> { return std::nullopt; });
  size_t i = 0;
  while (job.programs[i].get() != program) ++i;
  return SizeValues([values = std::move((*assumed)[i])](StrId s) { return values.value(s); });
}

Result<int> run(const Args& args) {
  if (args.operands().size() != 2)
    return Error{ErrorKind::usage, "sg-explain takes a graph and a node", {}, "sg-explain step.sg %mm_3"};
  SG_ASSIGN(Job job, read_job(args, args.operands()[0]));
  SG_ASSIGN(const Program* program, program_of(args, job));
  SG_ASSIGN(SizeValues sizes, sizes_of(args, job, program));
  StoryHistory history;
  for (const HistoryStep& step : history_of(job)) history.push_back(step.command());
  SG_ASSIGN(NodeStory story, tell_node(job, *program, args.operands()[1], sizes, history));
  SG_TRY(write_text(args, args.has("json") ? story_json(story) + "\n" : print_story(story)));
  return leave(args, 0);
}

constexpr Tool kTool = {
    "sg-explain",
    "say of a node who made it, from what, and what becomes of it",
    "GRAPH NODE",
    "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.\n"
    "NODE is the name of a node, of one of its results, or of an input, which may be called by its FQN too\n"
    "(layers.0.weight); the % may be left out.",
    2,
    false,
    Writes::report,
    false,
    kOptions,
    {{"sg-explain step.sg mm_1", "one node"},
     {"sg-remat -q step.sg --policy full | sg-explain - mm_1", "after a pass"}},
    run};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
