// The Fourier transform of one length, in double, for several lines at once.
//
//     FourierPlan plan(n);
//     SplitLines x{re, im}, work{...};                  // n * lanes numbers, plan.work_length() * lanes numbers
//     SplitLines y = plan.run(x, work, lanes);          // y[k] = sum over j of x[j] * exp(-2 pi i j k / n)
//
// Element k of line l is at [k * lanes + l], so that loops vectorize over lines; lines do not affect each other. The
// inverse (exp(+...)) is the same with real and imaginary parts exchanged before and after: SplitLines::swapped.
// Lengths are split into prime factors; a length with a large factor becomes a convolution whose length is a power of 2
// (Bluestein's algorithm).
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace sg::cpu {

struct SplitLines {
  double* re = nullptr;
  double* im = nullptr;
  SplitLines swapped() const { return {im, re}; }
  SplitLines from(int64_t element) const { return {re + element, im + element}; }
};

// exp(-2 pi i k / n), accurate to about the last bit. REQUIRES: 0 <= k < n.
std::complex<double> root_of_unity(int64_t k, int64_t n);
std::vector<std::complex<double>> first_roots(int64_t count, int64_t n);  // for k = 0 .. count - 1

class FourierPlan {
 public:
  explicit FourierPlan(int64_t n);

  int64_t length() const { return n_; }
  int64_t work_length() const { return convolution_ ? 2 * convolution_->length() : n_; }

  // For other executors of the plan: its factors in order; none for a convolution.
  std::vector<int64_t> factors() const;
  // For a convolution: its length (0: it is none), the factors applied before and after it, and its kernel's transform,
  // including the 1 / length of the round trip.
  int64_t convolution_length() const { return convolution_ ? convolution_->length() : 0; }
  const std::vector<std::complex<double>>& chirp() const { return chirp_; }
  const std::vector<std::complex<double>>& kernel() const { return kernel_; }

  // Both arguments are overwritten. The result is in one of them.
  SplitLines run(SplitLines x, SplitLines work, int lanes) const;

 private:
  // One factor: lines of length `factor * parts` become `factor` interleaved lines of length `parts`.
  struct Stage {
    int64_t factor = 1, parts = 1;
    std::vector<std::complex<double>> turns;  // parts x (factor - 1): twiddle factor of part k of output r >= 1
    std::vector<std::complex<double>> roots;  // of the factor, if it is odd
  };

  void plan_stages(const std::vector<int64_t>& factors);
  void plan_convolution();
  SplitLines convolve(SplitLines x, SplitLines work, int lanes) const;

  int64_t n_;
  std::vector<Stage> stages_;
  std::vector<std::complex<double>> chirp_, kernel_;  // of a convolution
  std::unique_ptr<FourierPlan> convolution_;
};

}  // namespace sg::cpu
