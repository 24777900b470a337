// Fourier transforms along any axes, in double. Lengths are split into their prime factors; a length with a large one
// becomes a convolution of a length that is a power of 2 (Bluestein's algorithm).
#include <algorithm>
#include <cmath>
#include <complex>
#include <memory>
#include <vector>

#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

using Complex = std::complex<double>;
constexpr int64_t kLargestFactor = 31;
__extension__ typedef unsigned __int128 Wide128;

// sum_j x[j * step] * w^(j k) for k of n, w = exp(sign 2 pi i / n); `roots` holds the powers of the whole length.
class Transform {
 public:
  Transform(int64_t n, double sign) : n_(n), sign_(sign) {
    for (int64_t rest = n, p = 2; rest > 1; ++p)
      for (; rest > 1 && (rest % p == 0 || p * p > rest); rest /= factors_.back())
        factors_.push_back(rest % p == 0 ? p : rest);
    smooth_ = std::all_of(factors_.begin(), factors_.end(), [](int64_t p) { return p <= kLargestFactor; });
    if (smooth_) roots_ = roots_of(n, sign);
    else prepare_convolution();
  }

  void run(const Complex* from, Complex* to) const {
    if (smooth_) return split(from, 1, to, n_, 0);
    convolve(from, to);
  }

 private:
  static std::vector<Complex> roots_of(int64_t n, double sign) {
    std::vector<Complex> roots(static_cast<size_t>(n));
    for (int64_t k = 0; k < n; ++k)
      roots[static_cast<size_t>(k)] =
          std::polar(1.0, sign * 2 * M_PI * static_cast<double>(k) / static_cast<double>(n));
    return roots;
  }

  static Complex times(Complex a, Complex b) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }

  void split(const Complex* from, int64_t step, Complex* to, int64_t n, size_t level) const {
    if (n == 1) return void(*to = *from);
    int64_t p = factors_[level], m = n / p, stride = n_ / n;
    for (int64_t j = 0; j < p; ++j) split(from + j * step, step * p, to + j * m, m, level + 1);
    Complex parts[kLargestFactor];
    for (int64_t k = 0; k < m; ++k) {
      for (int64_t j = 0; j < p; ++j) parts[j] = times(to[j * m + k], roots_[static_cast<size_t>(j * k * stride)]);
      for (int64_t q = 0; q < p; ++q) {
        Complex sum = parts[0];
        for (int64_t j = 1; j < p; ++j) sum += times(parts[j], roots_[static_cast<size_t>(j * q % p * m * stride)]);
        to[q * m + k] = sum;
      }
    }
  }

  // w^(jk) = chirp[j] chirp[k] / chirp[k - j] with chirp[k] = w^(k^2 / 2)
  void prepare_convolution() {
    int64_t length = 1;
    while (length < 2 * n_ - 1) length *= 2;
    forward_ = std::make_unique<Transform>(length, -1.0), back_ = std::make_unique<Transform>(length, 1.0);
    chirp_.resize(static_cast<size_t>(n_));
    for (int64_t k = 0; k < n_; ++k) {
      auto turn = static_cast<double>(static_cast<Wide128>(k) * static_cast<Wide128>(k) % static_cast<Wide128>(2 * n_));
      chirp_[static_cast<size_t>(k)] = std::polar(1.0, sign_ * M_PI * turn / static_cast<double>(n_));
    }
    std::vector<Complex> kernel(static_cast<size_t>(length));
    for (int64_t k = 0; k < n_; ++k)
      kernel[static_cast<size_t>(k)] = kernel[static_cast<size_t>((length - k) % length)] =
          std::conj(chirp_[static_cast<size_t>(k)]);
    kernel_.resize(kernel.size());
    forward_->run(kernel.data(), kernel_.data());
  }

  void convolve(const Complex* from, Complex* to) const {
    std::vector<Complex> a(kernel_.size()), b(kernel_.size());
    for (size_t k = 0; k < chirp_.size(); ++k) a[k] = times(from[k], chirp_[k]);
    forward_->run(a.data(), b.data());
    for (size_t k = 0; k < b.size(); ++k) b[k] = times(b[k], kernel_[k]);
    back_->run(b.data(), a.data());
    auto length = static_cast<double>(a.size());
    for (size_t k = 0; k < chirp_.size(); ++k) to[k] = times(a[k], chirp_[k]) / length;
  }

  int64_t n_;
  double sign_;
  bool smooth_ = true;
  std::vector<int64_t> factors_;
  std::vector<Complex> roots_, chirp_, kernel_;
  std::unique_ptr<Transform> forward_, back_;
};

