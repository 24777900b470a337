// Random numbers on the device: the same as those of librun/random.h, by key and index.
#pragma once

#include "librun/cuda/kernels/element_ops.h"
#include "librun/work/random.h"

namespace sg::cuda {

enum class Draw : uint8_t { uniform, normal, exponential, log_normal, cauchy, geometric, whole, bernoulli };

struct RandomArgs {
  View to;
  View chance;      // bernoulli: a probability for each element; no data = `a`
  View from, mask;  // dropout: `to` = from * mask * scale
  work::Stream stream;
  Draw draw = Draw::uniform;
  double a = 0, b = 0, scale = 1;  // parameters of the draw
  int32_t digits = 24;
  uint64_t low = 0, count = 0;  // whole
  // A chunk draws the numbers of its part of the original: row-major strides of the original, and where the chunk
  // begins in it.
  int64_t origin_stride[kMaxAxes] = {}, origin_first = 0;
  bool has_origin = false;
  Report report;
};

SG_FN uint64_t origin_index(const RandomArgs& args, int64_t i) {
  if (!args.has_origin) return static_cast<uint64_t>(i);
  int64_t at = args.origin_first;
  for (int axis = args.to.axes - 1; axis >= 0; --axis)
    at += work::take_remainder(&i, args.to.shape[axis]) * args.origin_stride[axis];
  return static_cast<uint64_t>(at);
}

SG_FN bool is_drawn(const RandomArgs& args, const work::Key& key, int64_t i) {
  double p = args.a;
  if (args.chance.data) {
    p = read<double>(args.chance, offset_of(args.chance, i));
    if (!(p >= 0 && p <= 1)) args.report.raise(Fault::Kind::value, 0, 0, p);
  }
  return key.uniform(origin_index(args, i), 32) < p;
}

SG_FN double drawn_number(const RandomArgs& args, const work::Key& key, uint64_t i) {
  switch (args.draw) {
    case Draw::uniform: return args.a + key.uniform(i, args.digits) * (args.b - args.a);
    case Draw::normal: return args.a + args.b * key.normal(i);
    case Draw::exponential: return -math::log1p_core(-key.uniform(i, 53)) / args.a;
    case Draw::log_normal: return ::exp(args.a + args.b * key.normal(i));
    case Draw::cauchy: return args.a + args.b * ::tan(math::kPi * (key.uniform(i, 53) - 0.5));
    case Draw::geometric: {
      const double n = ::ceil(math::log1p_core(-key.uniform(i, 53)) / ::log1p(-args.a));
      return n < 1.0 ? 1.0 : n;
    }
    default: return 0;
  }
}

// --- four elements at a time ---

inline constexpr int kQuad = 4;

// Elements share a block of the generator: four of them, or two if each takes two words. A chunk's are not neighbours.
SG_FN bool goes_by_quads(const RandomArgs& args) {
  if (args.has_origin || args.chance.data) return false;
  return args.draw == Draw::bernoulli || args.draw == Draw::normal || (args.draw == Draw::uniform && args.digits <= 32);
}

struct Quad {
  double x[kQuad];
};

// What drawn_number (of bernoulli: the number that is held against `a`) gives for elements 4n to 4n + 3.
SG_FN Quad drawn_quad(const RandomArgs& args, const work::Key& key, uint64_t n) {
  Quad out;
  if (args.draw == Draw::normal) {
    for (int half = 0; half < 2; ++half) {
      const work::SinCos pair = work::normal_pair(key.block(2 * n + static_cast<uint64_t>(half)));
      out.x[2 * half] = args.a + args.b * pair.cos;
      out.x[2 * half + 1] = args.a + args.b * pair.sin;
    }
    return out;
  }
  const work::Words words = key.block(n);
  const bool is_flag = args.draw == Draw::bernoulli;
  for (int k = 0; k < kQuad; ++k) {
    const double u = work::uniform_of_word(words.w[k], is_flag ? 32 : args.digits);
    out.x[k] = is_flag ? u : args.a + u * (args.b - args.a);
  }
  return out;
}

// Calls fn(i, x) for every element of `to` with its number.
template <class Fn>
SG_FN void for_quads(Block& block, int lane, const RandomArgs& args, const work::Key& key, const Fn& fn) {
  const int64_t quads = (args.to.count + kQuad - 1) / kQuad;
  for (int64_t n = block.index() * kLanes + lane; n < quads; n += block.count() * kLanes) {
    const Quad quad = drawn_quad(args, key, static_cast<uint64_t>(n));
    SG_UNROLL for (int k = 0; k < kQuad; ++k) if (kQuad * n + k < args.to.count) fn(kQuad * n + k, quad.x[k]);
  }
}

SG_FN void write_drawn(const RandomArgs& args, int64_t i, double x) {
  const int64_t offset = offset_of(args.to, i);
  if (args.draw == Draw::bernoulli) write_whole(args.to, offset, x < args.a);
  else write<double>(args.to, offset, x);
}

SG_KERNEL(draw_elements, RandomArgs) {
  block.each([&](int lane) {
    const work::Key key = work::Key::of(args.stream);
    if (goes_by_quads(args))
      return for_quads(block, lane, args, key, [&](int64_t i, double x) { write_drawn(args, i, x); });
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes) {
      const int64_t offset = offset_of(args.to, i);
      if (args.draw == Draw::bernoulli) write_whole(args.to, offset, is_drawn(args, key, i));
      else if (args.draw == Draw::whole)
        write_whole(args.to, offset, static_cast<int64_t>(args.low + key.below(origin_index(args, i), args.count)));
      else write<double>(args.to, offset, drawn_number(args, key, origin_index(args, i)));
    }
  });
}

