// What a recipe means: the steps of all its variants, every option checked against its tool, every name resolved.
//
// A step is a graph that is there, an import, or a pass on an earlier step's result. Steps stand behind what they read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libgraph/diff/diff.h"
#include "libpasses/pass.h"
#include "tools/recipe/assertion.h"
#include "tools/recipe/expand.h"
#include "tools/recipe/tool_options.h"

namespace sg::recipe {

enum class StepKind : uint8_t { graph, import, pass };

struct RunCheck {
  Location where;
  OptionValues options;         // of sg-run
  bool has_all_options = true;  // false: some were mistakes, so that what they are together says nothing
  uint32_t bitwise_to = kNone;  // a step
  uint32_t ranks = 0;           // how many the job has to have; 0 = not asked
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
};

struct Step {
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  std::string name;  // "clean"; in a matrix "policy=full/clean"
  uint32_t variant = 0;
  std::string tool;  // "sg-clean"; "graph"
  StepKind kind = StepKind::graph;
  Location where;
  uint32_t from = kNone;
  std::string source;                // of graph and import: as the recipe says it
  std::vector<std::string> sources;  // what a glob stands for; else the source itself
  OptionValues options;              // of the pass or the import
  bool has_all_options = true;       // as in RunCheck
  const PassInfo* pass = nullptr;
  std::string expect, output, machine;
  DiffOptions ignore;  // of the golden
  std::vector<Assertion> asserts;
  std::vector<RunCheck> runs;
};

struct Plan {
  std::vector<Step> steps;
  size_t variants = 0;
};

// Options of sg-run about comparing, which `bitwise_to` does itself.
bool is_about_comparing(const OptionValue& option);

// Mistakes go to `problems`, orders that the passes warn of too. REQUIRES: what is read is checked before it is run
Plan make_plan(const std::vector<Variant>& variants, ToolTable* tools, Diagnostics* problems);

// What only a pass or sg-run itself, or the disk, can tell of values: a budget of 2, a machine's file with a mistake, a
// file that is not there. Where the plan has mistakes, of what they leave whole.
void check_values(const Plan& plan, Diagnostics* problems);

// The same of one step. `has_data`: the files of the runs that check it have to be there.
void check_values(const Step& step, bool has_data, Diagnostics* problems);

}  // namespace sg::recipe
