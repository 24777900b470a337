// Negative log likelihood of classes, and its gradient: for rows, and for planes viewed as rows.
#include <algorithm>
#include <array>

#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/class_gradient.h"
#include "librun/cuda/kernels/cross_entropy.h"
#include "librun/execute/memory_ranges.h"

namespace sg::cuda {
namespace {

// [batch, classes, height, width] with the classes last.
Tensor classes_last(const Tensor& planes) { return swap_axes(swap_axes(planes, 1, 2), 2, 3); }

// Memory for the rows of planes, [batch * height * width, classes], not initialised.
Tensor rows_like(KernelCall& call, const Tensor& planes) {
  const Tensor whole = backend_of(call).scratch(planes.dtype, classes_last(planes).sizes());
  const int64_t classes = planes.dim(1);
  return make_tensor(whole.data, whole.dtype, std::array{classes == 0 ? 0 : whole.elements() / classes, classes});
}

Tensor as_line(KernelCall& call, const Tensor& t) {
  const Tensor rows = in_rows(call, t);
  return make_tensor(rows.data, rows.dtype, std::array{rows.elements()});
}

LossArgs loss_args(const KernelCall& call, const Tensor& scores, const Tensor& target) {
  LossArgs args;
  args.from = Device::view(scores);
  args.target = Device::view(target);
  if (call.has("weight")) args.weight = element_view(call.tensor("weight"));
  args.count = scores.rank == 1 ? 1 : scores.dim(0);
  args.classes = scores.dim(-1);
  args.ignore = call.integer("ignore_index");
  args.reduction = scores.rank == 1 && call.integer("reduction") == 0 ? 2 : static_cast<int>(call.integer("reduction"));
  args.report = device_of(call).report();
  return args;
}

void run_loss(KernelCall& call, LossArgs args, const Tensor& to) {
  args.to = Device::view(to);
  args.total = Device::view(call.result(1));
  constexpr int64_t kRowsOfLane = 4, kMostParts = 256;
  args.part_count = std::min(args.count / (kRowsOfLane * kLanes), kMostParts);  // by the sizes alone
  if (args.part_count < 2) return device_of(call).launch("nll_loss_all", 1, args);
  const Tensor parts = backend_of(call).scratch(DType::f64, std::array{args.part_count, int64_t{2}});
  args.parts = reinterpret_cast<TwoSums*>(parts.data);
  device_of(call).launch("nll_loss_parts", args.part_count, args);
  device_of(call).launch("finish_nll_loss", 1, args);
}

Status nll_loss(KernelCall& call) {
  run_loss(call, loss_args(call, call.tensor("self"), call.tensor("target")), call.result(0));
  return ok_status();
}

Status nll_loss_of_planes(KernelCall& call) {
  const Tensor &self = call.tensor("self"), &out = call.result(0);
  const Tensor rows = rows_like(call, self), last = classes_last(self);
  backend_of(call).copy(make_tensor(rows.data, rows.dtype, last.sizes()), last);
  const LossArgs args = loss_args(call, rows, as_line(call, call.tensor("target")));
  if (out.rank != 3) return run_loss(call, args, out), ok_status();
  const Tensor line = backend_of(call).scratch(out.dtype, std::array{args.count});
  run_loss(call, args, line);
  backend_of(call).copy(out, make_tensor(line.data, out.dtype, out.sizes()));
  return ok_status();
}

void run_loss_backward(KernelCall& call, LossArgs args, const Tensor& to, const Tensor& gradient) {
  args.to = Device::view(to);
  args.gradient = Device::view(gradient);
  args.total = Device::view(call.tensor("total_weight"));
  backend_of(call).fill(to, Scalar::integer(0));
  device_of(call).launch("nll_loss_backward_all", blocks_for(args.count), args);
}

Status nll_loss_backward(KernelCall& call) {
  const LossArgs args = loss_args(call, call.tensor("self"), call.tensor("target"));
  run_loss_backward(call, args, call.result(0), call.tensor("grad_output"));
  return ok_status();
}

Status nll_loss_of_planes_backward(KernelCall& call) {
  const Tensor& gradient = call.tensor("grad_output");
  const Tensor rows = rows_like(call, call.tensor("self")), last = classes_last(call.result(0));
  const LossArgs args = loss_args(call, rows, as_line(call, call.tensor("target")));
  run_loss_backward(call, args, rows, gradient.rank == 3 ? as_line(call, gradient) : gradient);
  backend_of(call).copy(last, make_tensor(rows.data, rows.dtype, last.sizes()));
  return ok_status();
}

// --- cross entropy without log-probabilities in memory ---

CrossEntropyArgs cross_entropy_args(const KernelCall& call) {
  CrossEntropyArgs args;
  args.from = row_view(call.tensor("self"));
  args.loss = loss_args(call, call.tensor("self"), call.tensor("target"));
  return args;
}

int64_t row_blocks(int64_t rows) { return std::min<int64_t>(rows, 1 << 16); }

bool has_runs(const View& rows) {
  for (int axis = 0; axis + 1 < rows.axes; ++axis)
    if (rows.stride[axis] % kRun != 0) return false;
  return rows.axes > 0 && rows.stride[rows.axes - 1] == 1 && reinterpret_cast<uintptr_t>(rows.data) % 16 == 0;
}

// `gradient`: for the backward; in the forward the scores again.
void launch_cross_entropy(KernelCall& call, const std::string& kernel, const CrossEntropyArgs& args, const View& scores,
                          const View& gradient) {
  constexpr int64_t kLongRow = 1024;
  const bool by_runs = (scores.element == Element::bf16 || scores.element == Element::f16) &&
                       gradient.element == scores.element && args.loss.classes >= kLongRow && has_runs(scores) &&
                       has_runs(gradient);
  device_of(call).launch((kernel + (by_runs ? "_by_runs" : "")).c_str(), row_blocks(args.loss.count), args);
}

Status cross_entropy(KernelCall& call) {
  CrossEntropyArgs args = cross_entropy_args(call);
  const Tensor picked = backend_of(call).scratch(DType::f64, std::array{args.loss.count});
  args.log_sums = call.result(2).as<double>();
  args.picked = picked.as<double>();
  launch_cross_entropy(call, "cross_entropy_rows", args, args.from, args.from);
  Tensor scores = picked;  // the same for all classes: [rows, classes]
  scores.rank = 2;
  scores.shape[1] = args.loss.classes, scores.stride[1] = 0;
  LossArgs loss = args.loss;
  loss.from = Device::view(scores);
  run_loss(call, loss, call.result(0));
  return ok_status();
}

Status cross_entropy_backward(KernelCall& call) {
  CrossEntropyArgs args = cross_entropy_args(call);
  args.to = row_view(call.result());
  args.log_sums = in_rows(call, call.tensor("log_sum")).as<double>();
  args.loss.gradient = Device::view(call.tensor("grad_output"));
  args.loss.total = Device::view(call.tensor("total_weight"));
  launch_cross_entropy(call, "cross_entropy_backward_rows", args, args.from, args.to);
  return ok_status();
}

// --- the gradient through log-softmax, without storing that of the loss ---

// Whether one kernel computes both: classes along the last of two axes, compiled types, and a result that does not
// overlap operands of the loss's gradient whose memory the plan has released.
bool is_class_gradient(const KernelCall& loss, const KernelCall& softmax) {
  if (loss.op().name != "aten.nll_loss_backward.default" ||
      softmax.op().name != "aten._log_softmax_backward_data.default")
    return false;
  const Tensor &between = loss.results[0], &given = softmax.tensor("grad_output"), &output = softmax.tensor("output"),
               &to = softmax.results[0];
  const int64_t dim = softmax.integer("dim");
  const bool is_between = given.data == between.data && given.dtype == between.dtype &&
                          std::ranges::equal(given.sizes(), between.sizes()) &&
                          std::ranges::equal(given.strides(), between.strides());
  const bool casts = output.dtype == DType::f32 && (to.dtype == DType::bf16 || to.dtype == DType::f16);
  const bool has_types = given.dtype == output.dtype && (to.dtype == output.dtype || casts);
  if (!is_between || !has_types || given.rank != 2 || (dim != 1 && dim != -1) || given.elements() == 0) return false;
  bool is_apart = !share_memory(to, loss.tensor("target")) && !share_memory(to, loss.tensor("grad_output")) &&
                  !share_memory(to, loss.tensor("total_weight"));
  if (loss.has("weight")) is_apart &= !share_memory(to, loss.tensor("weight"));
  return is_apart;
}

class ClassGradientProgram : public DeviceProgram {
 public:
  ClassGradientProgram(Device& device, const KernelCall& loss, const KernelCall& softmax) : device_(device) {
    args_.loss = loss_args(loss, loss.results[0], loss.tensor("target"));
    args_.loss.from = View();
    args_.loss.gradient = Device::view(loss.tensor("grad_output"));
    args_.loss.total = Device::view(loss.tensor("total_weight"));
    args_.softmax.to = row_view(softmax.results[0]);
    args_.softmax.from = row_view(softmax.tensor("output"));
    args_.softmax.rows = args_.loss.count;
    args_.softmax.length = args_.loss.classes;
  }
  Status run() override {
    args_.loss.report = device_.report();
    device_.launch("class_gradient_rows", std::min<int64_t>(args_.softmax.rows, 1 << 16), args_);
    return device_.noted();
  }

 private:
  Device& device_;
  ClassGradientArgs args_;
};

constexpr KernelRow kLossRows[] = {
    {"aten.nll_loss_forward.default", nll_loss},
    {"aten.nll_loss_backward.default", nll_loss_backward},
    {"aten.nll_loss2d_forward.default", nll_loss_of_planes},
    {"aten.nll_loss2d_backward.default", nll_loss_of_planes_backward},
    {"sg.cross_entropy", cross_entropy},
    {"sg.cross_entropy_backward", cross_entropy_backward},
};

}  // namespace

std::span<const KernelRow> loss_kernels() { return kLossRows; }

Result<std::unique_ptr<DeviceProgram>> CudaBackend::compile_pair(const KernelCall& first, const KernelCall& second) {
  std::unique_ptr<DeviceProgram> out;
  if (!is_class_gradient(first, second)) return out;
  out = std::make_unique<ClassGradientProgram>(*device_, first, second);
  ++pairs_;
  return out;
}

}  // namespace sg::cuda
