// Convolutions as matrix products: windows become rows (kernels/channel.h), for as many batch entries at a time as fit.
//
//   output      Y = rows(X) @ W^T        input  dX = gather(rows(Y) @ W)        weight  dW = rows(Y)^T @ rows(X)
//
// Sums are in f32 (f64 for f64), rounded once.
#include <algorithm>
#include <array>

#include "librun/cpu/convolution.h"
#include "librun/cpu/gemm.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/channel.h"

namespace sg::cuda {
namespace {

using cpu::ConvolutionGeometry;
constexpr int64_t kRowBytes = int64_t{256} << 20;  // limit of rows at a time, unless one entry has more

class Convolution {
 public:
  Convolution(KernelCall& call, const ConvolutionGeometry& g, DType dtype)
      : call_(call), g_(g), dtype_(dtype), sum_type_(dtype == DType::f64 ? DType::f64 : DType::f32) {
    const int64_t entry = std::max(g.depth(), g.out_channels) * g.places() * dtype_bytes(sum_type_);
    together_ = std::clamp<int64_t>(kRowBytes / std::max<int64_t>(entry, 1), 1, std::max<int64_t>(g.batch, 1));
  }

  Status output(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y) {
    Tensor rows = take(dtype_, g_.depth()), sums = take(sum_type_, g_.out_channels);
    return each([&](int64_t entry, int64_t count, int64_t group) -> Status {
      const Tensor windows = first_rows(rows, count), out = first_rows(sums, count);
      make_rows(x, windows, entry, count, group * g_.in_channels, false);
      SG_TRY(multiply(out, windows, swap_axes(weight_of(weight, group), 0, 1)));
      gather(y, out, bias, entry, count, group * g_.out_channels, true);
      return ok_status();
    });
  }

  Status input(const Tensor& y, const Tensor& weight, const Tensor& bias, const Tensor& x) {
    Tensor rows = take(dtype_, g_.out_channels), sums = take(sum_type_, g_.depth());
    return each([&](int64_t entry, int64_t count, int64_t group) -> Status {
      const Tensor given = first_rows(rows, count), windows = first_rows(sums, count);
      make_rows(y, given, entry, count, group * g_.out_channels, true);
      SG_TRY(multiply(windows, given, weight_of(weight, group)));
      gather(x, windows, bias, entry, count, group * g_.in_channels, false);
      return ok_status();
    });
  }

  Status weight(const Tensor& x, const Tensor& y, const Tensor& out) {
    Tensor rows = take(dtype_, g_.depth()), given = take(dtype_, g_.out_channels);
    Tensor sums = backend_of(call_).scratch(sum_type_, std::array{g_.groups * g_.out_channels, g_.depth()});
    backend_of(call_).fill(sums, Scalar::integer(0));
    SG_TRY(each([&](int64_t entry, int64_t count, int64_t group) -> Status {
      const Tensor windows = first_rows(rows, count), of_y = first_rows(given, count);
      make_rows(x, windows, entry, count, group * g_.in_channels, false);
      make_rows(y, of_y, entry, count, group * g_.out_channels, true);
      return multiply(weight_of(sums, group), swap_axes(of_y, 0, 1), windows, true);
    }));
    backend_of(call_).copy(out, make_tensor(sums.data, sum_type_, out.sizes()));
    return ok_status();
  }

 private:
  template <class Fn>
  Status each(const Fn& fn) const {
    for (int64_t entry = 0; entry < g_.batch && g_.places() > 0; entry += together_)
      for (int64_t group = 0; group < g_.groups; ++group)
        SG_TRY(fn(entry, std::min(together_, g_.batch - entry), group));
    return ok_status();
  }
  Tensor take(DType dtype, int64_t width) const {
    return backend_of(call_).scratch(dtype, std::array{together_ * g_.places(), width});
  }
  Tensor first_rows(Tensor t, int64_t entries) const {
    t.shape[0] = entries * g_.places();
    return t;
  }
  // For a contiguous [groups * out channels, depth].
  Tensor weight_of(const Tensor& weight, int64_t group) const {
    Tensor t = make_tensor(weight.data, weight.dtype, std::array{g_.out_channels, g_.depth()});
    t.data += group * g_.out_channels * g_.depth() * dtype_bytes(weight.dtype);
    return t;
  }

  Status multiply(const Tensor& out, const Tensor& a, const Tensor& b, bool adds = false) const {
    cpu::Gemm product{out, a, b, adds ? out : Tensor()};
    if (adds) product.beta = Scalar::integer(1);
    return backend_of(call_).multiply(call_, product);
  }

