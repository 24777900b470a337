// Elements by index: read at the indices, and accumulated or written there in the order of the indices.
//
// Accumulation is deterministic without atomics: sources are sorted by their destination (sort.h), and each destination
// adds up its bucket from first to last. Either each destination has a lane, or, if there are fewer sources, each
// source.
#pragma once

#include "librun/cuda/kernels/raw.h"
#include "librun/work/renorm.h"
#include "librun/work/search.h"

namespace sg::cuda {

inline constexpr int kMaxIndexed = 5;

// A tensor whose `indexed` axes are replaced by what the index tensors pick: outer x picked x inner elements.
struct Selection {
  View rest;  // its other axes, the outer ones first
  int32_t outer_axes = 0, indexed = 0;
  int64_t outer = 1, picked = 1, inner = 1;
  View index[kMaxIndexed];                                   // broadcast to one shape
  int64_t size[kMaxIndexed] = {}, stride[kMaxIndexed] = {};  // of the indexed axes
  bool wraps = true;  // negative indices count from the end; else they are errors

  SG_FN int64_t pick_offset(int64_t p, const Report& report) const {
    int64_t offset = 0;
    for (int k = 0; k < indexed; ++k)
      offset += report.checked_index(read_whole(index[k], offset_of(index[k], p)), size[k], wraps) * stride[k];
    return offset;
  }
  // The picked position as a row-major index over the indexed axes; and the offset of that index in the tensor.
  SG_FN int64_t pick_number(int64_t p, const Report& report) const {
    int64_t n = 0;
    for (int k = 0; k < indexed; ++k)
      n = n * size[k] + report.checked_index(read_whole(index[k], offset_of(index[k], p)), size[k], wraps);
    return n;
  }
  SG_FN int64_t number_offset(int64_t n) const {
    if (indexed == 0) return n;
    int64_t offset = 0;
    for (int k = indexed - 1; k >= 0; --k) offset += work::take_remainder(&n, size[k]) * stride[k];
    return offset;
  }
  SG_FN int64_t rest_offset(int64_t o, int64_t i) const {
    return offset_over(rest, 0, outer_axes, o) + offset_over(rest, outer_axes, rest.axes, i);
  }
};

struct SelectArgs {
  Selection from;
  View to;  // [outer, picked, inner] in row-major order
  Report report;
};

SG_KERNEL(select_elements, SelectArgs) {
  block.each([&](int lane) {
    const Selection& s = args.from;
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes) {
      int64_t outer = i;
      const int64_t inner = work::take_remainder(&outer, s.inner), picked = work::take_remainder(&outer, s.picked);
      copy_element(args.to, offset_of(args.to, i), s.rest,
                   s.rest_offset(outer, inner) + s.pick_offset(picked, args.report));
    }
  });
}

// to[..., index[...], ...]: along one axis; the index has the shape of the result.
struct GatherArgs {
  View to, from, index;
  int32_t axis = 0;
  Report report;
};

SG_FN int64_t gathered_offset(const View& v, const View& index, int axis, int64_t i, const Report& report) {
  int64_t offset = 0, left = i;
  for (int a = index.axes - 1; a >= 0; --a) {
    const int64_t place = work::take_remainder(&left, index.shape[a]);
    if (a != axis) offset += place * v.stride[a];
  }
  return offset + report.checked_index(read_whole(index, offset_of(index, i)), v.shape[axis], false) * v.stride[axis];
}

SG_KERNEL(gather_elements, GatherArgs) {
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.index.count; i += block.count() * kLanes)
      copy_element(args.to, offset_of(args.to, i), args.from,
                   gathered_offset(args.from, args.index, args.axis, i, args.report));
  });
}

// --- buckets ---

