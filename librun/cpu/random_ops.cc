// Ops that draw random numbers. The value of an element depends only on the node's stream and the element's position in
// the original tensor (librun/random.h): threads, strides and chunks do not change it.
#include "librun/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "librun/cpu/fill.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/random_draw.h"
#include "librun/element.h"
#include "librun/work/math.h"
#include "librun/work/pair.h"
#include "librun/work/run.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

constexpr int64_t kRun = 1024;  // elements drawn at a time

// The random numbers to draw: one at an index, or several consecutive ones at once.
struct Uniforms {
  int digits = 53;
  double one(const RandomKey& key, uint64_t i) const { return uniform(key, i, digits); }
  void fill(const RandomKey& key, uint64_t first, std::span<double> to) const { fill_uniform(key, first, digits, to); }
};
struct Normals {
  double one(const RandomKey& key, uint64_t i) const { return normal(key, i); }
  void fill(const RandomKey& key, uint64_t first, std::span<double> to) const { fill_normal(key, first, to); }
};

// As an integer of the type, its largest or smallest if it has no such.
template <class T>
T whole_within(double v) {
  using Limits = std::numeric_limits<T>;
  if (v >= std::ldexp(1.0, Limits::digits)) return Limits::max();
  return v > static_cast<double>(Limits::min()) ? static_cast<T>(v) : Limits::min();
}

// Sets `out` to fn(random number), by runs of elements.
template <class Numbers, class Fn>
void draw(KernelCall& call, const Tensor& out, const Numbers& numbers, const Fn& fn) {
  RandomKey key = random_key(call);
  RandomPlaces places(call.random, out);
  Tensor line = out.is_contiguous() ? out : call.scratch().tensor(out.dtype, out.sizes());
  visit_dtype(out.dtype, [&]<class T>() {
    call.team().parallel_for(out.elements(), kRun, [&](int64_t begin, int64_t end) {
      std::array<double, kRun> drawn;
      for (int64_t first = begin; first < end; first += kRun) {
        auto count = static_cast<size_t>(std::min(end - first, kRun));
        if (places.is_chunk())
          for (size_t i = 0; i < count; ++i) drawn[i] = numbers.one(key, places(first + static_cast<int64_t>(i)));
        else numbers.fill(key, static_cast<uint64_t>(first), {drawn.data(), count});
        T* to = line.as<T>() + first;
        for (size_t i = 0; i < count; ++i) {
          double v = fn(drawn[i]);
          if constexpr (is_complex_type<T>) to[i] = T(static_cast<typename T::value_type>(v), 0);
          else if constexpr (std::is_same_v<T, bool>) to[i] = v != 0;
          else if constexpr (std::is_integral_v<T>) to[i] = whole_within<T>(v);
          else to[i] = static_cast<T>(static_cast<Compute<T>>(v));
        }
      }
    });
  });
  if (line.data != out.data) copy(call, out, line);
}

// The same for values determined by a single word: the words of a run are generated together. fn(word, element here)
template <class T, class Fn>
void draw_words(KernelCall& call, const Tensor& out, const Fn& fn) {
  RandomKey key = random_key(call);
  RandomPlaces places(call.random, out);
  Tensor line = out.is_contiguous() ? out : call.scratch().tensor(out.dtype, out.sizes());
  call.team().parallel_for(out.elements(), 16 * kRun, [&](int64_t begin, int64_t end) {
    std::array<uint32_t, kRun> words;
    for (int64_t first = begin; first < end; first += kRun) {
      auto count = static_cast<size_t>(std::min(end - first, kRun));
      if (places.is_chunk())
        for (size_t i = 0; i < count; ++i) words[i] = key.word(places(first + static_cast<int64_t>(i)));
      else fill_words(key, static_cast<uint64_t>(first), {words.data(), count});
      for (size_t i = 0; i < count; ++i)
        line.as<T>()[first + static_cast<int64_t>(i)] = fn(words[i], first + static_cast<int64_t>(i));
    }
  });
  if (line.data != out.data) copy(call, out, line);
}

