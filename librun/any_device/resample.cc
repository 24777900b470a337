#include "librun/any_device/resample.h"

#include <algorithm>
#include <cstring>

#include "librun/cpu/resample_lines.h"
#include "librun/cpu/rows.h"
#include "librun/work/resample.h"
#include "librun/work/run.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

// A contiguous tensor viewed as [outer, axis, inner] around one axis.
struct Around {
  int64_t outer = 1, inner = 1;
};

Around around(std::span<const int64_t> shape, size_t axis) {
  Around a;
  for (size_t i = 0; i < axis; ++i) a.outer *= shape[i];
  for (size_t i = axis + 1; i < shape.size(); ++i) a.inner *= shape[i];
  return a;
}

Status hold(const KernelCall& call, const Tensor& result, const Tensor& input, const std::vector<Taps>& taps) {
  auto axes = static_cast<int>(taps.size());
  bool fits = result.rank == input.rank && input.rank >= axes;
  for (int i = 0; fits && i < input.rank; ++i) {
    int tap = i - (input.rank - axes);
    fits = tap < 0 ? result.dim(i) == input.dim(i)
                   : input.dim(i) == taps[static_cast<size_t>(tap)].in &&
                         result.dim(i) == taps[static_cast<size_t>(tap)].out();
  }
  return fits ? ok_status() : call.fail("its operands do not fit each other");
}

// Copies a line of the result along the last axis, for one position on each of the other axes.
template <class T>
void pick_line(const Taps& taps, const T* from, T* to) {
  for (int64_t i = 0; i < taps.out(); ++i) {
    int64_t at = taps.index[static_cast<size_t>(i)];
    to[i] = from == nullptr || at < 0 ? T{} : from[at];
  }
}

// The same for blocks of several bytes, of which runs are copied at once.
void pick_blocks(const Taps& taps, const std::byte* from, std::byte* to, int64_t block) {
  const int64_t* index = taps.index.data();
  for (int64_t i = 0, run = 1; i < taps.out(); i += run, run = 1) {
    const bool outside = from == nullptr || index[i] < 0;
    while (i + run < taps.out() && !outside && index[i + run] == index[i] + run) ++run;
    const auto bytes = static_cast<size_t>(run * block);
    if (outside) std::memset(to + i * block, 0, bytes);
    else std::memcpy(to + i * block, from + index[i] * block, bytes);
  }
}

// Calls fn(offset in the input, row) for each line of the result along the last axis; -1 if it lies outside.
template <class Fn>
void for_picked_lines(KernelCall& call, const std::vector<Taps>& taps, int64_t planes, int64_t length, const Fn& fn) {
  int64_t lines = 1, plane_in = 1;
  for (size_t k = 0; k + 1 < taps.size(); ++k) lines *= taps[k].out();
  for (const Taps& t : taps) plane_in *= t.in;
  for_rows(call, planes * lines, length, [&](int64_t row, int) {
    int64_t rest = row % lines, offset = 0, size = taps.back().in;
    bool outside = false;
    for (size_t k = taps.size() - 1; k-- > 0;) {
      int64_t at = taps[k].index[static_cast<size_t>(rest % taps[k].out())];
      outside |= at < 0;
      offset += at * size;
      size *= taps[k].in;
      rest /= taps[k].out();
    }
    fn(outside ? -1 : row / lines * plane_in + offset, row);
  });
}

template <class T>
void pick_all(KernelCall& call, const Tensor& to, const Tensor& from, const std::vector<Taps>& taps, int64_t planes) {
  const Taps& last = taps.back();
  for_picked_lines(call, taps, planes, last.out(), [&](int64_t at, int64_t row) {
    pick_line<T>(last, at < 0 ? nullptr : from.as<T>() + at, to.as<T>() + row * last.out());
  });
}

// Elements of all channels stay together. REQUIRES: `to` and `from` are contiguous, with channels last.
void pick_channels(KernelCall& call, const Tensor& to, const Tensor& from, const std::vector<Taps>& taps,
                   int64_t entries) {
  const Taps& last = taps.back();
  const int64_t block = to.dim(-1) * dtype_bytes(to.dtype);
  for_picked_lines(call, taps, entries, last.out() * to.dim(-1), [&](int64_t at, int64_t row) {
    pick_blocks(last, at < 0 ? nullptr : from.data + at * block, to.data + row * last.out() * block, block);
  });
}

