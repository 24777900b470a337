#include "librun/cpu/fill.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "librun/backend.h"
#include "librun/cpu/block/block.h"
#include "librun/cpu/gemm_tile.h"
#include "librun/cpu/isa.h"
#include "librun/element.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

template <class To, class From>
To convert(From from) {
  if constexpr (is_complex_type<To>) {
    using Real = typename To::value_type;
    if constexpr (is_complex_type<From>) return To(static_cast<Real>(from.real()), static_cast<Real>(from.imag()));
    else return To(static_cast<Real>(static_cast<Compute<From>>(from)), 0);
  } else if constexpr (is_complex_type<From>) {
    return convert<To>(from.real());
  } else if constexpr (std::is_same_v<To, bool>) {
    return static_cast<Compute<From>>(from) != 0;
  } else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    return static_cast<To>(static_cast<int64_t>(static_cast<Compute<From>>(from)));
  } else {
    return static_cast<To>(static_cast<Compute<To>>(static_cast<Compute<From>>(from)));
  }
}

// A type of the same size whose elements pass through registers unchanged.
DType raw(DType t) {
  switch (dtype_bytes(t)) {
    case 1: return DType::u8;
    case 2: return DType::i16;
    case 4: return DType::i32;
    case 8: return DType::i64;
    default: return DType::c128;
  }
}

// u64 is copied as the bits of i64 (element.h).
DType computed(DType t) { return t == DType::u64 ? DType::i64 : t; }

// Copies a run: from memory to a register, to another lane if needed, and back to memory (block/block.h).
class RunCopier {
 public:
  RunCopier(const Tensor& out, const Tensor& in)
      : table_(best_block_table()),
        in_bytes_(dtype_bytes(in.dtype)),
        out_bytes_(dtype_bytes(out.dtype)),
        conjugates_(in.conjugate != out.conjugate && is_complex(in.dtype)),
        plain_(in.dtype == out.dtype && !conjugates_) {
    DType from = plain_ ? raw(in.dtype) : computed(in.dtype), to = plain_ ? raw(out.dtype) : computed(out.dtype);
    from_ = lane_of(from), to_ = lane_of(to);
    load_ = table_.load[static_cast<size_t>(from)];
    store_ = table_.store[static_cast<size_t>(to)];
  }

  void copy(std::byte* to, int64_t out_step, const std::byte* from, int64_t in_step, int64_t length) const {
    if (plain_ && out_step == 1 && in_step == 1) {
      std::memmove(to, from, static_cast<size_t>(length * in_bytes_));
      return;
    }
    alignas(64) std::byte reg[kBlock * 16], converted[kBlock * 16];
    for (int64_t i = 0; i < length; i += kBlock) {
      int64_t n = std::min(length - i, kBlock);
      const void* held = reg;
      load_(reg, from + i * in_step * in_bytes_, n, in_step);
      if (conjugates_) table_.find(BlockOp::conj, from_)(reg, &held, n, nullptr);
      if (from_ != to_) {
        table_.convert[static_cast<size_t>(from_)][static_cast<size_t>(to_)](converted, &held, n, nullptr);
        held = converted;
      }
      store_(to + i * out_step * out_bytes_, held, n, out_step);
    }
  }

 private:
  const BlockTable& table_;
  int64_t in_bytes_, out_bytes_;
  bool conjugates_, plain_;
  Lane from_, to_;
  LoadFn load_;
  StoreFn store_;
};

// --- tensors with different innermost axes ---

constexpr int64_t kTile = 32;        // extent of a tile along each of the two axes
constexpr int64_t kLeastAcross = 8;  // tiles are not worthwhile for shorter axes

int axis_of_neighbours(const Tensor& t) {
  for (int axis = t.rank - 1; axis >= 0; --axis)
    if (t.dim(axis) > 1 && t.step(axis) == 1) return axis;
  return -1;
}

