// Narrowing: which nodes a stage has to work on for its result to be bad. The last step of a bisection.
//
// How       All other nodes are frozen (libgraph/edit/freeze.h), the stage runs, they are thawed, and the result is
//           asked about. First the end of the range is sought, then its beginning, each by halves.
// Answers   A stage that cannot be applied to so little changes nothing: good. What cannot be judged counts as good
//           too, so the range is never too small.
// Result    With these nodes it is bad, with one fewer at either end it is not. Only where one place alone makes it bad
//           is that the place; two that have to come together are the ends.
// Cost      A run of the stage, and a question, for about twice the logarithm of the number of nodes.
#pragma once

#include <functional>
#include <string>

#include "libgraph/edit/freeze.h"
#include "tools/recipe/cache.h"
#include "tools/recipe/plan.h"

namespace sg::recipe {

enum class Answer : uint8_t { good, bad, unknown };
std::string word_of(Answer answer);  // good, bad, not to be judged

struct NarrowOptions {
  bool pipes = false;  // run the stage as its tool
  std::function<Result<Answer>(const std::string& sealed)> judge;
  std::function<void(const std::string& what)> told;  // each question and its answer
};

// Nodes `first` to `last` of the stage's input, `touched` of `of`. 0: it is bad also where the stage may touch none.
struct Narrowed {
  size_t touched = 0, of = 0;
  StepPart first, last;
};

// Of a stage whose result is bad, on a sealed graph that is good.
Result<Narrowed> narrow_to_nodes(const Step& stage, const std::string& input, Cache* cache,
                                 const NarrowOptions& options);

// The stage alone on a sealed graph: its sealed result.
Result<std::string> run_stage(const Step& stage, const std::string& input, Cache* cache, bool pipes);

}  // namespace sg::recipe
