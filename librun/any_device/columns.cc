// Windows as columns (im2col) and the inverse (col2im); moving channels to places and back (pixel_shuffle).
#include <algorithm>
#include <vector>

#include "librun/any_device/resample.h"
#include "librun/cpu/isa.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"
#include "librun/work/run.h"
#include "librun/work/windows.h"

namespace sg::cpu {
namespace {

Status read_pair(KernelCall& call, std::string_view name, int64_t otherwise, int64_t least, int64_t* to) {
  SG_ASSIGN(std::vector<int64_t> list, numbers_of(call, name, 2, otherwise));
  std::copy_n(list.begin(), 2, to);
  return to[0] >= least && to[1] >= least ? ok_status() : call.fail("'" + std::string(name) + "' is too small");
}

// `image` [.., channels, height, width] and `columns` [.., channels * window, positions]
Result<work::Columns> columns_of(KernelCall& call, const Tensor& image, const Tensor& columns) {
  work::Columns c;
  SG_TRY(read_pair(call, "kernel_size", 1, 1, c.kernel));
  SG_TRY(read_pair(call, "dilation", 1, 1, c.dilation));
  SG_TRY(read_pair(call, "padding", 0, 0, c.padding));
  SG_TRY(read_pair(call, "stride", 1, 1, c.stride));
  if (image.rank < 3 || columns.rank != image.rank - 1) return call.fail("needs planes of channels");
  for (int k = 0; k < 2; ++k) {
    c.in[k] = image.dim(image.rank - 2 + k);
    c.out[k] = (c.in[k] + 2 * c.padding[k] - c.dilation[k] * (c.kernel[k] - 1) - 1) / c.stride[k] + 1;
    if (c.out[k] < 1) return call.fail("the window is larger than the padded plane");
  }
  int64_t planes = 1;
  for (int i = 0; i + 2 < image.rank; ++i) planes *= image.dim(i);
  if (columns.dim(-1) != c.positions() || columns.elements() != planes * c.window() * c.positions())
    return call.fail("the columns do not fit the planes");
  return c;
}

// The columns [begin, end) of a line whose element at window position `tap` of axis 1 is inside the plane, and the
// position of the first of these elements.
struct Strip {
  int64_t begin, end, first;

