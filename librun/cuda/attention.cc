// Attention of the backend: by tiles (kernels/flash.h), or by products and a kernel for the weights.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "librun/cpu/attention.h"
#include "librun/cuda/attention_heads.h"
#include "librun/cuda/attention_mask.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/flash_backward.h"
#include "librun/cuda/kernels/matmul_args.h"

namespace sg::cuda {
namespace {

constexpr int64_t kScoreBytes = int64_t{256} << 20;  // limit of scores at a time: as many heads as fit

class AttentionCall {
 public:
  AttentionCall(KernelCall& call, const cpu::Attention& a) : call_(call), a_(a) {
    sum_type_ = a.query.dtype == DType::f64 ? DType::f64 : DType::f32;
  }

  enum class Use : uint8_t { raw, weights, delta, narrow_weights, narrow_delta };

  // Calls fn(heads) for runs of heads whose scores fit.
  template <class Fn>
  Status for_heads(const Fn& fn) const {
    for (int64_t batch = 0; batch < a_.batch(); ++batch)
      for (int64_t first = 0; first < a_.heads(); first += together())
        SG_TRY(fn(Heads{batch, first, std::min(together(), a_.heads() - first), 0, a_.query.dim(2)}));
    return ok_status();
  }

  // Memory for the scores of a run of heads: one buffer per use, shared by all runs.
  Tensor scores(const Heads& h, DType type, Use use) {
    Tensor& whole = memory_[static_cast<size_t>(use)];
    if (whole.is_none())
      whole = backend_of(call_).scratch(type, std::array{together(), a_.query.dim(2), a_.key.dim(2)});
    Tensor out = whole;
    out.shape[0] = h.count;
    return out;
  }
  DType sum_type() const { return sum_type_; }

  // Stores the masked softmax of query @ key^T in `weights`.
  Status weigh(const Heads& h, const Tensor& weights, const Tensor& sums) {
    const Tensor raw = scores(h, sum_type_, Use::raw);
    SG_TRY(multiply_shared(call_, a_, h, raw, part_of(a_.query, h), swap_axes(a_.key, 2, 3)));
    ScoreArgs args;
    args.scores = Device::view(raw);
    args.weights = Device::view(weights);
    if (!a_.mask.is_none()) args.mask = Device::view(part_of(a_.mask, h));
    if (!sums.is_none()) args.sums = Device::view(sums);
    args.scale = a_.scale;
    args.causal = a_.causal;
    device_of(call_).launch("attention_weights", h.count * a_.query.dim(2), args);
    return ok_status();
  }

