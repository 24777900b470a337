#include <algorithm>
#include <array>
#include <string>

#include "librun/cpu/convolution.h"

namespace sg::cpu {
namespace {

// Reads one number per spatial axis; a single number applies to all.
Status read_axes(const KernelCall& call, std::string_view name, int spatial, int64_t least,
                 std::array<int64_t, 3>* out) {
  std::span<const int64_t> list = call.integers(name);
  int64_t one = 0;
  if (call.param(name).kind == ParamValue::Kind::scalar) one = call.integer(name), list = {&one, 1};
  if (list.size() != 1 && list.size() != static_cast<size_t>(spatial))
    return call.fail("'" + std::string(name) + "' needs " + std::to_string(spatial) + " numbers");
  for (int i = 0; i < spatial; ++i) {
    int64_t value = list[list.size() == 1 ? 0 : static_cast<size_t>(i)];
    if (value < least || value > (int64_t{1} << 40))
      return call.fail("'" + std::string(name) + "' cannot be " + std::to_string(value));
    (*out)[static_cast<size_t>(3 - spatial + i)] = value;
  }
  return ok_status();
}

// Whether padding is the word 'same', which preserves sizes, and pads one more at the end if the total is odd.
bool is_padded_to_same(const KernelCall& call) {
  return call.param("padding").kind == ParamValue::Kind::text && call.text("padding") == "same";
}

}  // namespace

Result<ConvolutionGeometry> convolution_geometry(const KernelCall& call, const Tensor& x, const Tensor& y,
                                                 const Tensor& weight) {
  ConvolutionGeometry g;
  int spatial = x.rank - 2;
  if (x.rank < 3 || x.rank > 5 || y.rank != x.rank || weight.rank != x.rank)
    return call.fail("needs 3 to 5 axes on all sides");
  if (!is_floating(x.dtype) || y.dtype != x.dtype || weight.dtype != x.dtype)
    return call.fail("needs one float dtype on all sides");
  SG_TRY(read_axes(call, "stride", spatial, 1, &g.stride));
  bool in_words = call.param("padding").kind == ParamValue::Kind::text, same = is_padded_to_same(call);
  if (!in_words) SG_TRY(read_axes(call, "padding", spatial, 0, &g.padding));
  SG_TRY(read_axes(call, "dilation", spatial, 1, &g.dilation));
  g.batch = x.dim(0);
  g.groups = call.integer("groups");
  bool fits = g.groups > 0 && g.groups <= std::max<int64_t>(y.dim(1), 1) && y.dim(0) == g.batch &&
              weight.dim(0) == y.dim(1) && y.dim(1) % g.groups == 0 && weight.dim(1) <= x.dim(1) &&
              weight.dim(1) * g.groups == x.dim(1);
  if (!fits) return call.fail("the channels of input, weight and output do not fit");
  g.in_channels = weight.dim(1);
  g.out_channels = y.dim(1) / g.groups;
  for (int i = 0; i < spatial; ++i) {
    auto d = static_cast<size_t>(3 - spatial + i);
    g.in[d] = x.dim(i + 2), g.out[d] = y.dim(i + 2), g.window[d] = weight.dim(i + 2);
    int64_t reach;  // from a window's first to its last element
    bool legal = g.window[d] > 0 && !__builtin_mul_overflow(g.window[d] - 1, g.dilation[d], &reach) &&
                 reach < (int64_t{1} << 60);
    int64_t padded = same ? reach : 2 * g.padding[d];
    if (same) g.padding[d] = reach / 2;
    // All windows begin in the padded input; a transposed convolution may leave less than a stride of it unseen.
    legal = legal && (g.out[d] == 0 || (g.out[d] - 1) <= (g.in[d] + padded - reach - 1) / g.stride[d]);
    if (!legal) return call.fail("the window does not fit the sizes of input and output");
  }
  return g;
}

Tensor image_as_batch(const Tensor& t, int rank) {
  if (t.rank + 1 != rank || rank > kMaxRank) return t;
  Tensor out = t;
  out.rank = rank;
  out.shape[0] = 1, out.stride[0] = 0;
  for (size_t i = 1; i < static_cast<size_t>(rank); ++i) out.shape[i] = t.shape[i - 1], out.stride[i] = t.stride[i - 1];
  return out;
}

bool is_transposed_convolution(const KernelCall& call) {
  if (call.op().param_index("transposed") >= 0) return call.flag("transposed");
  return call.op().name.find("conv_transpose") != std::string_view::npos;
}

}  // namespace sg::cpu