struct BucketArgs {
  // The destination of each source: the index of what a selection picks, or, for a gather's indices, the element's
  // position.
  Selection picks;
  View target, index;  // gather
  int32_t axis = -1;   // of the gather; -1 = picks
  int64_t skip = -1;   // sources with this index have no destination; -1 = all have one
  int64_t sources = 0, destinations = 0;
  int64_t* key = nullptr;           // by source; -1 = none
  const int64_t* sorted = nullptr;  // the sorted keys
  const int64_t* order = nullptr;   // sources by bucket; those without a destination come first
  int64_t* begin = nullptr;         // by destination, plus one; null = a lane per source
  Report report;
};

SG_KERNEL(bucket_keys, BucketArgs) {
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.sources; i += block.count() * kLanes) {
      if (args.axis >= 0) args.key[i] = gathered_offset(args.target, args.index, args.axis, i, args.report);
      else if (args.skip >= 0 && read_whole(args.picks.index[0], offset_of(args.picks.index[0], i)) == args.skip)
        args.key[i] = -1;
      else args.key[i] = args.picks.pick_number(i, args.report);
    }
  });
}

SG_KERNEL(bucket_begins, BucketArgs) {
  block.each([&](int lane) {
    for (int64_t d = block.index() * kLanes + lane; d <= args.destinations; d += block.count() * kLanes) {
      int64_t low = 0, high = args.sources;
      while (low < high) {
        const int64_t half = low + (high - low) / 2;
        if (args.sorted[half] < d) low = half + 1;
        else high = half;
      }
      args.begin[d] = low;
    }
  });
}

enum class Combine : uint8_t { last, sum, product, mean, largest, smallest };

struct ScatterArgs {
  Selection to;  // destinations are its picked indices; if nothing is indexed, positions
  View from;     // [outer, source, inner] in row-major order; a single element for all if it has no axes
  const int64_t* begin = nullptr;   // scatter_buckets
  const int64_t* sorted = nullptr;  // scatter_runs: the sorted keys
  const int64_t* order = nullptr;
  int64_t sources = 0, destinations = 0;
  double scale = 1, scale_im = 0;
  int64_t whole_scale = 1;
  Combine how = Combine::sum;
  bool includes_self = true;  // the existing value counts
};

template <class C>
SG_FN C combined(Combine how, C a, C b) {
  switch (how) {
    case Combine::product: return a * b;
    case Combine::largest: return b > a || b != b ? b : a;
    case Combine::smallest: return b < a || b != b ? b : a;
    default: return a + b;
  }
}

SG_FN int64_t combined_whole(Combine how, bool flag, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  if (flag) return how == Combine::product || how == Combine::smallest ? (a && b) : (a || b);
  switch (how) {
    case Combine::product: return static_cast<int64_t>(x * y);
    case Combine::largest: return b > a ? b : a;
    case Combine::smallest: return b < a ? b : a;
    default: return static_cast<int64_t>(x + y);
  }
}

// The elements of one bucket, from first to last.
struct Bucket {
  const ScatterArgs& args;
  int64_t outer, inner, begin, end;
  SG_FN int64_t count() const { return end - begin; }
  SG_FN int64_t offset(int64_t k) const {
    return args.from.axes == 0 ? 0
                               : offset_of(args.from, (outer * args.sources + args.order[k]) * args.to.inner + inner);
  }
};

// Adds up the bucket from element k on, 8 at a time as long as there are 8: all are loaded before the first is added,
// so that a long bucket (a frequent word) waits for memory only once per 8. Returns the element to continue with.
template <class Raw, class C>
SG_FN int64_t add_by_eights(const ScatterArgs& args, const Bucket& b, int64_t k, C scale, C* sum) {
  constexpr int kAtOnce = 8;
  for (; k + kAtOnce <= b.end; k += kAtOnce) {
    Raw x[kAtOnce];
    SG_UNROLL for (int i = 0; i < kAtOnce; ++i) x[i] = at<Raw>(args.from, b.offset(k + i));
    SG_UNROLL for (int i = 0; i < kAtOnce; ++i)* sum += static_cast<C>(value_of(x[i])) * scale;
  }
  return k;
}

