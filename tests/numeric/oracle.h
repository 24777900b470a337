// Three answers to one question: ours, PyTorch's, and that of a run in double (the oracle).
//
// A float tensor of ours is right when its largest error against the oracle is at most twice PyTorch's own, plus one
// unit in the last place of its dtype at the tensor's largest magnitude. Integers and bools equal PyTorch's. NaNs and
// infinities stand where PyTorch has them.
#pragma once

#include <string>
#include <vector>

#include "libgraph/data/safetensors.h"

namespace sg::test {

struct OracleRow {
  std::string name;
  std::string problem;  // missing, other dtype or shape, NaN elsewhere; empty = compared
  DType dtype = DType::none;
  double our_error = 0, torch_error = 0, allowed = 0;  // largest absolute ones
  double scale = 0;                                    // largest magnitude of the oracle
  double difference = 0;                               // largest between ours and PyTorch's
  bool passed() const { return problem.empty() && our_error <= allowed; }
};

// A row for each tensor of `expected`, the worst (by error over what is allowed) first.
std::vector<OracleRow> compare_with_oracle(const TensorFile& ours, const TensorFile& expected,
                                           const TensorFile& oracle);

std::string oracle_table(const std::vector<OracleRow>& rows, bool all);

}  // namespace sg::test
