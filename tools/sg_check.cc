// sg-check: is this a valid graph?
//
// Several operands are checked independently, each with its own verdict; only ranks of one job are compared with each
// other. Exit 1 if any has a finding, 3 if one cannot be read at all.
#include <algorithm>

#include "tools/check_verdict.h"
#include "tools/cli/cli_write.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"max-findings", 0, "N", "show at most N findings per graph", "20"},
    {"list-rules", 0, "", "list every rule with what it guarantees, and exit"},
};

Result<int> run(const Args& args) {
  if (args.has("list-rules")) {
    SG_TRY(refuse_json(args, "--list-rules prints a list"));
    SG_TRY(write_text(args, rules_report()));
    return 0;
  }
  std::vector<std::string> operands = args.operands().empty() ? std::vector<std::string>{"-"} : args.operands();
  std::vector<Verdict> verdicts = judge_all(operands, args, static_cast<size_t>(args.number("max-findings", 20)));
  std::string lines, json;
  int code = 0;
  for (size_t i = 0; i < verdicts.size(); ++i) {
    const Verdict& verdict = verdicts[i];
    args.report().add(verdict.said);
    if (verdict.said.hidden() != 0) args.report().note("--max-findings N shows the first N");
    if (verdict.error) args.report().error(*verdict.error);
    if (args.has("verbose")) args.report().line("sg-check: " + operands[i] + ": " + verdict.phases);
    if (!args.has("quiet")) lines += verdict.line + "\n";
    json += (json.empty() ? "" : ",") + verdict.json;
    code = std::max(code, verdict.code);
  }
  json = "{\"schema\":\"sg-check\",\"version\":1,\"files\":[" + json + "]}\n";
  SG_TRY(write_text(args, args.has("json") ? json : lines));
  return leave(args, code);
}

constexpr Tool kTool = {
    .name = "sg-check",
    .summary = "verify graphs",
    .operands = "[GRAPH]...",
    .details = "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.",
    .max_operands = SIZE_MAX,
    .options = kOptions,
    .examples = {{"sg-check step.sg", "check one graph"}, {"sg-check *.sg --json", "several graphs, as a JSON report"}},
    .run = run,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
