// Quantization-aware training: values rounded to the levels (`Places`) that low-bit integers can represent, a mask of
// those in range, and observers that track a range and choose scale and zero point from it.
//
// Computed as by PyTorch's CPU kernels, with two exceptions: those turn NaN into the lowest level, here it stays NaN;
// per channel they do the same to values beyond 64 bits, here these saturate at the nearer end.
#include <cmath>
#include <cstdlib>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

ValueId in_type(CompositeCall& c, ValueId v, DType to) {
  return c.dtype_of(v) == to ? v : c.make("_to_copy", {v, c.key("dtype", to)});
}

// The range of the quantized integers.
struct Places {
  int64_t low, high;
};

Places places(CompositeCall& c) {
  Places p{c.integer("quant_min"), c.integer("quant_max")};
  if (p.low > p.high) c.fail("its 'quant_min' is above its 'quant_max'");
  return p;
}

// The mapping between integers and values: numbers, or tensors that broadcast against the quantized one.
struct Scaling {
  PartArg scale, inverse, zero;
  bool is_per_channel;
};

Scaling by_numbers(float scale, int64_t zero) {
  return {static_cast<double>(scale), static_cast<double>(1.0f / scale), zero, false};
}

Scaling by_tensors(CompositeCall& c, ValueId scale, ValueId zero) {
  scale = in_type(c, scale, DType::f32);
  return {scale, c.make("reciprocal", {scale}), in_type(c, zero, DType::f32), false};
}

// One number per channel, shaped to lie along dimension `axis` of `x`.
ValueId along(CompositeCall& c, ValueId v, ValueId x, int64_t axis) {
  if (axis < 0 || axis >= c.rank(x) || c.rank(v) != 1)
    return c.fail("needs an axis of its input and one number per channel"), v;
  ArgList shape(static_cast<size_t>(c.rank(x)), Arg::integer(1));
  shape[static_cast<size_t>(axis)] = c.size(x, static_cast<int>(axis));
  return c.make("view", {v, shape});
}

Scaling by_channels(CompositeCall& c, ValueId x, ValueId scale, ValueId zero, int64_t axis) {
  Scaling by = by_tensors(c, along(c, scale, x, axis), along(c, zero, x, axis));
  by.is_per_channel = true;
  return by;
}

ValueId wide(CompositeCall& c, ValueId x) {  // narrow floats are computed in float
  return c.dtype_of(x) == DType::f64 ? x : in_type(c, x, DType::f32);
}

// When the zero point is added: an integer one after rounding, a fractional one before.
enum class Zero { whole, fraction };

// The unclamped level of each value.
ValueId placed(CompositeCall& c, ValueId x, const Scaling& by, Zero zero) {
  ValueId scaled = c.make("mul.Tensor", {x, by.inverse});
  if (zero == Zero::fraction) return c.make("round", {c.make("add.Tensor", {scaled, by.zero})});
  return c.make("add.Tensor", {c.make("round", {scaled}), by.zero});
}

ValueId is_within(CompositeCall& c, ValueId place, Places p) {
  return c.make("logical_and", {c.make("ge.Scalar", {place, p.low}), c.make("le.Scalar", {place, p.high})});
}

ValueId back(CompositeCall& c, ValueId place, const Scaling& by, Places p) {
  ValueId from_zero = c.make("sub.Tensor", {c.make("clamp", {place, p.low, p.high}), by.zero});
  if (!by.is_per_channel) from_zero = in_type(c, from_zero, DType::f32);  // for doubles too, as in PyTorch
  return c.make("mul.Tensor", {from_zero, by.scale});
}

struct Quantized {
  ValueId out, mask;
};

Quantized quantize(CompositeCall& c, ValueId x, const Scaling& by, Zero zero) {
  const Places p = places(c);
  ValueId place = placed(c, wide(c, x), by, zero);
  return {in_type(c, back(c, place, by, p), c.dtype_of(x)), is_within(c, place, p)};
}

// Values pass through unchanged if the switch is off.
Quantized unless_off(CompositeCall& c, ValueId on, ValueId x, Quantized q) {
  return {c.make("where.self", {on, q.out, x}), c.make("logical_or", {q.mask, c.make("logical_not", {on})})};
}

