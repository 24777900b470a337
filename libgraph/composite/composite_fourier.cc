// Fourier transforms as torch.fft names them, by the three kernels: complex to complex, real to complex, complex to
// real; and windows.
#include <algorithm>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

enum Norm : int64_t { kUnscaled = 0, kRoot = 1, kFull = 2 };
enum class Way { out, back };         // the sign of the exponent: negative for `out`
enum class Spectrum { whole, half };  // half: the spectrum of real elements, whose other half is redundant

// "backward" (also None) scales the inverse transform, "forward" the forward one, "ortho" both, by the square root.
int64_t norm_of(CompositeCall& c, Way way) {
  std::string word = c.text("norm");
  if (word == "ortho") return kRoot;
  if (!word.empty() && word != "backward" && word != "forward")
    c.fail("'norm' has to be 'backward', 'forward' or 'ortho'");
  return (word == "forward") == (way == Way::out) ? kFull : kUnscaled;
}

DType complex_of(DType t) { return is_complex(t) ? t : t == DType::f64 ? DType::c128 : DType::c64; }

ValueId as_complex(CompositeCall& c, ValueId v) {
  return is_complex(c.dtype_of(v)) ? v : c.make("to.dtype", {v, complex_of(c.dtype_of(v))});
}

ValueId as_real(CompositeCall& c, ValueId v) {
  DType t = c.dtype_of(v);
  if (is_complex(t)) c.fail("needs real elements");
  return is_floating(t) ? v : c.make("to.dtype", {v, DType::f32});
}

ValueId conjugated(CompositeCall& c, ValueId v) { return c.make("conj_physical", {v}); }

// Truncates or zero-pads a dimension to `n` elements.
ValueId resized(CompositeCall& c, ValueId v, int dim, int64_t n) {
  int64_t size = c.known_size(v, dim);
  if (c.failed() || size == n) return v;
  if (n < 1) return c.fail("needs a length of at least 1"), v;
  if (n < size) return c.make("slice.Tensor", {v, dim, 0, n});
  Numbers pad(2 * static_cast<size_t>(c.rank(v) - dim), 0);
  pad.back() = n - size;
  return c.make("constant_pad_nd", {v, pad, 0});
}

struct FourierAxes {
  Numbers dims;
  std::vector<std::optional<int64_t>> lengths;  // none = unchanged
};

// From `n` and `dim`, or `s` and `dim`: which dimensions to transform, and their lengths.
FourierAxes axes_of(CompositeCall& c, ValueId self) {
  FourierAxes out;
  int rank = c.rank(self);
  Numbers lengths = c.integers(c.has("n") ? "n" : "s");
  out.dims = c.integers("dim");
  if (!c.has("dim")) {
    int64_t count = c.has("s") ? static_cast<int64_t>(lengths.size()) : rank;
    for (int64_t i = count; i > 0; --i) out.dims.push_back(rank - i);
  }
  for (int64_t& d : out.dims) d = c.wrap(d, rank);
  if (out.dims.empty() || rank == 0) c.fail("needs at least one dimension");
  if (!lengths.empty() && lengths.size() != out.dims.size()) c.fail("as many lengths as dimensions are needed");
  if (c.failed()) return {{0}, {std::nullopt}};
  for (size_t i = 0; i < out.dims.size(); ++i)
    out.lengths.push_back(lengths.empty() || lengths[i] == -1 ? std::nullopt : std::optional(lengths[i]));
  return out;
}

ValueId resized_all(CompositeCall& c, ValueId v, const FourierAxes& axes) {
  for (size_t i = 0; i < axes.dims.size(); ++i)
    if (axes.lengths[i]) v = resized(c, v, static_cast<int>(axes.dims[i]), *axes.lengths[i]);
  return v;
}

void to_complex(CompositeCall& c, Way way) {
  ValueId self = c.tensor("self");
  FourierAxes axes = axes_of(c, self);
  c.give(c.make("_fft_c2c", {resized_all(c, as_complex(c, self), axes), axes.dims, norm_of(c, way), way == Way::out}));
}

void from_real(CompositeCall& c, Way way, Spectrum spectrum) {
  ValueId self = as_real(c, c.tensor("self"));
  FourierAxes axes = axes_of(c, self);
  self = resized_all(c, self, axes);
  ValueId out = c.make("_fft_r2c", {self, axes.dims, norm_of(c, way), spectrum == Spectrum::half});
  c.give(way == Way::out ? out : conjugated(c, out));
}

// Complex to real: the last dimension holds half a spectrum; the length given for it is that of the result.
void to_real(CompositeCall& c, Way way) {
  ValueId self = as_complex(c, c.tensor("self"));
  FourierAxes axes = axes_of(c, self);
  auto last = static_cast<int>(axes.dims.back());
  int64_t length = axes.lengths.back() ? *axes.lengths.back() : 2 * (c.known_size(self, last) - 1);
  if (c.failed() || length < 1) return c.fail("needs a length of at least 1");
  axes.lengths.back() = length / 2 + 1;
  self = resized_all(c, self, axes);
  c.give(c.make("_fft_c2r", {way == Way::out ? conjugated(c, self) : self, axes.dims, norm_of(c, way), length}));
}