// --- distributions ---

void draw_uniform(KernelCall& call, const Tensor& out, double from, double to) {
  draw(call, out, Uniforms{uniform_digits(call.random)}, [=](double u) { return from + u * (to - from); });
}

void draw_normal(KernelCall& call, const Tensor& out, double mean, double deviation) {
  draw(call, out, Normals(), [=](double z) { return mean + deviation * z; });
}

Status draw_whole(KernelCall& call, const Tensor& out, int64_t low, int64_t high) {
  SG_TRY(check_whole_range(call, low, high));
  uint64_t count = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  RandomKey key = random_key(call);
  RandomPlaces places(call.random, out);
  Tensor whole = call.scratch().tensor(DType::i64, out.sizes());
  call.team().parallel_for(out.elements(), kRun, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      whole.as<int64_t>()[i] = static_cast<int64_t>(static_cast<uint64_t>(low) + uniform_below(key, places(i), count));
  });
  return copy(call, out, whole), ok_status();
}

template <class T>
T flag_as(bool flag) {
  if constexpr (is_half_type<T>) return T(flag ? 1.0f : 0.0f);
  else return static_cast<T>(flag);
}

Status draw_bernoulli(KernelCall& call, const Tensor& out, double p) {
  SG_TRY(check_probability(call, p));
  visit_dtype(out.dtype, [&]<class T>() {
    draw_words<T>(call, out, [&](uint32_t word, int64_t) { return flag_as<T>(work::uniform_of_word(word, 32) < p); });
  });
  return ok_status();
}

// The probability of each element is given by `p`, which broadcasts to `out`.
Status draw_bernoulli(KernelCall& call, const Tensor& out, const Tensor& p) {
  Tensor each = contiguous_as(call, broadcast_to(p, out.sizes()), DType::f64);
  const double* probability = each.as<double>();
  for (int64_t i = 0; i < each.elements(); ++i) SG_TRY(check_probability(call, probability[i]));
  visit_dtype(out.dtype, [&]<class T>() {
    draw_words<T>(call, out, [&](uint32_t word, int64_t i) {
      return flag_as<T>(work::uniform_of_word(word, 32) < probability[i]);
    });
  });
  return ok_status();
}

// --- ops ---

Status rand(KernelCall& call) { return draw_uniform(call, call.result(), 0, 1), ok_status(); }
Status randn(KernelCall& call) { return draw_normal(call, call.result(), 0, 1), ok_status(); }
Status randint(KernelCall& call) { return draw_whole(call, call.result(), 0, call.integer("high")); }
Status randint_low(KernelCall& call) {
  return draw_whole(call, call.result(), call.integer("low"), call.integer("high"));
}
Status uniform_(KernelCall& call) {
  SG_TRY(check_interval(call));
  return draw_uniform(call, call.result(), call.number("from"), call.number("to")), ok_status();
}
Status normal_(KernelCall& call) {
  SG_TRY(check_spread(call, "std", true));
  return draw_normal(call, call.result(), call.number("mean"), call.number("std")), ok_status();
}

Status exponential_(KernelCall& call) {
  SG_TRY(check_spread(call, "lambd", false));
  double lambda = call.number("lambd");
  draw(call, call.result(), Uniforms(), [=](double u) { return -math::log1p_core(-u) / lambda; });
  return ok_status();
}

Status log_normal(KernelCall& call) {
  SG_TRY(check_spread(call, "std", false));
  double mean = call.number("mean"), deviation = call.number("std");
  draw(call, call.result(), Normals(), [=](double z) { return std::exp(mean + deviation * z); });
  return ok_status();
}

Status cauchy(KernelCall& call) {
  SG_TRY(check_spread(call, "sigma", false));
  double median = call.number("median"), sigma = call.number("sigma");
  draw(call, call.result(), Uniforms(), [=](double u) { return median + sigma * std::tan(math::kPi * (u - 0.5)); });
  return ok_status();
}

