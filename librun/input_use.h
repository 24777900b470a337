// How a graph uses its inputs: what --init needs to make up values that a step can live with.
//
// One walk over the graph in schedule order carries for each value the inputs whose elements it holds: through views,
// casts, gathers over ranks, splits and concatenations, buckets of parameters, the bodies of calls. The first use that
// says something about an input decides; uses after a pass has moved the nodes around are the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libgraph/expr/sizes.h"
#include "libgraph/job.h"

namespace sg {

enum class UseKind : uint8_t {
  none,     // nothing is known
  product,  // one side of a matrix product; `contracted` is the axis that is summed over
  convolution,
  table,     // rows are looked up
  scaled,    // multiplied element by element: scales, weights of norms
  added,     // biases
  variance,  // a norm takes its root
  divisor,
  positive,  // a logarithm or a root is taken of it
  written,   // before anybody reads it
};

struct InputUse {
  UseKind kind = UseKind::none;
  int contracted = -1;  // product: an axis of the input; -1 = not known

  // Integers: what all consumers that index with them allow: from <= value < below.
  int64_t from = 0;
  std::optional<int64_t> below;
  std::string because;  // "rows of %arg0_1, in %embedding"
  // Integers that nothing indexes with are still compared with constants (a rank's part of a vocabulary): [0,
  // compared).
  std::optional<int64_t> compared;
  // Integers: where parts begin of so many entries.
  std::optional<int64_t> parted;
  // Integers: cast to bool, held against 0 or 1, taken from 1: a mask, as far as the graph says.
  bool is_truth = false;
};

// By input of the program's graph. `sizes` gives numbers for symbolic sizes; what has none bounds nothing.
std::vector<InputUse> find_input_uses(const Program& program, const SizeValues& sizes);

}  // namespace sg
