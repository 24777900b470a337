// Losses of two tensors element by element and their gradients; gates (glu) and the gradients of prelu. In double.
#include <algorithm>
#include <cmath>

#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

bool broadcasts(const Tensor& t, std::span<const int64_t> shape) {
  int rank = static_cast<int>(shape.size());
  if (t.rank > rank) return false;
  for (int i = 1; i <= t.rank; ++i)
    if (t.dim(t.rank - i) != 1 && t.dim(t.rank - i) != shape[static_cast<size_t>(rank - i)]) return false;
  return true;
}

// An argument as contiguous doubles of this shape; null when it is left out.
Result<const double*> operand(KernelCall& call, std::string_view name, std::span<const int64_t> shape) {
  if (call.op().param_index(name) < 0 || !call.has(name)) return static_cast<const double*>(nullptr);
  const Tensor& t = call.tensor(name);
  if (!broadcasts(t, shape)) return call.fail("'" + std::string(name) + "' does not broadcast to the operands");
  return contiguous_as(call, broadcast_to(t, shape), DType::f64).as<double>();
}

std::vector<int64_t> common_shape(const Tensor& a, const Tensor& b) {
  std::vector<int64_t> shape(static_cast<size_t>(std::max(a.rank, b.rank)), 1);
  for (const Tensor* t : {&a, &b})
    for (int i = 1; i <= t->rank; ++i)
      if (t->dim(t->rank - i) != 1) shape[shape.size() - static_cast<size_t>(i)] = t->dim(t->rank - i);
  return shape;
}

// What a loss is made of: of an element, and its slope by the input. `number` is beta or delta.
struct SmoothL1 {
  static constexpr std::string_view kNumber = "beta";
  static double loss(double x, double y, double beta) {
    double d = std::fabs(x - y);
    return d < beta ? 0.5 * d * d / beta : d - 0.5 * beta;
  }
  static double slope(double x, double y, double beta) {
    double d = x - y;
    return d <= -beta ? -1 : d >= beta ? 1 : d / beta;
  }
};

struct Huber {
  static constexpr std::string_view kNumber = "delta";
  static double loss(double x, double y, double delta) {
    double d = std::fabs(x - y);
    return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
  }
  static double slope(double x, double y, double delta) {
    double d = x - y;
    return d <= -delta ? -delta : d >= delta ? delta : d;
  }
};

struct SoftMargin {
  static constexpr std::string_view kNumber = "";
  static double loss(double x, double y, double) { return std::log1p(std::exp(-y * x)); }
  static double slope(double x, double y, double) { return -y / (1 + std::exp(y * x)); }
};

// Logarithms are kept above -100, as PyTorch has it.
struct BinaryCrossEntropy {
  static constexpr std::string_view kNumber = "";
  static double loss(double x, double y, double) {
    double yes = std::max(std::log(x), -100.0), no = std::max(std::log1p(-x), -100.0);
    return (y - 1) * no - y * yes;
  }
  static double slope(double x, double y, double) { return (x - y) / std::max((1 - x) * x, static_cast<double>(1e-12f)); }
};

template <class Loss>
double number_of(KernelCall& call) {
  return Loss::kNumber.empty() ? 0 : call.number(Loss::kNumber);
}

double sum_of(KernelCall& call, const double* x, int64_t n) {   // in blocks of fixed size, whatever the threads
  int64_t blocks = (n + kPieceElements - 1) / kPieceElements;
  auto* partial = call.scratch().take<double>(blocks + 1);
  call.team().parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) partial[b] = row_sum(x + b * kPieceElements, std::min(kPieceElements, n - b * kPieceElements));
  });
  return row_sum(partial, blocks);
}

template <class Fn>
Tensor each(KernelCall& call, std::span<const int64_t> shape, const Fn& fn) {   // fn(i)
  Tensor out = call.scratch().tensor(DType::f64, shape);
  call.team().parallel_for(out.elements(), kPieceElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out.as<double>()[i] = fn(i);
  });
  return out;
}

template <class Loss>
Status pair_loss(KernelCall& call) {
  std::vector<int64_t> shape = common_shape(call.tensor("self"), call.tensor("target"));
  SG_ASSIGN(const double* x, operand(call, "self", shape));
  SG_ASSIGN(const double* y, operand(call, "target", shape));
  SG_ASSIGN(const double* weight, operand(call, "weight", shape));
  double number = number_of<Loss>(call);
  Tensor losses = each(call, shape, [=](int64_t i) { return Loss::loss(x[i], y[i], number) * (weight ? weight[i] : 1); });
  int64_t n = losses.elements(), reduction = call.integer("reduction");
  if (std::is_same_v<Loss, BinaryCrossEntropy>)
    for (int64_t i = 0; i < n; ++i)
      if (!(x[i] >= 0 && x[i] <= 1)) return call.fail("an input is not within [0, 1]: " + std::to_string(x[i]));
  if (reduction == kNone) return copy(call, call.result(), losses), ok_status();
  double sum = sum_of(call, losses.as<double>(), n);
  fill(call, call.result(), Scalar::floating(reduction == kMean ? sum / static_cast<double>(n) : sum));
  return ok_status();
}

