// Matrix products and attention of the backend.
#include <algorithm>
#include <array>
#include <optional>

#include "librun/cpu/attention.h"
#include "librun/cpu/gemm.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/flash.h"
#include "librun/cuda/kernels/matmul_args.h"
#include "librun/cuda/lt.h"

namespace sg::cuda {
namespace {

constexpr int64_t kScoreBytes = int64_t{256} << 20;  // of attention's scores at a time: as many heads as fit

// Batch axes as one, when the strides allow; none otherwise.
std::optional<Tensor> as_three(const Tensor& t) {
  Tensor out = t;
  while (out.rank < 3) {
    for (int axis = out.rank; axis > 0; --axis) {
      out.shape[static_cast<size_t>(axis)] = out.shape[static_cast<size_t>(axis - 1)];
      out.stride[static_cast<size_t>(axis)] = out.stride[static_cast<size_t>(axis - 1)];
    }
    out.shape[0] = 1;
    out.stride[0] = 0;
    ++out.rank;
  }
  while (out.rank > 3) {
    const int64_t inner = out.dim(1);
    if (out.dim(0) != 1 && inner != 1 && out.step(0) != inner * out.step(1)) return std::nullopt;
    const int64_t step = inner == 1 ? out.step(0) : out.step(1);
    const int64_t count = out.dim(0) * inner;
    out = drop_axis(out, 0);
    out.shape[0] = count;
    out.stride[0] = step;
  }
  return out;
}

Tensor folded(KernelCall& call, const Tensor& t) {
  if (auto three = as_three(t)) return *three;
  Tensor copy = backend_of(call).scratch(t.dtype, t.sizes());
  backend_of(call).copy(copy, t);
  return *as_three(copy);
}

// With kernels of our own: any type, any strides.
void multiply_plainly(KernelCall& call, const Product& p, const Tensor& add, Scalar alpha, Scalar beta) {
  MatmulArgs args;
  args.to = Device::view(p.out);
  args.a = Device::view(p.a);
  args.b = Device::view(p.b);
  if (!add.is_none()) args.add = Device::view(add);
  args.alpha = alpha.to_complex().real();
  args.beta = beta.to_complex().real();
  args.alpha_im = alpha.to_complex().imag();
  args.beta_im = beta.to_complex().imag();
  args.whole_alpha = alpha.is_integral() ? alpha.i : static_cast<int64_t>(alpha.re);
  args.whole_beta = beta.is_integral() ? beta.i : static_cast<int64_t>(beta.re);
  args.report = device_of(call).report();
  device_of(call).launch("matmul_elements", blocks_for(args.to.count), args);
}

Status multiply_three(KernelCall& call, const Product& p, const Tensor& add, Scalar alpha, Scalar beta) {
  if (p.out.elements() == 0) return ok_status();
  const bool adds = !add.is_none() && beta.to_complex() != 0.0, by_lt = is_floating(p.a.dtype) && p.a.dim(2) > 0;
  if (by_lt) {
    if (adds && add.data != p.out.data) backend_of(call).copy(p.out, add);
    Product scaled = p;
    scaled.alpha = alpha.to_double();
    scaled.beta = adds ? beta.to_double() : 0;
    SG_ASSIGN(bool done, backend_of(call).lt().multiply(scaled));
    if (done) return ok_status();
    multiply_plainly(call, p, adds ? p.out : Tensor(), alpha, beta);
    return ok_status();
  }
  multiply_plainly(call, p, adds ? add : Tensor(), alpha, beta);
  return ok_status();
}

}  // namespace

Status CudaBackend::multiply(KernelCall& call, const cpu::Gemm& g) {
  Tensor out = g.out;
  const bool direct = as_three(out).has_value();
  if (!direct) out = backend_of(call).scratch(out.dtype, out.sizes());
  Tensor add = g.self.is_none() ? Tensor() : folded(call, broadcast_to(g.self, g.out.sizes()));
  const Product p{*as_three(out), folded(call, g.a), folded(call, g.b)};
  SG_TRY(multiply_three(call, p, add, g.alpha, g.beta));
  if (!direct) copy(g.out, out);
  return ok_status();
}

// --- attention ---

namespace {

// A run of heads of one batch entry: [heads, rows, columns] each.
struct Heads {
  Tensor query, key, value, mask;
  int64_t batch = 0, first = 0, count = 0;
};

Tensor heads_of(const Tensor& t, int64_t batch, int64_t first, int64_t count) {
  Tensor out = t;
  out.data += ((t.dim(0) == 1 ? 0 : batch) * t.step(0) + first * t.step(1)) * dtype_bytes(t.dtype);
  out.shape[1] = count;
  return drop_axis(out, 0);
}

Tensor one_head(const Tensor& t, int64_t head) {
  Tensor out = t;
  out.data += head * t.step(0) * dtype_bytes(t.dtype);
  out.shape[0] = 1;
  return out;
}

class AttentionCall {
 public:
  AttentionCall(KernelCall& call, const cpu::Attention& a) : call_(call), a_(a) {
    sum_type_ = a.query.dtype == DType::f64 ? DType::f64 : DType::f32;
  }