SG_FN void drop_element(const RandomArgs& args, int64_t i, bool kept) {
  if (args.mask.data) write_whole(args.mask, offset_of(args.mask, i), kept);
  const int64_t to = offset_of(args.to, i), from = offset_of(args.from, i);
  if (args.to.element == Element::f64)
    at<double>(args.to, to) = at<double>(args.from, from) * (kept ? 1.0 : 0.0) * args.scale;
  else write<float>(args.to, to, read<float>(args.from, from) * (kept ? 1.0f : 0.0f) * static_cast<float>(args.scale));
}

// The mask, and `from` with it applied, in one pass: products in f32 if the type is no wider.
SG_KERNEL(dropout_elements, RandomArgs) {
  block.each([&](int lane) {
    const work::Key key = work::Key::of(args.stream);
    if (goes_by_quads(args))
      return for_quads(block, lane, args, key, [&](int64_t i, double x) { drop_element(args, i, x < args.a); });
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes)
      drop_element(args, i, is_drawn(args, key, i));
  });
}

// rrelu: `to` = from * slope, with the slope stored in `mask`.
SG_KERNEL(rrelu_elements, RandomArgs) {
  block.each([&](int lane) {
    const work::Key key = work::Key::of(args.stream);
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes) {
      const int64_t noise = offset_of(args.mask, i);
      const double x = read<double>(args.from, offset_of(args.from, i));
      write<double>(args.mask, noise, drawn_number(args, key, origin_index(args, i)));
      double slope = read<double>(args.mask, noise);
      if (!(x <= 0)) slope = 1;
      write<double>(args.mask, noise, slope);
      write<double>(args.to, offset_of(args.to, i), x * slope);
    }
  });
}

// --- permutations: each place in turn is swapped with a later one or itself, its target ---
//
// Lanes find the outcome without going through the steps. Place i is final after step i, in which it gets what its
// target holds: what the last earlier step with that target has put there, or the target's own number. Step k puts
// there what place k holds, which is found the same way: by the last step before k whose target was k, and so on.

struct OrderArgs {
  int64_t length = 0;
  work::Stream stream;
  int64_t* targets = nullptr;                         // by step
  const int64_t *sorted = nullptr, *steps = nullptr;  // the targets, sorted stably, and their steps
  int64_t* before = nullptr;                          // by step: the last earlier one with its target, or -1
  int64_t* into = nullptr;  // by place: the last step before its own that had it as target, or -1
  int64_t* to = nullptr;
};

SG_KERNEL(order_targets, OrderArgs) {
  block.each([&](int lane) {
    const work::Key key = work::Key::of(args.stream);
    for (int64_t i = block.index() * kLanes + lane; i < args.length; i += block.count() * kLanes) {
      const auto step = static_cast<uint64_t>(i), left = static_cast<uint64_t>(args.length - i);
      args.targets[i] = i + static_cast<int64_t>(key.below(step, left));
    }
  });
}

// REQUIRES: `into` is -1 everywhere
SG_KERNEL(order_links, OrderArgs) {
  block.each([&](int lane) {
    for (int64_t at = block.index() * kLanes + lane; at < args.length; at += block.count() * kLanes) {
      const int64_t target = args.sorted[at], step = args.steps[at];
      const int64_t before = at > 0 && args.sorted[at - 1] == target ? args.steps[at - 1] : -1;
      args.before[step] = before;
      const bool is_last = at + 1 == args.length || args.sorted[at + 1] != target;
      if (is_last) args.into[target] = step < target ? step : before;
    }
  });
}

SG_KERNEL(order_numbers, OrderArgs) {
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.length; i += block.count() * kLanes) {
      int64_t place = args.before[i];
      if (place < 0) place = args.targets[i];
      else
        while (args.into[place] >= 0) place = args.into[place];
      args.to[i] = place;
    }
  });
}

