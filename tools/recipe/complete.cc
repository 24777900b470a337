#include "tools/recipe/complete.h"

#include "libpasses/pass.h"
#include "tools/recipe/recipe.h"

namespace sg::recipe {
namespace {

void offer_parameters(const Recipe& recipe, const cli::ValueRequest& request) {
  for (const MatrixAxis& axis : recipe.matrix)
    for (const Word& value : axis.values) request.offer(axis.name.text + "=" + value.text, "of the matrix");
  if (request.typed.find('=') != std::string::npos) return;
  for (const Parameter& p : recipe.parameters) request.offer(p.name.text + "=", p.value.text);
  for (const StageSpec& s : recipe.stages)
    if (const PassInfo* pass = find_pass(s.tool.text))
      for (const PassOption& o : pass->options) request.offer(s.name + "." + std::string(o.name) + "=", o.help);
  request.out->open = true;
}

}  // namespace

void offer_from_recipe(const std::string& file, const cli::ValueRequest& request, bool inputs) {
  Diagnostics problems;
  const Recipe recipe = read_recipe(file, &problems);
  if (request.kind == "PARAMETER") return offer_parameters(recipe, request);
  if (inputs)
    for (const InputSpec& i : recipe.inputs) request.offer(i.name.text, "input");
  for (const StageSpec& s : recipe.stages)
    if (!s.tool.empty()) request.offer(s.name, s.tool.text);
}

}  // namespace sg::recipe