  enum class Use : uint8_t { raw, weights, delta, narrow_weights, narrow_delta };

  // fn(heads) for runs of heads whose scores fit.
  template <class Fn>
  Status for_heads(const Fn& fn) const {
    for (int64_t batch = 0; batch < a_.batch(); ++batch)
      for (int64_t first = 0; first < a_.heads(); first += together()) {
        Heads h;
        h.batch = batch;
        h.first = first;
        h.count = std::min(together(), a_.heads() - first);
        h.query = heads_of(a_.query, batch, first, h.count);
        if (!a_.mask.is_none()) h.mask = heads_of(a_.mask, batch, first, h.count);
        SG_TRY(fn(h));
      }
    return ok_status();
  }

  // Scores of a run of heads: each use has its memory, the same for all runs.
  Tensor scores(const Heads& h, DType type, Use use) {
    Tensor& whole = memory_[static_cast<size_t>(use)];
    if (whole.is_none())
      whole = backend_of(call_).scratch(type, std::array{together(), a_.query.dim(2), a_.key.dim(2)});
    Tensor out = whole;
    out.shape[0] = h.count;
    return out;
  }
  // The key or value head that each head of the run shares; one product for all where they are neighbours.
  Tensor shared(const Tensor& t, const Heads& h, int64_t head) const {
    return heads_of(t, h.batch, (h.first + head) / a_.group(), 1);
  }
  DType sum_type() const { return sum_type_; }

  // to [heads, ., .] (+)= x [heads, ., .] @ the heads of `kept`, transposed or not.
  Status with_shared(const Tensor& to, const Tensor& x, const Tensor& kept, const Heads& h, bool transpose) const {
    auto turned = [&](const Tensor& t) { return transpose ? swap_axes(t, 1, 2) : t; };
    if (a_.group() == 1)
      return multiply_three(call_, {to, x, turned(heads_of(kept, h.batch, h.first, h.count))}, {}, Scalar::integer(1),
                            Scalar::integer(0));
    for (int64_t i = 0; i < h.count; ++i)
      SG_TRY(multiply_three(call_, {one_head(to, i), one_head(x, i), turned(shared(kept, h, i))}, {},
                            Scalar::integer(1), Scalar::integer(0)));
    return ok_status();
  }
  // The gradient of a shared head, in `sum` [., .] per key head: += x^T [heads, ., .] @ y.
  Status add_shared(const Tensor& sum, const Tensor& x, const Tensor& y, const Heads& h) const {
    for (int64_t i = 0; i < h.count; ++i) {
      const Tensor to = heads_of(sum, h.batch, (h.first + i) / a_.group(), 1);
      const bool more = (h.first + i) % a_.group() != 0 || (h.batch > 0 && sum.dim(0) == 1);
      SG_TRY(multiply_three(call_, {to, swap_axes(one_head(x, i), 1, 2), one_head(y, i)}, more ? to : Tensor(),
                            Scalar::integer(1), Scalar::integer(more ? 1 : 0)));
    }
    return ok_status();
  }

  // The softmax of query @ key^T, masked, in `weights`.
  Status weigh(const Heads& h, const Tensor& weights, const Tensor& sums) {
    const Tensor raw = scores(h, sum_type_, Use::raw);
    SG_TRY(with_shared(raw, h.query, a_.key, h, true));
    ScoreArgs args;
    args.scores = Device::view(raw);
    args.weights = Device::view(weights);
    if (!h.mask.is_none()) args.mask = Device::view(h.mask);
    if (!sums.is_none()) args.sums = Device::view(sums);
    args.scale = a_.scale;
    args.causal = a_.causal;
    device_of(call_).launch("attention_weights", h.count * a_.query.dim(2), args);
    return ok_status();
  }

