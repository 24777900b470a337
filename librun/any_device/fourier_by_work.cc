#include "librun/any_device/fourier_by_work.h"

#include <algorithm>
#include <complex>
#include <utility>
#include <vector>

#include "librun/any_device/fourier_plan.h"
#include "librun/cpu/fill.h"
#include "librun/work/fourier.h"
#include "librun/work/run.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

using work::Pair;

// The numbers of a plan; conjugated for the inverse.
std::vector<Pair> pairs_of(const std::vector<std::complex<double>>& numbers, bool forward) {
  std::vector<Pair> out;
  for (const std::complex<double>& z : numbers) out.push_back({z.real(), forward ? z.imag() : -z.imag()});
  return out;
}

// Complex lines in memory of this call.
struct Lines {
  Tensor t;  // c128, contiguous, with lines along its last axis
  Pair* data() const { return t.as<Pair>(); }
  int64_t length() const { return t.dim(-1); }
};

Lines lines_like(KernelCall& call, const Tensor& t, int64_t length) {
  std::vector<int64_t> shape(t.sizes().begin(), t.sizes().end());
  shape.back() = length;
  return {workspace(call, DType::c128, shape)};
}

Lines read_lines(KernelCall& call, const Tensor& from, int axis) {
  const Tensor last = axis_last(from, axis);
  const Lines out = lines_like(call, last, last.dim(-1));
  copy(call, out.t, last);
  return out;
}

// Writes the beginning of each line, as much as `to` has room for; only the real parts if it is real.
void write_lines(KernelCall& call, const Tensor& to, int axis, Lines x, double scale) {
  if (scale != 1) for_each(call, x.t.elements(), kPieceElements, work::ScaleNumbers{x.data(), scale});
  const Tensor last = axis_last(to, axis);
  x.t.shape[static_cast<size_t>(x.t.rank - 1)] = last.dim(-1);
  copy(call, last, x.t);
}

Lines turned(KernelCall& call, const Lines& x, const std::vector<Pair>& by, int64_t length) {
  const Lines out = lines_like(call, x.t, length);
  const Pair* factors = table(call, std::span<const Pair>(by));
  const int64_t kept = std::min({x.length(), length, static_cast<int64_t>(by.size())});
  for_each(call, out.t.elements(), kPieceElements,
           work::TurnLines{x.data(), out.data(), factors, x.length(), length, kept});
  return out;
}

Lines by_factors(KernelCall& call, Lines x, const FourierPlan& plan, bool forward) {
  const int64_t n = x.length();
  const std::vector<Pair> roots = pairs_of(first_roots(n, n), forward);
  const Pair* held = table(call, std::span<const Pair>(roots));
  Lines other = lines_like(call, x.t, n);
  int64_t span = 1;
  for (int64_t factor : plan.factors()) {
    const work::FourierStage stage{x.data(), other.data(), held, n, factor, span};
    for_each(call, x.t.elements(), kPieceElements / factor, stage);
    std::swap(x, other);
    span *= factor;
  }
  return x;
}

// A length that is a convolution is transformed there and back with another length, which has small factors.
Lines transformed(KernelCall& call, const Lines& x, bool forward) {
  const FourierPlan plan(x.length());
  if (plan.convolution_length() == 0) return by_factors(call, x, plan, forward);
  const FourierPlan inner(plan.convolution_length());
  const std::vector<Pair> chirp = pairs_of(plan.chirp(), forward), kernel = pairs_of(plan.kernel(), forward);
  const Lines there = by_factors(call, turned(call, x, chirp, inner.length()), inner, forward);
  const Lines back = by_factors(call, turned(call, there, kernel, inner.length()), inner, !forward);
  return turned(call, back, chirp, x.length());
}

}  // namespace

void complex_axis_by_work(KernelCall& call, const Tensor& from, const Tensor& to, int axis, bool forward,
                          double scale) {
  if (to.elements() == 0) return;
  write_lines(call, to, axis, transformed(call, read_lines(call, from, axis), forward), scale);
}

void real_to_complex_by_work(KernelCall& call, const Tensor& from, const Tensor& to, int axis, double scale) {
  complex_axis_by_work(call, from, to, axis, true, scale);
}

void complex_to_real_by_work(KernelCall& call, const Tensor& from, const Tensor& to, int axis, double scale) {
  if (to.elements() == 0) return;
  const Lines half = read_lines(call, from, axis), whole = lines_like(call, half.t, to.dim(axis));
  for_each(call, whole.t.elements(), kPieceElements,
           work::MirrorLines{half.data(), whole.data(), half.length(), whole.length()});
  write_lines(call, to, axis, transformed(call, whole, false), scale);
}

}  // namespace sg::cpu
