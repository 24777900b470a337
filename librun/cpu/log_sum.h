// The term that log-softmax subtracts from each element of a row (softmax.cc).
#pragma once

#include <cstdint>

namespace sg::cpu {

// log(sum of exp(x)) without overflow, summed in double.
double log_sum_of_exp(const float* x, int64_t n);
double log_sum_of_exp(const double* x, int64_t n);

}  // namespace sg::cpu
