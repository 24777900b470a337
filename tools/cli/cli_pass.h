// Passes as tools: a row of passes.def becomes options, help, run and messages. The file of a tool that is one pass is
// three lines.
#pragma once

#include <string>
#include <string_view>

#include "libpasses/pipeline.h"
#include "tools/cli/cli.h"

namespace sg::cli {

// The tool that the row of a pass makes.
struct PassTool {
  PassTool(const PassInfo& pass, Result<int> (*run)(const Args&));
  PassTool(const PassTool&) = delete;

  std::string name;  // "sg-clean"
  Tool tool;
};

// "remat --policy full": a stage as it would be typed without `sg-` and without files. What is wrong is said with the
// options of that pass.
Result<Stage> parse_stage(const std::string& words);

// The graph argument, through the stages, to the output; what is said about it. What a stage has done is said when it
// is done; then the caller's `options.after_stage` is called, if any.
Result<int> run_stages(const Args& args, Job job, std::vector<Stage> stages, PipelineOptions options);

// What sg-NAME does with its arguments.
Result<int> run_pass(const PassInfo& pass, const Args& args);

// The whole life of sg-NAME.
template <const PassInfo& kPass>
int pass_main(int argc, char** argv) {
  const PassTool made(kPass, [](const Args& args) { return run_pass(kPass, args); });
  return main(made.tool, argc, argv);
}

}  // namespace sg::cli