struct Bytes16 {
  uint64_t low, high;
};

void resample_there(KernelCall& call, const Taps& taps, const Around& a, const Tensor& from, const Tensor& to) {
  const work::Resample work{from.as<double>(),
                            to.as<double>(),
                            table<int64_t>(call, taps.begin),
                            table<int64_t>(call, taps.index),
                            table<double>(call, taps.weight),
                            taps.in,
                            taps.out(),
                            a.inner};
  for_each(call, to.elements(), 1, work);
}

// One axis of a contiguous f64 tensor; `shape` becomes that of the result.
Tensor resample_axis(KernelCall& call, const Taps& taps, size_t axis, std::vector<int64_t>* shape, const Tensor& from) {
  (*shape)[axis] = taps.out();
  const Around a = around(*shape, axis);
  const Tensor to = workspace(call, DType::f64, *shape);
  if (on_device(call)) resample_there(call, taps, a, from, to);
  else resample_one_axis(call, {nullptr, taps, a.outer, a.inner}, from, to);
  return to;
}

// Floats on the CPU: all axes but the last two one after the other, those two at once.
void resample_here(KernelCall& call, const Tensor& result, const Tensor& input, const std::vector<Taps>& taps) {
  const int channels = inner_channels(input, static_cast<int>(taps.size()));
  Tensor now = channels < 0 ? contiguous(call, input) : axis_last(input, channels);
  const ResultRows to(call, result, channels < 0 ? -1 : channels);
  const size_t first = static_cast<size_t>(input.rank) - taps.size() - (channels < 0 ? 0 : 1);
  std::vector<int64_t> shape(now.sizes().begin(), now.sizes().end());
  if (taps.size() > 2 || !is_floating(now.dtype) || !is_runnable(now.dtype)) now = contiguous_as(call, now, DType::f64);
  size_t k = 0;
  for (; k + 2 < taps.size(); ++k) now = resample_axis(call, taps[k], first + k, &shape, now);
  const Taps* before = taps.size() > 1 ? &taps[k++] : nullptr;
  shape[first + k] = taps[k].out();
  const Around a = around(std::span(shape), first + k);
  const int64_t outer = before ? a.outer / before->in : a.outer;
  resample_lines(call, {before, taps[k], outer, a.inner}, now, to.tensor());
  to.store(call);
}

void pick_there(KernelCall& call, const Tensor& to, const Tensor& from, const std::vector<Taps>& taps) {
  work::Pick work{reinterpret_cast<const unsigned char*>(from.data),
                  reinterpret_cast<unsigned char*>(to.data),
                  dtype_bytes(to.dtype),
                  {1, 1, 1},
                  {1, 1, 1},
                  {nullptr, nullptr, nullptr}};
  for (size_t k = 0; k < taps.size(); ++k) {
    const size_t axis = 3 - taps.size() + k;
    work.in[axis] = taps[k].in;
    work.out[axis] = taps[k].out();
    work.place[axis] = table<int64_t>(call, taps[k].index);
  }
  for_each(call, to.elements(), 1, work);
}

}  // namespace

Taps transposed(const Taps& taps) {
  Taps t;
  t.in = taps.out();
  std::vector<std::vector<std::pair<int64_t, double>>> by_input(static_cast<size_t>(taps.in));
  for (int64_t i = 0; i < taps.out(); ++i)
    for (auto k = static_cast<size_t>(taps.begin[static_cast<size_t>(i)]);
         k < static_cast<size_t>(taps.begin[static_cast<size_t>(i) + 1]); ++k)
      by_input[static_cast<size_t>(taps.index[k])].emplace_back(i, taps.weight[k]);
  for (const auto& list : by_input) {
    for (auto [at, weight] : list) t.add(at, weight);
    t.end_position();
  }
  return t;
}

