#include "librun/check/replay.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>
#include <vector>

#include "libgraph/op.h"
#include "librun/cpu/fill.h"

namespace sg {
namespace {

// Ops that return the elements selected along `dim`, and their indices.
constexpr std::array<std::string_view, 9> kChoosers = {
    "aten.topk.default",     "aten.sort.default", "aten.sort.stable", "aten.max.dim",       "aten.min.dim",
    "aten.kthvalue.default", "aten.mode.default", "aten.median.dim",  "aten.nanmedian.dim",
};

// The sign, exponent and leading fraction bits of a double, as a narrower type has them.
struct Layout {
  int exponent, fraction;  // bits
};
Layout layout_of(DType t) {
  switch (t) {
    case DType::f8e5m2: return {5, 2};
    case DType::f16: return {5, 10};
    case DType::bf16: return {8, 7};
    case DType::f32: return {8, 23};
    default: return {11, 52};
  }
}

// Narrows a NaN bit by bit, because arithmetic would quiet it: the bytes of other data may look like a NaN.
uint64_t narrowed_nan(double x, Layout to) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const uint64_t fraction = bits << 12 >> 12 >> (52 - to.fraction);
  const uint64_t rest = (uint64_t{1} << to.exponent) - 1;
  return (bits >> 63 << to.exponent | rest) << to.fraction | std::max<uint64_t>(fraction, 1);
}
double widened_nan(uint64_t bits, Layout from) {
  const uint64_t fraction = bits & ((uint64_t{1} << from.fraction) - 1);
  const uint64_t sign = bits >> (from.exponent + from.fraction);
  return std::bit_cast<double>(sign << 63 | uint64_t{0x7ff} << 52 | fraction << (52 - from.fraction));
}

bool is_exact(const Type& type) {
  if (type.kind != TypeKind::tensor) return type.kind != TypeKind::floating;
  return !is_floating(type.dtype) && !is_complex(type.dtype);
}

// values = gather(self, dim, indices), with the reduced axis temporarily restored.
Status choose_again(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  Tensor values = call.results[0], indices = call.results[1];
  if (self.rank == 0) return cpu::copy(call, values, self), ok_status();
  int axis = wrap_axis(call.integer("dim"), self.rank);
  auto with_axis = [&](Tensor t) {
    if (t.rank == self.rank) return t;
    for (int i = t.rank++; i > axis; --i) {
      t.shape[static_cast<size_t>(i)] = t.shape[static_cast<size_t>(i - 1)];
      t.stride[static_cast<size_t>(i)] = t.stride[static_cast<size_t>(i - 1)];
    }
    t.shape[static_cast<size_t>(axis)] = 1;
    t.stride[static_cast<size_t>(axis)] = 0;
    return t;
  };
  const OpInfo& gather = *find_op("aten.gather.default");
  KernelCall again(gather, &call.context());
  auto set = [&](std::string_view name) -> ParamValue& {
    return again.params()[static_cast<size_t>(gather.param_index(name))];
  };
  set("self").kind = set("index").kind = ParamValue::Kind::tensor;
  set("self").tensor = self;
  set("index").tensor = with_axis(indices);
  set("dim").kind = ParamValue::Kind::scalar;
  set("dim").scalar = Scalar::integer(axis);
  again.results = {with_axis(values)};
  return find_cpu_kernel(gather.name)(again);
}

int64_t parts_in(const Tensor& t) { return t.elements() * (is_complex(t.dtype) ? 2 : 1); }

// Calls fn(double* number, pointer to the same element of `narrow` as an unsigned integer of its size) for NaNs in
// `wide`, if `narrow` has more than one NaN. REQUIRES: both contiguous
template <class Fn>
void for_nans(const Tensor& wide, const Tensor& narrow, const Fn& fn) {
  const DType type = real_part(narrow.dtype);
  if (is_float8(type) && type != DType::f8e5m2) return;
  auto* numbers = reinterpret_cast<double*>(wide.data);
  for (int64_t i = 0; i < parts_in(wide); ++i) {
    if (!std::isnan(numbers[i])) continue;
    if (dtype_bytes(type) == 4) fn(numbers + i, reinterpret_cast<uint32_t*>(narrow.data) + i);
    else if (dtype_bytes(type) == 2) fn(numbers + i, reinterpret_cast<uint16_t*>(narrow.data) + i);
    else fn(numbers + i, reinterpret_cast<uint8_t*>(narrow.data) + i);
  }
}

// Reinterprets the numbers, rounded to type `from`, as numbers of type `to`: see bit_casts.h.
Status copy_bits_again(KernelCall& call, DType from, DType to) {
  const Tensor self = cpu::contiguous(call, call.tensor("self")), out = call.results[0];
  std::vector<std::byte> bytes(static_cast<size_t>(self.elements() * dtype_bytes(from))), widened;
  const Tensor narrow = make_tensor(bytes.data(), from, self.sizes());
  cpu::copy(call, narrow, self);
  if (self.dtype != from)
    for_nans(self, narrow, [&](double* x, auto* bits) {
      *bits = static_cast<std::remove_pointer_t<decltype(bits)>>(narrowed_nan(*x, layout_of(real_part(from))));
    });
  const Tensor seen = make_tensor(bytes.data(), to, out.sizes());
  if (seen.bytes() != narrow.bytes()) return call.fail("the bytes of self are not those of the result");
  if (out.dtype == to) return cpu::copy(call, out, seen), ok_status();
  widened.resize(static_cast<size_t>(out.bytes()));
  const Tensor wide = make_tensor(widened.data(), out.dtype, out.sizes());
  cpu::copy(call, wide, seen);
  for_nans(wide, seen, [&](double* x, auto* bits) { *x = widened_nan(*bits, layout_of(real_part(to))); });
  cpu::copy(call, out, wide);
  return ok_status();
}

}  // namespace

Status replay_step(GraphRun& recorded, GraphRun& wide, size_t i) {
  const Graph& graph = wide.graph();
  const Node& node = graph.node(wide.step_node(i));
  size_t exact = 0;
  for (uint32_t r = 0; r < node.result_count; ++r) exact += is_exact(graph.type(node.result(r)));
  bool chooses = std::ranges::find(kChoosers, graph.op_name(wide.step_node(i))) != kChoosers.end();
  bool copies_bits = graph.op_name(wide.step_node(i)) == "sg.copy_bits";
  bool skip = node.result_count > 0 && (exact == node.result_count || chooses || copies_bits);
  SG_TRY(skip ? wide.begin_step(i) : wide.run_step(i));
  for (uint32_t r = 0; r < node.result_count; ++r) {
    ValueId v = node.result(r);
    if (!is_exact(graph.type(v))) continue;
    wide.values().scalars[v.index] = recorded.values().scalars[v.index];
    const Tensor& from = recorded.values().tensors[v.index];
    Tensor& to = wide.values().tensors[v.index];
    if (from.is_none() || to.is_none()) continue;
    if (has_settled_results(graph, wide.step_node(i))) cpu::copy(wide.team(), to, from);  // otherwise at the wait
  }
  if (exact == node.result_count || node.result_count == 0) return ok_status();
  if (copies_bits)
    return copy_bits_again(*wide.step_call(i), graph.type(node.args[0].as_value()).dtype,
                           graph.type(node.result(0)).dtype);
  return chooses ? choose_again(*wide.step_call(i)) : ok_status();
}

}  // namespace sg