ValueId is_on(CompositeCall& c, std::string_view name) {
  return c.make("ne.Scalar", {c.one_number(c.tensor(name)), 0});
}

void give(CompositeCall& c, Quantized q) {
  c.give(q.out);
  c.give(q.mask);
}

Quantized by_channel(CompositeCall& c, ValueId x, ValueId scale, ValueId zero, int64_t axis) {
  const Zero kind = is_floating(c.dtype_of(zero)) ? Zero::fraction : Zero::whole;
  return quantize(c, x, by_channels(c, x, scale, zero, axis), kind);
}

}  // namespace

namespace {

Quantized quantized_by_numbers(CompositeCall& c) {
  const auto scale = static_cast<float>(c.number("scale"));
  return quantize(c, c.tensor("self"), by_numbers(scale, c.integer("zero_point")), Zero::whole);
}

Quantized quantized_by_tensors(CompositeCall& c) {
  Scaling by = by_tensors(c, c.one_number(c.tensor("scale")), c.one_number(c.tensor("zero_point")));
  return quantize(c, c.tensor("self"), by, Zero::whole);
}

Quantized quantized_by_channel(CompositeCall& c) {
  return by_channel(c, c.tensor("self"), c.tensor("scale"), c.tensor("zero_point"), c.integer("axis"));
}

}  // namespace

void fake_quantize(CompositeCall& c) { give(c, quantized_by_numbers(c)); }
void fake_quantize_alone(CompositeCall& c) { c.give(quantized_by_numbers(c).out); }
void fake_quantize_by_tensors_alone(CompositeCall& c) { c.give(quantized_by_tensors(c).out); }
void fake_quantize_by_channel(CompositeCall& c) { give(c, quantized_by_channel(c)); }
void fake_quantize_by_channel_alone(CompositeCall& c) { c.give(quantized_by_channel(c).out); }
void fake_quantize_by_tensors(CompositeCall& c) {
  give(c, unless_off(c, is_on(c, "fake_quant_enabled"), c.tensor("self"), quantized_by_tensors(c)));
}

// --- a learned scale and zero point ---

namespace {

ValueId nearest_place(CompositeCall& c, ValueId zero, Places p) {
  return c.make("clamp", {c.make("round", {zero}), p.low, p.high});
}

// What each element contributes to the gradients of x, scale and zero point.
struct Shares {
  ValueId x, scale, zero;
};

Shares shares(CompositeCall& c, const Scaling& by) {
  const Places p = places(c);
  const double factor = c.number("grad_factor");
  ValueId x = wide(c, c.tensor("self")), grad = wide(c, c.tensor("grad"));
  ValueId place = placed(c, x, by, Zero::fraction), within = is_within(c, place, p);
  auto times = [&](ValueId v, PartArg by_this) { return c.make("mul.Tensor", {v, std::move(by_this)}); };
  ValueId error = c.make("sub.Tensor", {back(c, place, by, p), x});
  ValueId inside = times(times(grad, error), by.inverse);
  // The slope of the scale outside the range: the clamped level minus the zero point.
  ValueId edge = c.make("clamp", {place, p.low, p.high});
  ValueId outside = times(grad, c.make("sub.Tensor", {edge, by.zero}));
  Shares s;
  s.x = times(grad, within);
  s.scale = times(c.make("where.self", {within, inside, outside}), factor);
  s.zero = c.make("where.ScalarSelf", {within, 0.0, times(times(c.make("neg", {grad}), by.scale), factor)});
  return s;
}

}  // namespace

void fake_quantize_learned(CompositeCall& c) {
  ValueId zero = nearest_place(c, c.one_number(c.tensor("zero_point")), places(c));
  c.give(quantize(c, c.tensor("self"), by_tensors(c, c.one_number(c.tensor("scale")), zero), Zero::whole).out);
}

void fake_quantize_learned_by_channel(CompositeCall& c) {
  ValueId zero = in_type(c, nearest_place(c, c.tensor("zero_point"), places(c)), DType::i32);
  c.give(by_channel(c, c.tensor("self"), c.tensor("scale"), zero, c.integer("axis")).out);
}

