// Fourier transforms along any axes, in double: lines are read into per-thread buffers, several side by side,
// transformed (fourier_plan.h) and written, one axis after the other. A real line of even length is computed as a
// complex one of half the length.
#include <algorithm>
#include <cmath>
#include <vector>

#include "librun/any_device/fourier_by_work.h"
#include "librun/any_device/fourier_plan.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"
#include "librun/work/run.h"

namespace sg::cpu {
namespace {

using Complex = std::complex<double>;
constexpr int kMostLanes = 8;                 // lines transformed together
constexpr int64_t kBufferElements = 1 << 14;  // limit of elements in a buffer, if lines are long

// A tensor as lines along one axis, in row-major order of its other axes.
class Lines {
 public:
  Lines(const Tensor& t, int axis)
      : data(t.data), dtype(t.dtype), conjugate(t.conjugate), step(t.step(axis)), rest_(drop_axis(t, axis)) {}
  int64_t count() const { return rest_.elements(); }
  void starts(int64_t first, int lanes, int64_t* to) const;

  std::byte* data;
  DType dtype;
  bool conjugate;
  int64_t step;  // stride along a line

 private:
  Tensor rest_;
};

void Lines::starts(int64_t first, int lanes, int64_t* to) const {
  for (int l = 0; l < lanes; ++l) {
    int64_t line = first + l;
    to[l] = 0;
    for (int i = rest_.rank - 1; i >= 0; --i) {
      to[l] += line % rest_.dim(i) * rest_.step(i);
      line /= rest_.dim(i);
    }
  }
}

template <class Fn>  // fn.template operator()<T>(), T being the type of a number or of its two parts
void visit_parts(DType t, const Fn& fn) {
  if (t == DType::f64 || t == DType::c128) fn.template operator()<double>();
  else fn.template operator()<float>();
}

// A group of lines being read from or written to a tensor.
struct Group {
  const Lines& lines;
  int64_t start[kMostLanes];
  int lanes;

  Group(const Lines& of, int64_t first, int n) : lines(of), lanes(n) { lines.starts(first, n, start); }

  void read_complex(int64_t n, SplitLines x) const {
    const double sign = lines.conjugate ? -1 : 1;
    visit_parts(lines.dtype, [&]<class T>() {
      const T* data = reinterpret_cast<const T*>(lines.data);
      for (int64_t k = 0; k < n; ++k)
        for (int l = 0; l < lanes; ++l) {
          const T* from = data + 2 * (start[l] + k * lines.step);
          x.re[k * lanes + l] = from[0], x.im[k * lanes + l] = sign * from[1];
        }
    });
  }

  void write_complex(int64_t n, SplitLines x, double scale) const {
    visit_parts(lines.dtype, [&]<class T>() {
      T* data = reinterpret_cast<T*>(lines.data);
      for (int64_t k = 0; k < n; ++k)
        for (int l = 0; l < lanes; ++l) {
          T* to = data + 2 * (start[l] + k * lines.step);
          to[0] = static_cast<T>(x.re[k * lanes + l] * scale), to[1] = static_cast<T>(x.im[k * lanes + l] * scale);
        }
    });
  }

  // Reads every `stride`-th real element, starting with `first`.
  void read_real(int64_t first, int64_t stride, int64_t n, double* x) const {
    visit_parts(lines.dtype, [&]<class T>() {
      const T* data = reinterpret_cast<const T*>(lines.data) + first * lines.step;
      for (int64_t k = 0; k < n; ++k)
        for (int l = 0; l < lanes; ++l) x[k * lanes + l] = data[start[l] + k * stride * lines.step];
    });
  }

