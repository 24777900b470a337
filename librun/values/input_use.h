// How a graph uses its inputs: the basis for values that --init makes up.
//
// One walk over the graph in schedule order tracks, for each value, the inputs whose elements it holds: through views,
// casts, gathers over ranks, splits and concatenations, buckets of parameters, and bodies of calls. The first
// informative use of an input decides. Passes that move nodes do not change uses.
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
  product,  // one side of a matrix product; `contracted` is the axis summed over
  convolution,
  table,     // rows are looked up
  scaled,    // multiplied element by element: scales, weights of norms
  added,     // biases
  variance,  // a norm takes its root
  divisor,
  positive,  // a logarithm or root is taken of it
  written,   // before anything reads it
};

struct InputUse {
  UseKind kind = UseKind::none;
  int contracted = -1;  // product: an axis of the input; -1 = unknown

  // Integers: the range that all consumers which index with them allow: from <= value < below.
  int64_t from = 0;
  std::optional<int64_t> below;
  std::string because;  // "rows of %arg0_1, in %embedding"
  // Integers that are not used as indices but compared with constants (a rank's part of a vocabulary): [0, compared).
  std::optional<int64_t> compared;
  // Integers: offsets of parts, of this many entries.
  std::optional<int64_t> parted;
  // Integers: an embedding looks up its rows by them, all or a rank's part of its table.
  bool is_embedded = false;
  // Integers: cast to bool, compared with 0 or 1, or subtracted from 1: apparently a mask.
  bool is_truth = false;
};

// By input of the program's graph. `sizes` gives numbers for symbolic sizes; a size without a number is no bound.
std::vector<InputUse> find_input_uses(const Program& program, const SizeValues& sizes);

}  // namespace sg
