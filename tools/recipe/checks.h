// What has to hold of a step's result: its golden, its assertions, its runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/recipe/cache.h"
#include "tools/recipe/plan.h"

namespace sg::recipe {

// A graph as a check needs it.
struct GraphBytes {
  std::string_view bytes;  // sealed
  std::string digest;
};

// All of these: an empty list = holds. Each finding has the place in the recipe and says what is the case.
// `references`: by run, where it is bitwise to another graph. A run that says neither yes nor no (a wrong option, no
// memory or device, a rank that failed) is an Error; the findings of the others are there all the same.
Status failing_runs(const Step& step, const GraphBytes& graph, const std::vector<std::optional<GraphBytes>>& references,
                    Cache* cache, std::vector<Diagnostic>* findings);
std::vector<Diagnostic> failing_metrics(const Step& step, std::string_view sealed);
std::vector<Diagnostic> failing_golden(const Step& step, std::string_view sealed);

// Writes the golden: the text form, or binary for a name that does not end in .txt.
Status bless_golden(const Step& step, std::string_view sealed);

}  // namespace sg::recipe
