// sg-print: a graph as text.
//
// The whole job, one rank's program, or one node with its users. sg-parse reads the text back to the same bytes (except
// with --node and --no-history).
#include "libgraph/edit/merge.h"
#include "libgraph/text/text.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_write.h"
#include "tools/print_node.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"node", 'n', "NODE", "print this node and the nodes that use it"},
    {"rank", 'r', "N", "print the program of rank N only"},
    {"no-history", 0, {}, "leave out how the graph was made, which changes with every capture: for goldens"},
};

Result<int> run(const Args& args) {
  SG_TRY(refuse_json(args, "sg-print writes a text"));
  SG_ASSIGN(Job job, read_job(args, args.input()));
  if (args.has("rank")) {
    SG_ASSIGN(const uint32_t rank, held_rank(args, job));
    job = job_of_rank(job, rank);
  }
  if (args.has("no-history")) job.provenance.clear();
  if (!args.has("node")) {
    SG_TRY(write_form(args, job, [](const Job& one) { return Result<std::string>(print_text(one)); }));
    return leave(args, 0);
  }
  SG_ASSIGN(std::string text, node_report(job, args.text("node")));
  SG_TRY(write_text(args, text));
  return leave(args, 0);
}

constexpr Tool kTool = {
    .name = "sg-print",
    .summary = "write a graph as text, one node per line",
    .operands = "[GRAPH]",
    .details = "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.",
    .writes = Writes::text,
    .options = kOptions,
    .examples = {{"sg-print step.sg | less", "read a graph"},
                 {"sg-print step.sg --node mm_1", "one node and the nodes that use it"}},
    .run = run,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
