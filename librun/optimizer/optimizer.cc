#include "librun/optimizer/optimizer.h"

#include "librun/element.h"
#include "librun/values/inputs.h"

namespace sg {

Result<Optimizer> Optimizer::make(const Graph& graph, const OptimizerOptions& options) {
  Optimizer out(graph, options);
  std::vector<bool> has_gradient(graph.inputs().size());
  for (const Output& output : graph.outputs()) {
    if (output.kind != OutputKind::gradient || output.value.is_none() || output.of.is_none()) continue;
    const size_t i = graph.value(output.of).index;
    const Input& input = graph.inputs()[i];
    if (input.kind != InputKind::parameter) continue;
    const Type &value = graph.type(input.value), &gradient = graph.type(output.value);
    auto refuse = [&](std::string why) {
      return Error{ErrorKind::cannot_apply,
                   "--optimizer: parameter " + input_title(graph, input) + " " + std::move(why),
                   {},
                   {}};
    };
    if (has_gradient[i]) return refuse("has two gradients");
    has_gradient[i] = true;
    auto usable = [](const Type& t) {
      return t.kind == TypeKind::tensor && (is_floating(t.dtype) || is_complex(t.dtype)) && is_runnable(t.dtype);
    };
    if (!usable(value) || !usable(gradient) || is_complex(value.dtype) != is_complex(gradient.dtype))
      return refuse("or its gradient has an element type that cannot be updated");
    if (is_complex(value.dtype) && value.shape.size() >= kMaxRank)
      return refuse("has complex elements, and " + std::to_string(value.shape.size()) + " dimensions");
    if (value.shape != gradient.shape) return refuse("and its gradient differ in shape");
    out.parameters_.push_back({i, output.value});
  }
  if (out.parameters_.empty())
    return Error{ErrorKind::cannot_apply, "--optimizer: the graph gives no gradient of a parameter", {}, {}};
  return out;
}

std::vector<size_t> Optimizer::inputs() const {
  std::vector<size_t> out;
  for (const Parameter& parameter : parameters_) out.push_back(parameter.input);
  return out;
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = memory_.bytes();
  for (const Arena& memory : device_memory_) bytes += memory.bytes();
  return bytes;
}

}  // namespace sg
