// _grouped_mm: one product per group; groups are adjacent along the axis that a two-dimensional operand shares.
//
//   self [rows, K]    mat2 [G, K, N]   groups of rows       result [rows, N]
//   self [G, M, K]    mat2 [K, columns]   groups of columns result [M, columns]
//   self [M, depth]   mat2 [depth, N]  groups of depth      result [G, M, N]
//   self [G, M, K]    mat2 [G, K, N]   no offsets           result [G, M, N]
//
// Group g ends at offs[g] and begins where the previous one ends. The result is zero after the last group.
#include "librun/cpu/grouped_mm.h"

#include <string>
#include <vector>

#include "librun/cpu/fill.h"
#include "librun/cpu/gemm.h"
#include "librun/cpu/kernels.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

Tensor slice(const Tensor& t, int axis, int64_t begin, int64_t end) {
  Tensor out = t;
  out.data += begin * t.step(axis) * dtype_bytes(t.dtype);
  out.shape[static_cast<size_t>(axis)] = end - begin;
  return out;
}

Tensor select(const Tensor& t, int64_t index) { return drop_axis(slice(t, 0, index, index + 1), 0); }

// The ends of the groups along an axis of `size`; they are data, so they are checked.
Result<std::vector<int64_t>> group_ends(const KernelCall& call, int64_t size) {
  const Tensor& offsets = call.tensor("offs");
  std::vector<int64_t> ends;
  visit_dtype(offsets.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>)
      for (int64_t i = 0; i < offsets.dim(0); ++i)
        ends.push_back(static_cast<int64_t>(offsets.as<T>()[i * offsets.step(0)]));
  });
  for (size_t i = 0; i < ends.size(); ++i)
    if (ends[i] < (i > 0 ? ends[i - 1] : 0) || ends[i] > size)
      return call.fail("offset " + std::to_string(i) + " of the groups is " + std::to_string(ends[i]) +
                       ": offsets rise from 0 to " + std::to_string(size));
  return ends;
}

// The part of the result after the last group, along the shared axis.
Tensor rest_behind(const std::vector<GroupProduct>& groups, const Tensor& out, int axis) {
  const int64_t end = groups.empty() ? 0 : groups.back().begin + groups.back().out.dim(axis);
  return slice(out, axis, end, out.dim(axis));
}

Status grouped_mm(KernelCall& call) {
  SG_TRY(check_grouped_sizes(call));
  const Tensor &a = call.tensor("self"), &b = call.tensor("mat2"), &out = call.result();
  if (a.rank == 3 && b.rank == 3) return gemm(call, {out, a, b}), ok_status();
  SG_ASSIGN(const std::vector<GroupProduct> groups, group_products(call, out, a, b));
  if (a.rank != b.rank) fill(call, rest_behind(groups, out, a.rank == 3 ? 1 : 0), Scalar::integer(0));
  std::vector<Gemm> products;
  for (const GroupProduct& g : groups) products.push_back({g.out, g.a, g.b});
  gemm(call, products);
  return ok_status();
}

constexpr KernelRow kRows[] = {{"aten._grouped_mm.default", grouped_mm}};

}  // namespace

Result<std::vector<GroupProduct>> group_products(const KernelCall& call, const Tensor& out, const Tensor& a,
                                                 const Tensor& b) {
  std::vector<GroupProduct> groups;
  if (a.rank == 3 && b.rank == 3) {
    for (int64_t g = 0; g < a.dim(0); ++g) groups.push_back({select(out, g), select(a, g), select(b, g)});
    return groups;
  }
  const bool rows = b.rank == 3, columns = a.rank == 3;
  SG_ASSIGN(const std::vector<int64_t> ends, group_ends(call, rows ? a.dim(0) : columns ? b.dim(1) : a.dim(1)));
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size(); begin = ends[i++]) {
    const auto g = static_cast<int64_t>(i);
    const int64_t end = ends[i];
    if (rows) groups.push_back({slice(out, 0, begin, end), slice(a, 0, begin, end), select(b, g), begin});
    else if (columns) groups.push_back({slice(out, 1, begin, end), select(a, g), slice(b, 1, begin, end), begin});
    else groups.push_back({select(out, g), slice(a, 1, begin, end), slice(b, 0, begin, end), begin});
  }
  return groups;
}

Status check_grouped_sizes(const KernelCall& call) {
  const Tensor &a = call.tensor("self"), &b = call.tensor("mat2"), &out = call.result(), &offsets = call.tensor("offs");
  if (call.has("bias")) return call.fail("a bias is not part of this op's definition");
  if (a.dim(-1) != b.dim(-2))
    return call.fail("the inner sizes differ: " + std::to_string(a.dim(-1)) + " and " + std::to_string(b.dim(-2)));
  if (a.rank == 3 && b.rank == 3) return a.dim(0) == b.dim(0) ? ok_status() : call.fail("the numbers of groups differ");
  if (offsets.is_none() || is_floating(offsets.dtype) || is_complex(offsets.dtype))
    return call.fail("needs integer offsets of the groups");
  const int64_t groups = (b.rank == 3 ? b : a.rank == 3 ? a : out).dim(0);
  if (offsets.dim(0) != groups)
    return call.fail("there are " + std::to_string(offsets.dim(0)) + " offsets for " + std::to_string(groups) +
                     " groups");
  return ok_status();
}

std::span<const KernelRow> grouped_mm_kernels() { return kRows; }

}  // namespace sg::cpu
