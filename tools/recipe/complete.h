// What a recipe has to offer at a Tab: values of the kinds PARAMETER (its parameters, its matrix, STAGE.OPTION) and
// STAGE.
#pragma once

#include <string>

#include "tools/cli/cli_complete.h"

namespace sg::recipe {

// `file`: the recipe; mistakes in it are no errors here. `inputs`: they are stages, too.
void offer_from_recipe(const std::string& file, const cli::ValueRequest& request, bool inputs);

}  // namespace sg::recipe