  void write_real(int64_t first, int64_t stride, int64_t n, const double* x, double scale) const {
    visit_parts(lines.dtype, [&]<class T>() {
      T* data = reinterpret_cast<T*>(lines.data) + first * lines.step;
      for (int64_t k = 0; k < n; ++k)
        for (int l = 0; l < lanes; ++l)
          data[start[l] + k * stride * lines.step] = static_cast<T>(x[k * lanes + l] * scale);
    });
  }
};

// Calls fn(from, to, x, work) for groups of lines of two tensors, with two buffers of `room` elements per line.
template <class Fn>
void for_groups(KernelCall& call, const Lines& from, const Lines& to, int64_t room, const Fn& fn) {
  const int64_t count = from.count(), threads = call.team().size();
  const int64_t most = std::clamp<int64_t>(kBufferElements / room, 1, kMostLanes);
  const int64_t lanes = std::clamp<int64_t>((count + threads - 1) / threads, 1, most), size = room * lanes;
  auto* buffers = call.scratch().take<double>(threads * 4 * size);
  for_rows(call, (count + lanes - 1) / lanes, size, [&](int64_t row, int thread) {
    const int64_t first = row * lanes;
    const int n = static_cast<int>(std::min(lanes, count - first));
    double* buffer = buffers + thread * 4 * size;
    const SplitLines x{buffer, buffer + size}, work{buffer + 2 * size, buffer + 3 * size};
    fn(Group(from, first, n), Group(to, first, n), x, work);
  });
}

void complex_axis(KernelCall& call, const Tensor& from, const Tensor& to, int axis, bool forward, double scale) {
  if (on_device(call)) return complex_axis_by_work(call, from, to, axis, forward, scale);
  if (to.elements() == 0) return;
  const int64_t n = from.dim(axis);
  const FourierPlan plan(n);
  for_groups(call, Lines(from, axis), Lines(to, axis), std::max(n, plan.work_length()),
             [&](const Group& in, const Group& out, SplitLines x, SplitLines work) {
               in.read_complex(n, x);
               const SplitLines y =
                   forward ? plan.run(x, work, in.lanes) : plan.run(x.swapped(), work.swapped(), in.lanes).swapped();
               out.write_complex(n, y, scale);
             });
}

// A real line x of length 2 h, taken as the complex line z[j] = x[2 j] + i x[2 j + 1], has the transform
//     X[k] = (Z[k] + conj Z[h - k]) / 2 + w^k (Z[k] - conj Z[h - k]) / 2 i,  w = exp(-2 pi i / 2 h),  k = 0 .. h.
SG_CLONES void untangle(SplitLines z, const Complex* roots, int64_t h, int lanes, SplitLines x) {
  for (int64_t k = 0; k <= h; ++k) {
    const int64_t a = k % h * lanes, b = (h - k) % h * lanes, at = k * lanes;
    const double c = roots[k].real(), s = roots[k].imag();
#pragma GCC ivdep
    for (int l = 0; l < lanes; ++l) {
      double even_re = z.re[a + l] + z.re[b + l], even_im = z.im[a + l] - z.im[b + l];
      double odd_re = z.im[a + l] + z.im[b + l], odd_im = z.re[b + l] - z.re[a + l];
      x.re[at + l] = 0.5 * (even_re + (odd_re * c - odd_im * s));
      x.im[at + l] = 0.5 * (even_im + (odd_re * s + odd_im * c));
    }
  }
}

// The inverse, without the 1 / 2 h: what the inverse transform of length h turns into x[2 j] + i x[2 j + 1].
SG_CLONES void tangle(SplitLines x, const Complex* roots, int64_t h, int lanes, SplitLines z) {
  for (int64_t k = 0; k < h; ++k) {
    const int64_t a = k * lanes, b = (h - k) * lanes;
    const double c = roots[k].real(), s = roots[k].imag();
#pragma GCC ivdep
    for (int l = 0; l < lanes; ++l) {
      double even_re = x.re[a + l] + x.re[b + l], even_im = x.im[a + l] - x.im[b + l];
      double gap_re = x.re[a + l] - x.re[b + l], gap_im = x.im[a + l] + x.im[b + l];
      double odd_re = gap_re * c + gap_im * s, odd_im = gap_im * c - gap_re * s;  // times conj w^k
      z.re[a + l] = even_re - odd_im;
      z.im[a + l] = even_im + odd_re;
    }
  }
}

// Elements n / 2 + 1 to n - 1 of a line of n: the conjugates of the first half.
void mirror(SplitLines x, int64_t n, int lanes) {
  for (int64_t k = n / 2 + 1; k < n; ++k)
    for (int l = 0; l < lanes; ++l) {
      x.re[k * lanes + l] = x.re[(n - k) * lanes + l];
      x.im[k * lanes + l] = -x.im[(n - k) * lanes + l];
    }
}

// From real lines of length n to half of their transforms, or to all of them if `to` has room.
void real_to_complex(KernelCall& call, const Tensor& from, const Tensor& to, int axis, double scale) {
  if (on_device(call)) return real_to_complex_by_work(call, from, to, axis, scale);
  const int64_t n = from.dim(axis), given = to.dim(axis);
  if (to.elements() == 0) return;
  const bool halved = n % 2 == 0;
  const FourierPlan plan(halved ? n / 2 : n);
  const std::vector<Complex> roots = halved ? first_roots(n / 2 + 1, n) : std::vector<Complex>();
  for_groups(call, Lines(from, axis), Lines(to, axis), std::max(n, plan.work_length()),
             [&](const Group& in, const Group& out, SplitLines x, SplitLines work) {
               const int lanes = in.lanes;
               if (halved) {
                 in.read_real(0, 2, n / 2, x.re);
                 in.read_real(1, 2, n / 2, x.im);
               } else {
                 in.read_real(0, 1, n, x.re);
                 std::fill_n(x.im, n * lanes, 0.0);
               }
               SplitLines y = plan.run(x, work, lanes);
               if (halved) {
                 SplitLines other = y.re == x.re ? work : x;
                 untangle(y, roots.data(), n / 2, lanes, other);
                 y = other;
               }
               if (given == n) mirror(y, n, lanes);
               out.write_complex(given, y, scale);
             });
}

// From half transforms to real lines of length n. The imaginary part of an element that is its own conjugate is
// ignored.
void complex_to_real(KernelCall& call, const Tensor& from, const Tensor& to, int axis, double scale) {
  if (on_device(call)) return complex_to_real_by_work(call, from, to, axis, scale);
  const int64_t n = to.dim(axis), half = from.dim(axis);
  if (to.elements() == 0) return;
  const bool halved = n % 2 == 0;
  const FourierPlan plan(halved ? n / 2 : n);
  const std::vector<Complex> roots = halved ? first_roots(n / 2, n) : std::vector<Complex>();
  for_groups(call, Lines(from, axis), Lines(to, axis), std::max(n, plan.work_length()),
             [&](const Group& in, const Group& out, SplitLines x, SplitLines work) {
               const int lanes = in.lanes;
               in.read_complex(half, x);
               std::fill_n(x.im, lanes, 0.0);
               if (!halved) {
                 mirror(x, n, lanes);
                 out.write_real(0, 1, n, plan.run(x.swapped(), work.swapped(), lanes).swapped().re, scale);
                 return;
               }
               std::fill_n(x.im + n / 2 * lanes, lanes, 0.0);
               tangle(x, roots.data(), n / 2, lanes, work);
               const SplitLines y = plan.run(work.swapped(), x.swapped(), lanes).swapped();
               out.write_real(0, 2, n / 2, y.re, scale);
               out.write_real(1, 2, n / 2, y.im, scale);
             });
}

// 1, 1 / sqrt(n) or 1 / n, where n is the number of elements transformed together.
double scale_of(KernelCall& call, const Tensor& whole, std::span<const int> axes) {
  double n = 1;
  for (int axis : axes) n *= static_cast<double>(whole.dim(axis));
  int64_t normalization = call.integer("normalization");
  return normalization == 0 || n == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(n) : 1 / n;
}

// One axis after the other, with intermediate results in double. REQUIRES: at least one axis; equal shapes; parts of
// f32 or f64.
void complex_axes(KernelCall& call, Tensor from, const Tensor& to, std::span<const int> axes, bool forward,
                  double scale) {
  Tensor between;
  if (axes.size() > 1) between = workspace(call, DType::c128, from.sizes());
  for (size_t i = 0; i + 1 < axes.size(); ++i, from = between) complex_axis(call, from, between, axes[i], forward, 1);
  complex_axis(call, from, to, axes.back(), forward, scale);
}

Status fft_c2c(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  if (!same_shape(self, call.result())) return call.fail("its operands do not fit each other");
  std::vector<int> axes = call.axes("dim", self.rank);
  if (axes.empty()) return copy(call, call.result(), self), ok_status();
  const bool halves = self.dtype == DType::c32;  // computed in double
  Tensor data = halves ? workspace(call, DType::c128, self.sizes()) : self;
  if (halves) copy(call, data, self);
  complex_axes(call, data, halves ? data : call.result(), axes, call.flag("forward"), scale_of(call, self, axes));
  if (halves) copy(call, call.result(), data);
  return ok_status();
}

Status fft_r2c(KernelCall& call) {
  const Tensor &self = call.tensor("self"), &out = call.result();
  std::vector<int> axes = call.axes("dim", self.rank);
  if (axes.empty()) return call.fail("needs a dimension to transform");
  const double scale = scale_of(call, self, axes);
  const int last = axes.back();
  axes.pop_back();
  const int64_t n = self.dim(last), given = out.dim(last);
  if (!same_shape(drop_axis(self, last), drop_axis(out, last)) || (given != n && given != n / 2 + 1))
    return call.fail("its operands do not fit each other");
  if (axes.empty()) return real_to_complex(call, self, out, last, scale), ok_status();
  Tensor lines = workspace(call, DType::c128, out.sizes());
  real_to_complex(call, self, lines, last, 1);
  complex_axes(call, lines, out, axes, true, scale);
  return ok_status();
}

Status fft_c2r(KernelCall& call) {
  const Tensor &self = call.tensor("self"), &out = call.result();
  std::vector<int> axes = call.axes("dim", self.rank);
  if (axes.empty()) return call.fail("needs a dimension to transform");
  const double scale = scale_of(call, out, axes);
  const int last = axes.back();
  axes.pop_back();
  if (self.dim(last) != out.dim(last) / 2 + 1 || !same_shape(drop_axis(self, last), drop_axis(out, last)))
    return call.fail("its operands do not fit each other");
  if (axes.empty()) return complex_to_real(call, self, out, last, scale), ok_status();
  Tensor lines = workspace(call, DType::c128, self.sizes());
  complex_axes(call, self, lines, axes, false, 1);
  complex_to_real(call, lines, out, last, scale);
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