  Strip(const work::Columns& c, int64_t tap) {
    const int64_t step = c.stride[1], start = tap * c.dilation[1] - c.padding[1];  // start: of column 0
    begin = start >= 0 ? 0 : std::min(c.out[1], (step - 1 - start) / step);
    end = start >= c.in[1] ? begin : std::max(begin, std::min(c.out[1], (c.in[1] - 1 - start) / step + 1));
    first = start + begin * step;
  }
};

// Gathers one line of columns.
template <class T>
SG_CLONES void gather_strip(const Strip& s, const T* line, int64_t step, int64_t count, T* to) {
  for (int64_t i = 0; i < s.begin; ++i) to[i] = T{};
  const int64_t n = s.end - s.begin;
  if (step == 1)
    for (int64_t i = 0; i < n; ++i) to[s.begin + i] = line[s.first + i];
  else
    for (int64_t i = 0; i < n; ++i) to[s.begin + i] = line[s.first + i * step];
  for (int64_t i = s.end; i < count; ++i) to[i] = T{};
}

template <class T>
void gather_lines(KernelCall& call, const work::Columns& c, const T* from, T* to, int64_t rows) {
  for_rows(call, rows, c.positions(), [&](int64_t row, int) {
    const int64_t tap = row % c.window(), high = tap / c.kernel[1];
    const T* plane = from + row / c.window() * c.plane();
    const Strip strip(c, tap % c.kernel[1]);
    for (int64_t i = 0; i < c.out[0]; ++i) {
      const int64_t line = i * c.stride[0] - c.padding[0] + high * c.dilation[0];
      T* out = to + row * c.positions() + i * c.out[1];
      if (line < 0 || line >= c.in[0]) std::fill_n(out, c.out[1], T{});
      else gather_strip(strip, plane + line * c.in[1], c.stride[1], c.out[1], out);
    }
  });
}

template <class T>
void gather_columns(KernelCall& call, const work::Columns& c, const Tensor& from, const Tensor& to) {
  const int64_t rows = to.elements() / c.positions();
  if (!on_device(call)) return gather_lines(call, c, from.as<T>(), to.as<T>(), rows);
  for_each(call, to.elements(), 1, work::GatherColumns<T>{c, from.as<T>(), to.as<T>()});
}

Status im2col(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  SG_ASSIGN(work::Columns c, columns_of(call, self, call.result()));
  const Tensor from = contiguous(call, self), &result = call.result();
  const bool direct = result.is_contiguous() && from.conjugate == result.conjugate;
  const Tensor to = direct ? result : workspace(call, self.dtype, result.sizes());
  switch (dtype_bytes(self.dtype)) {
    case 1: gather_columns<uint8_t>(call, c, from, to); break;
    case 2: gather_columns<uint16_t>(call, c, from, to); break;
    case 4: gather_columns<uint32_t>(call, c, from, to); break;
    case 8: gather_columns<uint64_t>(call, c, from, to); break;
    default: gather_columns<work::Bytes16>(call, c, from, to); break;
  }
  if (!direct) copy(call, result, to);
  return ok_status();
}

template <class T>
SG_CLONES void add_strip(const Strip& s, const T* line, int64_t step, double* sums) {
  const int64_t n = s.end - s.begin;
  line += s.begin, sums += s.first;
  if (step == 1)
    for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(static_cast<Compute<T>>(line[i]));
  else
    for (int64_t i = 0; i < n; ++i) sums[i * step] += static_cast<double>(static_cast<Compute<T>>(line[i]));
}

// Like work::AddColumns, a line of the plane at a time.
template <class T>
void add_lines(KernelCall& call, const work::Columns& c, const T* from, T* to, int64_t rows) {
  const int64_t wide = c.in[1];
  auto* space = call.scratch().take<double>(wide * call.team().size());
  std::vector<Strip> strips;
  for (int64_t k = 0; k < c.kernel[1]; ++k) strips.emplace_back(c, k);
  for_rows(call, rows, wide * c.window(), [&](int64_t row, int thread) {
    double* sums = space + thread * wide;
    std::fill_n(sums, wide, 0.0);
    const T* columns = from + row / c.in[0] * c.window() * c.positions();
    for (int64_t r = 0; r < c.kernel[0]; ++r) {
      const int64_t high = c.window_at(0, row % c.in[0], r);
      for (int64_t k = 0; high >= 0 && k < c.kernel[1]; ++k)
        add_strip(strips[static_cast<size_t>(k)], columns + (r * c.kernel[1] + k) * c.positions() + high * c.out[1],
                  c.stride[1], sums);
    }
    for (int64_t i = 0; i < wide; ++i) to[row * wide + i] = static_cast<T>(static_cast<Compute<T>>(sums[i]));
  });
}

template <class T>
void add_columns(KernelCall& call, const work::Columns& c, const Tensor& from, const Tensor& to) {
  const int64_t parts = is_complex(to.dtype) ? 2 : 1, rows = c.plane() == 0 ? 0 : to.elements() / c.in[1];
  for_each_in_rows(call, rows, c.in[1] * parts, work::AddColumns<T>{c, parts, from.as<T>(), to.as<T>()});
}

Status col2im(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  SG_ASSIGN(work::Columns c, columns_of(call, call.result(), self));
  if (is_floating(self.dtype) && !on_device(call)) {
    const Tensor from = contiguous(call, self);
    const ResultRows out(call, call.result(), -1);
    const int64_t rows = c.plane() == 0 ? 0 : out.tensor().elements() / c.in[1];
    visit_floating(self.dtype, [&]<class T>() { add_lines(call, c, from.as<T>(), out.tensor().as<T>(), rows); });
    out.store(call);
    return ok_status();
  }
  DType wide = is_complex(self.dtype) ? DType::c128 : is_floating(self.dtype) ? DType::f64 : DType::i64;
  Tensor from = contiguous_as(call, self, wide), to = workspace(call, wide, call.result().sizes());
  if (wide == DType::i64) add_columns<int64_t>(call, c, from, to);
  else add_columns<double>(call, c, from, to);
  copy(call, call.result(), to);
  return ok_status();
}

// `t` with the axis split in two: [.., outer, inner, ..].
Tensor split_axis(const Tensor& t, int axis, int64_t inner) {
  Tensor out = t;
  auto at = static_cast<size_t>(axis);
  for (size_t i = static_cast<size_t>(t.rank); i > at; --i)
    out.shape[i] = t.shape[i - 1], out.stride[i] = t.stride[i - 1];
  ++out.rank;
  out.shape[at] = inner == 0 ? 0 : t.shape[at] / inner;
  out.stride[at] = t.stride[at] * inner;
  out.shape[at + 1] = inner, out.stride[at + 1] = t.stride[at];
  return out;
}

// `t` with its axes from `first` on replaced by those in `order`.
Tensor reordered(const Tensor& t, int first, std::initializer_list<int> order) {
  Tensor out = t;
  auto to = static_cast<size_t>(first);
  for (int from : order)
    out.shape[to] = t.shape[static_cast<size_t>(from)], out.stride[to++] = t.stride[static_cast<size_t>(from)];
  return out;
}

// Between [.., C r r, H, W] and [.., C, H r, W r]: both viewed as [.., C, H, r, W, r].
Status pixel_shuffle(KernelCall& call) {
  bool up = call.op().param_index("upscale_factor") >= 0;
  int64_t r = call.integer(up ? "upscale_factor" : "downscale_factor");
  const Tensor& many = up ? call.tensor("self") : call.result();
  const Tensor& large = up ? call.result() : call.tensor("self");
  if (many.rank < 3 || many.rank > kMaxRank - 2 || r < 1) return call.fail("needs 3 to 10 dimensions");
  int axis = many.rank - 3;
  Tensor a = split_axis(split_axis(many, axis, r * r), axis + 1, r);  // [.., C, r, r, H, W]
  a = reordered(a, axis, {axis, axis + 3, axis + 1, axis + 4, axis + 2});
  Tensor b = split_axis(split_axis(large, axis + 2, r), axis + 1, r);
  if (!same_shape(a, b)) return call.fail("the factor does not fit the sizes");
  if (up) copy(call, b, a);
  else copy(call, a, b);
  return ok_status();
}

Status channel_shuffle(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  int64_t groups = call.integer("groups");
  if (self.rank < 3 || self.rank >= kMaxRank || groups < 1 || self.dim(1) % groups != 0)
    return call.fail("'groups' does not divide the channels");
  if (self.elements() == 0) return ok_status();
  int64_t each = self.dim(1) / groups;
  Tensor from = swap_axes(split_axis(self, 1, each), 1, 2), to = split_axis(call.result(), 1, groups);
  if (!same_shape(from, to)) return call.fail("'groups' does not fit the sizes");
  copy(call, to, from);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.im2col.default", im2col},
    {"aten.col2im.default", col2im},
    {"aten.pixel_shuffle.default", pixel_shuffle},
    {"aten.pixel_unshuffle.default", pixel_shuffle},
    {"aten.channel_shuffle.default", channel_shuffle},
};

}  // namespace

std::span<const KernelRow> column_kernels() { return kRows; }

}  // namespace sg::cpu
