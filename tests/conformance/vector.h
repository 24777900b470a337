// Conformance vectors: one call of an aten overload each, with what PyTorch makes of it. README.md has the format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"
#include "librun/backend.h"

namespace sg::test {

// What one result, or one input that the call writes, has to be.
struct Check {
  enum class Rule : uint8_t { exact, positions, close, number, range, finite, any };
  bool of_input = false;
  size_t index = 0;  // among the graph's outputs, or its inputs
  Rule rule = Rule::any;
  int axis = 0;              // positions: along which of the first input; is_turned: along which of the result
  bool is_turned = false;    // close: each line along an axis may be turned by a sign or a phase
  double bound = 0;          // close
  bool has_delta = false;    // close: the data holds how far PyTorch's own answer is from the right one
  double low = 0, high = 0;  // range; number: low
};

struct Vector {
  std::string_view op, dtype, origin;
  std::vector<Check> checks;
  std::string_view text;        // a job whose graph has one node, typed as tracing sees it
  std::string_view eager_text;  // the same, typed as a run has it; empty = no difference
  std::string_view data;        // inputs, then what the checks expect
};

// The vectors of an unpacked file; they point into `bytes`.
Result<std::vector<Vector>> read_vectors(std::string_view bytes);

enum class Fault : uint8_t { none, type, refused, value, no_kernel };  // no_kernel: of a backend that lacks the op

struct Outcome {
  Fault fault = Fault::none;
  std::string message;
};

struct Manner {
  int threads = 1;
  bool planned = false;       // in an arena, as sg-run does it; else each tensor in a block of its own
  bool column_order = false;  // results lie in column order where the op makes their memory, whatever its rule says
  BackendMaker* backends = nullptr;  // null = the processor
};

// Verifies, holds the types against the op's rule, runs and looks at the results.
Outcome run_vector(const Vector& vector, const Manner& manner);

}  // namespace sg::test
