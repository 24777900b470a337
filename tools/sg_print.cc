// sg-print: a graph as text.
//
// The whole job, or one rank's program, or one node with its users. Always text; writes what sg-parse reads back to the
// same bytes (not with --node).
#include "libgraph/merge.h"
#include "libgraph/nearest.h"
#include "libgraph/text.h"
#include "tools/cli_job.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"node", 'n', "NAME", "print the node of this name, and the nodes that use it"},
    {"rank", 'r', "N", "print the program of rank N only"},
};

// The node's line and those of its users, in every program and nested graph that has it.
void print_in(const Job& job, const Program& program, const Graph& graph, const std::string& name, std::string* out) {
  NodeId n = graph.find_node(name);
  if (!n) return;
  *out += "# " + place_of(program, graph, n) + "\n" + print_node(job, program, graph, n) + "\n";
  for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
    for (NodeId user : graph.users(graph.node(n).result(i)))
      *out += "  " + print_node(job, program, graph, user) + "\n";
}

Result<std::string> print_named(const Job& job, std::string name) {
  if (name.rfind('%', 0) == 0) name.erase(0, 1);
  std::string out;
  Nearest nearest(name);
  for (const auto& program : job.programs) {
    print_in(job, *program, program->graph, name, &out);
    for (const auto& nested : program->nested) print_in(job, *program, nested->graph, name, &out);
    for (NodeId n : program->graph.nodes()) nearest.offer(program->graph.label(n));
  }
  if (!out.empty()) return out;
  return Error{ErrorKind::cannot_apply, "no node is named %" + name, {}, nearest.hint("%")};
}

Result<int> run(const Args& args) {
  SG_ASSIGN(Job job, read_job(args, args.input()));
  uint32_t rank = static_cast<uint32_t>(std::min<int64_t>(args.number("rank", 0), UINT32_MAX));
  if (args.has("rank") && (rank >= job.world || job.program_of(rank) == nullptr))
    return Error{ErrorKind::cannot_apply, "the job holds no rank " + args.text("rank"), {}, describe(job)};
  if (args.has("rank")) job = job_of_rank(job, rank);
  if (!args.has("node")) {
    SG_TRY(write_text(args, print_text(job)));
    return 0;
  }
  SG_ASSIGN(std::string text, print_named(job, args.text("node")));
  SG_TRY(write_text(args, text));
  return 0;
}

constexpr Tool kTool = {"sg-print", "write a graph as text, one node a line", "[GRAPH]",
                        "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.", 1,
                        true, Writes::text, false, kOptions,
                        {{"sg-print step.sg | less", "read a graph"},
                         {"sg-print step.sg --node mm_1", "one node, and who uses it"}}, run};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
