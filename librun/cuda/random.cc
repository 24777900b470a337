// Ops that draw random numbers, with the results of cpu/random_ops.cc: identical to the bit unless a library exp, log
// or tan is involved.
#include <algorithm>
#include <array>
#include <limits>

#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/random.h"
#include "librun/work/shapes.h"

namespace sg::cuda {
namespace {

work::Stream stream_of(const KernelCall& call) {
  const RandomStream& s = call.random;
  return {s.seed, static_cast<uint32_t>(s.stream), static_cast<uint32_t>(s.rank), device_of(call).step_counter()};
}

RandomArgs random_args(const KernelCall& call, const Tensor& out, Draw draw, double a = 0, double b = 0) {
  RandomArgs args;
  args.to = element_view(out);
  args.stream = stream_of(call);
  args.draw = draw;
  args.a = a;
  args.b = b;
  args.digits = uniform_digits(call.random);
  args.report = device_of(call).report();
  const RandomStream& s = call.random;
  if (s.origin_shape.size() != static_cast<size_t>(out.rank) || s.origin_shape.empty()) return args;
  args.has_origin = true;
  args.to = Device::view(out);  // with the axes that the original has
  int64_t stride = 1;
  for (size_t axis = s.origin_shape.size(); axis-- > 0;) {
    args.origin_stride[axis] = stride;
    args.origin_first += s.origin_offset[axis] * stride;
    stride *= s.origin_shape[axis];
  }
  return args;
}

Status launch(KernelCall& call, const RandomArgs& args, const char* kernel = "draw_elements") {
  const int64_t lanes = goes_by_quads(args) ? (args.to.count + kQuad - 1) / kQuad : args.to.count;
  device_of(call).launch(kernel, blocks_for(lanes), args);
  return ok_status();
}

Status draw_whole(KernelCall& call, int64_t low, int64_t high) {
  SG_TRY(check_whole_range(call, low, high));
  RandomArgs args = random_args(call, call.result(), Draw::whole);
  args.low = static_cast<uint64_t>(low);
  args.count = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  return launch(call, args);
}

Status rand(KernelCall& call) { return launch(call, random_args(call, call.result(), Draw::uniform, 0, 1)); }
Status randn(KernelCall& call) { return launch(call, random_args(call, call.result(), Draw::normal, 0, 1)); }
Status uniform(KernelCall& call) {
  SG_TRY(check_interval(call));
  return launch(call, random_args(call, call.result(), Draw::uniform, call.number("from"), call.number("to")));
}
template <Draw draw>
Status of_mean_and_spread(KernelCall& call) {
  SG_TRY(check_spread(call, "std", draw == Draw::normal));
  return launch(call, random_args(call, call.result(), draw, call.number("mean"), call.number("std")));
}
Status exponential(KernelCall& call) {
  SG_TRY(check_spread(call, "lambd", false));
  return launch(call, random_args(call, call.result(), Draw::exponential, call.number("lambd")));
}
Status cauchy(KernelCall& call) {
  SG_TRY(check_spread(call, "sigma", false));
  return launch(call, random_args(call, call.result(), Draw::cauchy, call.number("median"), call.number("sigma")));
}
Status geometric(KernelCall& call) {
  const double p = call.number("p");
  if (!(p > 0 && p < 1)) return call.fail("a probability is not within (0, 1): " + std::to_string(p));
  return launch(call, random_args(call, call.result(), Draw::geometric, p));
}
Status randint(KernelCall& call) { return draw_whole(call, 0, call.integer("high")); }
Status randint_low(KernelCall& call) { return draw_whole(call, call.integer("low"), call.integer("high")); }
Status random_from(KernelCall& call) {
  if (!call.has("to")) return call.fail("needs the end of the range");
  return draw_whole(call, call.integer("from"), call.integer("to"));
}
Status random_to(KernelCall& call) { return draw_whole(call, 0, call.integer("to")); }

// Integers that the type can hold: all from 0 for integer types, consecutive ones for floats.
Status random(KernelCall& call) {
  switch (call.result().dtype) {
    case DType::boolean: return draw_whole(call, 0, 2);
    case DType::u8: return draw_whole(call, 0, 256);
    case DType::i8: return draw_whole(call, 0, 128);
    case DType::i16: return draw_whole(call, 0, 32768);
    case DType::i32: return draw_whole(call, 0, int64_t{1} << 31);
    case DType::i64: return draw_whole(call, 0, std::numeric_limits<int64_t>::max());
    default: return draw_whole(call, 0, (int64_t{1} << random_args(call, call.result(), Draw::whole).digits) + 1);
  }
}

Status bernoulli_number(KernelCall& call) {
  SG_TRY(check_probability(call, call.number("p")));
  return launch(call, random_args(call, call.result(), Draw::bernoulli, call.number("p")));
}
Status bernoulli_of(KernelCall& call, const Tensor& p) {
  RandomArgs args = random_args(call, call.result(), Draw::bernoulli);
  args.chance = element_view(broadcast_to(p, call.result().sizes()));
  return launch(call, args);
}
Status bernoulli_self(KernelCall& call) { return bernoulli_of(call, call.tensor("self")); }
Status bernoulli_tensor(KernelCall& call) { return bernoulli_of(call, call.tensor("p")); }

// --- dropout ---

Status drop(KernelCall& call, const Tensor& mask, double p) {
  RandomArgs args = random_args(call, call.result(), Draw::bernoulli, 1 - p);
  args.from = element_view(call.tensor("input"));
  if (!mask.is_none()) args.mask = element_view(mask);
  args.scale = p == 1 ? 0 : 1 / (1 - p);
  return launch(call, args, "dropout_elements");
}

Status native_dropout(KernelCall& call) {
  const double p = call.number("p");
  SG_TRY(check_probability(call, p));
  if (is_complex(call.result().dtype)) return run_by_host(call);
  if (!call.has("train") || call.flag("train")) return drop(call, call.result(1), p);
  backend_of(call).copy(call.result(0), call.tensor("input"));
  backend_of(call).fill(call.result(1), Scalar::boolean(true));
  return ok_status();
}

Status dropout(KernelCall& call) {
  const double p = call.number("p");
  SG_TRY(check_probability(call, p));
  if (is_complex(call.result().dtype)) return run_by_host(call);
  if (call.flag("train") && p != 0) return drop(call, Tensor(), p);
  backend_of(call).copy(call.result(), call.tensor("input"));
  return ok_status();
}

Status rrelu(KernelCall& call) {
  if (!call.flag("training")) return run_by_host(call);
  RandomArgs args = random_args(call, call.result(), Draw::uniform, call.number("lower"), call.number("upper"));
  const Tensor& noise = call.tensor("noise");
  args.digits = random_args(call, noise, Draw::uniform).digits;
  args.mask = element_view(noise);
  args.from = element_view(call.tensor("self"));
  device_of(call).launch("rrelu_elements", blocks_for(args.to.count), args);
  return ok_status();
}

// --- orders and choices ---

Status randperm(KernelCall& call) {
  const int64_t length = call.result().elements();
  if (length == 0) return ok_status();
  SG_TRY(check_whole_range(call, 0, length));
  auto longs = [&] { return backend_of(call).scratch(DType::i64, std::array{length}); };
  const Tensor targets = longs(), sorted = longs(), steps = longs(), before = longs(), into = longs(), to = longs();
  OrderArgs args;
  args.length = length;
  args.stream = stream_of(call);
  args.targets = targets.as<int64_t>();
  args.sorted = sorted.as<int64_t>();
  args.steps = steps.as<int64_t>();
  args.before = before.as<int64_t>();
  args.into = into.as<int64_t>();
  args.to = to.as<int64_t>();
  Device& device = device_of(call);
  device.launch("order_targets", blocks_for(length), args);
  sort_line(call, targets, sorted, steps);
  backend_of(call).fill(into, Scalar::integer(-1));
  device.launch("order_links", blocks_for(length), args);
  device.launch("order_numbers", blocks_for(length), args);
  backend_of(call).copy(call.result(), to);
  return ok_status();
}

Status multinomial(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  Tensor weights = backend_of(call).scratch(DType::f64, self.sizes());
  Tensor marks = backend_of(call).scratch(DType::f64, self.sizes());
  Tensor chosen = backend_of(call).scratch(DType::i64, call.result().sizes());
  backend_of(call).copy(weights, self);
  backend_of(call).fill(chosen, Scalar::integer(0));
  ChoiceArgs args{};
  args.to = chosen.as<int64_t>();
  args.marks = marks.as<double>();
  args.weights = weights.as<double>();
  args.rows = self.rank == 2 ? self.dim(0) : 1;
  args.length = self.dim(-1);
  args.wanted = chosen.dim(-1);
  args.replace = call.flag("replacement");
  args.stream = stream_of(call);
  args.report = device_of(call).report();
  if (args.wanted > 0) device_of(call).launch("random_choices", std::min<int64_t>(args.rows, 1 << 16), args);
  backend_of(call).copy(call.result(), chosen);
  return ok_status();
}

constexpr KernelRow kRandomRows[] = {
    {"aten.rand.default", rand},
    {"aten.rand_like.default", rand},
    {"aten.randn.default", randn},
    {"aten.randn_like.default", randn},
    {"aten.randint.default", randint},
    {"aten.randint.low", randint_low},
    {"aten.randint_like.default", randint},
    {"aten.randint_like.low_dtype", randint_low},
    {"aten.randperm.default", randperm},
    {"aten.rrelu_with_noise.default", rrelu},
    {"aten.rrelu_with_noise_.default", rrelu},
    {"aten.uniform.default", uniform},
    {"aten.uniform_.default", uniform},
    {"aten.normal_.default", of_mean_and_spread<Draw::normal>},
    {"aten.normal_functional.default", of_mean_and_spread<Draw::normal>},
    {"aten.log_normal.default", of_mean_and_spread<Draw::log_normal>},
    {"aten.log_normal_.default", of_mean_and_spread<Draw::log_normal>},
    {"aten.exponential.default", exponential},
    {"aten.exponential_.default", exponential},
    {"aten.cauchy.default", cauchy},
    {"aten.cauchy_.default", cauchy},
    {"aten.geometric.default", geometric},
    {"aten.geometric_.default", geometric},
    {"aten.random.default", random},
    {"aten.random_.default", random},
    {"aten.random.from", random_from},
    {"aten.random_.from", random_from},
    {"aten.random.to", random_to},
    {"aten.random_.to", random_to},
    {"aten.bernoulli.default", bernoulli_self},
    {"aten.bernoulli.p", bernoulli_number},
    {"aten.bernoulli_.float", bernoulli_number},
    {"aten.bernoulli.Tensor", bernoulli_tensor},
    {"aten.bernoulli_.Tensor", bernoulli_tensor},
    {"aten.native_dropout.default", native_dropout},
    {"aten.dropout.default", dropout},
    {"aten.multinomial.default", multinomial},
};

}  // namespace

std::span<const KernelRow> random_kernels() { return kRandomRows; }

}  // namespace sg::cuda
