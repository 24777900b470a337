// Elements by index: read where the indices say, and added up or written there in the order of the indices.
//
// Adding is deterministic without atomic sums: sources are sorted into buckets by their destination (counts, offsets,
// places, each bucket put in order), and each destination adds up its bucket from first to last.
#pragma once

#include "librun/cuda/kernels/view.h"

namespace sg::cuda {

inline constexpr int kMaxIndexed = 5;

// Of a tensor whose axes `indexed` are replaced by what the index tensors pick: outer x picked x inner elements.
struct Selection {
  View rest;  // its axes that are not indexed, the outer ones first
  int32_t outer_axes = 0, indexed = 0;
  int64_t outer = 1, picked = 1, inner = 1;
  View index[kMaxIndexed];                                   // broadcast to one shape
  int64_t size[kMaxIndexed] = {}, stride[kMaxIndexed] = {};  // of the indexed axes
  bool wraps = true;  // negative indices count from the end; else they are errors

  SG_FN int64_t pick_offset(int64_t p, const Report& report) const {
    int64_t offset = 0;
    for (int k = 0; k < indexed; ++k)
      offset += report.place_of(read_whole(index[k], offset_of(index[k], p)), size[k], wraps) * stride[k];
    return offset;
  }
  // The picked place as a number: row-major over the indexed axes. And where in the tensor that number is.
  SG_FN int64_t pick_number(int64_t p, const Report& report) const {
    int64_t n = 0;
    for (int k = 0; k < indexed; ++k)
      n = n * size[k] + report.place_of(read_whole(index[k], offset_of(index[k], p)), size[k], wraps);
    return n;
  }
  SG_FN int64_t number_offset(int64_t n) const {
    if (indexed == 0) return n;
    int64_t offset = 0;
    for (int k = indexed - 1; k >= 0; --k) {
      offset += n % size[k] * stride[k];
      n /= size[k];
    }
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
      const int64_t inner = i % s.inner, picked = i / s.inner % s.picked, outer = i / s.inner / s.picked;
      copy_element(args.to, offset_of(args.to, i), s.rest,
                   s.rest_offset(outer, inner) + s.pick_offset(picked, args.report));
    }
  });
}

// to[..., index[...], ...]: along one axis, the index of the result's shape.
struct GatherArgs {
  View to, from, index;
  int32_t axis = 0;
  Report report;
};

SG_FN int64_t gathered_offset(const View& v, const View& index, int axis, int64_t i, const Report& report) {
  int64_t offset = 0, left = i;
  for (int a = index.axes - 1; a >= 0; --a) {
    if (a != axis) offset += left % index.shape[a] * v.stride[a];
    left /= index.shape[a];
  }
  return offset + report.place_of(read_whole(index, offset_of(index, i)), v.shape[axis], false) * v.stride[axis];
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
  // Which destination each source has: the number of what a selection picks, or, of a gather's indices, the element's
  // place.
  Selection picks;
  View target, index;  // gather
  int32_t axis = -1;   // of the gather; -1 = picks
  int64_t skip = -1;   // sources with this index have none; -1 = all count
  int64_t sources = 0, destinations = 0;
  int64_t* key = nullptr;      // by source; -1 = none
  unsigned* count = nullptr;   // by destination; zeros at first
  int64_t* begin = nullptr;    // by destination, and one more
  unsigned* cursor = nullptr;  // zeros at first
  int64_t* order = nullptr;    // sources by bucket
  Report report;
};

SG_KERNEL(bucket_keys, BucketArgs) {
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.sources; i += block.count() * kLanes) {
      int64_t key;
      if (args.axis >= 0)
        key = gathered_offset(args.target, args.index, args.axis, i, args.report);
      else if (args.skip >= 0 && read_whole(args.picks.index[0], offset_of(args.picks.index[0], i)) == args.skip)
        key = -1;
      else
        key = args.picks.pick_number(i, args.report);
      args.key[i] = key;
      if (key >= 0) Block::add_count(args.count + key, 1);
    }
  });
}

// One block: each lane has a run of destinations.
SG_KERNEL(bucket_offsets, BucketArgs) {
  const int64_t run = (args.destinations + kLanes - 1) / kLanes;
  block.each([&](int lane) {
    int64_t sum = 0;
    const int64_t first = lane * run, end = first + run < args.destinations ? first + run : args.destinations;
    for (int64_t d = first; d < end; ++d) {
      args.begin[d] = sum;
      sum += args.count[d];
    }
    if (first < end)
      args.begin[args.destinations + 1 + lane] = sum;
    else
      args.begin[args.destinations + 1 + lane] = 0;
  });
  block.sync();
  block.each([&](int lane) {
    if (lane != 0) return;
    int64_t sum = 0;
    for (int l = 0; l < kLanes; ++l) {
      int64_t& at = args.begin[args.destinations + 1 + l];
      const int64_t own = at;
      at = sum;
      sum += own;
    }
    args.begin[args.destinations] = sum;
  });
  block.sync();
  block.each([&](int lane) {
    const int64_t first = lane * run, end = first + run < args.destinations ? first + run : args.destinations;
    for (int64_t d = first; d < end; ++d) args.begin[d] += args.begin[args.destinations + 1 + lane];
  });
}

