// Axes of a sweep: what `--over NAME=VALUES` says.
//
//     chunks=2,4,8   policy=default,full   budget=0..1:0.25   peak=20GiB..60GiB:10GiB   prefetch=1..4
//
// NAME is a parameter of the recipe, an axis of its matrix, or STAGE.OPTION. A range has a step (1 without one) and
// holds both ends where the step meets them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libgraph/base/result.h"

namespace sg::sweep {

struct Axis {
  std::string name;
  std::vector<std::string> values;  // different ones; at least one
  bool whole = false;               // nothing but whole numbers makes sense between two of them
};

// `whole` is that all values are whole numbers: who knows more says so. Errors: of kind usage.
Result<Axis> parse_axis(const std::string& text);

// Both are numbers, of one unit.
bool are_numbers(const std::string& a, const std::string& b);

// How far apart they are. REQUIRES: are_numbers(a, b)
double distance(const std::string& a, const std::string& b);

// Halfway between two numbers of one unit ("20GiB", "60GiB"). None: one is no number, or there is nothing between them
// worth asking for (less than a thousandth of the larger).
std::optional<std::string> middle_of(const std::string& a, const std::string& b, bool whole);

}  // namespace sg::sweep
