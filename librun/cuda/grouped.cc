// Products of groups whose ends are in device memory (cpu/grouped_mm.cc describes the layouts): bf16 by tiles, other
// types with a chain per element.
#include <algorithm>
#include <array>

#include "librun/cpu/gemm.h"
#include "librun/cpu/grouped_mm.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/grouped.h"
#include "librun/cuda/kernels/matmul_args.h"

namespace sg::cuda {
namespace {

using Along = MatmulArgs::Along;

// How many contiguous numbers start at a multiple of their size in bytes, in every line.
int32_t run_of(const Tensor& t, int64_t group, int64_t line) {
  for (int32_t run : {8, 2})
    if (group % run == 0 && line % run == 0 &&
        reinterpret_cast<uintptr_t>(t.data) % (2 * static_cast<size_t>(run)) == 0)
      return run;
  return 1;
}

// A matrix [groups, rows, columns], or [rows, columns] shared by all groups; turned: with columns and rows exchanged.
GroupedMatrix matrix(const Tensor& t, bool turned) {
  GroupedMatrix m;
  m.data = t.as<uint16_t>();
  m.group = t.rank == 3 ? t.step(0) : 0;
  m.row = t.step(turned ? -1 : -2);
  m.column = t.step(turned ? -2 : -1);
  m.lies = m.row == 1 && m.column != 1 ? Lies::turned : Lies::straight;
  if (m.lies == Lies::turned) m.run = run_of(t, m.group, m.column);
  else if (m.column == 1) m.run = run_of(t, m.group, m.row);
  return m;
}

const char* tiles_by(Lies left, Lies right) {
  if (left == Lies::straight) return right == Lies::straight ? "grouped_tiles" : "grouped_tiles_right";
  return right == Lies::straight ? "grouped_tiles_left" : "grouped_tiles_both";
}

int64_t group_tiles(int64_t size) { return (size + kGroupedTile - 1) / kGroupedTile; }

void multiply_by_tiles(KernelCall& call, const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& ends,
                       Along along) {
  const bool turned = along == Along::n;  // groups of columns: out' = b' a'
  GroupedArgs args;
  args.a = matrix(turned ? b : a, turned);
  args.b = matrix(turned ? a : b, !turned);
  args.to = matrix(out, turned);
  args.ends = Device::view(ends);
  args.rows = out.dim(turned ? -1 : -2);
  args.columns = out.dim(turned ? -2 : -1);
  args.depth = a.dim(-1);
  args.along_depth = along == Along::k;
  args.report = device_of(call).report();
  // A group has at most one partial tile.
  const int64_t groups = ends.dim(0), rows = group_tiles(args.rows);
  const int64_t tiles = args.along_depth ? groups * rows : args.rows / kGroupedTile + groups;
  device_of(call).launch(tiles_by(args.a.lies, args.b.lies), tiles * group_tiles(args.columns), args);
}

Tensor with_groups(const Tensor& t) {
  if (t.rank == 3) return t;
  Tensor out = make_tensor(t.data, t.dtype, std::array<int64_t, 3>{1, t.dim(0), t.dim(1)});
  out.stride[1] = t.step(0);
  out.stride[2] = t.step(1);
  return out;
}

void multiply_by_chains(KernelCall& call, const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& ends,
                        Along along) {
  MatmulArgs args;
  args.along = along;
  args.to = Device::view(with_groups(out));
  args.a = Device::view(with_groups(a));
  args.b = Device::view(with_groups(b));
  args.ends = Device::view(ends);
  args.report = device_of(call).report();
  device_of(call).launch("matmul_elements", blocks_for(args.to.count), args);
}

Status grouped_mm(KernelCall& call) {
  SG_TRY(cpu::check_grouped_sizes(call));
  const Tensor &a = call.tensor("self"), &b = call.tensor("mat2"), &out = call.result(), &ends = call.tensor("offs");
  if (a.rank == 3 && b.rank == 3) return backend_of(call).multiply(call, {out, a, b});
  if (out.elements() == 0) return ok_status();
  const Along along = b.rank == 3 ? Along::m : a.rank == 3 ? Along::n : Along::k;
  if (along != Along::k) backend_of(call).fill(out, Scalar::integer(0));  // the part after the last group
  const bool by_tiles = a.dtype == DType::bf16 && b.dtype == DType::bf16 && out.dtype == DType::bf16;
  (by_tiles ? multiply_by_tiles : multiply_by_chains)(call, a, b, out, ends, along);
  return ok_status();
}

constexpr KernelRow kGroupedRows[] = {
    {"aten._grouped_mm.default", grouped_mm},
};

}  // namespace

std::span<const KernelRow> grouped_kernels() { return kGroupedRows; }

}  // namespace sg::cuda
