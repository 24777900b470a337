// Products of float8: numbers are widened, which is exact; products are summed in f32; then scales are applied.
//
//   scale_a, scale_b   one number; or one per row of `self` [M, 1] and one per column of `mat2` [1, N]; or one per
//                      block of 128 along the inner axis, and of 1 or 128 along the other. Blocks are scaled before
//                      they are multiplied, in f32.
//   use_fast_accum     only concerns the hardware: sums are f32 here.
//   grouped            one product per group, as in cpu/grouped_mm.cc; a scale per row and column of each group.
#include <array>
#include <string>
#include <vector>

#include "librun/cpu/blocks.h"
#include "librun/cpu/fill.h"
#include "librun/cpu/gemm.h"
#include "librun/cpu/grouped_mm.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"
#include "librun/work/run.h"
#include "librun/work/scaled.h"

namespace sg::cpu {
namespace {

constexpr int64_t kScaleBlock = 128;

// The type in which numbers are multiplied: bf16 holds all float8 values. Double if the run stores them in double.
DType product_type(const Tensor& a, const Tensor& b) {
  if (is_float8(a.dtype) && is_float8(b.dtype)) return DType::bf16;
  return a.dtype == DType::f64 || b.dtype == DType::f64 ? DType::f64 : DType::f32;
}

Tensor widened(KernelCall& call, const Tensor& t, DType dtype) {
  if (t.dtype == dtype) return t;
  // Preserves the layout: columns that are contiguous in memory stay so, and nothing is transposed.
  const bool is_turned = t.rank == 2 && t.step(0) == 1 && t.step(1) != 1;
  return is_turned ? swap_axes(contiguous_as(call, swap_axes(t, 0, 1), dtype), 0, 1) : contiguous_as(call, t, dtype);
}

template <class C>
work::Factors<C> factors(KernelCall& call, const Tensor& t) {
  if (t.is_none()) return {};
  return {contiguous_as(call, t, kDTypeOf<C>).template as<C>(), t.elements() > 1 ? 1 : 0};
}

bool is_one_each(const Tensor& scale, const Tensor& matrix, int axis) {
  return scale.elements() == 1 || (scale.rank == 2 && scale.dim(axis) == matrix.dim(axis) && scale.dim(1 - axis) == 1);
}

// The matrix times the scales of its blocks; `inner` is its contracted axis.
template <class C>
Result<Tensor> block_scaled(KernelCall& call, const Tensor& matrix, const Tensor& scale, int inner) {
  const int64_t outer = matrix.dim(1 - inner);
  const bool is_blocked = scale.rank == 2 && scale.dim(inner) == blocks_of(matrix.dim(inner), kScaleBlock);
  const int64_t block = !is_blocked                                             ? 0
                        : scale.dim(1 - inner) == outer                         ? 1
                        : scale.dim(1 - inner) == blocks_of(outer, kScaleBlock) ? kScaleBlock
                                                                                : 0;
  if (block == 0) return call.fail("scales must be one number, one per row or column, or one per block of 128");
  Tensor out = workspace(call, kDTypeOf<C>, matrix.sizes());
  copy(call, out, matrix);
  const std::array<int64_t, 2> size = inner == 0 ? std::array{kScaleBlock, block} : std::array{block, kScaleBlock};
  for_each_in_rows(call, out.dim(0), out.dim(1),
                   work::ScaleBlocks<C>{out.as<C>(), out.dim(1), size[0], size[1], scale.dim(1),
                                        contiguous_as(call, scale, kDTypeOf<C>).template as<C>()});
  return out;
}

// Where the sums are computed: in the result itself if it can hold them.
template <class C>
Tensor sums_for(KernelCall& call, const Tensor& out) {
  return out.dtype == kDTypeOf<C> && out.is_contiguous() ? out : workspace(call, kDTypeOf<C>, out.sizes());
}

template <class C>
void scale_sums(KernelCall& call, const Tensor& sums, const work::Factors<C>& rows, const work::Factors<C>& columns) {
  for_each_in_rows(call, sums.dim(0), sums.dim(1),
                   work::ScaleSums<C>{sums.as<C>(), sums.dim(1), rows, columns, factors<C>(call, call.tensor("bias")),
                                      factors<C>(call, call.tensor("scale_result"))});
}

template <class C>
Status scaled_product(KernelCall& call) {
  const Tensor &a = call.tensor("self"), &b = call.tensor("mat2"), &out = call.result();
  const Tensor &scale_a = call.tensor("scale_a"), &scale_b = call.tensor("scale_b");
  const Tensor sums = sums_for<C>(call, out);
  if (is_one_each(scale_a, a, 0) && is_one_each(scale_b, b, 1)) {
    const DType type = product_type(a, b);
    gemm(call, {sums, widened(call, a, type), widened(call, b, type)});
    scale_sums(call, sums, factors<C>(call, scale_a), factors<C>(call, scale_b));
  } else {
    SG_ASSIGN(const Tensor left, block_scaled<C>(call, a, scale_a, 1));
    SG_ASSIGN(const Tensor right, block_scaled<C>(call, b, scale_b, 0));
    gemm(call, {sums, left, right});
    static constexpr C kOne = 1;
    const C* one = table(call, std::span<const C>(&kOne, 1));
    scale_sums(call, sums, work::Factors<C>{one, 0}, work::Factors<C>{one, 0});
  }
  if (sums.data != out.data) copy(call, out, sums);
  return ok_status();
}

Status scaled_mm(KernelCall& call) {
  const Tensor &a = call.tensor("self"), &b = call.tensor("mat2");
  if (a.dim(1) != b.dim(0))
    return call.fail("the inner sizes differ: " + std::to_string(a.dim(1)) + " and " + std::to_string(b.dim(0)));
  return a.dtype == DType::f64 ? scaled_product<double>(call) : scaled_product<float>(call);
}

// The scales of a group: one per row of each matrix of a rank-3 operand, and of each group of a contracted axis; for an
// operand with groups along rows or columns, one for each of those.
template <class C>
work::Factors<C> group_factors(const work::Factors<C>& all, int64_t group, int64_t begin, int64_t length,
                               bool by_place) {
  return {all.at + (by_place ? begin : group * length) * all.step, all.step};
}

template <class C>
Status scaled_groups(KernelCall& call) {
  const Tensor &a = call.tensor("self"), &b = call.tensor("mat2"), &out = call.result();
  const DType type = product_type(a, b);
  const Tensor sums = workspace(call, kDTypeOf<C>, out.sizes());
  SG_ASSIGN(const std::vector<GroupProduct> groups,
            group_products(call, sums, widened(call, a, type), widened(call, b, type)));
  if (a.rank != b.rank) fill(call, sums, Scalar::integer(0));  // parts without a group
  std::vector<Gemm> products;
  for (const GroupProduct& g : groups) products.push_back({g.out, g.a, g.b});
  gemm(call, products);
  const auto of_a = factors<C>(call, call.tensor("scale_a")), of_b = factors<C>(call, call.tensor("scale_b"));
  const bool rows = a.rank == 2 && b.rank == 3, columns = a.rank == 3 && b.rank == 2;
  for (size_t i = 0; i < groups.size(); ++i) {
    const GroupProduct& g = groups[i];
    const auto group = static_cast<int64_t>(i);
    const auto by_row = group_factors(of_a, group, g.begin, a.dim(-2), rows);
    const auto by_column = group_factors(of_b, group, g.begin, b.dim(-1), columns);
    const int64_t step = sums.rank == 3 ? sums.step(1) : sums.step(0);
    C* first = g.out.as<C>();
    for_rows(call, g.out.dim(0), g.out.dim(1), [&](int64_t row, int) {
      C* x = first + row * step;
      for (int64_t c = 0; c < g.out.dim(1); ++c) x[c] = x[c] * by_row[row] * by_column[c];
    });
  }
  copy(call, out, sums);
  return ok_status();
}

// Checks for a scale per row of the left and per column of the right operand, in every group they belong to.
Status check_group_scales(const KernelCall& call) {
  const Tensor &a = call.tensor("self"), &b = call.tensor("mat2");
  const int64_t inner_groups = a.rank == 2 && b.rank == 2 ? call.tensor("offs").dim(0) : 1;
  const int64_t rows = a.elements() / std::max<int64_t>(a.dim(-1), 1) * inner_groups;
  const int64_t columns = b.elements() / std::max<int64_t>(b.dim(-2), 1) * inner_groups;
  if (call.has("scale_result")) return call.fail("a scale of the result is not part of this op's definition");
  for (const auto& [name, count] : {std::pair{"scale_a", rows}, {"scale_b", columns}})
    if (call.tensor(name).elements() != count)
      return call.fail("'" + std::string(name) + "' has " + std::to_string(call.tensor(name).elements()) +
                       " numbers for " + std::to_string(count) + " rows or columns of the groups");
  return ok_status();
}

Status scaled_grouped_mm(KernelCall& call) {
  SG_TRY(check_grouped_sizes(call));
  SG_TRY(check_group_scales(call));
  return call.tensor("self").dtype == DType::f64 ? scaled_groups<double>(call) : scaled_groups<float>(call);
}

constexpr KernelRow kRows[] = {
    {"aten._scaled_mm.default", scaled_mm},
    {"aten._scaled_grouped_mm.default", scaled_grouped_mm},
};

}  // namespace

std::span<const KernelRow> scaled_mm_kernels() { return kRows; }

}  // namespace sg::cpu
