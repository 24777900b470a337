// The JSON Schema of recipes, made from the tables of the passes and of sg-import and sg-run:
// schema/recipe.schema.json.
#pragma once

#include <string>

#include "tools/recipe/tool_options.h"

namespace sg::recipe {

Result<std::string> recipe_schema(ToolTable* tools);

}  // namespace sg::recipe
