// A recipe with numbers for its parameters, once for each cell of its matrix.
//
// `$name` and `${name}` stand for a parameter's or an axis's value anywhere in a word; `$$` is a dollar. Values given
// by --set go before those of the file; an axis that is set has this one value. `STAGE.OPTION=VALUE` is an option of a
// stage, whatever the file says of it: `true` and `false` of a flag, `-` leaves it out.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/recipe/recipe.h"

namespace sg::recipe {

struct Variant {
  std::string name;  // "policy=full,chunks=2"; empty = the recipe has no matrix
  Recipe recipe;     // without parameters and matrix; paths as seen from here
};

// `set`: "name=value" or "stage.option=value". A name that the recipe lacks is an error, as is a `$name` that nothing
// gives a value.
std::vector<Variant> expand(const Recipe& recipe, const std::vector<std::string>& set, Diagnostics* problems);

}  // namespace sg::recipe