// The number of trials until the first success.
Status geometric(KernelCall& call) {
  double p = call.number("p");
  if (!(p > 0 && p < 1)) return call.fail("a probability is not within (0, 1): " + std::to_string(p));
  draw(call, call.result(), Uniforms(),
       [=](double u) { return std::max(1.0, std::ceil(math::log1p_core(-u) / std::log1p(-p))); });
  return ok_status();
}

Status random_from(KernelCall& call) {
  if (!call.has("to")) return call.fail("needs the end of the range");
  return draw_whole(call, call.result(), call.integer("from"), call.integer("to"));
}
Status random_to(KernelCall& call) { return draw_whole(call, call.result(), 0, call.integer("to")); }

// Integers that the type can hold: all from 0 for integer types, consecutive ones for floats.
Status random_(KernelCall& call) {
  const Tensor& out = call.result();
  switch (out.dtype) {
    case DType::boolean: return draw_whole(call, out, 0, 2);
    case DType::u8: return draw_whole(call, out, 0, 256);
    case DType::i8: return draw_whole(call, out, 0, 128);
    case DType::i16: return draw_whole(call, out, 0, 32768);
    case DType::i32: return draw_whole(call, out, 0, int64_t{1} << 31);
    case DType::i64: return draw_whole(call, out, 0, std::numeric_limits<int64_t>::max());
    default: return draw_whole(call, out, 0, (int64_t{1} << uniform_digits(call.random)) + 1);
  }
}

Status bernoulli_number(KernelCall& call) { return draw_bernoulli(call, call.result(), call.number("p")); }
Status bernoulli_self(KernelCall& call) { return draw_bernoulli(call, call.result(), call.tensor("self")); }
Status bernoulli_tensor(KernelCall& call) { return draw_bernoulli(call, call.result(), call.tensor("p")); }

// out = input where mask is set, scaled; else 0 (times the input, so that NaN and infinity propagate).
void keep(KernelCall& call, const Tensor& out, const Tensor& input, const Tensor& mask, double scale) {
  Tensor in = contiguous(call, input);
  Tensor line = out.is_contiguous() ? out : call.scratch().tensor(out.dtype, out.sizes());
  visit_dtype(out.dtype, [&]<class T>() {
    if constexpr (is_complex_type<T> || std::is_integral_v<T>) return;
    else {
      call.team().parallel_for(out.elements(), 16 * kRun, [&](int64_t begin, int64_t end) {
        const T* x = in.as<T>();
        const uint8_t* kept = mask.as<uint8_t>();
        auto by = static_cast<Compute<T>>(scale);
        for (int64_t i = begin; i < end; ++i)
          line.as<T>()[i] = static_cast<T>(static_cast<Compute<T>>(x[i]) * static_cast<Compute<T>>(kept[i]) * by);
      });
    }
  });
  if (line.data != out.data) copy(call, out, line);
}

Status drop(KernelCall& call, const Tensor& out, const Tensor& mask, double p) {
  SG_TRY(draw_bernoulli(call, mask, 1 - p));
  keep(call, out, call.tensor("input"), contiguous(call, mask), p == 1 ? 0 : 1 / (1 - p));
  return ok_status();
}

Status native_dropout(KernelCall& call) {
  double p = call.number("p");
  SG_TRY(check_probability(call, p));
  if (call.has("train") && !call.flag("train")) {
    copy(call, call.result(0), call.tensor("input"));
    return fill(call, call.result(1), Scalar::boolean(true)), ok_status();
  }
  return drop(call, call.result(0), call.result(1), p);
}

Status dropout(KernelCall& call) {
  double p = call.number("p");
  SG_TRY(check_probability(call, p));
  if (!call.flag("train") || p == 0) return copy(call, call.result(), call.tensor("input")), ok_status();
  return drop(call, call.result(), call.scratch().tensor(DType::boolean, call.result().sizes()), p);
}

