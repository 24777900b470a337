// The term that log-softmax subtracts from each element of a row (softmax.cc).
#pragma once

#include <cstdint>

namespace sg::cpu {

// log(sum of exp(x)) without overflow, summed in double.
double log_sum_of_exp(const float* x, int64_t n);
double log_sum_of_exp(const double* x, int64_t n);

// The same, with the same bits, for kSideLines lines side by side (side_lines.h): element i of line l is
// x[i * kSideLines + l]. `top`, each line's largest element, and `logs` have kSideLines elements.
void log_sums_of_exp(const float* x, int64_t n, float* top, double* logs);
void log_sums_of_exp(const double* x, int64_t n, double* top, double* logs);

}  // namespace sg::cpu
