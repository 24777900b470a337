// Windows, and the frequencies that belong to the places of a spectrum.
#include <initializer_list>
#include <utility>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

// Windows as PyTorch's C++ code makes them: a periodic one is made one longer, and its last element dropped.
struct Window {
  int64_t length;
  bool is_periodic;
  DType dtype;
};

Window window_of(CompositeCall& c) {
  const Window w{c.integer("window_length"), !c.has("periodic") || c.flag("periodic"),
                 c.dtype("dtype").value_or(DType::f32)};
  if (w.length < 0 || w.length > int64_t{1} << 40) c.fail("'window_length' is out of range");
  return w;
}

// How many places the window is computed at: a periodic one drops the last.
int64_t places_of(const Window& w) { return w.length + (w.is_periodic && w.length > 1 ? 1 : 0); }

void give_window(CompositeCall& c, const Window& w, ValueId at_places) {
  c.give(places_of(w) == w.length ? at_places : c.make("slice.Tensor", {at_places, 0, 0, w.length}));
}

// sum of weights[k] * cos(2 * pi * k * i / last); a window of length 1 is 1.
void give_cosines(CompositeCall& c, std::initializer_list<double> weights) {
  const Window w = window_of(c);
  if (c.failed()) return;
  const int64_t count = places_of(w);
  ValueId places = c.make("arange", {count, c.key("dtype", w.dtype)}), sum;
  if (w.length <= 1) return c.give(c.make("ones_like", {places}));
  double order = 0;
  for (double weight : weights) {
    if (order > 0) {
      const double step = 2 * 3.14159265358979323846 * order / static_cast<double>(count - 1);
      ValueId wave = c.make("mul.Tensor", {c.make("cos", {c.make("mul.Tensor", {places, step})}), weight});
      sum = sum.is_none() ? wave : c.make("add.Tensor", {sum, wave});
    }
    ++order;
  }
  sum = c.make("add.Tensor", {sum, *weights.begin()});
  give_window(c, w, sum);
}

// In double, and rounded once: x from -1 to 1 is where the place lies, `form` makes the window's value of it.
template <class F>
void give_rounded(CompositeCall& c, const Window& w, F&& form) {
  const int64_t count = places_of(w);
  if (w.length <= 1) return c.give(c.make("ones", {Numbers{count}, c.key("dtype", w.dtype)}));
  ValueId x = c.make("arange", {count, c.key("dtype", DType::f64)});
  x = c.make("sub.Tensor", {c.make("mul.Tensor", {x, 2.0 / static_cast<double>(count - 1)}), 1.0});
  ValueId out = form(x);
  if (w.dtype != DType::f64) out = c.make("_to_copy", {out, c.key("dtype", w.dtype)});
  give_window(c, w, out);
}

void give_frequencies(CompositeCall& c, int64_t count, std::initializer_list<std::pair<int64_t, int64_t>> ranges) {
  const double unit = 1.0 / (static_cast<double>(count) * c.number("d"));
  const DType dtype = c.dtype("dtype").value_or(DType::f32);
  Values parts;
  for (auto [first, end] : ranges) parts.push_back(c.make("arange.start", {first, end, c.key("dtype", dtype)}));
  ValueId places = parts.size() == 1 ? parts[0] : c.make("cat", {parts});
  c.give(c.make("mul.Tensor", {places, unit}));
}

// The number of places of a spectrum.
int64_t places_of_spectrum(CompositeCall& c) {
  const int64_t n = c.integer("n");
  if (n < 1 || n > int64_t{1} << 40) c.fail("'n' is out of range");
  return n;
}

}  // namespace

void hann_window(CompositeCall& c) { give_cosines(c, {0.5, -0.5}); }
void hamming_window(CompositeCall& c) {
  give_cosines(c, {c.has("alpha") ? c.number("alpha") : 0.54, c.has("beta") ? -c.number("beta") : -0.46});
}
void blackman_window(CompositeCall& c) { give_cosines(c, {0.42, -0.5, 0.08}); }

void bartlett_window(CompositeCall& c) {
  const Window w = window_of(c);
  give_rounded(c, w, [&](ValueId x) { return c.make("rsub.Scalar", {c.make("abs", {x}), 1.0}); });
}

void kaiser_window(CompositeCall& c) {
  const Window w = window_of(c);
  const double beta = c.has("beta") ? c.number("beta") : 12.0;
  give_rounded(c, w, [&](ValueId x) {
    ValueId height = c.make("clamp_min", {c.make("rsub.Scalar", {c.make("mul.Tensor", {x, x}), 1.0}), 0.0});
    height = c.make("sqrt", {height});
    ValueId top = c.make("i0", {c.make("full", {Numbers{}, beta, c.key("dtype", DType::f64)})});
    return c.make("div.Tensor", {c.make("i0", {c.make("mul.Tensor", {height, beta})}), top});
  });
}

// 0, 1, ..., then the negative ones, in units of 1 / (n d).
void fft_fftfreq(CompositeCall& c) {
  const int64_t n = places_of_spectrum(c);
  if (!c.failed()) give_frequencies(c, n, {{0, n - n / 2}, {-(n / 2), 0}});
}

void fft_rfftfreq(CompositeCall& c) {
  const int64_t n = places_of_spectrum(c);
  if (!c.failed()) give_frequencies(c, n, {{0, n / 2 + 1}});
}

}  // namespace sg::composite
