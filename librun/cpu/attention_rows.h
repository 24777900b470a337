// Loops over one row of scores, compiled for every instruction set with the same bits.
#pragma once

#include <cstdint>

namespace sg::cpu {

// The largest element, ignoring NaN; -infinity for an empty row.
float max_of_scores(const float* s, int64_t n);
double max_of_scores(const double* s, int64_t n);

// s = exp(scale * s - shift); returns their sum.
float exp_row(float* s, int64_t n, double scale, double shift);
double exp_row(double* s, int64_t n, double scale, double shift);

// A row's logsumexp as the forward has stored it, times log_scale and rounded.
struct StoredLog {
  double value, log_scale;
};

// s = exp(scale * s - log), not above 1 where s is one of the scores that `log` is the logarithm of. Large products are
// rounded as it was: else its rounding, a large difference of exponents, would be a large factor.
float weights_row(float* s, int64_t n, double scale, StoredLog log);
double weights_row(double* s, int64_t n, double scale, StoredLog log);

// s *= by
void scale_row(float* s, int64_t n, float by);
void scale_row(double* s, int64_t n, double by);

// grad = p * (grad - delta)
void softmax_grad_row(float* grad, const float* p, int64_t n, float delta);
void softmax_grad_row(double* grad, const double* p, int64_t n, double delta);

// The sum of a * b.
float dot_row(const float* a, const float* b, int64_t n);
double dot_row(const double* a, const double* b, int64_t n);

}  // namespace sg::cpu
