// Sums, means, products and counts.
#include "librun/cpu/kernels.h"
#include "librun/cpu/reduce.h"
#include "librun/cpu/reduce_ops.h"

namespace sg::cpu {
namespace {

// PyTorch converts to a requested dtype before it reduces; if that only widens floats, it makes no difference.
Tensor converted(KernelCall& call, const Tensor& self) {
  if (call.op().param_index("dtype") < 0 || !call.has("dtype")) return self;
  DType wanted = call.stored("dtype", self.dtype);
  bool widens = is_floating(self.dtype) && (wanted == DType::f64 || wanted == DType::f32) && self.dtype != DType::f64;
  return wanted == self.dtype || widens ? self : contiguous_as(call, self, wanted);
}

template <class T, class Op, class Finish>
void reduce_to_result(KernelCall& call, const Tensor& self, const Op& op, const Finish& finish) {
  const Tensor& out = call.result();
  ReducePlan plan = plan_reduction(self, out, reduced_axes(call, self));
  auto put = put_as<decltype(finish(op.start(), plan))>(out.dtype);
  reduce<T>(call, plan, self, op, nullptr,
            [&](auto acc, int64_t, int64_t offset) { put(out.data, offset, finish(acc, plan)); });
}

constexpr auto kAsIs = [](auto acc, const ReducePlan&) { return acc; };

Status sum(KernelCall& call) {
  visit_reducible(call, converted(call, call.tensor("self")),
                  [&]<class T>(const Tensor& self) { reduce_to_result<T>(call, self, Sum<SumType<T>>{}, kAsIs); });
  return ok_status();
}

Status nansum(KernelCall& call) {
  Tensor self = converted(call, call.tensor("self"));
  if (!is_floating(self.dtype)) return sum(call);
  visit_floating(self.dtype, [&]<class T>() { reduce_to_result<T>(call, self, NanSum{}, kAsIs); });
  return ok_status();
}

Status mean(KernelCall& call) {
  visit_reducible(call, converted(call, call.tensor("self")), [&]<class T>(const Tensor& self) {
    if constexpr (!std::is_integral_v<T>)
      reduce_to_result<T>(call, self, Sum<SumType<T>>{},
                          [](auto acc, const ReducePlan& plan) { return acc / static_cast<double>(plan.count); });
  });
  return ok_status();
}

Status prod(KernelCall& call) {
  visit_reducible(call, converted(call, call.tensor("self")),
                  [&]<class T>(const Tensor& self) { reduce_to_result<T>(call, self, Product<SumType<T>>{}, kAsIs); });
  return ok_status();
}

template <class Finish>
Status count(KernelCall& call, const Finish& finish) {
  visit_reducible(call, call.tensor("self"),
                  [&]<class T>(const Tensor& self) { reduce_to_result<T>(call, self, NonZeros{}, finish); });
  return ok_status();
}

Status count_nonzero(KernelCall& call) { return count(call, kAsIs); }
Status any(KernelCall& call) {
  return count(call, [](int64_t n, const ReducePlan&) { return int64_t{n != 0}; });
}
Status all(KernelCall& call) {
  return count(call, [](int64_t n, const ReducePlan& plan) { return int64_t{n == plan.count}; });
}

constexpr KernelRow kRows[] = {
    {"aten.sum.default", sum},
    {"aten.sum.dim_IntList", sum},
    {"aten.nansum.default", nansum},
    {"aten.mean.default", mean},
    {"aten.mean.dim", mean},
    {"aten.prod.default", prod},
    {"aten.prod.dim_int", prod},
    {"aten.count_nonzero.default", count_nonzero},
    {"aten.any.default", any},
    {"aten.any.dim", any},
    {"aten.any.dims", any},
    {"aten.all.default", all},
    {"aten._is_all_true.default", all},
    {"aten._is_any_true.default", any},
    {"aten.all.dim", all},
    {"aten.all.dims", all},
};

}  // namespace

std::span<const KernelRow> reduce_sum_kernels() { return kRows; }

}  // namespace sg::cpu
