// The Fourier transform of one length, in double, of several lines at once.
//
//     FourierPlan plan(n);
//     SplitLines x{re, im}, work{...};                  // n * lanes numbers, plan.work_length() * lanes numbers
//     SplitLines y = plan.run(x, work, lanes);          // y[k] = sum over j of x[j] * exp(-2 pi i j k / n)
//
// Element k of line l is at [k * lanes + l], so loops see the lines side by side; what a line becomes depends on no
// other line. The way back (exp(+...)) is the same with real and imaginary parts exchanged before and after:
// SplitLines::swapped.
// Lengths are split into their prime factors; one with a large factor becomes a convolution of a length that is a power
// of 2 (Bluestein's algorithm).
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

// exp(-2 pi i k / n), right to the last bit or nearly so. REQUIRES: 0 <= k < n.
std::complex<double> root_of_unity(int64_t k, int64_t n);
std::vector<std::complex<double>> first_roots(int64_t count, int64_t n);  // for k = 0 .. count - 1

class FourierPlan {
 public:
  explicit FourierPlan(int64_t n);

  int64_t length() const { return n_; }
  int64_t work_length() const { return convolution_ ? 2 * convolution_->length() : n_; }

  // What it is made of, for those that carry it out elsewhere: its factors in their order; none for a convolution.
  std::vector<int64_t> factors() const;
  // Of a convolution: its length (0: it is none); what numbers are multiplied with before and after it; its kernel's
  // transform, by the 1 / length that the way there and back leaves.
  int64_t convolution_length() const { return convolution_ ? convolution_->length() : 0; }
  const std::vector<std::complex<double>>& chirp() const { return chirp_; }
  const std::vector<std::complex<double>>& kernel() const { return kernel_; }

  // Both places are overwritten. The answer is in one of them.
  SplitLines run(SplitLines x, SplitLines work, int lanes) const;

 private:
  // One factor: lines of length `factor * parts` become `factor` interleaved ones of length `parts`.
  struct Stage {
    int64_t factor = 1, parts = 1;
    std::vector<std::complex<double>> turns;  // parts x (factor - 1): what part k of output r >= 1 is turned by
    std::vector<std::complex<double>> roots;  // of the factor, where it is odd
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
