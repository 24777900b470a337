#include "librun/cpu/convolution_weight_parts.h"

#include <algorithm>

#include "librun/cpu/blocks.h"

namespace sg::cpu {

WeightParts::WeightParts(const ConvolutionGeometry& g, PartSides sides, int64_t threads) : g_(g), sides_(sides) {
  while (count() % threads != 0 && count() < 2 * threads && cut()) {
  }
}

int64_t WeightParts::count() const {
  return g_.groups * blocks_of(g_.in_channels, inputs()) * blocks_of(g_.out_channels, outputs());
}

bool WeightParts::cut() {
  PartSide &in = sides_.inputs, &out = sides_.outputs;
  if (!out.can_be_cut() && !(in.can_be_cut() && sides_.cuts_inputs_alone)) return false;
  PartSide& longer = out.can_be_cut() && (!in.can_be_cut() || out.length() >= in.length()) ? out : in;
  longer.channels = blocks_of(longer.channels, 2 * longer.multiple) * longer.multiple;
  return true;
}

WeightPart WeightParts::at(int64_t i) const {
  const int64_t all_outputs = blocks_of(g_.out_channels, outputs()), all_inputs = blocks_of(g_.in_channels, inputs());
  const int64_t output = i % all_outputs * outputs(), input = i / all_outputs % all_inputs * inputs();
  return {i / all_outputs / all_inputs, input, std::min(inputs(), g_.in_channels - input), output,
          std::min(outputs(), g_.out_channels - output)};
}

}  // namespace sg::cpu