// A random slope for each negative number, stored in `noise`; outside training the middle of the range.
Status rrelu(KernelCall& call) {
  const double lower = call.number("lower"), upper = call.number("upper"), middle = (lower + upper) / 2;
  const Tensor &out = call.result(), &noise = call.tensor("noise");
  Tensor x = contiguous_as(call, call.tensor("self"), DType::f64), y = call.scratch().tensor(DType::f64, out.sizes());
  const bool training = call.flag("training");
  if (training) draw_uniform(call, noise, lower, upper);
  Tensor slopes = training ? call.scratch().tensor(DType::f64, out.sizes()) : Tensor();
  if (training) copy(call, slopes, noise);
  for (int64_t i = 0; i < out.elements(); ++i) {
    const double v = x.as<double>()[i];
    double* slope = training ? slopes.as<double>() + i : nullptr;
    if (slope && !(v <= 0)) *slope = 1;
    y.as<double>()[i] = slope ? v * *slope : v <= 0 ? v * middle : v;
  }
  if (training) copy(call, noise, slopes);
  return copy(call, out, y), ok_status();
}

Status rrelu_backward(KernelCall& call) {
  const double lower = call.number("lower"), upper = call.number("upper"), middle = (lower + upper) / 2;
  const bool drawn = call.flag("training") && upper - lower > 1e-6;
  const Tensor& out = call.result();
  auto doubles = [&](std::string_view name) {
    return contiguous_as(call, broadcast_to(call.tensor(name), out.sizes()), DType::f64).as<double>();
  };
  const double *grad = doubles("grad_output"), *x = doubles("self"), *noise = drawn ? doubles("noise") : nullptr;
  Tensor y = workspace(call, DType::f64, out.sizes());
  for_each(call, out.elements(), kPieceElements, work::RreluBackward{grad, x, noise, middle, y.as<double>()});
  return copy(call, out, y), ok_status();
}

// A shuffle: each place in turn is swapped with a later one or itself.
Status randperm(KernelCall& call) {
  Tensor whole = call.scratch().tensor(DType::i64, call.result().sizes());
  auto* order = whole.as<int64_t>();
  int64_t n = whole.elements();
  if (n > 0) SG_TRY(check_whole_range(call, 0, n));
  std::iota(order, order + n, int64_t{0});
  RandomKey key = random_key(call);
  for (int64_t i = 0; i + 1 < n; ++i)
    std::swap(
        order[i],
        order[i + static_cast<int64_t>(uniform_below(key, static_cast<uint64_t>(i), static_cast<uint64_t>(n - i)))]);
  return copy(call, call.result(), whole), ok_status();
}

// mark = weight / exponential, from uniform numbers in `mark`.
SG_CLONES void mark_by_waits(const double* weights, size_t count, double* mark) {
  for (size_t k = 0; k < count; ++k) {
    double wait = -math::log1p_core(-mark[k]);
    mark[k] = weights[k] == 0 ? -1 : weights[k] / (wait > 1e-300 ? wait : 1e-300);
  }
}

