// Scalars from data, counters, triangles.
#include <array>
#include <cstring>

#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/copy.h"
#include "librun/cuda/kernels/index.h"
#include "librun/element.h"

namespace sg::cuda {
namespace {

// --- data that the host waits for ---

Status read_scalar(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  if (self.elements() != 1)
    return call.fail("only a tensor of one element is a number, not one of " + std::to_string(self.elements()));
  alignas(16) std::array<std::byte, 16> memory;
  SG_TRY(backend_of(call).download(memory.data(), self.data, dtype_bytes(self.dtype)));
  visit_dtype(self.dtype, [&]<class T>() {
    T value;
    std::memcpy(static_cast<void*>(&value), memory.data(), sizeof value);
    if constexpr (is_complex_type<T>)
      call.scalars[0] = Scalar::complex(value.real(), self.conjugate ? -value.imag() : value.imag());
    else if constexpr (std::is_same_v<T, bool>) call.scalars[0] = Scalar::boolean(value);
    else if constexpr (std::is_integral_v<T>) call.scalars[0] = Scalar::integer(value);
    else call.scalars[0] = Scalar::floating(static_cast<Compute<T>>(value));
  });
  return ok_status();
}

Status assert_async(KernelCall& call) {
  device_of(call).launch("assert_true", 1, AssertArgs{Device::view(call.tensor("self")), device_of(call).report()});
  return ok_status();
}

// repeats [n] -> each position, repeated as often as its entry says; the host must know the total.
Status repeat_interleave(KernelCall& call) {
  const Tensor& given = call.tensor("repeats");
  Tensor repeats = backend_of(call).scratch(DType::i64, given.sizes());
  backend_of(call).copy(repeats, given);
  std::vector<int64_t> times(static_cast<size_t>(given.elements())), numbers;
  SG_TRY(backend_of(call).download(reinterpret_cast<std::byte*>(times.data()), repeats.data, repeats.bytes()));
  int64_t total = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] < 0)
      return call.fail("position " + std::to_string(i) + " cannot be repeated " + std::to_string(times[i]) + " times");
    if (__builtin_add_overflow(total, times[i], &total))
      return call.fail("the repeats add up to more than memory holds");
  }
  if (call.result().is_none()) SG_TRY(call.allocate_result(0, std::array{total}));
  if (call.result().elements() != total)
    return call.fail("the repeats add up to " + std::to_string(total) + ", but the graph says " +
                     std::to_string(call.result().elements()));
  for (size_t i = 0; i < times.size(); ++i)
    numbers.insert(numbers.end(), static_cast<size_t>(times[i]), static_cast<int64_t>(i));
  Tensor positions = backend_of(call).scratch(DType::i64, call.result().sizes());
  SG_TRY(
      backend_of(call).upload(positions.data, reinterpret_cast<const std::byte*>(numbers.data()), positions.bytes()));
  backend_of(call).copy(call.result(), positions);
  return ok_status();
}

// --- created from numbers ---

Status arange(KernelCall& call) {
  auto number = [&](std::string_view name, Scalar fallback) {
    return call.op().param_index(name) < 0 || !call.has(name) ? fallback : call.scalar(name);
  };
  const Scalar start = number("start", Scalar::integer(0)), step = number("step", Scalar::integer(1));
  CountArgs args{Device::view(call.result()), start.to_double(), step.to_double(), start.to_int(), step.to_int()};
  device_of(call).launch("count_elements", blocks_for(args.to.count), args);
  return ok_status();
}

template <bool lower>
Status triangle(KernelCall& call) {
  const Tensor& out = call.result();
  const int64_t size = out.dim(-1) + out.dim(-2);
  TriangleArgs args{Device::view(out), Device::view(call.tensor("self")),
                    std::clamp(call.integer("diagonal"), -size, size), lower};
  device_of(call).launch("triangle", blocks_for(args.to.count), args);
  return ok_status();
}

// Uses the shared work, except for half-precision complex numbers, which no device kernel reads.
Status fourier(KernelCall& call) {
  for (const Tensor* t : {&call.tensor("self"), &call.result()})
    if (t->dtype == DType::c32) return run_by_host(call);
  return find_cpu_kernel(call.op().name)(call);
}

constexpr KernelRow kOtherRows[] = {
    {"aten._fft_c2c.default", fourier},       {"aten._fft_r2c.default", fourier},
    {"aten._fft_c2r.default", fourier},       {"aten._local_scalar_dense.default", read_scalar},
    {"aten.item.default", read_scalar},       {"aten._assert_async.default", assert_async},
    {"aten._assert_async.msg", assert_async}, {"aten.repeat_interleave.Tensor", repeat_interleave},
    {"aten.arange.default", arange},          {"aten.arange.start", arange},
    {"aten.arange.start_step", arange},       {"aten.tril.default", triangle<true>},
    {"aten.triu.default", triangle<false>},   {"aten.tril_.default", triangle<true>},
    {"aten.triu_.default", triangle<false>},
};

}  // namespace

std::span<const KernelRow> other_kernels() { return kOtherRows; }

}  // namespace sg::cuda
