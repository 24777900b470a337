#include "librun/cpu/attention_rows.h"

#include <limits>

#include "librun/cpu/isa.h"
#include "librun/work/exp_float.h"
#include "librun/work/math.h"

namespace sg::cpu {
namespace {

constexpr int64_t kLanes = 16;  // parallel partial results: the order of a sum is the same on every machine

template <class T, class Term>
SG_INLINE T sum_lanes(int64_t n, const Term& term) {
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  for (int64_t l = 0; i + l < n; ++l) lanes[l] += term(i + l);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

template <class T>
SG_INLINE T max_of(const T* s, int64_t n) {
  constexpr int64_t kMaxLanes = 2 * kLanes;  // more than compilers unroll, so that they vectorize instead
  T lanes[kMaxLanes];
  for (T& lane : lanes) lane = static_cast<T>(-math::infinity());
  int64_t i = 0;
  for (; i + kMaxLanes <= n; i += kMaxLanes)
    for (int64_t l = 0; l < kMaxLanes; ++l) lanes[l] = s[i + l] > lanes[l] ? s[i + l] : lanes[l];
  for (; i < n; ++i) lanes[0] = s[i] > lanes[0] ? s[i] : lanes[0];
  for (int64_t half = kMaxLanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half; ++l) lanes[l] = lanes[l + half] > lanes[l] ? lanes[l + half] : lanes[l];
  return lanes[0];
}

template <class T>
SG_INLINE T sum_of(const T* s, int64_t n) {
  return sum_lanes<T>(
      n, [&](int64_t i) __attribute__((always_inline)) { return s[i]; });
}

SG_INLINE double exp_of(double* s, int64_t n, double scale, double shift) {
  for (int64_t i = 0; i < n; ++i) s[i] = math::Wide<double>::exp(s[i] * scale - shift);
  return sum_of(s, n);
}

// In float: subtracting first leaves differences whose rounding error matters less the smaller their exponential is.
// Rounding the products with `scale` would be the largest error.
SG_INLINE float exp_of(float* s, int64_t n, double scale, double shift) {
  const double zero = shift / scale;  // where the exponent is 0
  const auto high = static_cast<float>(zero), low = static_cast<float>(zero - static_cast<double>(high)),
             slope = static_cast<float>(scale);
  if (math::abs(high) <= std::numeric_limits<float>::max())
    for (int64_t i = 0; i < n; ++i) s[i] = math::exp_float(((s[i] - high) - low) * slope);
  else
    for (int64_t i = 0; i < n; ++i)
      s[i] = static_cast<float>(math::Wide<float>::exp(static_cast<double>(s[i]) * scale - shift));
  return sum_of(s, n);
}

constexpr double kLargeLog = 1024;  // rounded to float, it is 2^-15 off

SG_INLINE double weights_of(double* s, int64_t n, double scale, StoredLog log) {
  return exp_of(s, n, scale, log.value / log.log_scale);
}

SG_INLINE float weights_of(float* s, int64_t n, double scale, StoredLog log) {
  const double size = math::abs(log.value);
  if (!(size > kLargeLog) || size > std::numeric_limits<float>::max())
    return exp_of(s, n, scale, log.value / log.log_scale);
  const double slope = scale * log.log_scale;
  const auto zero = static_cast<float>(log.value), unit = static_cast<float>(1 / log.log_scale);
  for (int64_t i = 0; i < n; ++i)
    s[i] = math::exp_float((static_cast<float>(static_cast<double>(s[i]) * slope) - zero) * unit);
  return sum_of(s, n);
}

}  // namespace

SG_CLONES float max_of_scores(const float* s, int64_t n) { return max_of(s, n); }
SG_CLONES double max_of_scores(const double* s, int64_t n) { return max_of(s, n); }
SG_CLONES float exp_row(float* s, int64_t n, double scale, double shift) { return exp_of(s, n, scale, shift); }
SG_CLONES double exp_row(double* s, int64_t n, double scale, double shift) { return exp_of(s, n, scale, shift); }

SG_CLONES float weights_row(float* s, int64_t n, double scale, StoredLog log) { return weights_of(s, n, scale, log); }
SG_CLONES double weights_row(double* s, int64_t n, double scale, StoredLog log) { return weights_of(s, n, scale, log); }

SG_CLONES void scale_row(float* s, int64_t n, float by) {
  for (int64_t i = 0; i < n; ++i) s[i] *= by;
}
SG_CLONES void scale_row(double* s, int64_t n, double by) {
  for (int64_t i = 0; i < n; ++i) s[i] *= by;
}

SG_CLONES void softmax_grad_row(float* grad, const float* p, int64_t n, float delta) {
  for (int64_t i = 0; i < n; ++i) grad[i] = p[i] * (grad[i] - delta);
}
SG_CLONES void softmax_grad_row(double* grad, const double* p, int64_t n, double delta) {
  for (int64_t i = 0; i < n; ++i) grad[i] = p[i] * (grad[i] - delta);
}

SG_CLONES float dot_row(const float* a, const float* b, int64_t n) {
  return sum_lanes<float>(
      n, [&](int64_t i) __attribute__((always_inline)) { return a[i] * b[i]; });
}
SG_CLONES double dot_row(const double* a, const double* b, int64_t n) {
  return sum_lanes<double>(
      n, [&](int64_t i) __attribute__((always_inline)) { return a[i] * b[i]; });
}

}  // namespace sg::cpu