Status resample(KernelCall& call, const Tensor& result, const Tensor& input, const std::vector<Taps>& taps) {
  SG_TRY(hold(call, result, input, taps));
  if (result.elements() == 0) return ok_status();
  if (input.elements() == 0) return fill(call, result, Scalar::integer(0)), ok_status();
  const bool floats = is_floating(result.dtype) && is_runnable(result.dtype);
  if (floats && !on_device(call)) return resample_here(call, result, input, taps), ok_status();
  bool complex = is_complex(result.dtype);
  std::vector<int64_t> shape(input.sizes().begin(), input.sizes().end());
  Tensor now = contiguous_as(call, input, complex ? DType::c128 : DType::f64);
  if (complex) shape.push_back(2);
  const size_t first = static_cast<size_t>(input.rank) - taps.size();
  for (size_t k = 0; k < taps.size(); ++k) now = resample_axis(call, taps[k], first + k, &shape, now);
  copy(call, result, make_tensor(now.data, complex ? DType::c128 : DType::f64, result.sizes()));
  return ok_status();
}

Status pick(KernelCall& call, const Tensor& result, const Tensor& input, const std::vector<Taps>& taps) {
  SG_TRY(hold(call, result, input, taps));
  if (result.elements() == 0) return ok_status();
  int64_t planes = 1;
  for (int i = 0; i < input.rank - static_cast<int>(taps.size()); ++i) planes *= input.dim(i);
  if (const int axis = inner_channels(input, static_cast<int>(taps.size())); axis >= 0 && !on_device(call)) {
    const ResultRows to(call, result, axis);
    pick_channels(call, to.tensor(), axis_last(input, axis), taps, planes / input.dim(axis));
    return to.store(call), ok_status();
  }
  Tensor from = contiguous(call, input),
         to = result.is_contiguous() ? result : workspace(call, result.dtype, result.sizes());
  if (on_device(call) && taps.size() <= 3) {
    pick_there(call, to, from, taps);
    if (to.data != result.data) copy(call, result, to);
    return ok_status();
  }
  if (on_device(call)) return call.fail("a device resamples at most three axes");
  switch (dtype_bytes(result.dtype)) {
    case 1: pick_all<uint8_t>(call, to, from, taps, planes); break;
    case 2: pick_all<uint16_t>(call, to, from, taps, planes); break;
    case 4: pick_all<uint32_t>(call, to, from, taps, planes); break;
    case 8: pick_all<uint64_t>(call, to, from, taps, planes); break;
    default: pick_all<Bytes16>(call, to, from, taps, planes); break;
  }
  if (to.data != result.data) copy(call, result, to);
  return ok_status();
}

Result<std::vector<int64_t>> numbers_of(KernelCall& call, std::string_view name, int axes, int64_t otherwise) {
  auto count = static_cast<size_t>(axes);
  if (call.op().param_index(name) < 0 || !call.has(name)) return std::vector<int64_t>(count, otherwise);
  if (call.param(name).kind == ParamValue::Kind::scalar) return std::vector<int64_t>(count, call.integer(name));
  std::span<const int64_t> list = call.integers(name);
  if (list.empty()) return std::vector<int64_t>(count, otherwise);
  if (list.size() == 1) return std::vector<int64_t>(count, list[0]);
  if (list.size() != count) return call.fail("'" + std::string(name) + "' needs " + std::to_string(axes) + " numbers");
  return std::vector<int64_t>(list.begin(), list.end());
}

int plane_axes(const KernelCall& call) {
  std::string_view name = call.op().name;
  for (size_t i = 1; i < name.size(); ++i)
    if (name[i] == 'd' && name[i - 1] >= '1' && name[i - 1] <= '3') return name[i - 1] - '0';
  return 2;
}

Status expect_shape(const KernelCall& call, std::string_view name, const Tensor& t, std::span<const int64_t> shape) {
  if (std::equal(shape.begin(), shape.end(), t.sizes().begin(), t.sizes().end())) return ok_status();
  return call.fail("'" + std::string(name) + "' is of another shape than the op needs");
}

}  // namespace sg::cpu
