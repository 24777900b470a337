// The attention ops. They differ in layouts, in what they return besides the output, and in how they specify "causal"
// and "mask"; results are written with the recorded strides.
//
// The random state of the CUDA ops is the key of dropout (attention_dropout.h). All logarithms are natural.
#include <algorithm>
#include <cmath>
#include <limits>

#include "librun/cpu/attention.h"
#include "librun/cpu/fill.h"
#include "librun/cpu/kernels.h"
#include "librun/work/run.h"

namespace sg::cpu {
namespace {

double scale_of(const KernelCall& call, const Tensor& query) {
  return call.has("scale") ? call.number("scale") : 1 / std::sqrt(static_cast<double>(query.dim(-1)));
}

Result<Attention> attention_of(const KernelCall& call, const Tensor& mask) {
  Attention a{call.tensor("query"), call.tensor("key"), call.tensor("value"), {}, call.flag("is_causal"), 1};
  SG_TRY(check_attention(call, a));
  a.scale = scale_of(call, a.query);
  if (mask.is_none()) return a;
  int64_t scores[] = {a.query.dim(0), a.query.dim(1), a.query.dim(2), a.key.dim(2)};
  if (mask.rank > 4) return call.fail("the mask has more than 4 axes");
  for (int i = 1; i <= mask.rank; ++i)
    if (mask.dim(-i) != 1 && mask.dim(-i) != scores[4 - i])
      return call.fail("the mask does not broadcast to the scores");
  a.mask = broadcast_to(mask, scores);
  return a;
}

Tensor optional_tensor(const KernelCall& call, std::string_view name) {
  return call.has(name) ? call.tensor(name) : Tensor();
}

Status flash_for_cpu(KernelCall& call) {
  SG_ASSIGN(Attention a, attention_of(call, optional_tensor(call, "attn_mask")));
  if (drawn_dropout(call))
    return call.fail("dropout inside attention: this op has none, and its backward is not told what was dropped",
                     "capture with attention dropout 0");
  return attention_forward(call, a, {call.result(0), call.result(1), {}});
}

// The additional results of the ops that return lengths and a random state; the last one, a debug mask, is zeros.
void give_lengths_and_state(KernelCall& call, const Attention& a) {
  call.scalars[4] = Scalar::integer(a.query.dim(2));
  call.scalars[5] = Scalar::integer(a.key.dim(2));
  keep_state(call, a.dropout, call.result(6), call.result(7));
  if (const Tensor& t = call.result(8); !t.is_none()) fill(call, t, Scalar::integer(0));
}

// CUDA's flash attention aligns queries and keys at their ends, not at their beginnings as the others do. PyTorch calls
// it so for torch.nn.attention.bias alone.
Status expect_as_many_keys(const KernelCall& call, const Attention& a) {
  if (!a.causal || a.query.dim(2) == a.key.dim(2)) return ok_status();
  return call.fail("is_causal with " + std::to_string(a.query.dim(2)) + " queries and " + std::to_string(a.key.dim(2)) +
                       " keys: in this op the last query sees the last key",
                   "capture with a mask in place of causal_lower_right()");
}

Status flash(KernelCall& call) {
  SG_ASSIGN(Attention a, attention_of(call, {}));
  SG_TRY(expect_as_many_keys(call, a));
  a.dropout = drawn_dropout(call);
  give_lengths_and_state(call, a);
  return attention_forward(call, a, {call.result(0), call.result(1), {}});
}

Status cudnn(KernelCall& call) {
  SG_ASSIGN(Attention a, attention_of(call, optional_tensor(call, "attn_bias")));
  a.dropout = drawn_dropout(call);
  give_lengths_and_state(call, a);
  return attention_forward(call, a, {call.result(0), call.result(1), {}});
}

// Its logarithms are padded to blocks of 32 rows; the padding is infinity.
Status efficient(KernelCall& call) {
  SG_ASSIGN(Attention a, attention_of(call, optional_tensor(call, "attn_bias")));
  Tensor sums = call.result(1);
  if (!sums.is_none() && sums.dim(2) >= a.query.dim(2))
    fill(call, sums, Scalar::floating(std::numeric_limits<double>::infinity()));
  else sums = {};
  a.dropout = drawn_dropout(call);
  keep_state(call, a.dropout, call.result(2), call.result(3));
  return attention_forward(call, a, {call.result(0), sums, {}});
}

AttentionGradients gradients_of(KernelCall& call, std::string_view grad_out) {
  AttentionGradients g;
  g.grad_out = call.tensor(grad_out);
  g.out = call.tensor("out");
  g.logsumexp = call.tensor("logsumexp");
  g.query = call.result(0);
  g.key = call.result(1);
  g.value = call.result(2);
  return g;
}

Status backward_with_mask(KernelCall& call, std::string_view grad_out, const Tensor& mask) {
  SG_ASSIGN(Attention a, attention_of(call, mask));
  SG_ASSIGN(a.dropout, kept_dropout(call));
  AttentionGradients g = gradients_of(call, grad_out);
  if (g.logsumexp.rank < 3 || g.logsumexp.dim(2) < a.query.dim(2))
    return call.fail("the logarithms of the forward run are missing");
  return attention_backward(call, a, g);
}

Status flash_for_cpu_backward(KernelCall& call) {
  return backward_with_mask(call, "grad_out", optional_tensor(call, "attn_mask"));
}
Status flash_backward(KernelCall& call) { return backward_with_mask(call, "grad_out", {}); }
Status cudnn_backward(KernelCall& call) {
  return backward_with_mask(call, "grad_out", optional_tensor(call, "attn_bias"));
}

Status efficient_backward(KernelCall& call) {
  Tensor mask = optional_tensor(call, "attn_bias");
  SG_ASSIGN(Attention a, attention_of(call, mask));
  SG_ASSIGN(a.dropout, kept_dropout(call));
  AttentionGradients g = gradients_of(call, "grad_out_");
  if (g.logsumexp.rank < 3 || g.logsumexp.dim(2) < a.query.dim(2))
    return call.fail("the logarithms of the forward run are missing");
  if (const Tensor& grad_mask = call.result(3); !grad_mask.is_none()) {
    // Accumulated in full precision, then rounded.
    int64_t shape[kMaxRank];
    std::copy_n(grad_mask.shape.begin(), grad_mask.rank, shape);
    Tensor sum = workspace(call, a.query.dtype == DType::f64 ? DType::f64 : DType::f32,
                           {shape, static_cast<size_t>(grad_mask.rank)});
    fill(call, sum, Scalar::integer(0));
    g.mask = broadcast_to(sum, a.mask.sizes());
    SG_TRY(attention_backward(call, a, g));
    copy(call, grad_mask, sum);
    return ok_status();
  }
  return attention_backward(call, a, g);
}

// [..., L, E] as [batch, heads, L, E]: adds leading axes of size 1, or ignores excess leading axes.
Tensor as_four(const Tensor& t) {
  Tensor out = t;
  out.rank = 4;
  int missing = 4 - t.rank;
  for (int i = 0; i < 4; ++i) {
    auto to = static_cast<size_t>(i);
    out.shape[to] = i < missing ? 1 : t.dim(i - missing);
    out.stride[to] = i < missing ? 0 : t.step(i - missing);
  }
  return out;
}

Tensor slice_at(const Tensor& t, int64_t entry, int axes) {  // indexes the axes before the last four
  Tensor out = t;
  for (int axis = axes - 1; axis >= 0; --axis) {
    out.data += entry % t.dim(axis) * t.step(axis) * dtype_bytes(t.dtype);
    entry /= t.dim(axis);
  }
  for (int axis = 0; axis < axes; ++axis) out = drop_axis(out, 0);
  return out;
}

Status sdpa(KernelCall& call) {
  Attention all{call.tensor("query"), call.tensor("key"), call.tensor("value"), {}, call.flag("is_causal"), 1};
  const Tensor& out = call.result();
  Tensor mask = optional_tensor(call, "attn_mask");
  if (all.query.rank < 2 || all.key.rank != all.query.rank || all.value.rank != all.query.rank)
    return call.fail("query, key and value need equally many axes");
  if (!mask.is_none()) {
    std::array<int64_t, kMaxRank> scores = all.query.shape;
    scores[static_cast<size_t>(all.query.rank - 1)] = all.key.dim(-2);
    for (int i = 1; i <= mask.rank; ++i)
      if (i > all.query.rank || (mask.dim(-i) != 1 && mask.dim(-i) != scores[static_cast<size_t>(all.query.rank - i)]))
        return call.fail("the mask does not broadcast to the scores");
    mask = broadcast_to(mask, {scores.data(), static_cast<size_t>(all.query.rank)});
  }
  int extra = std::max(all.query.rank - 4, 0);
  int64_t entries = 1;
  for (int axis = 0; axis < extra; ++axis) {
    if (all.key.dim(axis) != all.query.dim(axis) || all.value.dim(axis) != all.query.dim(axis))
      return call.fail("the batch sizes differ");
    entries *= all.query.dim(axis);
  }
  for (int64_t e = 0; e < entries; ++e) {
    auto four = [&](const Tensor& t) { return as_four(slice_at(t, e, extra)); };
    Attention a{four(all.query), four(all.key),
                four(all.value), mask.is_none() ? Tensor() : four(mask),
                all.causal,      scale_of(call, all.query)};
    SG_TRY(check_attention(call, a));
    a.dropout = drawn_dropout(call);
    if (a.dropout) a.dropout->first = e * a.batch() * a.heads() * a.query.dim(2) * a.key.dim(2);
    SG_TRY(attention_forward(call, a, {four(out), {}, {}}));
  }
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", flash_for_cpu},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default", flash_for_cpu_backward},
    {"aten._scaled_dot_product_flash_attention.default", flash},
    {"aten._scaled_dot_product_flash_attention_backward.default", flash_backward},
    {"aten._scaled_dot_product_efficient_attention.default", efficient},
    {"aten._scaled_dot_product_efficient_attention_backward.default", efficient_backward},
    {"aten._scaled_dot_product_cudnn_attention.default", cudnn},
    {"aten._scaled_dot_product_cudnn_attention_backward.default", cudnn_backward},
    {"aten.scaled_dot_product_attention.default", sdpa},
};

}  // namespace

std::span<const KernelRow> attention_kernels() { return kRows; }

}  // namespace sg::cpu