void one_dim(CompositeCall& c, Way way) {
  if (is_complex(c.dtype_of(c.tensor("self")))) to_complex(c, way);
  else from_real(c, way, Spectrum::whole);
}

void shift(CompositeCall& c, Way way) {
  ValueId self = c.tensor("self");
  Numbers dims = c.integers("dim"), by;
  if (!c.has("dim"))
    for (int i = 0; i < c.rank(self); ++i) dims.push_back(i);
  for (int64_t& d : dims) d = c.wrap(d, c.rank(self));
  for (int64_t d : dims) by.push_back((c.known_size(self, static_cast<int>(d)) + (way == Way::back ? 1 : 0)) / 2);
  c.give(c.make("roll", {self, by, dims}));
}

}  // namespace

void fft(CompositeCall& c) { one_dim(c, Way::out); }
void ifft(CompositeCall& c) { one_dim(c, Way::back); }
void rfft(CompositeCall& c) { from_real(c, Way::out, Spectrum::half); }
void ihfft(CompositeCall& c) { from_real(c, Way::back, Spectrum::half); }
void irfft(CompositeCall& c) { to_real(c, Way::back); }
void hfft(CompositeCall& c) { to_real(c, Way::out); }
void fftn(CompositeCall& c) { to_complex(c, Way::out); }
void ifftn(CompositeCall& c) { to_complex(c, Way::back); }
void rfftn(CompositeCall& c) { from_real(c, Way::out, Spectrum::half); }
void irfftn(CompositeCall& c) { to_real(c, Way::back); }
void fftshift(CompositeCall& c) { shift(c, Way::out); }
void ifftshift(CompositeCall& c) { shift(c, Way::back); }

// --- short-time spectra: a window moves over a signal ---

namespace {

ValueId padded(CompositeCall& c, ValueId signal, int64_t each) {
  const std::string mode = c.text("pad_mode");
  const Numbers pad{each, each};
  if (mode == "constant") return c.make("constant_pad_nd", {signal, pad, 0});
  if (mode == "reflect") return c.make("reflection_pad1d", {signal, pad});
  if (mode == "replicate") return c.make("replication_pad1d", {signal, pad});
  return c.fail("'pad_mode' " + mode), signal;
}

// The window, zero-padded on both sides to the transform's length; none if all elements have equal weight.
ValueId window_of(CompositeCall& c, ValueId signal, int64_t length) {
  ValueId window = c.tensor("window");
  const int64_t own = c.has("win_length") ? c.integer("win_length") : length, left = (length - own) / 2;
  if (own < 1 || own > length) return c.fail("'win_length' is beyond the transform's"), window;
  if (own == length) return window;
  if (window.is_none()) window = c.make("new_ones", {signal, Numbers{own}});
  return c.make("constant_pad_nd", {window, Numbers{left, length - own - left}, 0});
}

void give_spectra(CompositeCall& c, bool center) {
  ValueId self = c.tensor("self"), signal = self;
  const int64_t length = c.integer("n_fft"), hop = c.has("hop_length") ? c.integer("hop_length") : length / 4;
  if (c.failed() || length < 1 || hop < 1) return c.fail("needs a length and steps of at least 1");
  if (c.has("align_to_window") && c.flag("align_to_window")) return c.fail("with `align_to_window`");
  const bool is_one = c.rank(self) == 1;
  if (is_one) signal = c.make("unsqueeze", {signal, 0});
  if (c.rank(signal) != 2) return c.fail("needs a signal of one or two dimensions");
  if (center) signal = padded(c, signal, length / 2);
  ValueId window = window_of(c, signal, length), frames = c.make("unfold", {signal, -1, length, hop});
  if (!window.is_none()) frames = c.make("mul.Tensor", {frames, window});
  if (c.failed()) return;
  const int64_t norm = c.flag("normalized") ? kRoot : kUnscaled;
  const bool is_wide = is_complex(c.dtype_of(frames));
  ValueId out;
  if (is_wide) out = c.make("_fft_c2c", {frames, Numbers{2}, norm, true});
  else out = c.make("_fft_r2c", {frames, Numbers{2}, norm, !c.has("onesided") || c.flag("onesided")});
  out = c.make("transpose.int", {out, 1, 2});
  if (is_one) out = c.make("squeeze.dim", {out, 0});
  const bool keeps = c.has("return_complex") ? c.flag("return_complex") : is_wide;
  c.give(keeps ? out : c.make("view_as_real", {out}));
}

}  // namespace

void stft(CompositeCall& c) { give_spectra(c, false); }
void stft_center(CompositeCall& c) { give_spectra(c, c.flag("center")); }

}  // namespace sg::composite