// Leaves out axes of size 1, and merges those that continue each other in both: an image's lines become one.
void merge_axes(Tensor* a, Tensor* b) {
  size_t axes = 0;
  for (size_t axis = 0; axis < static_cast<size_t>(a->rank); ++axis) {
    const int64_t size = a->shape[axis];
    if (size == 1) continue;
    const bool continues =
        axes > 0 && a->stride[axes - 1] == a->stride[axis] * size && b->stride[axes - 1] == b->stride[axis] * size;
    if (!continues) a->shape[axes++] = 1;
    a->shape[axes - 1] *= size;
    a->stride[axes - 1] = a->stride[axis], b->stride[axes - 1] = b->stride[axis];
  }
  a->rank = b->rank = static_cast<int>(axes);
  b->shape = a->shape;
}

constexpr int64_t kSquare = 16;  // part of a tile transposed at once

// to[i * step + j] = from[j * kTile + i] for a square. Bits are copied unchanged, as floats, because there is a kernel
// for those.
void turn_square(const uint32_t* from, uint32_t* to, int64_t step) {
  tile_kernels<float>(best_isa())
      .transpose(reinterpret_cast<const float*>(from), kTile, reinterpret_cast<float*>(to), step);
}

SG_CLONES void turn_square(const uint16_t* from, uint16_t* to, int64_t step) {
  alignas(64) uint32_t wide[kSquare * kTile], turned[kSquare * kSquare];
  for (int64_t j = 0; j < kSquare; ++j)
    for (int64_t i = 0; i < kSquare; ++i) wide[j * kTile + i] = from[j * kTile + i];
  turn_square(wide, turned, kSquare);
  for (int64_t i = 0; i < kSquare; ++i)
    for (int64_t j = 0; j < kSquare; ++j) to[i * step + j] = static_cast<uint16_t>(turned[i * kSquare + j]);
}

// to[i * step + j] = tile[j][i]
template <class T>
void write_turned(const std::byte* tile, int64_t rows, int64_t columns, std::byte* out, int64_t step) {
  const T* from = reinterpret_cast<const T*>(tile);
  T* to = reinterpret_cast<T*>(out);
  int64_t squares_down = 0, squares_across = 0;  // what squares cover
  if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
    squares_down = rows / kSquare * kSquare, squares_across = columns / kSquare * kSquare;
    for (int64_t i = 0; i < squares_down; i += kSquare)
      for (int64_t j = 0; j < squares_across; j += kSquare) turn_square(from + j * kTile + i, to + i * step + j, step);
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i < squares_down ? squares_across : 0; j < columns; ++j) to[i * step + j] = from[j * kTile + i];
}

auto write_turned_of_bytes(int64_t size) {
  switch (size) {
    case 1: return write_turned<uint8_t>;
    case 2: return write_turned<uint16_t>;
    case 4: return write_turned<uint32_t>;
    case 8: return write_turned<uint64_t>;
    default: return write_turned<std::array<uint64_t, 2>>;
  }
}

// Copies by tiles, read along one axis and written along the other, so that no cache line is fetched for a single
// element. False, and nothing is done, if the layouts do not need this.
bool copy_across(ThreadTeam& team, const Tensor& out, const Tensor& in, const RunCopier& run) {
  const int reads = axis_of_neighbours(in), writes = axis_of_neighbours(out);
  if (reads < 0 || writes < 0 || reads == writes) return false;
  const int64_t high = in.dim(reads), wide = in.dim(writes);
  if (high < kLeastAcross || wide < kLeastAcross) return false;
  Tensor out_places = out, in_places = in;  // where pairs of the two axes begin
  for (int axis : {reads, writes})
    out_places.shape[static_cast<size_t>(axis)] = in_places.shape[static_cast<size_t>(axis)] = 1;
  const RowWalker walk({&out_places, &in_places});
  const int64_t across = (wide + kTile - 1) / kTile, tiles = (high + kTile - 1) / kTile * across;
  const int64_t out_bytes = dtype_bytes(out.dtype), in_bytes = dtype_bytes(in.dtype);
  const auto write = write_turned_of_bytes(out_bytes);
  team.parallel_for(
      walk.rows() * walk.length() * tiles, kPieceElements / (kTile * kTile), [&](int64_t begin, int64_t end) {
        alignas(64) std::byte tile[kTile * kTile * 16];
        for (int64_t task = begin; task < end; ++task) {
          const int64_t place = task / tiles, i = task % tiles / across * kTile, j = task % across * kTile;
          const int64_t rows = std::min(kTile, high - i), columns = std::min(kTile, wide - j);
          walk.for_rows(place / walk.length(), place / walk.length() + 1, [&](const int64_t* offset, int64_t) {
            const int64_t along = place % walk.length();
            const std::byte* from = in.data + (offset[1] + along * walk.step(1) + i + j * in.step(writes)) * in_bytes;
            for (int64_t k = 0; k < columns; ++k)
              run.copy(tile + k * kTile * out_bytes, 1, from + k * in.step(writes) * in_bytes, 1, rows);
            std::byte* to = out.data + (offset[0] + along * walk.step(0) + i * out.step(reads) + j) * out_bytes;
            write(tile, rows, columns, to, out.step(reads));
          });
        }
      });
  return true;
}