  // Applies dropout to the weights of a run of heads, or to their gradients. May be in place.
  void drop(const Heads& h, const Tensor& to, const Tensor& from) const {
    const cpu::AttentionDropout& drawn = *a_.dropout;
    const int64_t row = (h.batch * a_.heads() + h.first) * a_.query.dim(2);
    DropArgs args{Device::view(to), Device::view(from), drawn.key, drawn.kept(), drawn.factor()};
    if (sum_type_ == DType::f32) args.factor = static_cast<float>(args.factor);
    args.first = drawn.first + row * a_.key.dim(2);
    device_of(call_).launch("attention_drop", blocks_for(to.elements()), args);
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

Tensor first_three(const Tensor& t) {
  Tensor out = t;
  out.rank = std::min(t.rank, 3);
  return out;
}

}  // namespace

// --- by tiles (kernels/flash.h) ---

namespace {

constexpr int64_t kFlashDepth = 128;

// A bf16 tensor [batch, heads, rows, depth] in the form that kernels take; none if its layout is not supported.
std::optional<FlashTensor> flash_tensor(const Tensor& t, int64_t batches) {
  if (t.is_none() || t.dtype != DType::bf16 || t.rank != 4) return std::nullopt;
  const bool lies = (t.step(3) == 1 || t.dim(3) == 1) && t.step(0) % 2 == 0 && t.step(1) % 2 == 0 &&
                    t.step(2) % 2 == 0 && reinterpret_cast<uintptr_t>(t.data) % 4 == 0;
  if (!lies || (t.dim(0) != batches && t.dim(0) != 1)) return std::nullopt;
  return FlashTensor{t.as<uint16_t>(), t.dim(0) == 1 ? 0 : t.step(0), t.step(1), t.step(2)};
}

// Whether 8 consecutive numbers of any row are a 16-byte aligned unit.
bool has_runs(const FlashTensor& t) {
  return t.batch % 8 == 0 && t.head % 8 == 0 && t.row % 8 == 0 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

// Whether bf16 numbers of usual size times the scale are bf16 numbers, and sums of their products the same multiples.
bool is_exact_factor(float scale) {
  int exponent = 0;
  return std::frexp(scale, &exponent) == 0.5f && exponent <= 1 && exponent > -16;
}

// SG_CUDA_TILES=0 says no: products and a kernel for the weights then do the same.
bool goes_by_tiles() {
  const char* said = std::getenv("SG_CUDA_TILES");
  return !said || *said != '0';
}

std::optional<FlashArgs> flash_args(const cpu::Attention& a) {
  if (!goes_by_tiles()) return std::nullopt;
  const auto query = flash_tensor(a.query, a.batch()), key = flash_tensor(a.key, a.batch()),
             value = flash_tensor(a.value, a.batch());
  const int64_t depth = a.query.dim(3);
  if (!query || !key || !value || a.dropout || depth != a.value.dim(3) || depth > kFlashDepth || depth % 2 != 0 ||
      !(static_cast<float>(a.scale) > 0))
    return std::nullopt;
  constexpr int64_t kMostRows = int64_t{1} << 30;  // kernels number rows in 32 bits
  if (a.query.elements() == 0 || a.key.elements() == 0 || a.query.dim(2) > kMostRows || a.key.dim(2) > kMostRows)
    return std::nullopt;
  FlashArgs args;
  if (!a.mask.is_none()) {
    const auto mask = flash_mask(a.mask, a.key.dim(2));
    if (!mask) return std::nullopt;
    args.mask = *mask;
  }
  args.query = *query;
  args.key = *key;
  args.value = *value;
  args.batches = a.batch();
  args.heads = a.heads();
  args.group = a.group();
  args.queries = static_cast<int32_t>(a.query.dim(2));
  args.keys = static_cast<int32_t>(a.key.dim(2));
  args.depth = static_cast<int32_t>(depth);
  args.scale = static_cast<float>(a.scale);
  (is_exact_factor(args.scale) ? args.scale_of_rows : args.scale_of_products) = args.scale;
  args.causal = a.causal;
  args.has_runs = depth % 8 == 0 && has_runs(*query) && has_runs(*key) && has_runs(*value);
  return args;
}

int64_t flash_blocks(const FlashArgs& args, int64_t heads, int64_t rows, int tiles) {
  return args.batches * heads * ((rows + flash_rows(tiles) - 1) / flash_rows(tiles));
}

void find_tiles(KernelCall& call, FlashArgs& args) {
  if (args.mask.data) args.tiles = flash_tiles(call, args.mask, {args.batches, args.heads, args.queries, args.keys});
}

std::string flash_name(std::string_view kernel, const FlashArgs& args, bool is_wide) {
  return std::string(kernel) + (args.depth <= 64 ? "_64" : "_128") + (is_wide ? "_wide" : "") +
         (args.mask.data ? "_masked" : "");
}

// Launches over `rows` of that many heads. With 32 rows per warp, the other side is read once instead of twice: used if
// there are enough blocks for every multiprocessor, up to the depth that leaves registers for them: 64 with a mask.
void launch_flash(Device& device, std::string_view kernel, const FlashArgs& args, int64_t heads, int64_t rows,
                  int wide_depth) {
  constexpr int64_t kManyBlocks = 256;
  if (args.mask.data) wide_depth = std::min(wide_depth, 64);
  const bool is_wide = args.depth <= wide_depth && flash_blocks(args, heads, rows, 2) >= kManyBlocks;
  device.launch(flash_name(kernel, args, is_wide).c_str(), flash_blocks(args, heads, rows, is_wide ? 2 : 1), args);
}

// False, and nothing is done: these arguments are not supported.
bool flash_forward(KernelCall& call, const cpu::Attention& a, const cpu::AttentionResult& result) {
  std::optional<FlashArgs> args = flash_args(a);
  const auto out = flash_tensor(result.out, a.batch());
  if (!args || !out || result.out.dim(0) != a.batch()) return false;
  args->out = *out;
  Tensor sums;
  if (!result.logsumexp.is_none()) {
    sums = backend_of(call).scratch(DType::f32, std::array<int64_t, 3>{args->batches, args->heads, args->queries});
    args->sums = sums.as<float>();
  }
  find_tiles(call, *args);
  launch_flash(device_of(call), "flash_forward", *args, args->heads, args->queries, 128);
  if (!sums.is_none()) {
    Tensor to = first_three(result.logsumexp);
    to.shape[2] = args->queries;  // there may be room for more
    backend_of(call).copy(to, sums);
  }
  return true;
}

// A gradient: the tensor that is wanted, and the one that kernels write, which differs if the layout is not supported.
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
  if (!args || !g.mask.is_none() || g.out.is_none() || g.logsumexp.is_none()) return false;
  const auto out = flash_tensor(g.out, a.batch()), grad_out = flash_tensor(g.grad_out, a.batch());
  const auto query = flash_gradient(call, g.query, a.batch()), key = flash_gradient(call, g.key, a.batch()),
             value = flash_gradient(call, g.value, a.batch());
  if (!out || !grad_out || !query || !key || !value) return false;
  args->out = *out;
  args->grad_out = *grad_out;
  args->has_runs &= has_runs(*grad_out);
  args->out_has_runs = has_runs(*out);
  const std::array<int64_t, 3> rows = {args->batches, args->heads, args->queries};
  const Tensor sums = backend_of(call).scratch(DType::f32, rows), delta = backend_of(call).scratch(DType::f32, rows);
  Tensor given = first_three(g.logsumexp);
  given.shape[2] = args->queries;
  backend_of(call).copy(sums, given);
  args->sums = sums.as<float>();
  args->delta = delta.as<float>();
  Device& device = device_of(call);
  find_tiles(call, *args);
  device.launch("flash_delta", blocks_for(delta.elements() * kDeltaLanes), *args);
  if (!key->wanted.is_none() || !value->wanted.is_none()) {
    if (!key->wanted.is_none()) args->grad_key = *flash_tensor(key->written, a.batch());
    if (!value->wanted.is_none()) args->grad_value = *flash_tensor(value->written, a.batch());
    launch_flash(device, "flash_backward_keys", *args, args->heads / args->group, args->keys, 64);
  }
  if (!query->wanted.is_none()) {
    args->grad_query = *flash_tensor(query->written, a.batch());
    launch_flash(device, "flash_backward_queries", *args, args->heads, args->queries, 64);
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
  note_dense_attention();
  AttentionCall work(call, a);
  return work.for_heads([&](const Heads& h) -> Status {
    const Tensor weights = work.scores(h, a.query.dtype, AttentionCall::Use::weights);
    SG_TRY(work.weigh(h, weights, part_of(first_three(result.logsumexp), h)));
    if (a.dropout) work.drop(h, weights, weights);
    return multiply_shared(call, a, h, part_of(result.out, h), weights, a.value);
  });
}

Status CudaBackend::attend_backward(KernelCall& call, const cpu::Attention& a, const cpu::AttentionGradients& g) {
  if (!g.grad_logsumexp.is_none() || g.grad_out.is_none() || g.log_scale != 1) return run_by_host(call);
  if (flash_backward(call, a, g)) return ok_status();
  note_dense_attention();
  AttentionCall work(call, a);
  // Gradients of shared heads are accumulated in full precision.
  auto sum_for = [&](const Tensor& wanted, const Tensor& like) {
    if (wanted.is_none()) return Tensor();
    const Tensor sum = scratch(work.sum_type(), like.sizes());
    fill(sum, Scalar::integer(0));
    return sum;
  };
  const Tensor key_sum = sum_for(g.key, a.key), value_sum = sum_for(g.value, a.value);
  SG_TRY(work.for_heads([&](const Heads& h) -> Status {
    const Tensor weights = work.scores(h, work.sum_type(), AttentionCall::Use::weights);
    const Tensor delta = work.scores(h, work.sum_type(), AttentionCall::Use::delta);
    const Tensor grad_out = part_of(g.grad_out, h);
    SG_TRY(work.weigh(h, weights, {}));
    SG_TRY(multiply_shared(call, a, h, delta, grad_out, swap_axes(a.value, 2, 3)));
    auto narrow = [&](const Tensor& t, AttentionCall::Use use) {  // products need operands of one type
      if (t.dtype == a.query.dtype) return t;
      Tensor out = work.scores(h, a.query.dtype, use);
      copy(out, t);
      return out;
    };
    Tensor kept;
    if (a.dropout) {
      kept = work.scores(h, a.query.dtype, AttentionCall::Use::narrow_weights);
      work.drop(h, kept, weights);
      work.drop(h, delta, delta);
    } else {
      kept = narrow(weights, AttentionCall::Use::narrow_weights);
    }
    if (!value_sum.is_none()) SG_TRY(add_to_shared(call, a, h, value_sum, kept, grad_out));
    ScoreArgs args;
    args.scores = Device::view(weights);
    args.delta = Device::view(delta);
    args.scale = g.mask.is_none() ? a.scale : 1;
    device_->launch("attention_score_gradients", h.count * a.query.dim(2), args);
    if (!g.mask.is_none()) {  // its gradient is not scaled
      const int64_t blocks = blocks_for(delta.elements());
      const Tensor of_mask = part_of(g.mask, h);
      device_->launch("attention_mask_gradients", blocks, MaskGradientArgs{Device::view(of_mask), Device::view(delta)});
      device_->launch("attention_seen", blocks, SeenArgs{Device::view(delta), Device::view(delta), {}, a.scale});
    }
    const Tensor scores = narrow(delta, AttentionCall::Use::narrow_delta);
    if (!g.query.is_none()) SG_TRY(multiply_shared(call, a, h, part_of(g.query, h), scores, a.key));
    if (!key_sum.is_none()) SG_TRY(add_to_shared(call, a, h, key_sum, scores, part_of(a.query, h)));
    return ok_status();
  }));
  if (!key_sum.is_none()) copy(g.key, key_sum);
  if (!value_sum.is_none()) copy(g.value, value_sum);
  return ok_status();
}

}  // namespace sg::cuda
