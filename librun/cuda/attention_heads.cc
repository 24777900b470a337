#include "librun/cuda/attention_heads.h"

#include "librun/cuda/products.h"

namespace sg::cuda {
namespace {

Tensor one_head(const Tensor& t, int64_t head) {
  Tensor out = t;
  out.data += head * t.step(0) * dtype_bytes(t.dtype);
  out.shape[0] = 1;
  return out;
}

}  // namespace

Tensor heads_of(const Tensor& t, int64_t batch, int64_t first, int64_t count) {
  Tensor out = t;
  out.data += ((t.dim(0) == 1 ? 0 : batch) * t.step(0) + first * t.step(1)) * dtype_bytes(t.dtype);
  out.shape[1] = count;
  return drop_axis(out, 0);
}

Tensor part_of(const Tensor& t, const Heads& h) {
  if (t.is_none()) return t;
  Tensor out = heads_of(t, h.batch, h.first, h.count);
  out.data += h.row * out.step(1) * dtype_bytes(t.dtype);
  out.shape[1] = h.rows;
  return out;
}

Status multiply_shared(KernelCall& call, const cpu::Attention& a, const Heads& h, const Tensor& to, const Tensor& x,
                       const Tensor& kept, double alpha) {
  auto multiply = [&](const Tensor& out, const Tensor& left, const Tensor& right) {
    return multiply_three(call, {out, left, right}, {}, Scalar::floating(alpha), Scalar::integer(0));
  };
  if (a.group() == 1) return multiply(to, x, heads_of(kept, h.batch, h.first, h.count));
  for (int64_t i = 0; i < h.count; ++i)
    SG_TRY(multiply(one_head(to, i), one_head(x, i), heads_of(kept, h.batch, (h.first + i) / a.group(), 1)));
  return ok_status();
}

Status add_to_shared(KernelCall& call, const cpu::Attention& a, const Heads& h, const Tensor& sum, const Tensor& x,
                     const Tensor& y, double alpha) {
  auto add = [&](const Tensor& to, const Tensor& left, const Tensor& right) {
    return multiply_three(call, {to, swap_axes(left, 1, 2), right}, to, Scalar::floating(alpha), Scalar::integer(1));
  };
  if (a.group() == 1) return add(heads_of(sum, h.batch, h.first, h.count), x, y);
  for (int64_t i = 0; i < h.count; ++i)
    SG_TRY(add(heads_of(sum, h.batch, (h.first + i) / a.group(), 1), one_head(x, i), one_head(y, i)));
  return ok_status();
}

}  // namespace sg::cuda