// The axis along which elements of both are contiguous, if it is long and not the last one (channels that are
// innermost); else -1.
int common_inner_axis(const Tensor& out, const Tensor& in) {
  const int axis = axis_of_neighbours(out);
  if (axis < 0 || axis == out.rank - 1 || axis != axis_of_neighbours(in)) return -1;
  return out.dim(axis) >= kLeastAcross ? axis : -1;
}

// An axis along which more elements are contiguous in one of the tensors than along the last axis; -1 if there is none.
// For images with few channels.
int longer_axis(const Tensor& out, const Tensor& in) {
  if (out.rank == 0 || out.dim(-1) >= kLeastAcross) return -1;
  const int reads = axis_of_neighbours(in), writes = axis_of_neighbours(out);
  if (reads == writes) return -1;
  for (int axis : {reads, writes})
    if (axis >= 0 && out.dim(axis) >= kLeastAcross) return axis;
  return -1;
}

// The longest axis, if rows along the last one are short (vectors of 3, say) and it is long; else -1.
int axis_of_many(const Tensor& out, const RowWalker& walk) {
  constexpr int64_t kMany = 4 * kLeastAcross;
  if (walk.length() >= kLeastAcross || out.rank < 2) return -1;
  int axis = 0;
  for (int i = 1; i < out.rank; ++i)
    if (out.dim(i) > out.dim(axis)) axis = i;
  return out.dim(axis) >= kMany && axis != out.rank - 1 ? axis : -1;
}

}  // namespace

void fill(KernelCall& call, const Tensor& out, Scalar value) {
  if (Backend* backend = backend_of(call.context())) return backend->fill(out, value);
  if (!out.is_contiguous() && out.is_dense())
    return fill(call, make_tensor(out.data, out.dtype, std::array{out.elements()}), value);
  visit_stored(out.dtype, [&]<class T>() {
    T element;
    if constexpr (is_complex_type<T>) element = convert<T>(value.to_complex());
    else if (value.is_integral()) element = convert<T>(value.i);
    else element = convert<T>(value.re);
    RowWalker walk({&out});
    constexpr std::byte kZero[sizeof(T)] = {};
    bool zero = std::memcmp(&element, kZero, sizeof(T)) == 0;
    parallel_rows(call.team(), walk, [&](const int64_t* offset, int64_t, int64_t length) {
      T* to = out.as<T>() + offset[0];
      if (walk.step(0) == 1 && zero)
        std::memset(static_cast<void*>(to), 0, static_cast<size_t>(length) * sizeof(T));  // reads nothing first
      else if (walk.step(0) == 1) std::fill_n(to, length, element);
      else
        for (int64_t i = 0; i < length; ++i) to[i * walk.step(0)] = element;
    });
  });
}

void copy(KernelCall& call, const Tensor& out, const Tensor& in) {
  if (Backend* backend = backend_of(call.context())) return backend->copy(out, in);
  copy(call.team(), out, in);
}