template <class C>
SG_FN void scatter_floats(const ScatterArgs& args, const Bucket& b, int64_t to) {
  const auto scale = static_cast<C>(args.scale);
  int64_t k = b.begin;
  C acc = args.includes_self ? read<C>(args.to.rest, to) : read<C>(args.from, b.offset(k++)) * scale;
  if (args.how == Combine::sum || args.how == Combine::mean) {
    if (args.from.element == Element::f32) k = add_by_eights<float>(args, b, k, scale, &acc);
    else if (args.from.element == Element::bf16) k = add_by_eights<Bf16>(args, b, k, scale, &acc);
  }
  for (; k < b.end; ++k) acc = combined(args.how, acc, read<C>(args.from, b.offset(k)) * scale);
  if (args.how == Combine::mean) acc /= static_cast<C>(b.count() + args.includes_self);
  write<C>(args.to.rest, to, acc);
}

SG_FN void scatter_whole(const ScatterArgs& args, const Bucket& b, int64_t to) {
  const View& v = args.to.rest;
  const bool flag = v.element == Element::boolean;
  auto value = [&](int64_t k) {
    const auto x = static_cast<uint64_t>(read_whole(args.from, b.offset(k)));
    return static_cast<int64_t>(flag ? x : x * static_cast<uint64_t>(args.whole_scale));
  };
  int64_t k = b.begin;
  int64_t acc = args.includes_self ? read_whole(v, to) : value(k++);
  for (; k < b.end; ++k) acc = combined_whole(args.how, flag, acc, value(k));
  const int64_t n = b.count() + args.includes_self;
  if (args.how == Combine::mean && !flag) {
    write_whole(v, to, acc);  // rounded to the type
    acc = read_whole(v, to);
    acc = acc / n - (acc % n != 0 && acc < 0);
  }
  write_whole(v, to, acc);
}

template <class C>
SG_FN void scatter_complex(const ScatterArgs& args, const Bucket& b, int64_t to) {
  C* at_place = &at<C>(args.to.rest, 2 * to);
  int64_t k = b.begin;
  auto scaled = [&](int64_t i, C* re, C* im) {
    const C x = read<C>(args.from, b.offset(i)),
            y = is_complex(args.from.element) ? read_imaginary<C>(args.from, b.offset(i)) : C(0);
    const C s = static_cast<C>(args.scale), t = static_cast<C>(args.scale_im);
    *re = t == 0 ? x * s : x * s - y * t;
    *im = t == 0 ? y * s : x * t + y * s;
  };
  C re = at_place[0], im = at_place[1], x, y;
  if (!args.includes_self) scaled(k++, &re, &im);
  for (; k < b.end; ++k) {
    scaled(k, &x, &y);
    const C old = re;
    re = args.how == Combine::product ? re * x - im * y : re + x;
    im = args.how == Combine::product ? old * y + im * x : im + y;
  }
  const C n = static_cast<C>(b.count() + args.includes_self);
  if (args.how == Combine::mean) re /= n, im /= n;
  at_place[0] = re;
  at_place[1] = im;
}

// A bucket that is not empty goes to destination d.
SG_FN void scatter_one(const ScatterArgs& args, const Bucket& b, int64_t d) {
  const View& to = args.to.rest;
  const int64_t at_offset = args.to.rest_offset(b.outer, b.inner) + args.to.number_offset(d);
  if (args.how == Combine::last) return copy_element(to, at_offset, args.from, b.offset(b.end - 1));
  switch (to.element) {
    case Element::f64: return scatter_floats<double>(args, b, at_offset);
    case Element::f32:
    case Element::f16:
    case Element::bf16: return scatter_floats<float>(args, b, at_offset);
    case Element::c64: return scatter_complex<float>(args, b, at_offset);
    case Element::c128: return scatter_complex<double>(args, b, at_offset);
    default: return scatter_whole(args, b, at_offset);
  }
}