SG_KERNEL(bucket_places, BucketArgs) {
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.sources; i += block.count() * kLanes)
      if (const int64_t key = args.key[i]; key >= 0)
        args.order[args.begin[key] + Block::add_count(args.cursor + key, 1)] = i;
  });
}

SG_FN void sift(int64_t* heap, int64_t root, int64_t n) {
  for (;;) {
    int64_t child = 2 * root + 1;
    if (child >= n) return;
    if (child + 1 < n && heap[child + 1] > heap[child]) ++child;
    if (heap[root] >= heap[child]) return;
    const int64_t held = heap[root];
    heap[root] = heap[child];
    heap[child] = held;
    root = child;
  }
}

// Places were given in the order in which lanes came: each bucket is sorted by one lane, in its place.
SG_KERNEL(bucket_sort, BucketArgs) {
  block.each([&](int lane) {
    for (int64_t d = block.index() * kLanes + lane; d < args.destinations; d += block.count() * kLanes) {
      int64_t* heap = args.order + args.begin[d];
      const int64_t n = args.begin[d + 1] - args.begin[d];
      for (int64_t root = n / 2; root-- > 0;) sift(heap, root, n);
      for (int64_t end = n; end-- > 1;) {
        const int64_t most = heap[0];
        heap[0] = heap[end];
        heap[end] = most;
        sift(heap, 0, end);
      }
    }
  });
}

struct ScatterArgs {
  Selection to;  // what destinations are numbers of; nothing indexed: they are places
  View from;     // [outer, source, inner] in row-major order; one element for all where it has no axes
  const int64_t* begin = nullptr;
  const int64_t* order = nullptr;
  int64_t sources = 0, destinations = 0;
  double scale = 1;
  int64_t whole_scale = 1;
  bool add = true;  // false: the last one wins
};

SG_FN void scatter_one(const ScatterArgs& args, int64_t outer, int64_t d, int64_t inner) {
  const int64_t begin = args.begin[d], end = args.begin[d + 1];
  if (begin == end) return;
  const View& to = args.to.rest;
  const int64_t at_offset = args.to.rest_offset(outer, inner) + args.to.number_offset(d);
  auto source = [&](int64_t k) {
    return args.from.axes == 0 ? 0
                               : offset_of(args.from, (outer * args.sources + args.order[k]) * args.to.inner + inner);
  };
  if (!args.add) return copy_element(to, at_offset, args.from, source(end - 1));
  if (to.element == Element::f64) {
    double sum = read<double>(to, at_offset);
    for (int64_t k = begin; k < end; ++k) sum += read<double>(args.from, source(k)) * args.scale;
    write<double>(to, at_offset, sum);
  } else if (is_floating(to.element)) {
    float sum = read<float>(to, at_offset);
    for (int64_t k = begin; k < end; ++k) sum += read<float>(args.from, source(k)) * static_cast<float>(args.scale);
    write<float>(to, at_offset, sum);
  } else {
    auto sum = static_cast<uint64_t>(read_whole(to, at_offset));
    for (int64_t k = begin; k < end; ++k)
      sum += static_cast<uint64_t>(read_whole(args.from, source(k))) * static_cast<uint64_t>(args.whole_scale);
    write_whole(to, at_offset, static_cast<int64_t>(sum));
  }
}

SG_KERNEL(scatter_buckets, ScatterArgs) {
  block.each([&](int lane) {
    const int64_t inner = args.to.inner, all = args.to.outer * args.destinations * inner;
    for (int64_t i = block.index() * kLanes + lane; i < all; i += block.count() * kLanes)
      scatter_one(args, i / inner / args.destinations, i / inner % args.destinations, i % inner);
  });
}

// --- counting ---

struct AddWhole {
  SG_FN int64_t operator()(int64_t a, int64_t b) const { return a + b; }
};

struct HistogramArgs {
  View from, to;
  double low = 0, high = 0;
};

SG_KERNEL(count_bins, HistogramArgs) {  // a block a bin
  const int64_t bins = args.to.count;
  for (int64_t bin = block.index(); bin < bins; bin += block.count()) {
    auto part = block.each([&](int lane) {
      int64_t n = 0;
      for (int64_t i = lane; i < args.from.count; i += kLanes) {
        const double x = read<double>(args.from, offset_of(args.from, i));
        if (!(x >= args.low && x <= args.high)) continue;
        auto at = static_cast<int64_t>((x - args.low) / (args.high - args.low) * static_cast<double>(bins));
        n += (at < bins ? at : bins - 1) == bin;
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
