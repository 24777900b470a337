// Connectionist temporal classification: from calls to kernels (kernels/ctc.h).
#include "librun/cuda/kernels/ctc.h"

#include <algorithm>
#include <array>
#include <optional>

#include "librun/cuda/backend_cuda.h"
#include "librun/work/run.h"

namespace sg::cuda {
namespace {

template <class T>
const T* numbers_of(KernelCall& call, const Tensor& t, DType dtype) {
  if (t.dtype == dtype) return in_rows(call, t).as<T>();
  const Tensor out = backend_of(call).scratch(dtype, t.sizes());
  backend_of(call).copy(out, t);
  return out.as<T>();
}

// Reads lengths from a list or a tensor.
const int64_t* lengths_of(KernelCall& call, std::string_view name) {
  const ParamValue& p = call.param(name);
  if (p.kind != ParamValue::Kind::tensor) return table(call, std::span<const int64_t>(p.integers));
  return numbers_of<int64_t>(call, p.tensor, DType::i64);
}

// Number of states of the longest entry, if the host knows the lengths.
std::optional<int64_t> known_width(KernelCall& call) {
  const ParamValue& p = call.param("target_lengths");
  if (p.kind == ParamValue::Kind::tensor) return std::nullopt;
  int64_t longest = 0;
  for (int64_t length : p.integers) longest = std::max(longest, length);
  return 2 * longest + 1;
}

Result<CtcArgs> ctc_args(KernelCall& call) {
  const Tensor &scores = call.tensor("log_probs"), &targets = call.tensor("targets");
  CtcArgs args;
  args.time = scores.dim(0), args.entries = scores.dim(1), args.classes = scores.dim(2);
  args.blank = call.integer("blank");
  if (args.blank < 0 || args.blank >= args.classes) return call.fail("the blank is not a class");
  args.in_rows = targets.rank == 2;
  args.room = args.in_rows ? targets.dim(1) : targets.elements();
  args.scores = numbers_of<double>(call, scores, DType::f64);
  args.labels = numbers_of<int64_t>(call, targets, DType::i64);
  args.inputs = lengths_of(call, "input_lengths");
  args.counts = lengths_of(call, "target_lengths");
  args.report = device_of(call).report();
  return args;
}

Status ctc_loss(KernelCall& call) {
  const std::optional<int64_t> width = known_width(call);
  if (call.result(1).is_none() && !width) return run_by_host(call);  // the amount of memory depends on the data
  SG_ASSIGN(CtcArgs args, ctc_args(call));
  if (call.result(1).is_none()) SG_TRY(call.allocate_result(1, std::array{args.entries, args.time, *width}));
  args.width = call.result(1).dim(2);
  if (width.value_or(args.width) > args.width)
    return call.fail("the longest sequence has more states than the graph has room for");
  const Tensor losses = backend_of(call).scratch(DType::f64, call.result(0).sizes());
  const Tensor alpha = backend_of(call).scratch(DType::f64, call.result(1).sizes());
  args.losses = losses.as<double>();
  args.alpha = alpha.as<double>();
  device_of(call).launch("ctc_forward", args.entries, args);
  backend_of(call).copy(call.result(0), losses);
  backend_of(call).copy(call.result(1), alpha);
  return ok_status();
}

Status ctc_loss_backward(KernelCall& call) {
  SG_ASSIGN(CtcArgs args, ctc_args(call));
  const Tensor& alpha = call.tensor("log_alpha");
  args.width = alpha.dim(2);
  if (known_width(call).value_or(1) > args.width)
    return call.fail("'log_alpha' has fewer states than the longest sequence");
  args.alpha = const_cast<double*>(numbers_of<double>(call, alpha, DType::f64));
  args.losses = const_cast<double*>(numbers_of<double>(call, call.tensor("neg_log_likelihood"), DType::f64));
  args.gradients = numbers_of<double>(call, call.tensor("grad"), DType::f64);
  args.zero_infinity = call.flag("zero_infinity");
  const Tensor beta = backend_of(call).scratch(DType::f64, std::array<int64_t, 3>{args.entries, 2, args.width});
  const Tensor to = backend_of(call).scratch(DType::f64, call.result().sizes());
  backend_of(call).fill(to, Scalar::integer(0));
  args.beta = beta.as<double>();
  args.to = to.as<double>();
  device_of(call).launch("ctc_backward", args.entries, args);
  backend_of(call).copy(call.result(), to);
  return ok_status();
}

constexpr KernelRow kCtcRows[] = {
    {"aten._ctc_loss.default", ctc_loss},
    {"aten._ctc_loss.Tensor", ctc_loss},
    {"aten._ctc_loss_backward.default", ctc_loss_backward},
    {"aten._ctc_loss_backward.Tensor", ctc_loss_backward},
};

}  // namespace

std::span<const KernelRow> ctc_kernels() { return kCtcRows; }

}  // namespace sg::cuda