// Samples one row: with replacement by cumulative weights; without, the largest weight / exponential values, which are
// the draws in order.
void sample_row(const RandomKey& key, uint64_t first, std::span<const double> weights, bool replace,
                std::span<int64_t> out) {
  std::vector<double> mark(weights.size());
  if (replace) {
    std::partial_sum(weights.begin(), weights.end(), mark.begin());
    for (size_t k = 0; k < out.size(); ++k) {
      double at = uniform(key, first + k, 53) * mark.back();
      auto hit = static_cast<size_t>(std::upper_bound(mark.begin(), mark.end(), at) - mark.begin());
      while (hit >= weights.size() || weights[hit] == 0) --hit;  // a rounded product may reach the end
      out[k] = static_cast<int64_t>(hit);
    }
    return;
  }
  fill_uniform(key, first, 53, mark);
  mark_by_waits(weights.data(), weights.size(), mark.data());
  std::vector<int64_t> order(mark.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  auto before = [&](int64_t a, int64_t b) {
    double x = mark[static_cast<size_t>(a)], y = mark[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  auto end = order.begin() + static_cast<std::ptrdiff_t>(out.size());
  if (end != order.end()) std::nth_element(order.begin(), end, order.end(), before);
  std::sort(order.begin(), end, before);
  std::copy(order.begin(), end, out.begin());
}

Status check_weights(const KernelCall& call, std::span<const double> weights, bool replace, size_t wanted) {
  size_t usable = 0;
  for (double w : weights) {
    if (!(w >= 0) || std::isinf(w)) return call.fail("a weight is negative, infinite or NaN");
    usable += w > 0;
  }
  if (usable == 0 || (!replace && usable < wanted))
    return call.fail("of " + std::to_string(usable) + " weights above 0, " + std::to_string(wanted) +
                     " are to be drawn");
  return ok_status();
}

Status multinomial(KernelCall& call) {
  Tensor weights = contiguous_as(call, call.tensor("self"), DType::f64);
  Tensor out = call.scratch().tensor(DType::i64, call.result().sizes());
  bool replace = call.flag("replacement");
  auto classes = static_cast<size_t>(weights.dim(-1)), wanted = static_cast<size_t>(out.dim(-1));
  int64_t rows = weights.rank == 2 ? weights.dim(0) : 1;
  RandomKey key = random_key(call);
  for (int64_t row = 0; row < rows && wanted > 0; ++row) {
    std::span<const double> each(weights.as<double>() + row * static_cast<int64_t>(classes), classes);
    SG_TRY(check_weights(call, each, replace, wanted));
    uint64_t draws = replace ? wanted : classes;
    sample_row(key, static_cast<uint64_t>(row) * draws, each, replace,
               {out.as<int64_t>() + row * static_cast<int64_t>(wanted), wanted});
  }
  return copy(call, call.result(), out), ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.rand.default", rand},
    {"aten.rand_like.default", rand},
    {"aten.randn.default", randn},
    {"aten.randn_like.default", randn},
    {"aten.randint.default", randint},
    {"aten.randint.low", randint_low},
    {"aten.randint_like.default", randint},
    {"aten.randperm.default", randperm},
    {"aten.rrelu_with_noise.default", rrelu},
    {"aten.rrelu_with_noise_.default", rrelu},
    {"aten.rrelu_with_noise_backward.default", rrelu_backward},
    {"aten.uniform_.default", uniform_},
    {"aten.normal_.default", normal_},
    {"aten.exponential_.default", exponential_},
    {"aten.random_.default", random_},
    {"aten.bernoulli.default", bernoulli_self},
    {"aten.bernoulli.p", bernoulli_number},
    {"aten.bernoulli_.float", bernoulli_number},
    {"aten.bernoulli_.Tensor", bernoulli_tensor},
    {"aten.native_dropout.default", native_dropout},
    {"aten.dropout.default", dropout},
    {"aten.multinomial.default", multinomial},
    {"aten.uniform.default", uniform_},
    {"aten.normal_functional.default", normal_},
    {"aten.exponential.default", exponential_},
    {"aten.log_normal.default", log_normal},
    {"aten.log_normal_.default", log_normal},
    {"aten.cauchy.default", cauchy},
    {"aten.cauchy_.default", cauchy},
    {"aten.geometric.default", geometric},
    {"aten.geometric_.default", geometric},
    {"aten.random.default", random_},
    {"aten.random.from", random_from},
    {"aten.random_.from", random_from},
    {"aten.random.to", random_to},
    {"aten.random_.to", random_to},
    {"aten.bernoulli.Tensor", bernoulli_tensor},
    {"aten.randint_like.low_dtype", randint_low},
};

}  // namespace

std::span<const KernelRow> random_kernels() { return kRows; }

}  // namespace sg::cpu