// Transforms contiguous c128 data along one axis, in place.
void transform_axis(KernelCall& call, const Tensor& data, int axis, double sign) {
  int64_t n = data.dim(axis), inner = 1;
  if (data.elements() == 0 || n == 1) return;
  for (int i = axis + 1; i < data.rank; ++i) inner *= data.dim(i);
  Transform transform(n, sign);
  auto* x = reinterpret_cast<Complex*>(data.data);
  for_rows(call, data.elements() / n, n * 16, [&](int64_t row, int) {
    std::vector<Complex> line(static_cast<size_t>(n)), out(line);
    Complex* start = x + row / inner * n * inner + row % inner;
    for (int64_t k = 0; k < n; ++k) line[static_cast<size_t>(k)] = start[k * inner];
    transform.run(line.data(), out.data());
    for (int64_t k = 0; k < n; ++k) start[k * inner] = out[static_cast<size_t>(k)];
  });
}

// 1, 1 / sqrt(n) or 1 / n, n being the number of elements that are transformed together.
double scale_of(KernelCall& call, const Tensor& whole, std::span<const int> axes) {
  double n = 1;
  for (int axis : axes) n *= static_cast<double>(whole.dim(axis));
  int64_t normalization = call.integer("normalization");
  return normalization == 0 || n == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(n) : 1 / n;
}

void scale(KernelCall& call, const Tensor& data, double factor) {  // of c128
  if (factor == 1) return;
  auto* x = reinterpret_cast<double*>(data.data);
  call.team().parallel_for(2 * data.elements(), kPieceElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] *= factor;
  });
}

Tensor working_copy(KernelCall& call, const Tensor& t) {
  Tensor data = call.scratch().tensor(DType::c128, t.sizes());
  copy(call, data, t);
  return data;
}

Status fft_c2c(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  if (!same_shape(self, call.result())) return call.fail("its operands do not fit each other");
  Tensor data = working_copy(call, self);
  std::vector<int> axes = call.axes("dim", self.rank);
  for (int axis : axes) transform_axis(call, data, axis, call.flag("forward") ? -1 : 1);
  scale(call, data, scale_of(call, self, axes));
  copy(call, call.result(), data);
  return ok_status();
}

Status fft_r2c(KernelCall& call) {
  const Tensor &self = call.tensor("self"), &out = call.result();
  Tensor data = working_copy(call, self);
  std::vector<int> axes = call.axes("dim", self.rank);
  if (axes.empty()) return call.fail("needs a dimension to transform");
  for (int axis : axes) transform_axis(call, data, axis, -1);
  scale(call, data, scale_of(call, self, axes));
  auto last = static_cast<size_t>(axes.back());
  if (out.shape[last] > data.shape[last]) return call.fail("its operands do not fit each other");
  data.shape[last] = out.shape[last];  // one half is the other's conjugate
  if (!same_shape(data, out)) return call.fail("its operands do not fit each other");
  copy(call, out, data);
  return ok_status();
}

// The half that is given and its conjugate make the line; what is imaginary where both are one does not count.
Status fft_c2r(KernelCall& call) {
  const Tensor &self = call.tensor("self"), &out = call.result();
  Tensor data = working_copy(call, self);
  std::vector<int> axes = call.axes("dim", self.rank);
  if (axes.empty()) return call.fail("needs a dimension to transform");
  int last = axes.back();
  int64_t n = out.dim(last), half = self.dim(last);
  Tensor shaped = out;
  shaped.shape[static_cast<size_t>(last)] = half;
  if (half != n / 2 + 1 || !same_shape(shaped, self)) return call.fail("its operands do not fit each other");
  for (size_t k = 0; k + 1 < axes.size(); ++k) transform_axis(call, data, axes[k], 1);
  Tensor whole = call.scratch().tensor(DType::c128, out.sizes());
  int64_t inner = 1;
  for (int i = last + 1; i < out.rank; ++i) inner *= out.dim(i);
  auto* from = reinterpret_cast<const Complex*>(data.data);
  auto* to = reinterpret_cast<Complex*>(whole.data);
  for_rows(call, n == 0 ? 0 : out.elements() / n, n, [&](int64_t row, int) {
    const Complex* x = from + row / inner * half * inner + row % inner;
    Complex* y = to + row / inner * n * inner + row % inner;
    for (int64_t k = 0; k < half; ++k) y[k * inner] = x[k * inner];
    y[0] = y[0].real();
    if (n % 2 == 0) y[(half - 1) * inner] = y[(half - 1) * inner].real();
    for (int64_t k = half; k < n; ++k) y[k * inner] = std::conj(y[(n - k) * inner]);
  });
  transform_axis(call, whole, last, 1);
  scale(call, whole, scale_of(call, out, axes));
  Tensor real = whole;  // every other number
  real.dtype = DType::f64;
  for (int i = 0; i < real.rank; ++i) real.stride[static_cast<size_t>(i)] *= 2;
  copy(call, out, real);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten._fft_c2c.default", fft_c2c},
    {"aten._fft_r2c.default", fft_r2c},
    {"aten._fft_c2r.default", fft_c2r},
};

}  // namespace

std::span<const KernelRow> fourier_kernels() { return kRows; }

}  // namespace sg::cpu
