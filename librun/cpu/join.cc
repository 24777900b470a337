// Concatenating, splitting, and packing into flat buckets.
#include <algorithm>
#include <cstring>

#include "librun/cpu/fill.h"
#include "librun/cpu/kernels.h"

namespace sg::cpu {
namespace {

// A flat tensor's elements from `start` on, as a contiguous tensor with the shape of `like`.
Tensor flat_part(const Tensor& flat, int64_t start, const Tensor& like) {
  return make_tensor(flat.data + start * dtype_bytes(flat.dtype), flat.dtype, like.sizes());
}

bool is_legacy_empty(const Tensor& t) { return t.rank == 1 && t.dim(0) == 0; }  // PyTorch concatenates it with anything

Status cat(KernelCall& call) {
  const Tensor& out = call.result();
  int axis = wrap_axis(call.integer("dim"), out.rank);
  int64_t start = 0;
  for (const Tensor& t : call.tensors("tensors")) {
    if (is_legacy_empty(t)) continue;
    if (start + t.dim(axis) > out.dim(axis)) return call.fail("the tensors are longer than the result");
    copy(call, narrow_axis(out, axis, start, t.dim(axis)), t);
    start += t.dim(axis);
  }
  return start == out.dim(axis) || out.elements() == 0 ? ok_status()
                                                       : Status(call.fail("the tensors do not fill the result"));
}

Status stack(KernelCall& call) {
  const Tensor& out = call.result();
  int axis = wrap_axis(call.integer("dim"), out.rank);
  int64_t i = 0;
  for (const Tensor& t : call.tensors("tensors")) copy(call, drop_axis(narrow_axis(out, axis, i++, 1), axis), t);
  return ok_status();
}

Status split_into(KernelCall& call, std::span<const Tensor> parts) {
  const Tensor& self = call.tensor("self");
  int axis = wrap_axis(call.integer("dim"), self.rank);
  int64_t start = 0;
  for (const Tensor& part : parts) {
    if (start + part.dim(axis) > self.dim(axis)) return call.fail("the parts are longer than the whole");
    copy(call, part, narrow_axis(self, axis, start, part.dim(axis)));
    start += part.dim(axis);
  }
  return ok_status();
}

Status split_copy(KernelCall& call) { return split_into(call, call.results); }
Status split_copy_out(KernelCall& call) { return split_into(call, call.tensors("out")); }

// Packs, part by part, that part of the rows of every tensor.
Status pack(KernelCall& call) {
  const int64_t parts = call.integer("parts");
  if (parts <= 0) return call.fail("a pack of " + std::to_string(parts) + " parts");
  int64_t start = 0;
  for (int64_t p = 0; p < parts; ++p)
    for (const Tensor& t : call.tensors("tensors")) {
      if (parts > 1 && (t.rank == 0 || t.dim(0) % parts != 0))
        return call.fail("rows that do not divide into " + std::to_string(parts) + " parts");
      const Tensor part = parts == 1 ? t : narrow_axis(t, 0, p * (t.dim(0) / parts), t.dim(0) / parts);
      if (start + part.elements() > call.result().elements())
        return call.fail("the tensors are larger than the result");
      copy(call, flat_part(call.result(), start, part), part);
      start += part.elements();
    }
  return ok_status();
}

// --- buckets of collectives ---

// The dtype with this number: the position of its name in PyTorch 2.15's sorted module contents.
DType numbered_dtype(int64_t number) {
  switch (number) {
    case 1: return DType::bf16;
    case 8: return DType::boolean;
    case 9:
    case 12: return DType::c128;
    case 10:
    case 14: return DType::c64;
    case 15:
    case 20: return DType::f64;
    case 16:
    case 18: return DType::f32;
    case 17:
    case 26: return DType::f16;
    case 27:
    case 32: return DType::i32;
    case 29:
    case 45: return DType::i16;
    case 36:
    case 39: return DType::i64;
    case 38: return DType::i8;
    case 56: return DType::u8;
    default: return DType::none;
  }
}

// Fills this rank's part of an all-gather bucket: each input, rounded to its dtype, one after the other. The rest of
// the bucket belongs to the other ranks.
Status pre_bucket_all_gather(KernelCall& call) {
  const Tensor& out = call.result();
  std::span<const Tensor> inputs = call.tensors("ag_ins");
  std::span<const int64_t> numbers = call.integers("out_dtype_ints");
  int64_t ranks = call.integer("group_size"), rank = call.integer("rank");
  if (ranks <= 0 || rank < 0 || rank >= ranks || numbers.size() != inputs.size())
    return call.fail("rank " + std::to_string(rank) + " of a bucket for " + std::to_string(ranks) + " ranks and " +
                     std::to_string(numbers.size()) + " dtypes for " + std::to_string(inputs.size()) + " inputs");
  int64_t per_rank = out.elements() / ranks, start = rank * per_rank, end = start + per_rank;
  DType recorded = call.param("dtype").dtype;
  for (size_t i = 0; i < inputs.size(); ++i) {
    DType wanted = numbered_dtype(numbers[i]);
    if (wanted == DType::none) return call.fail("no element type has the number " + std::to_string(numbers[i]));
    if (dtype_bytes(wanted) != dtype_bytes(recorded) && wanted != recorded)
      return call.fail("a bucket of " + std::string(dtype_name(recorded)) + " cannot hold elements of " +
                       std::string(dtype_name(wanted)));
    if (inputs[i].elements() > end - start) return call.fail("the inputs are larger than the bucket");
    Tensor part = flat_part(out, start, inputs[i]);
    if (wanted != recorded) part.dtype = stored_dtype(wanted, call.numerics());
    copy(call, part, inputs[i]);
    start += inputs[i].elements();
  }
  return ok_status();
}

// Rank by rank, the rows of every input that the rank will own, padded with zeros if they do not divide evenly.
Status pre_bucket_reduce_scatter(KernelCall& call) {
  const Tensor& out = call.result();
  int64_t ranks = call.integer("group_size"), start = 0;
  if (ranks <= 0) return call.fail("a bucket for " + std::to_string(ranks) + " ranks");
  if (out.elements() == 0) return ok_status();
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (const Tensor& t : call.tensors("rs_ins")) {
      if (t.elements() == 0) continue;
      if (t.rank == 0) return call.fail("a number cannot be scattered");
      int64_t rows = (t.dim(0) + ranks - 1) / ranks, first = std::min(t.dim(0), rank * rows);
      int64_t own = std::min(rows, t.dim(0) - first), row = t.elements() / t.dim(0);
      if (start + rows * row > out.elements()) return call.fail("the inputs are larger than the bucket");
      Tensor part = narrow_axis(t, 0, first, own);
      copy(call, flat_part(out, start, part), part);
      fill(call,
           make_tensor(out.data + (start + own * row) * dtype_bytes(out.dtype), out.dtype,
                       std::array{(rows - own) * row}),
           Scalar::integer(0));
      start += rows * row;
    }
  }
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.cat.default", cat},
    {"aten.stack.default", stack},
    {"aten.split_with_sizes_copy.default", split_copy},
    {"aten.split_with_sizes_copy.out", split_copy_out},
    {"bucketing._pre_bucket_all_gather.default", pre_bucket_all_gather},
    {"bucketing._pre_bucket_reduce_scatter.default", pre_bucket_reduce_scatter},
    {"sg.pack", pack},
};

}  // namespace

std::span<const KernelRow> join_kernels() { return kRows; }

}  // namespace sg::cpu
