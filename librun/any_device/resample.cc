#include "librun/any_device/resample.h"

#include <algorithm>
#include <cstring>

#include "librun/cpu/rows.h"
#include "librun/work/resample.h"
#include "librun/work/run.h"

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

void sum_taps(const Taps& taps, const double* from, double* to, int64_t inner, int64_t position) {
  double* out = to + position * inner;
  std::fill_n(out, inner, 0.0);
  for (auto t = static_cast<size_t>(taps.begin[static_cast<size_t>(position)]);
       t < static_cast<size_t>(taps.begin[static_cast<size_t>(position) + 1]); ++t) {
    const double* in = from + taps.index[t] * inner;
    double w = taps.weight[t];
    for (int64_t i = 0; i < inner; ++i) out[i] += w * in[i];
  }
}

// All positions of an axis with contiguous elements, each with its own sum.
void sum_taps_of_line(const Taps& taps, const double* from, double* to) {
  const int64_t *begin = taps.begin.data(), *index = taps.index.data();
  const double* weight = taps.weight.data();
  for (int64_t i = 0; i < taps.out(); ++i) {
    double sum = 0;
    for (int64_t t = begin[i]; t < begin[i + 1]; ++t) sum += weight[t] * from[index[t]];
    to[i] = sum;
  }
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

template <class T>
void pick_all(KernelCall& call, const Tensor& to, const Tensor& from, const std::vector<Taps>& taps, int64_t planes) {
  const Taps& last = taps.back();
  int64_t lines = 1, plane_in = 1;
  for (size_t k = 0; k + 1 < taps.size(); ++k) lines *= taps[k].out();
  for (const Taps& t : taps) plane_in *= t.in;
  for_rows(call, planes * lines, last.out(), [&](int64_t row, int) {
    int64_t rest = row % lines, offset = 0, size = last.in;
    bool outside = false;
    for (size_t k = taps.size() - 1; k-- > 0;) {
      int64_t at = taps[k].index[static_cast<size_t>(rest % taps[k].out())];
      outside |= at < 0;
      offset += at * size;
      size *= taps[k].in;
      rest /= taps[k].out();
    }
    const T* plane = from.as<T>() + row / lines * plane_in;
    pick_line<T>(last, outside ? nullptr : plane + offset, to.as<T>() + row * last.out());
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
  bool complex = is_complex(result.dtype);
  std::vector<int64_t> shape(input.sizes().begin(), input.sizes().end());
  Tensor now = contiguous_as(call, input, complex ? DType::c128 : DType::f64);
  if (complex) shape.push_back(2);
  for (size_t k = 0; k < taps.size(); ++k) {
    size_t axis = static_cast<size_t>(input.rank) - taps.size() + k;
    shape[axis] = taps[k].out();
    Around a = around(shape, axis);
    Tensor next = workspace(call, DType::f64, shape);
    if (on_device(call)) {
      resample_there(call, taps[k], a, now, next);
      now = next;
      continue;
    }
    if (a.inner == 1) {
      for_rows(call, a.outer, static_cast<int64_t>(taps[k].index.size()), [&](int64_t row, int) {
        sum_taps_of_line(taps[k], now.as<double>() + row * taps[k].in, next.as<double>() + row * taps[k].out());
      });
      now = next;
      continue;
    }
    int64_t work = static_cast<int64_t>(taps[k].index.size()) * a.inner / std::max<int64_t>(taps[k].out(), 1);
    for_rows(call, a.outer * taps[k].out(), work, [&](int64_t row, int) {
      int64_t outer = row / taps[k].out(), position = row % taps[k].out();
      sum_taps(taps[k], now.as<double>() + outer * taps[k].in * a.inner,
               next.as<double>() + outer * taps[k].out() * a.inner, a.inner, position);
    });
    now = next;
  }
  copy(call, result, make_tensor(now.data, complex ? DType::c128 : DType::f64, result.sizes()));
  return ok_status();
}

Status pick(KernelCall& call, const Tensor& result, const Tensor& input, const std::vector<Taps>& taps) {
  SG_TRY(hold(call, result, input, taps));
  if (result.elements() == 0) return ok_status();
  Tensor from = contiguous(call, input),
         to = result.is_contiguous() ? result : workspace(call, result.dtype, result.sizes());
  if (on_device(call) && taps.size() <= 3) {
    pick_there(call, to, from, taps);
    if (to.data != result.data) copy(call, result, to);
    return ok_status();
  }
  if (on_device(call)) return call.fail("a device resamples at most three axes");
  int64_t planes = 1;
  for (int i = 0; i < input.rank - static_cast<int>(taps.size()); ++i) planes *= input.dim(i);
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