SG_KERNEL(scatter_buckets, ScatterArgs) {
  block.each([&](int lane) {
    const int64_t inner = args.to.inner, all = args.to.outer * args.destinations * inner;
    for (int64_t i = block.index() * kLanes + lane; i < all; i += block.count() * kLanes) {
      int64_t outer = i;
      const int64_t number = work::take_remainder(&outer, inner);
      const int64_t d = work::take_remainder(&outer, args.destinations);
      const Bucket b{args, outer, number, args.begin[d], args.begin[d + 1]};
      if (b.count() > 0) scatter_one(args, b, d);
    }
  });
}

// The end of the run of equal keys that begins at `first`; most have one key.
SG_FN int64_t end_of_run(const int64_t* sorted, int64_t first, int64_t count) {
  const int64_t key = sorted[first];
  int64_t step = 1;
  while (first + step < count && sorted[first + step] == key) step *= 2;
  int64_t low = first + step / 2 + 1, high = first + step < count ? first + step : count;
  while (low < high) {
    const int64_t half = low + (high - low) / 2;
    if (sorted[half] == key) low = half + 1;
    else high = half;
  }
  return low;
}

// The same by sources, for few of them among many destinations: the first of a bucket adds up all of it.
SG_KERNEL(scatter_runs, ScatterArgs) {
  block.each([&](int lane) {
    const int64_t inner = args.to.inner, all = args.to.outer * args.sources * inner;
    for (int64_t i = block.index() * kLanes + lane; i < all; i += block.count() * kLanes) {
      int64_t outer = i;
      const int64_t number = work::take_remainder(&outer, inner), k = work::take_remainder(&outer, args.sources);
      const int64_t d = args.sorted[k];
      if (d < 0 || (k > 0 && args.sorted[k - 1] == d)) continue;
      scatter_one(args, {args, outer, number, k, end_of_run(args.sorted, k, args.sources)}, d);
    }
  });
}

// --- counting ---

struct AddWhole {
  SG_FN int64_t operator()(int64_t a, int64_t b) const { return a + b; }
};

// Scales looked-up rows down to a maximum norm, in place. The first of equal indices does it.
struct RenormArgs {
  View table;             // [rows, width]
  const int64_t* sorted;  // the indices
  int64_t count = 0;
  work::Renorm renorm;
  Report report;
};

SG_KERNEL(renorm_rows, RenormArgs) {
  block.each([&](int lane) {
    const View& t = args.table;
    for (int64_t i = block.index() * kLanes + lane; i < args.count; i += block.count() * kLanes) {
      if (i > 0 && args.sorted[i] == args.sorted[i - 1]) continue;
      const int64_t index = args.report.checked_index(args.sorted[i], t.shape[0], false);
      if (index != args.sorted[i]) continue;
      const int64_t row = index * t.stride[0];
      double sum = 0;
      for (int64_t k = 0; k < t.shape[1]; ++k) sum = args.renorm.add(sum, read<double>(t, row + k * t.stride[1]));
      const double factor = args.renorm.factor(sum);
      for (int64_t k = 0; k < t.shape[1] && factor != 1; ++k)
        write<double>(t, row + k * t.stride[1], read<double>(t, row + k * t.stride[1]) * factor);
    }
  });
}

struct HistogramArgs {
  View from, to;
  double low = 0, high = 0;
};

SG_KERNEL(count_bins, HistogramArgs) {  // one block per bin
  const int64_t bins = args.to.count;
  for (int64_t bin = block.index(); bin < bins; bin += block.count()) {
    auto part = block.each([&](int lane) {
      int64_t n = 0;
      for (int64_t i = lane; i < args.from.count; i += kLanes) {
        const double x = read<double>(args.from, offset_of(args.from, i));
        n += work::bin_of(x, args.low, args.high, bins) == bin;
      }
      return n;
    });
    const int64_t n = block.reduce(part, AddWhole());
    block.each([&](int lane) {
      if (lane == 0) write_whole(args.to, bin * args.to.stride[0], n);
    });
  }
}

}  // namespace sg::cuda
