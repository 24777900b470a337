// Calls of pointwise ops with PyTorch's results, from tests/data/pointwise_cases.txt.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "librun/kernel.h"

namespace sg::test {

struct HeldTensor {
  std::vector<std::byte> memory;
  Tensor tensor;
};

struct PointwiseCase {
  std::string line, op;
  std::map<std::string, ParamValue> arguments;
  HeldTensor expected;
  std::vector<std::unique_ptr<HeldTensor>> held;  // of the arguments
  std::vector<std::unique_ptr<std::string>> texts;
};

// The argument that the op writes in place; empty if there is none.
std::string written_argument(const std::string& op);

// All cases, read anew. $SG_POINTWISE_CASES names another file.
std::vector<PointwiseCase> read_pointwise_cases();

}  // namespace sg::test
