// A recipe: inputs, stages and what has to hold, as its YAML file says. Every word keeps its place for messages.
//
//     inputs:  {step: {import: 'capture/rank{r}/step.json.gz'}}
//     stages:
//       - clean
//       - remat: {policy: $policy}
//         assert: [peak < 70GiB]
//     parameters: {policy: default}
//
// Reading finds all mistakes at once, and what could be read is checked further: a mistyped key is read as the one that
// is meant, a stage without a pass keeps its name, and what follows from a mistake is not told. Substitution of
// $parameters and the matrix are expand.h, meaning is plan.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/base/result.h"

namespace sg::recipe {

struct Word {
  std::string text;
  Location where;
  bool is_mistake = false;  // that was told: its text says nothing, and nobody complains of it again
  bool empty() const { return text.empty(); }
};

// An option of a tool: its values in order. `yes` and `no` are flags given and not given.
struct Setting {
  Word name;
  std::vector<Word> values;
  enum class Flag : uint8_t { none, yes, no } flag = Flag::none;
};

// A graph that is there, or is imported: `step: step.sg`, `step: {import: SOURCE, spmd: true}`.
struct InputSpec {
  Word name, source;
  bool imported = false;
  std::vector<Setting> options;  // of sg-import
};

// sg-run on a stage's result: `run: {init: seed:0, bitwise_to: step}`.
struct RunSpec {
  Location where;
  std::vector<Setting> options;
  bool has_all_options = true;  // as in StageSpec
  Word bitwise_to;              // an input or a stage whose outputs this one's equal; empty = not asked
  Word ranks;                   // how many the job has to have; empty = not asked
};

struct StageSpec {
  Word tool;         // empty = it has none, which was told
  std::string name;  // "clean", "clean:2", or what `name:` says
  Word from;         // a stage or an input; empty = the stage before
  std::vector<Setting> options;
  bool has_all_options = true;  // false: some may stand where they do not belong, which was told
  Word expect, output;          // files
  Word ignore;                  // what is no difference to the golden: "loc,name"
  std::vector<Word> asserts;
  std::vector<RunSpec> runs;
};

struct Parameter {
  Word name, value;
};

struct MatrixAxis {
  Word name;
  std::vector<Word> values;
};

struct Recipe {
  std::string file;
  std::vector<std::string> files;  // itself and what it includes; standard input left out
  std::string name, about;
  Word machine;  // of assertions about time
  std::vector<Parameter> parameters;
  std::vector<MatrixAxis> matrix;
  std::vector<InputSpec> inputs;
  std::vector<StageSpec> stages;
  bool has_all_names = true;  // false: part of it could not be read, so that a name that is missing may be there
};

// The keys of a stage beside its pass.
inline constexpr std::string_view kStageKeys[] = {"name", "from", "expect", "ignore", "assert", "run", "output"};

// Errors go to `problems`; what could be read is returned.
Recipe read_recipe(const std::string& file, Diagnostics* problems);

// What standard input is called as a recipe; its paths are beside the folder that one is in.
inline const std::string kStdin = "<stdin>";

// Paths in a recipe are relative to its file; those of an included one, to that.
std::string beside(const std::string& file, const std::string& path);

}  // namespace sg::recipe
