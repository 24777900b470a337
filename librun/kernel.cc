#include "librun/kernel.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <new>

namespace sg {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kSmallestBlock = 1 << 16;

int64_t round_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::byte* Scratch::take(int64_t bytes) { return take_bytes(bytes, 1); }

std::byte* Scratch::take_bytes(int64_t count, int64_t size) {
  int64_t bytes;
  if (count < 0 || __builtin_mul_overflow(count, size, &bytes) || bytes > INT64_MAX - kAlignment)
    throw std::bad_alloc();
  bytes = round_up(bytes);
  if (blocks_.empty() || blocks_.back().bytes() - used_ < bytes) {
    auto block = Arena::reserve(std::max({kSmallestBlock, bytes, blocks_.empty() ? most_ : taken_ / 4}));
    if (!block.ok()) throw std::bad_alloc();
    blocks_.push_back(std::move(*block));
    used_ = 0;
  }
  std::byte* out = blocks_.back().data() + used_;
  used_ += bytes;
  taken_ += bytes;
  return out;
}

Tensor Scratch::tensor(DType dtype, std::span<const int64_t> shape) {
  Tensor t = make_tensor(nullptr, dtype, shape);
  t.data = take_bytes(t.elements(), dtype_bytes(dtype));
  return t;
}

void Scratch::reset() {
  if (blocks_.size() > 1) {
    most_ = std::max(most_, taken_);
    blocks_.clear();
  }
  used_ = taken_ = 0;
}

const ParamValue& KernelCall::param(std::string_view name) const {
  int index = op_->param_index(name);
  assert(index >= 0);
  return params_[static_cast<size_t>(index)];
}

std::vector<int> KernelCall::axes(std::string_view name, int rank) const {
  const ParamValue& p = param(name);
  std::vector<int> out;
  rank = std::max(rank, 1);  // a tensor without axes accepts axes 0 and -1
  if (p.kind == ParamValue::Kind::scalar) out.push_back(wrap_axis(p.scalar.to_int(), rank));
  for (int64_t axis : p.integers) out.push_back(wrap_axis(axis, rank));
  return out;
}

DType KernelCall::stored(std::string_view name, DType fallback) const {
  const ParamValue& p = param(name);
  return p.kind == ParamValue::Kind::dtype ? stored_dtype(p.dtype, numerics()) : fallback;
}

Status KernelCall::allocate_result(size_t i, std::span<const int64_t> shape) {
  if (!allocate) return fail("the size of result " + std::to_string(i) + " is not known before the run");
  return allocate(i, shape);
}

int uniform_digits(const RandomStream& stream) {
  switch (stream.recorded) {
    case DType::bf16: return 8;
    case DType::f16: return 11;
    case DType::f64: return 53;
    default: return 24;
  }
}

DType stored_dtype(DType recorded, Numerics numerics) {
  if (numerics != Numerics::f64) return recorded;
  if (is_floating(recorded)) return DType::f64;
  return is_complex(recorded) ? DType::c128 : recorded;
}

}  // namespace sg
