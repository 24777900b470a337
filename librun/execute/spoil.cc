#include "librun/execute/spoil.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "libgraph/base/hashing.h"

namespace sg {
namespace {

struct Extent {
  std::byte *begin, *end;
};

Extent extent_of(const Tensor& t) { return {t.data, t.data + extent_bytes(t)}; }

// Calls fn(address, bytes) for each gapless stretch of memory in `t`.
template <class Fn>
void for_each_stretch(const Tensor& t, int axis, std::byte* at, const Fn& fn) {
  int64_t unit = dtype_bytes(t.dtype);
  if (axis == t.rank) return fn(at, unit);
  if (axis + 1 == t.rank && t.step(axis) == 1) return fn(at, t.dim(axis) * unit);
  for (int64_t i = 0; i < t.dim(axis); ++i) for_each_stretch(t, axis + 1, at + i * t.step(axis) * unit, fn);
}

template <class Fn>
void for_each_stretch(const Tensor& t, const Fn& fn) {
  if (t.is_none() || t.elements() == 0) return;
  if (t.is_dense()) fn(t.data, t.bytes());
  else for_each_stretch(t, 0, t.data, fn);
}

// A signalling NaN, which even an addition in place changes; -1; true.
uint64_t useless(DType t) {
  switch (t) {
    case DType::boolean: return 1;
    case DType::f16: return 0x7DFF;
    case DType::bf16: return 0x7FBF;
    case DType::f32:
    case DType::c64: return 0x7FBFFFFF7FBFFFFF;
    case DType::f64:
    case DType::c128: return 0x7FF7FFFFFFFFFFFF;
    default: return ~uint64_t{0};
  }
}

void overwrite(std::byte* begin, const std::byte* end, DType dtype) {
  const uint64_t word = useless(dtype);
  const auto unit = static_cast<ptrdiff_t>(std::min<int64_t>(dtype_bytes(dtype), sizeof word));
  for (std::byte* at = begin; at < end; at += unit)
    std::memcpy(at, &word, static_cast<size_t>(std::min(unit, end - at)));
}

}  // namespace

void spoil(const Tensor& t, std::span<const Tensor> kept) {
  if (t.is_none() || t.elements() == 0) return;
  Extent all = extent_of(t);
  std::vector<Extent> keep;
  bool dense = t.is_dense();
  for (const Tensor& k : kept) {
    Extent e = k.is_none() || k.elements() == 0 ? Extent{all.end, all.end} : extent_of(k);
    e = {std::max(e.begin, all.begin), std::min(e.end, all.end)};
    if (e.begin >= e.end) continue;
    if (!dense || !k.is_dense()) return;
    keep.push_back(e);
  }
  if (!dense) return for_each_stretch(t, [&](std::byte* at, int64_t bytes) { overwrite(at, at + bytes, t.dtype); });
  std::ranges::sort(keep, {}, &Extent::begin);
  keep.push_back({all.end, all.end});
  std::byte* at = all.begin;
  for (const Extent& e : keep) {
    overwrite(at, e.begin, t.dtype);
    at = std::max(at, e.end);
  }
}

uint64_t sum_of_bytes(const Tensor& t) {
  Hasher sum;
  for_each_stretch(t, [&](const std::byte* at, int64_t bytes) {
    for (; bytes >= 8; at += 8, bytes -= 8) {
      uint64_t word;
      std::memcpy(&word, at, sizeof word);
      sum.mix(word);
    }
    for (; bytes > 0; ++at, --bytes) sum.mix(static_cast<uint64_t>(*at));
  });
  return sum.value();
}

}  // namespace sg
