#include "librun/cpu/pool_maxima.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "librun/cpu/isa.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

using work::Span;
using work::Window;

constexpr int64_t kLanes = 16;  // rows of windows are padded to multiples of this, so that loops have no remainder

template <class T>
constexpr T kLowest = -std::numeric_limits<T>::infinity();

// Rearranges a line of the plane so that element k of consecutive windows is contiguous: elements with the same
// remainder modulo the stride are grouped, with the lowest number for those outside the plane.
struct LineLayout {
  explicit LineLayout(const Window& w) : windows((w.out[2] + kLanes - 1) / kLanes * kLanes) {
    length = windows + (w.kernel[2] - 1) * w.dilation[2] / w.stride[2];
    for (int64_t k = 0; k < w.kernel[2]; ++k) {
      const int64_t at = k * w.dilation[2], run = std::ranges::find(rests, at % w.stride[2]) - rests.begin();
      if (run == static_cast<int64_t>(rests.size())) rests.push_back(at % w.stride[2]);
      taps.push_back(run * length + at / w.stride[2]);
    }
  }
  int64_t elements() const { return static_cast<int64_t>(rests.size()) * length; }

  int64_t windows, length;           // per row; elements per run
  std::vector<int64_t> rests, taps;  // remainder of each run; position of element k of the first window
};

template <class T>
SG_CLONES void lay_out(const LineLayout& layout, const Window& w, const T* line, T* to) {
  const int64_t step = w.stride[2];
  for (const int64_t rest : layout.rests) {
    const int64_t first = rest - w.padding[2], room = w.in[2] - first;
    const int64_t begin = first >= 0 ? 0 : std::min(layout.length, (step - 1 - first) / step);
    const int64_t end = room <= 0 ? begin : std::clamp((room + step - 1) / step, begin, layout.length);
    std::fill(to, to + begin, kLowest<T>);
    if (step == 2)
      for (int64_t i = begin; i < end; ++i) to[i] = line[first + 2 * i];
    else
      for (int64_t i = begin; i < end; ++i) to[i] = line[first + step * i];
    std::fill(to + end, to + layout.length, kLowest<T>);
    to += layout.length;
  }
}

// The maximum so far of each window of a row, and its position in the plane.
template <class T, class Place>
struct Maxima {
  T* value;
  Place* place;
  Maxima at(int64_t i) const { return {value + i, place + i}; }
};

template <class T, class Place>
SG_CLONES void begin_row(int64_t windows, Place row, const Place* begins, Maxima<T, Place> top) {
  for (int64_t j = 0; j < windows; ++j) top.value[j] = kLowest<T>, top.place[j] = row + begins[j];
}

// Takes larger values, and NaN, for kLanes windows; place(l) is the position of from[l].
template <class T, class Place, class PlaceOf>
SG_INLINE void take_larger(const T* from, const PlaceOf& place, Maxima<T, Place> top) {
#pragma GCC ivdep
  for (int l = 0; l < kLanes; ++l) {
    const bool better = (from[l] > top.value[l]) | (from[l] != from[l]);
    top.value[l] = better ? from[l] : top.value[l];
    top.place[l] = better ? place(l) : top.place[l];
  }
}

// Takes maxima from one line, which begins at `row` of the plane.
template <class T, class Place>
SG_CLONES void take_from_line(const LineLayout& layout, const Window& w, const T* line, int64_t row,
                              Maxima<T, Place> top) {
  const auto step = static_cast<Place>(w.stride[2]);
  for (int64_t j = 0; j < layout.windows; j += kLanes)
    for (int64_t k = 0; k < w.kernel[2]; ++k) {
      const auto first = static_cast<Place>(row + j * w.stride[2] + k * w.dilation[2] - w.padding[2]);
      take_larger(
          line + layout.taps[static_cast<size_t>(k)] + j, [=](int l) { return first + l * step; }, top.at(j));
    }
}

// Takes maxima from the results of another line.
template <class T, class Place>
SG_CLONES void take_from_row(int64_t windows, Maxima<T, Place> row, Maxima<T, Place> top) {
  for (int64_t j = 0; j < windows; j += kLanes)
    take_larger(
        row.value + j, [=](int l) { return row.place[j + l]; }, top.at(j));
}