  // `flat`: the window is a single place, on the side of y.
  ConvolutionArgs args_of(const Tensor& image, const Tensor& rows, int64_t entry, int64_t count, int64_t channel,
                          bool flat) const {
    ConvolutionArgs args;
    args.image = Device::view(image);
    args.rows = Device::view(rows);
    args.entry = entry;
    args.entries = count;
    args.channel = channel;
    args.channels = flat ? g_.out_channels : g_.in_channels;
    for (size_t k = 0; k < 3; ++k) {
      args.in[k] = flat ? g_.out[k] : g_.in[k];
      args.out[k] = g_.out[k];
      if (flat) continue;
      args.window[k] = g_.window[k];
      args.stride[k] = g_.stride[k];
      args.padding[k] = g_.padding[k];
      args.dilation[k] = g_.dilation[k];
    }
    return args;
  }
  void make_rows(const Tensor& image, const Tensor& rows, int64_t entry, int64_t count, int64_t channel,
                 bool flat) const {
    device_of(call_).launch("conv_rows", blocks_for(rows.elements()),
                            args_of(image, rows, entry, count, channel, flat));
  }
  void gather(const Tensor& image, const Tensor& rows, const Tensor& bias, int64_t entry, int64_t count,
              int64_t channel, bool flat) const {
    ConvolutionArgs args = args_of(image, rows, entry, count, channel, flat);
    if (!bias.is_none()) args.bias = Device::view(bias);
    const int64_t elements = count * args.channels * args.in[0] * args.in[1] * args.in[2];
    device_of(call_).launch("conv_gather", blocks_for(elements), args);
  }

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  DType dtype_, sum_type_;
  int64_t together_ = 1;
};

// If there is nothing to sum: zeros and the bias, as the device's empty loops would leave it.
void fill_with_bias(KernelCall& call, const Tensor& out, const Tensor& bias) {
  if (bias.is_none()) return backend_of(call).fill(out, Scalar::integer(0));
  Tensor spread = bias;
  spread.rank = 2;
  spread.shape[1] = 1;
  spread.stride[1] = 0;
  for (int i = 2; i + 1 < out.rank; ++i)
    spread.shape[static_cast<size_t>(spread.rank)] = 1, spread.stride[static_cast<size_t>(spread.rank++)] = 0;
  backend_of(call).copy(out, broadcast_to(spread, out.sizes()));
}

Status convolution(KernelCall& call) {
  const Tensor weight = in_rows(call, call.tensor("weight"));
  const Tensor input = cpu::image_as_batch(call.tensor("input"), weight.rank);
  const Tensor out = cpu::image_as_batch(call.result(), weight.rank);
  const bool transposed = cpu::is_transposed_convolution(call);
  SG_ASSIGN(ConvolutionGeometry g,
            cpu::convolution_geometry(call, transposed ? out : input, transposed ? input : out, weight));
  const Tensor bias = call.has("bias") ? call.tensor("bias") : Tensor();
  if (out.elements() == 0) return ok_status();
  if (g.places() == 0 || g.depth() == 0) return fill_with_bias(call, out, bias), ok_status();
  Convolution work(call, g, input.dtype);
  return transposed ? work.input(input, weight, bias, out) : work.output(input, weight, bias, out);
}

// Sums an image by channel.
void bias_gradient(KernelCall& call, const Tensor& grad, const Tensor& out) {
  ChannelArgs args;
  args.from = args.gradient = Device::view(grad);
  args.channels = grad.dim(1);
  for (int i = 2; i < grad.rank; ++i) args.inner *= grad.dim(i);
  args.rows = {args.channels, grad.dim(0), args.channels * args.inner, args.inner, args.inner};
  Tensor sums = backend_of(call).scratch(DType::f64, std::array{args.channels, int64_t{2}});
  args.sums = sums.as<double>();
  device_of(call).launch("channel_gradient_sums", std::min<int64_t>(args.channels, 1 << 16), args);
  backend_of(call).copy(out, drop_axis(sums, 1));
}

Status convolution_backward(KernelCall& call) {
  const Tensor &input = call.tensor("input"), &grad = call.tensor("grad_output");
  const bool transposed = call.flag("transposed");
  if (call.integers("output_mask").size() != 3) return call.fail("needs three results to choose from");
  const Tensor weight = in_rows(call, call.tensor("weight"));
  SG_ASSIGN(ConvolutionGeometry g,
            cpu::convolution_geometry(call, transposed ? grad : input, transposed ? input : grad, weight));
  std::span<const int64_t> wanted = call.integers("output_mask");
  Convolution work(call, g, input.dtype);
  if (wanted[0] && !call.result(0).is_none()) {
    const Tensor& out = call.result(0);
    if (g.places() == 0 || g.depth() == 0) backend_of(call).fill(out, Scalar::integer(0));
    else SG_TRY(transposed ? work.output(grad, weight, {}, out) : work.input(grad, weight, {}, out));
  }
  if (wanted[1] && !call.result(1).is_none())
    SG_TRY(transposed ? work.weight(grad, input, call.result(1)) : work.weight(input, grad, call.result(1)));
  if (wanted[2] && !call.result(2).is_none()) bias_gradient(call, grad, call.result(2));
  return ok_status();
}

constexpr KernelRow kConvolutionRows[] = {
    {"aten.convolution.default", convolution},
    {"aten.conv1d.default", convolution},
    {"aten.conv1d.padding", convolution},
    {"aten.conv2d.default", convolution},
    {"aten.conv2d.padding", convolution},
    {"aten.conv3d.default", convolution},
    {"aten.conv3d.padding", convolution},
    {"aten.conv_transpose1d.default", convolution},
    {"aten.conv_transpose2d.input", convolution},
    {"aten.conv_transpose3d.input", convolution},
    {"aten.convolution_backward.default", convolution_backward},
};

}  // namespace

std::span<const KernelRow> convolution_kernels() { return kConvolutionRows; }

}  // namespace sg::cuda
