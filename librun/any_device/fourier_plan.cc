#include "librun/any_device/fourier_plan.h"

#include <algorithm>
#include <cmath>

#include "librun/cpu/isa.h"

namespace sg::cpu {
namespace {

using Complex = std::complex<double>;
constexpr int64_t kLargestFactor = 31;
constexpr int kBlock = 8;  // elements per iteration of loops with a fixed length
__extension__ typedef unsigned __int128 Wide128;

// The input and output of a stage: `span` adjacent elements are treated alike (lines, and what earlier stages
// interleaved).
struct Pass {
  const double *from_re, *from_im;
  double *to_re, *to_im;
  const Complex *turns, *roots;
  int64_t factor, parts, span;
};

// (re + i im) * turn, stored at `to`
SG_INLINE void turn_by(Complex turn, double re, double im, double* to_re, double* to_im) {
  *to_re = re * turn.real() - im * turn.imag();
  *to_im = re * turn.imag() + im * turn.real();
}

// Calls fn(i) for `span` elements, first in whole blocks, so that the compiler knows the length of inner loops.
template <class Fn>
SG_INLINE void for_blocks(int64_t span, const Fn& fn) {
  int64_t i = 0;
  for (; i + kBlock <= span; i += kBlock) {
#pragma GCC ivdep
    for (int l = 0; l < kBlock; ++l) fn(i + l);
  }
  for (; i < span; ++i) fn(i);
}

SG_CLONES void pass_by_2(const Pass& pass) {
  const int64_t span = pass.span, half = pass.parts * span;
  for (int64_t k = 0; k < pass.parts; ++k) {
    const Complex turn = pass.turns[k];
    const double *xr = pass.from_re + k * span, *xi = pass.from_im + k * span;
    double *yr = pass.to_re + 2 * k * span, *yi = pass.to_im + 2 * k * span;
    for_blocks(
        span, [=](int64_t i) __attribute__((always_inline)) {
          double ar = xr[i], ai = xi[i], br = xr[i + half], bi = xi[i + half];
          yr[i] = ar + br, yi[i] = ai + bi;
          turn_by(turn, ar - br, ai - bi, yr + i + span, yi + i + span);
        });
  }
}

SG_CLONES void pass_by_4(const Pass& pass) {
  const int64_t span = pass.span, quarter = pass.parts * span;
  for (int64_t k = 0; k < pass.parts; ++k) {
    const Complex turn1 = pass.turns[3 * k], turn2 = pass.turns[3 * k + 1], turn3 = pass.turns[3 * k + 2];
    const double *xr = pass.from_re + k * span, *xi = pass.from_im + k * span;
    double *yr = pass.to_re + 4 * k * span, *yi = pass.to_im + 4 * k * span;
    for_blocks(
        span, [=](int64_t i) __attribute__((always_inline)) {
          double ar = xr[i] + xr[i + 2 * quarter], ai = xi[i] + xi[i + 2 * quarter];
          double br = xr[i] - xr[i + 2 * quarter], bi = xi[i] - xi[i + 2 * quarter];
          double cr = xr[i + quarter] + xr[i + 3 * quarter], ci = xi[i + quarter] + xi[i + 3 * quarter];
          double dr = xr[i + quarter] - xr[i + 3 * quarter], di = xi[i + quarter] - xi[i + 3 * quarter];
          yr[i] = ar + cr, yi[i] = ai + ci;
          turn_by(turn1, br + di, bi - dr, yr + i + span, yi + i + span);
          turn_by(turn2, ar - cr, ai - ci, yr + i + 2 * span, yi + i + 2 * span);
          turn_by(turn3, br - di, bi + dr, yr + i + 3 * span, yi + i + 3 * span);
        });
  }
}

// An odd factor p: elements j and p - j are multiplied by a root and its conjugate, so the outputs r and p - r only
// need their sums and differences.
SG_CLONES void pass_by_odd(const Pass& pass) {
  const int64_t p = pass.factor, span = pass.span, step = pass.parts * span, pairs = p / 2;
  double sum_re[kLargestFactor / 2][kBlock], sum_im[kLargestFactor / 2][kBlock];
  double gap_re[kLargestFactor / 2][kBlock], gap_im[kLargestFactor / 2][kBlock];
  for (int64_t k = 0; k < pass.parts; ++k) {
    const Complex* turns = pass.turns + (p - 1) * k;
    for (int64_t block = 0; block < span; block += kBlock) {
      const int64_t at = k * span + block;
      const int count = static_cast<int>(std::min<int64_t>(kBlock, span - block));
      const double *xr = pass.from_re + at, *xi = pass.from_im + at;
      double *yr = pass.to_re + k * p * span + block, *yi = pass.to_im + k * p * span + block;
      double total_re[kBlock], total_im[kBlock];
      for (int l = 0; l < count; ++l) total_re[l] = xr[l], total_im[l] = xi[l];
      for (int64_t j = 1; j <= pairs; ++j) {
        const double *ar = xr + j * step, *ai = xi + j * step, *br = xr + (p - j) * step, *bi = xi + (p - j) * step;
#pragma GCC ivdep
        for (int l = 0; l < count; ++l) {
          sum_re[j - 1][l] = ar[l] + br[l], sum_im[j - 1][l] = ai[l] + bi[l];
          gap_re[j - 1][l] = ar[l] - br[l], gap_im[j - 1][l] = ai[l] - bi[l];
          total_re[l] += sum_re[j - 1][l], total_im[l] += sum_im[j - 1][l];
        }
      }
      for (int l = 0; l < count; ++l) yr[l] = total_re[l], yi[l] = total_im[l];
      for (int64_t r = 1; r <= pairs; ++r) {
        double even_re[kBlock], even_im[kBlock], odd_re[kBlock] = {}, odd_im[kBlock] = {};
        for (int l = 0; l < count; ++l) even_re[l] = xr[l], even_im[l] = xi[l];
        for (int64_t j = 1; j <= pairs; ++j) {
          const double c = pass.roots[j * r % p].real(), s = pass.roots[j * r % p].imag();
          for (int l = 0; l < count; ++l) {
            even_re[l] += sum_re[j - 1][l] * c, even_im[l] += sum_im[j - 1][l] * c;
            odd_re[l] += gap_re[j - 1][l] * s, odd_im[l] += gap_im[j - 1][l] * s;
          }
        }
        double *ur = yr + r * span, *ui = yi + r * span, *vr = yr + (p - r) * span, *vi = yi + (p - r) * span;
        const Complex turn_u = turns[r - 1], turn_v = turns[p - r - 1];
#pragma GCC ivdep
        for (int l = 0; l < count; ++l) {
          turn_by(turn_u, even_re[l] - odd_im[l], even_im[l] + odd_re[l], ur + l, ui + l);
          turn_by(turn_v, even_re[l] + odd_im[l], even_im[l] - odd_re[l], vr + l, vi + l);
        }
      }
    }
  }
}

// to = from * by, with by[k] for all `lanes` elements k; elements beyond stay unchanged.
SG_CLONES void multiply(SplitLines from, const Complex* by, int64_t n, int lanes, SplitLines to) {
  for (int64_t k = 0; k < n; ++k) {
    const Complex turn = by[k];
    const double *xr = from.re + k * lanes, *xi = from.im + k * lanes;
    double *yr = to.re + k * lanes, *yi = to.im + k * lanes;
    for_blocks(
        lanes, [=](int64_t i) __attribute__((always_inline)) { turn_by(turn, xr[i], xi[i], yr + i, yi + i); });
  }
}

// Fours, then the remaining factors in ascending order.
std::vector<int64_t> factors_of(int64_t n) {
  std::vector<int64_t> factors;
  for (; n % 4 == 0; n /= 4) factors.push_back(4);
  for (int64_t p = 2; n > 1; ++p)
    for (; n > 1 && (n % p == 0 || p * p > n); n /= factors.back()) factors.push_back(n % p == 0 ? p : n);
  return factors;
}

}  // namespace

// The angle is reduced below an eighth of a turn, where sine and cosine are accurate.
Complex root_of_unity(int64_t k, int64_t n) {
  int64_t eighths = 8 * k;  // in units of 1/(8 n) of a turn, like n, 2 n and 4 n below
  const bool below = eighths > 4 * n;
  if (below) eighths = 8 * n - eighths;
  const bool left = eighths > 2 * n;
  if (left) eighths = 4 * n - eighths;
  const bool steep = eighths > n;
  if (steep) eighths = 2 * n - eighths;
  const double angle = M_PI * static_cast<double>(eighths) / static_cast<double>(4 * n);
  double re = std::cos(angle), im = std::sin(angle);
  if (steep) std::swap(re, im);
  return {left ? -re : re, below ? im : -im};
}

std::vector<Complex> first_roots(int64_t count, int64_t n) {
  std::vector<Complex> roots;
  for (int64_t k = 0; k < count; ++k) roots.push_back(root_of_unity(k, n));
  return roots;
}

FourierPlan::FourierPlan(int64_t n) : n_(n) {
  std::vector<int64_t> factors = factors_of(n);
  if (std::all_of(factors.begin(), factors.end(), [](int64_t p) { return p <= kLargestFactor; })) plan_stages(factors);
  else plan_convolution();
}

void FourierPlan::plan_stages(const std::vector<int64_t>& factors) {
  const std::vector<Complex> roots = first_roots(n_, n_);
  int64_t rest = n_;
  for (int64_t factor : factors) {
    Stage stage{factor, rest / factor, {}, factor % 2 == 0 ? std::vector<Complex>() : first_roots(factor, factor)};
    for (int64_t k = 0; k < stage.parts; ++k)
      for (int64_t r = 1; r < factor; ++r) stage.turns.push_back(roots[static_cast<size_t>(k * r * (n_ / rest))]);
    rest = stage.parts;
    stages_.push_back(std::move(stage));
  }
}

// w^(jk) = chirp[j] chirp[k] / chirp[k - j] with chirp[k] = w^(k^2 / 2)
void FourierPlan::plan_convolution() {
  int64_t length = 1;
  while (length < 2 * n_ - 1) length *= 2;
  convolution_ = std::make_unique<FourierPlan>(length);
  for (int64_t k = 0; k < n_; ++k) {
    auto half_turns = static_cast<Wide128>(k) * static_cast<Wide128>(k) % static_cast<Wide128>(2 * n_);
    chirp_.push_back(root_of_unity(static_cast<int64_t>(half_turns), 2 * n_));
  }
  // The kernel's transform, including the 1 / length of the round trip.
  const auto size = static_cast<size_t>(length);
  std::vector<double> re(size), im(size), work_re(size), work_im(size);
  for (int64_t k = 0; k < n_; ++k)
    for (auto at : {static_cast<size_t>(k), static_cast<size_t>((length - k) % length)})
      re[at] = chirp_[static_cast<size_t>(k)].real() / static_cast<double>(length),
      im[at] = -chirp_[static_cast<size_t>(k)].imag() / static_cast<double>(length);
  SplitLines kernel = convolution_->run({re.data(), im.data()}, {work_re.data(), work_im.data()}, 1);
  for (size_t k = 0; k < size; ++k) kernel_.emplace_back(kernel.re[k], kernel.im[k]);
}

std::vector<int64_t> FourierPlan::factors() const {
  std::vector<int64_t> out;
  for (const Stage& stage : stages_) out.push_back(stage.factor);
  return out;
}

SplitLines FourierPlan::run(SplitLines x, SplitLines work, int lanes) const {
  if (convolution_) return convolve(x, work, lanes);
  int64_t span = lanes;
  for (const Stage& stage : stages_) {
    const Pass pass{x.re,         x.im,        work.re, work.im, stage.turns.data(), stage.roots.data(),
                    stage.factor, stage.parts, span};
    if (stage.factor == 4) pass_by_4(pass);
    else if (stage.factor == 2) pass_by_2(pass);
    else pass_by_odd(pass);
    std::swap(x, work);
    span *= stage.factor;
  }
  return x;
}

SplitLines FourierPlan::convolve(SplitLines x, SplitLines work, int lanes) const {
  const int64_t length = convolution_->length();
  SplitLines a = work, b = work.from(length * lanes);
  multiply(x, chirp_.data(), n_, lanes, a);
  std::fill(a.re + n_ * lanes, a.re + length * lanes, 0.0);
  std::fill(a.im + n_ * lanes, a.im + length * lanes, 0.0);
  SplitLines there = convolution_->run(a, b, lanes);
  multiply(there, kernel_.data(), length, lanes, there);
  SplitLines other = there.re == a.re ? b : a;
  SplitLines back = convolution_->run(there.swapped(), other.swapped(), lanes).swapped();
  multiply(back, chirp_.data(), n_, lanes, x);
  return x;
}

}  // namespace sg::cpu
