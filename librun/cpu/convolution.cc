// Convolution ops, expressed by the products of convolution_products.h.
#include <algorithm>
#include <array>
#include <utility>

#include "librun/cpu/convolution_depthwise.h"
#include "librun/cpu/convolution_products.h"
#include "librun/cpu/fill.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/lanes.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

using Three = std::array<int64_t, 3>;
using Geometry = ConvolutionGeometry;

template <class From>
SG_CLONES double sum_run(const From* from, int64_t step, int64_t count) {
  if (step == 1)
    return sum_lanes(count, [=](int64_t i) { return static_cast<double>(static_cast<Compute<From>>(from[i])); });
  return sum_lanes(count, [=](int64_t i) { return static_cast<double>(static_cast<Compute<From>>(from[i * step])); });
}

// Sums an image by channel, in double: line by line; lines that continue each other count as one.
void bias_gradient(KernelCall& call, const Image& y, int64_t channels, Three sizes, const Tensor& out) {
  const int64_t batch = call.tensor("grad_output").dim(0);
  for (size_t d = 2; d-- > 0;)
    if (y.step[d] == y.step[2] * sizes[2]) sizes[2] *= std::exchange(sizes[d], 1);
  visit_floating(y.dtype, [&]<class From>() {
    call.team().parallel_for(channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t channel = begin; channel < end; ++channel) {
        double sum = 0;
        for (int64_t entry = 0; entry < batch; ++entry) {
          const From* from = reinterpret_cast<const From*>(y.data) + entry * y.batch_step + channel * y.channel_step;
          for (int64_t i = 0; i < sizes[0]; ++i)
            for (int64_t j = 0; j < sizes[1]; ++j)
              sum += sum_run(from + i * y.step[0] + j * y.step[1], y.step[2], sizes[2]);
        }
        out.as<From>()[channel * out.step(0)] = static_cast<From>(static_cast<Compute<From>>(sum));
      }
    });
  });
}

// The three products, computed in the way that suits the geometry, with operands packed as P.
template <class P>
struct Products {
  using T = typename Packing<P>::Sum;
  KernelCall& call;
  const Geometry& g;
  bool depthwise = is_depthwise(call, g);

  void output(const Image& x, const Tensor& weight, const Tensor& bias, const Image& y) const {
    depthwise ? depthwise_output<T>(call, g, x, weight, bias, y) : convolve_output<P>(call, g, x, weight, bias, y);
  }
  void input(const Image& y, const Tensor& weight, const Tensor& bias, const Image& x) const {
    depthwise ? depthwise_input<T>(call, g, y, weight, bias, x) : convolve_input<P>(call, g, y, weight, bias, x);
  }
  void weight(const Image& x, const Image& y, const Tensor& out) const {
    depthwise ? depthwise_weight<T>(call, g, x, y, out) : convolve_weight<P>(call, g, x, y, out);
  }
};

// Calls fn.template operator()<P>() with the packed type of operands.
template <class Fn>
void with_packing(const KernelCall& call, DType dtype, const Fn& fn) {
  if (dtype == DType::f64) fn.template operator()<double>();
  else if (dtype == DType::bf16 && has_bf16_pairs() && call.numerics() == Numerics::fast)
    fn.template operator()<Bf16Pair>();
  else fn.template operator()<float>();
}

template <class P>
void forward(KernelCall& call, const Geometry& g, bool transposed, const Tensor& weight, const Image& in,
             const Image& out) {
  Tensor bias = call.has("bias") ? call.tensor("bias") : Tensor();
  Products<P> products{call, g};
  transposed ? products.input(in, weight, bias, out) : products.output(in, weight, bias, out);
}

// Images as the products take them, places along lines: channels that lie side by side are turned at once, and not
// place by place. Channels by themselves are computed as they lie.
class Planes {
 public:
  Planes(KernelCall& call, const Geometry& g) : call_(call), as_they_lie_(is_depthwise(call, g)) {}

  Tensor read(const Tensor& t) const { return turns(t) ? contiguous(call_, t) : t; }
  Tensor write(const Tensor& t) const { return turns(t) ? call_.scratch().tensor(t.dtype, t.sizes()) : t; }
  void put(const Tensor& planes, const Tensor& result) const {
    if (planes.data != result.data) copy(call_, result, planes);
  }

 private:
  bool turns(const Tensor& t) const {
    return !as_they_lie_ && t.rank > 2 && t.dim(1) > 1 && t.step(1) == 1 && t.step(-1) != 1;
  }
  KernelCall& call_;
  bool as_they_lie_;
};

Status convolution(KernelCall& call) {
  const Tensor weight = contiguous(call, call.tensor("weight"));
  const Tensor input = image_as_batch(call.tensor("input"), weight.rank),
               result = image_as_batch(call.result(), weight.rank);
  const bool transposed = is_transposed_convolution(call);
  SG_ASSIGN(const Geometry g,
            convolution_geometry(call, transposed ? result : input, transposed ? input : result, weight));
  const Planes planes(call, g);
  const Tensor from = planes.read(input), to = planes.write(result);
  with_packing(call, input.dtype,
               [&]<class P>() { forward<P>(call, g, transposed, weight, image_of(from), image_of(to)); });
  planes.put(to, result);
  return ok_status();
}

template <class P>
void backward(KernelCall& call, const Geometry& g, bool transposed, const Tensor& weight) {
  const Planes planes(call, g);
  const Tensor gradient = planes.read(call.tensor("grad_output"));
  const Image grad = image_of(gradient);
  std::span<const int64_t> wanted = call.integers("output_mask");
  Products<P> products{call, g};
  if (wanted[0] && !call.result(0).is_none()) {
    const Tensor out = planes.write(call.result(0));
    const Image to = image_of(out);
    transposed ? products.output(grad, weight, {}, to) : products.input(grad, weight, {}, to);
    planes.put(out, call.result(0));
  }
  if (wanted[1] && !call.result(1).is_none()) {
    const Tensor& result = call.result(1);
    Tensor out = result.is_contiguous() ? result : call.scratch().tensor(result.dtype, result.sizes());
    const Image input = image_of(planes.read(call.tensor("input")));
    transposed ? products.weight(grad, input, out) : products.weight(input, grad, out);
    if (out.data != result.data) copy(call, result, out);
  }
  if (wanted[2] && !call.result(2).is_none())
    bias_gradient(call, grad, call.tensor("grad_output").dim(1), transposed ? g.in : g.out, call.result(2));
}

Status convolution_backward(KernelCall& call) {
  const Tensor& input = call.tensor("input");
  const Tensor& grad = call.tensor("grad_output");
  bool transposed = call.flag("transposed");
  if (call.integers("output_mask").size() != 3) return call.fail("needs three results to choose from");
  SG_ASSIGN(Geometry g,
            convolution_geometry(call, transposed ? grad : input, transposed ? input : grad, call.tensor("weight")));
  Tensor weight = contiguous(call, call.tensor("weight"));
  with_packing(call, input.dtype, [&]<class P>() { backward<P>(call, g, transposed, weight); });
  return ok_status();
}

constexpr KernelRow kRows[] = {
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

std::span<const KernelRow> convolution_kernels() { return kRows; }

}  // namespace sg::cpu