void copy(ThreadTeam& team, const Tensor& out, const Tensor& in) {
  const RunCopier run(out, in);
  Tensor whole = out, from = in;
  merge_axes(&whole, &from);
  if (copy_across(team, whole, from, run)) return;
  if (const int axis = common_inner_axis(out, in); axis >= 0)
    return copy(team, axis_last(out, axis), axis_last(in, axis));
  if (const int axis = longer_axis(out, in); axis >= 0)
    return copy(team, swap_axes(out, axis, out.rank - 1), swap_axes(in, axis, out.rank - 1));
  RowWalker walk({&out, &in});
  if (const int axis = axis_of_many(out, walk); axis >= 0)
    return copy(team, swap_axes(out, axis, out.rank - 1), swap_axes(in, axis, out.rank - 1));
  int64_t out_step = walk.step(0), in_step = walk.step(1);
  int64_t out_bytes = dtype_bytes(out.dtype), in_bytes = dtype_bytes(in.dtype);
  parallel_rows(team, walk, [&](const int64_t* offset, int64_t, int64_t length) {
    run.copy(out.data + offset[0] * out_bytes, out_step, in.data + offset[1] * in_bytes, in_step, length);
  });
}

Tensor contiguous(KernelCall& call, const Tensor& in) { return contiguous_as(call, in, in.dtype); }

Tensor contiguous_as(KernelCall& call, const Tensor& in, DType dtype) {
  if (in.dtype == dtype && !in.conjugate && in.is_contiguous()) return in;
  Backend* backend = backend_of(call.context());
  Tensor out = backend ? backend->scratch(dtype, in.sizes()) : call.scratch().tensor(dtype, in.sizes());
  copy(call, out, in);
  return out;
}

RowWalker::RowWalker(std::initializer_list<const Tensor*> tensors) : count_(tensors.size()) {
  const Tensor& first = **tensors.begin();
  // Axes of size 1 are omitted, and adjacent axes that continue each other in all tensors are merged.
  int axes = 0;
  for (int axis = 0; axis < first.rank; ++axis) {
    int64_t size = first.dim(axis);
    if (size == 0) rows_ = 0;
    if (size == 1) continue;
    bool joins = axes > 0;
    size_t k = 0;
    auto last = static_cast<size_t>(axes > 0 ? axes - 1 : 0);
    for (const Tensor* t : tensors) joins &= stride_[k++][last] == t->step(axis) * size;
    auto at = joins ? last : static_cast<size_t>(axes++);
    shape_[at] = joins ? shape_[at] * size : size;
    k = 0;
    for (const Tensor* t : tensors) stride_[k++][at] = t->step(axis);
  }
  outer_ = std::max(axes - 1, 0);
  if (axes > 0) {
    length_ = shape_[static_cast<size_t>(axes - 1)];
    for (size_t k = 0; k < count_; ++k) step_[k] = stride_[k][static_cast<size_t>(axes - 1)];
  }
  for (int axis = 0; axis < outer_; ++axis) rows_ *= shape_[static_cast<size_t>(axis)];
}

void RowWalker::seek(int64_t row, std::array<int64_t, kMaxRank>* index,
                     std::array<int64_t, kMaxTensors>* offset) const {
  for (int axis = outer_ - 1; axis >= 0; --axis) {
    auto a = static_cast<size_t>(axis);
    (*index)[a] = row % shape_[a];
    row /= shape_[a];
    for (size_t k = 0; k < count_; ++k) (*offset)[k] += (*index)[a] * stride_[k][a];
  }
}

void RowWalker::advance(std::array<int64_t, kMaxRank>* index, std::array<int64_t, kMaxTensors>* offset) const {
  for (int axis = outer_ - 1; axis >= 0; --axis) {
    auto a = static_cast<size_t>(axis);
    for (size_t k = 0; k < count_; ++k) (*offset)[k] += stride_[k][a];
    if (++(*index)[a] < shape_[a]) return;
    for (size_t k = 0; k < count_; ++k) (*offset)[k] -= shape_[a] * stride_[k][a];
    (*index)[a] = 0;
  }
}

}  // namespace sg::cpu
