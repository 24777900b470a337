// Assertions of a graph about its data, and numbers that the host reads.
#include "librun/cpu/kernels.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

Scalar first_element(const Tensor& t) {
  return visit_dtype(t.dtype, [&]<class T>() -> Scalar {
    T value = *t.as<T>();
    if constexpr (std::is_same_v<T, bool>) {
      return Scalar::boolean(value);
    } else if constexpr (std::is_integral_v<T>) {
      return Scalar::integer(value);
    } else if constexpr (is_complex_type<T>) {
      return Scalar::complex(static_cast<double>(value.real()),
                             static_cast<double>(t.conjugate ? -value.imag() : value.imag()));
    } else {
      return Scalar::floating(static_cast<double>(static_cast<Compute<T>>(value)));
    }
  });
}

bool is_zero(const Scalar& s) { return s.is_integral() ? s.i == 0 : s.re == 0 && s.im == 0; }

Status read_scalar(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  if (self.elements() != 1)
    return call.fail("a tensor of " + std::to_string(self.elements()) + " elements cannot become a number");
  call.scalars.resize(std::max<size_t>(call.scalars.size(), 1));
  call.scalars[0] = first_element(self);
  return ok_status();
}

Status held(KernelCall& call, bool holds, std::string_view message) {
  if (holds) return ok_status();
  return call.fail("assertion failed: " + std::string(message));
}

Status assert_tensor(KernelCall& call, std::string_view message) {
  const Tensor& self = call.tensor("self");
  if (self.elements() != 1) return call.fail("an assertion needs one element, not " + std::to_string(self.elements()));
  return held(call, !is_zero(first_element(self)), message);
}

Status assert_async(KernelCall& call) { return assert_tensor(call, "the value is zero"); }
Status assert_async_message(KernelCall& call) { return assert_tensor(call, call.text("assert_msg")); }
Status assert_scalar(KernelCall& call) { return held(call, !is_zero(call.scalar("self")), call.text("assert_msg")); }

Status constrain_range(KernelCall& call) {
  int64_t size = call.integer("size");
  bool too_small = call.has("min") && size < call.integer("min"),
       too_large = call.has("max") && size > call.integer("max");
  if (!too_small && !too_large) return ok_status();
  return call.fail("the value " + std::to_string(size) + (too_small ? " is less than " : " is more than ") +
                   std::to_string(call.integer(too_small ? "min" : "max")));
}

// Strides and dtype are part of the recorded types, which the verifier has checked; other numerics change the dtype on
// purpose. Only sizes can depend on the data.
Status assert_metadata(KernelCall& call) {
  const Tensor& a = call.tensor("a");
  if (!call.has("size")) return ok_status();
  std::span<const int64_t> size = call.integers("size");
  bool same = std::equal(size.begin(), size.end(), a.sizes().begin(), a.sizes().end());
  return held(call, same, "the tensor does not have the expected sizes");
}

constexpr KernelRow kRows[] = {
    {"aten._local_scalar_dense.default", read_scalar},
    {"aten.item.default", read_scalar},
    {"aten._assert_async.default", assert_async},
    {"aten._assert_async.msg", assert_async_message},
    {"aten._assert_scalar.default", assert_scalar},
    {"aten._assert_tensor_metadata.default", assert_metadata},
    {"aten.sym_constrain_range.default", constrain_range},
    {"aten.sym_constrain_range_for_size.default", constrain_range},
};

}  // namespace

std::span<const KernelRow> assert_kernels() { return kRows; }

}  // namespace sg::cpu