 private:
  int64_t together() const {
    const int64_t one = std::max<int64_t>(a_.query.dim(2) * a_.key.dim(2) * 8, 1);
    return std::clamp<int64_t>(kScoreBytes / one, 1, std::max<int64_t>(a_.heads(), 1));
  }

  KernelCall& call_;
  const cpu::Attention& a_;
  DType sum_type_;
  std::array<Tensor, 5> memory_;
};

// The first three axes of the logarithms, for the heads of a run.
Tensor sums_of(const Tensor& t, const Heads& h) {
  if (t.is_none()) return {};
  Tensor out = t;
  out.data += (h.batch * t.step(0) + h.first * t.step(1)) * dtype_bytes(t.dtype);
  out.rank = 3;
  out.shape[1] = h.count;
  return drop_axis(out, 0);
}

}  // namespace

// --- by tiles (kernels/flash.h) ---

namespace {

constexpr int64_t kFlashDepth = 128;

// [batch, heads, rows, depth] of bf16 as the kernels take it; none where it does not lie so.
std::optional<FlashTensor> flash_tensor(const Tensor& t, int64_t batches) {
  if (t.is_none() || t.dtype != DType::bf16 || t.rank != 4) return std::nullopt;
  const bool lies = (t.step(3) == 1 || t.dim(3) == 1) && t.step(0) % 2 == 0 && t.step(1) % 2 == 0 &&
                    t.step(2) % 2 == 0 && reinterpret_cast<uintptr_t>(t.data) % 4 == 0;
  if (!lies || (t.dim(0) != batches && t.dim(0) != 1)) return std::nullopt;
  return FlashTensor{t.as<uint16_t>(), t.dim(0) == 1 ? 0 : t.step(0), t.step(1), t.step(2)};
}

std::optional<FlashArgs> flash_args(const cpu::Attention& a) {
  const auto query = flash_tensor(a.query, a.batch()), key = flash_tensor(a.key, a.batch()),
             value = flash_tensor(a.value, a.batch());
  const int64_t depth = a.query.dim(3);
  if (!query || !key || !value || !a.mask.is_none() || depth != a.value.dim(3) || depth > kFlashDepth || depth % 2 != 0)
    return std::nullopt;
  if (a.query.elements() == 0 || a.key.elements() == 0) return std::nullopt;
  FlashArgs args;
  args.query = *query;
  args.key = *key;
  args.value = *value;
  args.batches = a.batch();
  args.heads = a.heads();
  args.group = a.group();
  args.queries = a.query.dim(2);
  args.keys = a.key.dim(2);
  args.depth = static_cast<int32_t>(depth);
  args.scale = static_cast<float>(a.scale);
  args.causal = a.causal;
  return args;
}

int64_t flash_blocks(const FlashArgs& args, int64_t heads, int64_t rows) {
  return args.batches * heads * ((rows + kFlashRows - 1) / kFlashRows);
}

const char* flash_name(const FlashArgs& args, const char* of_64, const char* of_128) {
  return args.depth <= 64 ? of_64 : of_128;
}

Tensor first_three(const Tensor& t) {
  Tensor out = t;
  out.rank = 3;
  return out;
}

// False: not for these, and nothing has been done.
bool flash_forward(KernelCall& call, const cpu::Attention& a, const cpu::AttentionResult& result) {
  std::optional<FlashArgs> args = flash_args(a);
  const auto out = flash_tensor(result.out, a.batch());
  if (!args || !out || result.out.dim(0) != a.batch()) return false;
  args->out = *out;
  Tensor sums;
  if (!result.logsumexp.is_none()) {
    sums = backend_of(call).scratch(DType::f32, std::array{args->batches, args->heads, args->queries});
    args->sums = sums.as<float>();
  }
  device_of(call).launch(flash_name(*args, "flash_forward_64", "flash_forward_128"),
                         flash_blocks(*args, args->heads, args->queries), *args);
  if (!sums.is_none()) {
    Tensor to = first_three(result.logsumexp);
    to.shape[2] = args->queries;  // there may be room for more
    backend_of(call).copy(to, sums);
  }
  return true;
}

// A gradient: where it is wanted, or memory of its own where it does not lie as the kernels write.
struct FlashGradient {
  Tensor wanted, written;
};

std::optional<FlashGradient> flash_gradient(KernelCall& call, const Tensor& wanted, int64_t batches) {
  if (wanted.is_none()) return FlashGradient{};
  if (wanted.dtype != DType::bf16 || wanted.dim(0) != batches) return std::nullopt;
  if (flash_tensor(wanted, batches)) return FlashGradient{wanted, wanted};
  return FlashGradient{wanted, backend_of(call).scratch(DType::bf16, wanted.sizes())};
}

bool flash_backward(KernelCall& call, const cpu::Attention& a, const cpu::AttentionGradients& g) {
  std::optional<FlashArgs> args = flash_args(a);
  if (!args || g.out.is_none() || g.logsumexp.is_none()) return false;
  const auto out = flash_tensor(g.out, a.batch()), grad_out = flash_tensor(g.grad_out, a.batch());
  const auto query = flash_gradient(call, g.query, a.batch()), key = flash_gradient(call, g.key, a.batch()),
             value = flash_gradient(call, g.value, a.batch());
  if (!out || !grad_out || !query || !key || !value) return false;
  args->out = *out;
  args->grad_out = *grad_out;
  const std::array<int64_t, 3> rows = {args->batches, args->heads, args->queries};
  const Tensor sums = backend_of(call).scratch(DType::f32, rows), delta = backend_of(call).scratch(DType::f32, rows);
  Tensor given = first_three(g.logsumexp);
  given.shape[2] = args->queries;
  backend_of(call).copy(sums, given);
  args->sums = sums.as<float>();
  args->delta = delta.as<float>();
  Device& device = device_of(call);
  device.launch("flash_delta", blocks_for(delta.elements()), *args);
  if (!key->wanted.is_none() || !value->wanted.is_none()) {
    if (!key->wanted.is_none()) args->grad_key = *flash_tensor(key->written, a.batch());
    if (!value->wanted.is_none()) args->grad_value = *flash_tensor(value->written, a.batch());
    device.launch(flash_name(*args, "flash_backward_keys_64", "flash_backward_keys_128"),
                  flash_blocks(*args, args->heads / args->group, args->keys), *args);
  }
  if (!query->wanted.is_none()) {
    args->grad_query = *flash_tensor(query->written, a.batch());
    device.launch(flash_name(*args, "flash_backward_queries_64", "flash_backward_queries_128"),
                  flash_blocks(*args, args->heads, args->queries), *args);
  }
  for (const FlashGradient* one : {&*query, &*key, &*value})
    if (!one->wanted.is_none() && one->written.data != one->wanted.data)
      backend_of(call).copy(one->wanted, one->written);
  return true;
}

}  // namespace

Status CudaBackend::attend(KernelCall& call, const cpu::Attention& a, const cpu::AttentionResult& result) {
  if (!result.maxima.is_none() || result.log_scale != 1) return run_by_host(call);
  if (flash_forward(call, a, result)) return ok_status();
  AttentionCall work(call, a);
  return work.for_heads([&](const Heads& h) -> Status {
    const Tensor weights = work.scores(h, a.query.dtype, AttentionCall::Use::weights);
    SG_TRY(work.weigh(h, weights, sums_of(result.logsumexp, h)));
    SG_TRY(work.with_shared(heads_of(result.out, h.batch, h.first, h.count), weights, a.value, h, false));
    return ok_status();
  });
}

Status CudaBackend::attend_backward(KernelCall& call, const cpu::Attention& a, const cpu::AttentionGradients& g) {
  if (!g.mask.is_none() || !g.grad_logsumexp.is_none() || g.grad_out.is_none() || g.log_scale != 1)
    return run_by_host(call);
  if (flash_backward(call, a, g)) return ok_status();
  AttentionCall work(call, a);
  // Gradients of shared heads add up in full precision.
  auto sum_for = [&](const Tensor& wanted, const Tensor& like) {
    return wanted.is_none() ? Tensor() : backend_of(call).scratch(work.sum_type(), like.sizes());
  };
  const Tensor key_sum = sum_for(g.key, a.key), value_sum = sum_for(g.value, a.value);
  SG_TRY(work.for_heads([&](const Heads& h) -> Status {
    const Tensor weights = work.scores(h, work.sum_type(), AttentionCall::Use::weights);
    const Tensor delta = work.scores(h, work.sum_type(), AttentionCall::Use::delta);
    const Tensor grad_out = heads_of(g.grad_out, h.batch, h.first, h.count);
    SG_TRY(work.weigh(h, weights, {}));
    SG_TRY(work.with_shared(delta, grad_out, a.value, h, true));
    auto narrow = [&](const Tensor& t, AttentionCall::Use use) {  // products are of one type
      if (t.dtype == a.query.dtype) return t;
      Tensor out = work.scores(h, a.query.dtype, use);
      copy(out, t);
      return out;
    };
    if (!value_sum.is_none())
      SG_TRY(work.add_shared(value_sum, narrow(weights, AttentionCall::Use::narrow_weights), grad_out, h));
    ScoreArgs args;
    args.scores = Device::view(weights);
    args.delta = Device::view(delta);
    args.scale = a.scale;
    device_->launch("attention_score_gradients", h.count * a.query.dim(2), args);
    const Tensor scores = narrow(delta, AttentionCall::Use::narrow_delta);
    if (!g.query.is_none())
      SG_TRY(work.with_shared(heads_of(g.query, h.batch, h.first, h.count), scores, a.key, h, false));
    if (!key_sum.is_none()) SG_TRY(work.add_shared(key_sum, scores, h.query, h));
    return ok_status();
  }));
  if (!key_sum.is_none()) copy(g.key, key_sum);
  if (!value_sum.is_none()) copy(g.value, value_sum);
  return ok_status();
}

// --- grouped ---

namespace {

Tensor with_batch(const Tensor& t) { return *as_three(t); }

Status grouped_mm(KernelCall& call) {
  const Tensor &a = call.tensor("self"), &b = call.tensor("mat2"), &out = call.result();
  if (call.has("bias")) return call.fail("a bias is not part of this op's definition");
  if (a.rank == 3 && b.rank == 3) return backend_of(call).multiply(call, {out, a, b});
  const Tensor& ends = call.tensor("offs");
  if (ends.is_none() || is_floating(ends.dtype) || is_complex(ends.dtype))
    return call.fail("needs integer offsets of the groups");
  MatmulArgs args;
  args.along = b.rank == 3 ? MatmulArgs::Along::m : a.rank == 3 ? MatmulArgs::Along::n : MatmulArgs::Along::k;
  if (args.along != MatmulArgs::Along::k)
    backend_of(call).fill(out, Scalar::integer(0));  // what is behind the last group
  args.to = Device::view(with_batch(out));
  args.a = Device::view(with_batch(a));
  args.b = Device::view(with_batch(b));
  args.ends = Device::view(ends);
  args.report = device_of(call).report();
  device_of(call).launch("matmul_elements", blocks_for(args.to.count), args);
  return ok_status();
}

// By products of the backend; the host does what has no kernel here.
Status attention(KernelCall& call) {
  if (call.number("dropout_p") > 0) return run_by_host(call);
  return find_cpu_kernel(call.op().name)(call);
}

Status efficient_backward(KernelCall& call) {
  return call.result(3).is_none() ? attention(call) : run_by_host(call);  // the gradient of a mask
}

constexpr KernelRow kMatmulRows[] = {
    {"aten._grouped_mm.default", grouped_mm},
    {"aten._scaled_dot_product_efficient_attention_backward.default", efficient_backward},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", attention},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default", attention},
    {"aten._scaled_dot_product_flash_attention.default", attention},
    {"aten._scaled_dot_product_flash_attention_backward.default", attention},
    {"aten._scaled_dot_product_efficient_attention.default", attention},
    {"aten._scaled_dot_product_cudnn_attention.default", attention},
    {"aten._scaled_dot_product_cudnn_attention_backward.default", attention},
    {"aten.scaled_dot_product_attention.default", attention},
};

}  // namespace

std::span<const KernelRow> matmul_kernels() { return kMatmulRows; }

}  // namespace sg::cuda