// The maxima of one plane: first along each line, then over the lines of a window.
template <class T, class Place>
class PlaneMaxima {
 public:
  PlaneMaxima(KernelCall& call, const Window& w)
      : w_(w), layout_(w), lines_(w.in[0] * w.in[1]), begins_(static_cast<size_t>(layout_.windows)) {
    for (int64_t j = 0; j < w.out[2]; ++j) begins_[static_cast<size_t>(j)] = static_cast<Place>(w.span(2, j).from);
    const int64_t rows = lines_ + 1;
    for (int i = 0; i < call.team().size(); ++i)
      spaces_.push_back({call.scratch().template take<T>(layout_.elements()),
                         {call.scratch().template take<T>(rows * layout_.windows),
                          call.scratch().template take<Place>(rows * layout_.windows)}});
  }

  // places: null if they are not wanted.
  void find(const T* plane, int thread, T* values, int64_t* places) const {
    const Space& s = spaces_[static_cast<size_t>(thread)];
    for (int64_t line = 0; line < lines_; ++line) {
      const int64_t row = line * w_.in[2];
      lay_out(layout_, w_, plane + row, s.line);
      begin_row<T, Place>(layout_.windows, static_cast<Place>(row), begins_.data(), s.rows.at(line * layout_.windows));
      take_from_line(layout_, w_, s.line, row, s.rows.at(line * layout_.windows));
    }
    const Maxima<T, Place> top = s.rows.at(lines_ * layout_.windows);
    for (int64_t row = 0; row < w_.out[0] * w_.out[1]; ++row) {
      take_lines(w_.span(0, row / w_.out[1]), w_.span(1, row % w_.out[1]), s.rows, top);
      std::copy_n(top.value, w_.out[2], values + row * w_.out[2]);
      if (places) std::copy_n(top.place, w_.out[2], places + row * w_.out[2]);
    }
  }

 private:
  struct Space {
    T* line;
    Maxima<T, Place> rows;  // of each line, and the combined row
  };

  void take_lines(const Span& deep, const Span& high, const Maxima<T, Place>& rows, Maxima<T, Place> top) const {
    const int64_t first = (deep.from * w_.in[1] + high.from) * w_.in[2];
    begin_row<T, Place>(layout_.windows, static_cast<Place>(first), begins_.data(), top);
    for (int64_t d = deep.from; d < deep.end; d += deep.step)
      for (int64_t r = high.from; r < high.end; r += high.step)
        take_from_row(layout_.windows, rows.at((d * w_.in[1] + r) * layout_.windows), top);
  }

  const Window& w_;
  const LineLayout layout_;
  const int64_t lines_;
  std::vector<Place> begins_;  // along the last axis: the first position of each window
  std::vector<Space> spaces_;  // by thread
};

template <class T, class Place>
void find_maxima(KernelCall& call, const Window& w) {
  const Tensor x = contiguous(call, call.tensor("self"));
  const bool placed = call.result_count() > 1;
  const ResultRows values(call, call.result(0), -1), places(call, call.result(call.result_count() - 1), -1);
  const RowReader<T> from(call, x, w.plane_in());
  const RowWriter<T> to(call, values.tensor(), w.plane_out());
  const PlaneMaxima<T, Place> maxima(call, w);
  for_rows(call, w.planes, w.plane_in() + w.plane_out() * w.kernel[0] * w.kernel[1], [&](int64_t plane, int thread) {
    int64_t* place = placed ? places.tensor().as<int64_t>() + plane * w.plane_out() : nullptr;
    maxima.find(from.row(plane, thread), thread, to.row(plane, thread), place);
    to.done(plane, thread);
  });
  values.store(call);
  if (placed) places.store(call);
}

// The same windows with leading axes of size 1, so that rows of windows extend along the last axis.
Window with_long_lines(Window w) {
  for (int i = 0; i < 2 && w.in[2] == 1 && w.out[2] == 1; ++i)
    for (int64_t* axes : {w.kernel, w.stride, w.padding, w.dilation, w.in, w.out})
      std::rotate(axes, axes + 2, axes + 3);
  return w;
}

}  // namespace

bool has_short_places(const Window& w) {
  double places = 1;
  for (int k = 0; k < 3; ++k) places *= static_cast<double>(w.in[k] + w.padding[k] + w.dilation[k]);
  return places <= std::numeric_limits<int32_t>::max();
}

void largest_of_windows(KernelCall& call, const Window& window) {
  const Window w = with_long_lines(window);
  // 32-bit positions keep up with floats.
  if (call.result(0).dtype == DType::f64) find_maxima<double, int64_t>(call, w);
  else if (has_short_places(w)) find_maxima<float, int32_t>(call, w);
  else find_maxima<float, int64_t>(call, w);
}

}  // namespace sg::cpu