// Rounds the zero point differently from the forward: adds a half, then truncates.
void fake_quantize_learned_backward(CompositeCall& c) {
  const Places p = places(c);
  ValueId raised = c.make("add.Scalar", {c.one_number(c.tensor("zero_point")), 0.5});
  ValueId zero = c.make("trunc", {c.make("clamp", {raised, p.low, p.high})});
  Shares s = shares(c, by_tensors(c, c.one_number(c.tensor("scale")), zero));
  c.give(s.x);
  for (ValueId v : {s.scale, s.zero}) c.give(c.make("unsqueeze", {c.make("sum", {v}), 0}));
}

void fake_quantize_learned_by_channel_backward(CompositeCall& c) {
  ValueId x = c.tensor("self"), zero = nearest_place(c, wide(c, c.tensor("zero_point")), places(c));
  const int64_t axis = c.integer("axis");
  Shares s = shares(c, by_channels(c, x, c.tensor("scale"), zero, axis));
  Numbers others;
  for (int64_t i = 0; i < c.rank(x); ++i)
    if (i != axis) others.push_back(i);
  c.give(s.x);
  for (ValueId v : {s.scale, s.zero}) c.give(c.make("sum.dim_IntList", {v, others}));
}

// --- an observer and its quantization in one op ---

namespace {

struct Range {
  ValueId low, high;
};

// Moves the observed range a step towards that of `x`; the first observation takes that of `x`.
Range followed(CompositeCall& c, ValueId x, Range seen) {
  const auto share = static_cast<double>(static_cast<float>(c.number("averaging_const")));
  auto extreme = [&](std::string_view op, ValueId of) {
    if (!c.flag("per_row_fake_quant")) return c.make("view", {c.make(op, {x, Numbers()}), c.shape(of)});
    Numbers dims;
    for (int i = 1; i < c.rank(x); ++i) dims.push_back(i);
    return dims.empty() ? x : c.make(op, {x, dims});
  };
  ValueId is_observed = is_on(c, "observer_on");
  auto step = [&](ValueId old, ValueId now) {
    ValueId by = c.make("mul.Tensor", {c.make("sub.Tensor", {now, old}), share});
    ValueId next = c.make("where.self", {c.make("isinf", {old}), now, c.make("add.Tensor", {old, by})});
    return c.make("copy_", {old, c.make("where.self", {is_observed, next, old})});
  };
  ValueId low = extreme("amin", seen.low), high = extreme("amax", seen.high);
  return {step(seen.low, low), step(seen.high, high)};
}

struct Chosen {
  ValueId scale, zero;
};

// A range that crosses 0 is widened so that its ends are proportional to those of the symmetric levels.
Range symmetric(CompositeCall& c, Range r, ValueId crosses_zero, Places p) {
  const int64_t high = (p.high - p.low) / 2, low = -(high + 1);
  auto part = [&](ValueId v, int64_t of) { return c.make("abs", {c.make("div.Tensor", {v, of})}); };
  ValueId reach = high == 0 ? part(r.low, low) : c.make("maximum", {part(r.low, low), part(r.high, high)});
  auto end = [&](ValueId old, int64_t place) {
    return c.make("where.self", {crosses_zero, c.make("mul.Tensor", {reach, place}), old});
  };
  return {end(r.low, low), end(r.high, high)};
}

// Scale and zero point for a range, which is extended to include 0. In double, except for the scale.
Chosen chosen(CompositeCall& c, Range r, Places p) {
  constexpr float kLeast = 6.1e-5f;  // least scale: its inverse must be representable in half precision
  const bool is_symmetric = c.flag("symmetric_quant");
  const auto span = static_cast<float>(p.high - p.low);
  ValueId crosses_zero = c.make("logical_and", {c.make("lt.Scalar", {r.low, 0}), c.make("gt.Scalar", {r.high, 0})});
  if (is_symmetric) r = symmetric(c, r, crosses_zero, p);
  r = {c.make("clamp_max", {r.low, 0}), c.make("clamp_min", {r.high, 0})};

  auto in_double = [&](ValueId v) { return in_type(c, v, DType::f64); };
  ValueId width = c.make("sub.Tensor", {in_double(r.high), in_double(r.low)});
  ValueId scale = in_type(c, c.make("div.Tensor", {width, static_cast<double>(span)}), DType::f32);
  ValueId is_none = c.make("isinf", {c.make("reciprocal", {scale})});  // 0, or close to it
  scale = c.make("where.ScalarSelf", {is_none, 0.1, scale});

  // A scale below the least is raised to it, and the range grows with it.
  ValueId is_small = c.make("lt.Scalar", {scale, static_cast<double>(kLeast)});
  ValueId growth = c.make("div.Tensor", {c.make("full_like", {scale, static_cast<double>(kLeast)}), scale});
  auto grown = [&](ValueId v, ValueId other, float alone) {
    ValueId by_growth = c.make("mul.Tensor", {v, growth});
    ValueId now = c.make("where.ScalarSelf", {c.make("eq.Scalar", {other, 0}), static_cast<double>(alone), by_growth});
    return c.make("where.self", {is_small, now, v});
  };
  Range g{grown(r.low, r.high, -kLeast * span), grown(r.high, r.low, kLeast * span)};
  scale = c.make("where.ScalarSelf", {is_small, static_cast<double>(kLeast), scale});

  // The zero point follows from the end with the smaller rounding error.
  ValueId exact = in_double(scale);
  ValueId low = c.make("div.Tensor", {in_double(g.low), exact}),
          high = c.make("div.Tensor", {in_double(g.high), exact});
  auto from = [&](ValueId end, int64_t place) { return c.make("rsub.Scalar", {end, static_cast<double>(place)}); };
  auto size = [&](ValueId end, int64_t place) {
    return c.make("add.Scalar", {c.make("abs", {end}), static_cast<double>(std::abs(place))});
  };
  ValueId is_low = c.make("lt.Tensor", {size(low, p.low), size(high, p.high)});
  ValueId zero = c.make("where.self", {is_low, from(low, p.low), from(high, p.high)});
  if (is_symmetric) zero = c.make("where.ScalarSelf", {crosses_zero, static_cast<double>(p.low + p.high) / 2, zero});
  return {scale, in_type(c, c.make("round", {c.make("clamp", {zero, p.low, p.high})}), DType::i32)};
}

struct Observer {
  Range seen;
  ValueId scale, zero;
};

Quantized observe(CompositeCall& c, const Observer& o) {
  ValueId x = c.tensor("self");
  Range seen = followed(c, x, o.seen);
  Chosen now = chosen(c, seen, places(c));
  ValueId on = is_on(c, "fake_quant_on");
  auto keep = [&](ValueId old, ValueId made) {
    made = in_type(c, c.make("view", {made, c.shape(old)}), c.dtype_of(old));
    return c.make("copy_", {old, c.make("where.self", {on, made, old})});
  };
  ValueId scale = keep(o.scale, now.scale), zero = keep(o.zero, now.zero);
  if (c.flag("per_row_fake_quant")) return unless_off(c, on, x, by_channel(c, x, scale, zero, c.integer("ch_axis")));
  Scaling by = by_tensors(c, c.one_number(scale), c.one_number(zero));
  return unless_off(c, on, x, quantize(c, x, by, Zero::whole));
}

Observer observer(CompositeCall& c) {
  return {{c.tensor("running_min"), c.tensor("running_max")}, c.tensor("scale"), c.tensor("zero_point")};
}

}  // namespace

void observe_and_fake_quantize(CompositeCall& c) { give(c, observe(c, observer(c))); }
void observe_and_fake_quantize_alone(CompositeCall& c) { c.give(observe(c, observer(c)).out); }

void observe_and_fake_quantize_functional(CompositeCall& c) {
  Observer o = observer(c);
  for (ValueId* v : {&o.seen.low, &o.seen.high, &o.scale, &o.zero}) *v = c.make("clone", {*v});
  give(c, observe(c, o));
  for (ValueId v : {o.seen.low, o.seen.high, o.scale, o.zero}) c.give(v);
}

}  // namespace sg::composite