// --- samples: one block per row ---

struct ChoiceArgs {
  int64_t* to;    // [rows, wanted]
  double* marks;  // [rows, length]
  const double* weights;
  int64_t rows = 0, length = 0, wanted = 0;
  bool replace = false;
  work::Stream stream;
  Report report;
};

struct Usable {
  int64_t count, bad;  // weights above 0; the first that is none, or the length
};
struct MergeUsable {
  SG_FN Usable operator()(const Usable& a, const Usable& b) const {
    return {a.count + b.count, a.bad < b.bad ? a.bad : b.bad};
  }
};

SG_FN bool has_choice(const Block& block, const ChoiceArgs& args, const double* weights) {
  auto part = block.each([&](int lane) {
    Usable usable{0, args.length};
    for (int64_t k = lane; k < args.length; k += kLanes) {
      const bool is_weight = weights[k] >= 0 && weights[k] - weights[k] == 0;
      if (!is_weight && k < usable.bad) usable.bad = k;
      usable.count += weights[k] > 0;
    }
    return usable;
  });
  const Usable usable = block.reduce(part, MergeUsable());
  if (usable.bad == args.length && usable.count > 0 && (args.replace || usable.count >= args.wanted)) return true;
  block.each([&](int lane) {
    if (lane != 0) return;
    if (usable.bad < args.length) args.report.raise(Fault::Kind::value, 0, 0, weights[usable.bad]);
    else args.report.raise(Fault::Kind::index, args.wanted, usable.count);
  });
  return false;
}

// Running sums are one lane's: in any other order they would be rounded otherwise.
SG_FN void choose_with_return(const Block& block, const ChoiceArgs& args, const work::Key& key, uint64_t first,
                              const double* weights, double* marks, int64_t* to) {
  block.each([&](int lane) {
    if (lane != 0) return;
    double sum = 0;
    for (int64_t k = 0; k < args.length; ++k) marks[k] = sum += weights[k];
  });
  block.sync();
  block.each([&](int lane) {
    const double sum = marks[args.length - 1];
    for (int64_t k = lane; k < args.wanted; k += kLanes) {
      const double at = key.uniform(first + static_cast<uint64_t>(k), 53) * sum;
      int64_t low = 0, high = args.length;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (at < marks[middle]) high = middle;
        else low = middle + 1;
      }
      while (low > 0 && (low >= args.length || weights[low] == 0)) --low;  // a rounded product may reach the end
      to[k] = low;
    }
  });
}

struct Mark {
  double value;
  int64_t place;
};
struct LargerMark {
  SG_FN Mark operator()(const Mark& a, const Mark& b) const {
    return a.value > b.value || (a.value == b.value && a.place < b.place) ? a : b;
  }
};

// The largest weight / exponential values, which are the draws in order; the first of equal ones. A lane alone reads
// and writes its marks.
SG_FN void choose_each_once(const Block& block, const ChoiceArgs& args, const work::Key& key, uint64_t first,
                            const double* weights, double* marks, int64_t* to) {
  block.each([&](int lane) {
    for (int64_t k = lane; k < args.length; k += kLanes) {
      const double wait = -math::log1p_core(-key.uniform(first + static_cast<uint64_t>(k), 53));
      marks[k] = weights[k] == 0 ? -1 : weights[k] / (wait < 1e-300 ? 1e-300 : wait);
    }
  });
  for (int64_t n = 0; n < args.wanted; ++n) {
    auto part = block.each([&](int lane) {
      Mark best{-3, args.length};
      for (int64_t k = lane; k < args.length; k += kLanes) best = LargerMark()(best, Mark{marks[k], k});
      return best;
    });
    const Mark best = block.reduce(part, LargerMark());
    block.each([&](int lane) {
      if (lane == 0) to[n] = best.place;
      if (lane == best.place % kLanes) marks[best.place] = -2;
    });
  }
}

SG_KERNEL(random_choices, ChoiceArgs) {
  for (int64_t row = block.index(); row < args.rows; row += block.count()) {
    const double* weights = args.weights + row * args.length;
    if (!has_choice(block, args, weights)) continue;
    const work::Key key = work::Key::of(args.stream);
    const uint64_t first = static_cast<uint64_t>(row * (args.replace ? args.wanted : args.length));
    double* marks = args.marks + row * args.length;
    if (args.replace) choose_with_return(block, args, key, first, weights, marks, args.to + row * args.wanted);
    else choose_each_once(block, args, key, first, weights, marks, args.to + row * args.wanted);
  }
}

}  // namespace sg::cuda