template <class Loss>
Status pair_loss_backward(KernelCall& call) {
  const Tensor& out = call.result();
  SG_ASSIGN(const double* g, operand(call, "grad_output", out.sizes()));
  SG_ASSIGN(const double* x, operand(call, "self", out.sizes()));
  SG_ASSIGN(const double* y, operand(call, "target", out.sizes()));
  SG_ASSIGN(const double* weight, operand(call, "weight", out.sizes()));
  double number = number_of<Loss>(call), share = call.integer("reduction") == kMean ? 1 / static_cast<double>(out.elements()) : 1;
  copy(call, out, each(call, out.sizes(), [=](int64_t i) {
         return g[i] * share * Loss::slope(x[i], y[i], number) * (weight ? weight[i] : 1);
       }));
  return ok_status();
}

// --- activations of two results or two halves ---

Status log_sigmoid_forward(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  SG_ASSIGN(const double* x, operand(call, "self", self.sizes()));
  Tensor small = each(call, self.sizes(), [=](int64_t i) { return std::exp(-std::fabs(x[i])); });
  const auto* z = small.as<double>();
  copy(call, call.result(0), each(call, self.sizes(), [=](int64_t i) { return (x[i] < 0 ? x[i] : x[i] != x[i] ? x[i] : 0) - std::log1p(z[i]); }));
  if (call.result(1).elements() > 0) copy(call, call.result(1), small);
  return ok_status();
}

Status prelu_backward(KernelCall& call) {
  std::span<const int64_t> shape = call.result(0).sizes();
  SG_ASSIGN(const double* g, operand(call, "grad_output", shape));
  SG_ASSIGN(const double* x, operand(call, "self", shape));
  SG_ASSIGN(const double* w, operand(call, "weight", shape));
  copy(call, call.result(0), each(call, shape, [=](int64_t i) { return x[i] > 0 ? g[i] : w[i] * g[i]; }));
  copy(call, call.result(1), each(call, shape, [=](int64_t i) { return x[i] > 0 ? 0.0 : x[i] * g[i]; }));
  return ok_status();
}

// A tensor as [outer, 2 * half, inner] around the axis that is halved.
struct Halves {
  const double* x;
  int64_t half = 0, inner = 1;
  // The place of element i of [outer, half, inner] in the first half; the other one lies half * inner on.
  int64_t first(int64_t i) const { return i / (half * inner) * 2 * half * inner + i % (half * inner); }
  int64_t step() const { return half * inner; }
};

Result<Halves> halves_of(KernelCall& call, const Tensor& self) {
  int axis = wrap_axis(call.integer("dim"), self.rank);
  if (self.rank == 0 || self.dim(axis) % 2 != 0) return call.fail("the dimension has to be even");
  Halves h{contiguous_as(call, self, DType::f64).as<double>(), self.dim(axis) / 2, 1};
  for (int i = axis + 1; i < self.rank; ++i) h.inner *= self.dim(i);
  return h;
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

Status glu(KernelCall& call) {
  SG_ASSIGN(Halves h, halves_of(call, call.tensor("self")));
  copy(call, call.result(), each(call, call.result().sizes(), [=](int64_t i) { return h.x[h.first(i)] * logistic(h.x[h.first(i) + h.step()]); }));
  return ok_status();
}

Status glu_backward(KernelCall& call) {
  const Tensor& grad = call.tensor("grad_output");
  SG_ASSIGN(Halves h, halves_of(call, call.tensor("self")));
  if (2 * grad.elements() != call.result().elements()) return call.fail("the gradient is of another shape than the op needs");
  const auto* g = contiguous_as(call, grad, DType::f64).as<double>();
  Tensor out = call.scratch().tensor(DType::f64, call.result().sizes());
  for (int64_t i = 0; i < grad.elements(); ++i) {
    int64_t at = h.first(i);
    double gate = logistic(h.x[at + h.step()]);
    out.as<double>()[at] = g[i] * gate;
    out.as<double>()[at + h.step()] = g[i] * h.x[at] * gate * (1 - gate);
  }
  copy(call, call.result(), out);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.smooth_l1_loss.default", pair_loss<SmoothL1>},
    {"aten.smooth_l1_loss_backward.default", pair_loss_backward<SmoothL1>},
    {"aten.huber_loss.default", pair_loss<Huber>},
    {"aten.huber_loss_backward.default", pair_loss_backward<Huber>},
    {"aten.soft_margin_loss.default", pair_loss<SoftMargin>},
    {"aten.soft_margin_loss_backward.default", pair_loss_backward<SoftMargin>},
    {"aten.binary_cross_entropy.default", pair_loss<BinaryCrossEntropy>},
    {"aten.binary_cross_entropy_backward.default", pair_loss_backward<BinaryCrossEntropy>},
    {"aten.log_sigmoid_forward.default", log_sigmoid_forward},
    {"aten._prelu_kernel_backward.default", prelu_backward},
    {"aten.glu.default", glu},
    {"aten.glu_backward.default", glu_backward},
};

}  // namespace

std::span<const KernelRow> pair_loss_kernels() { return kRows; }

}  // namespace sg::cpu
