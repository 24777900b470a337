// Matrix products that cuBLASLt does not support: integers, no unit stride, sizes that are on the device.
//
// An element is one chain over k: float for half precision and f32, double for f64 and complex, 64-bit integers, which
// wrap.
#pragma once

#include "librun/cuda/kernels/element_ops.h"
#include "librun/cuda/kernels/matmul_args.h"

namespace sg::cuda {

SG_FN int64_t at3(const View& v, int64_t b, int64_t i, int64_t j) {
  return b * v.stride[0] + i * v.stride[1] + j * v.stride[2];
}

// The group that contains position `i`; the number of groups if none does.
SG_FN int64_t group_at(const View& ends, int64_t i) {
  int64_t g = 0;
  while (g < ends.count && i >= read_whole(ends, g * ends.stride[0])) ++g;
  return g;
}

// What an element of a product sums up: the batch entries of both operands, and a range of k.
struct MatmulTerms {
  int64_t a, b, begin, end;
};

template <class C>
SG_FN void multiply_real(const MatmulArgs& args, const MatmulTerms& of, int64_t batch, int64_t i, int64_t j) {
  C sum = 0;
  for (int64_t k = of.begin; k < of.end; ++k)
    sum += read<C>(args.a, at3(args.a, of.a, i, k)) * read<C>(args.b, at3(args.b, of.b, k, j));
  sum *= static_cast<C>(args.alpha);
  if (args.add.data && args.beta != 0) sum += static_cast<C>(args.beta) * read<C>(args.add, at3(args.add, batch, i, j));
  write<C>(args.to, at3(args.to, batch, i, j), sum);
}

SG_FN Cx<double> complex_at(const View& v, int64_t offset) {
  return {read<double>(v, offset), read_imaginary<double>(v, offset)};
}

SG_FN void multiply_complex(const MatmulArgs& args, int64_t b, int64_t i, int64_t j) {
  Cx<double> sum{0, 0};
  for (int64_t k = 0; k < args.a.shape[2]; ++k)
    sum = plus(sum, times(complex_at(args.a, at3(args.a, b, i, k)), complex_at(args.b, at3(args.b, b, k, j))));
  sum = times(Cx<double>{args.alpha, args.alpha_im}, sum);
  if (args.add.data)
    sum = plus(sum, times(Cx<double>{args.beta, args.beta_im}, complex_at(args.add, at3(args.add, b, i, j))));
  const int64_t offset = at3(args.to, b, i, j);
  if (args.to.element == Element::c64)
    at<float>(args.to, 2 * offset) = static_cast<float>(sum.re),
                           at<float>(args.to, 2 * offset + 1) = static_cast<float>(sum.im);
  else at<double>(args.to, 2 * offset) = sum.re, at<double>(args.to, 2 * offset + 1) = sum.im;
}

SG_FN void multiply_whole(const MatmulArgs& args, int64_t b, int64_t i, int64_t j) {
  uint64_t sum = 0;
  for (int64_t k = 0; k < args.a.shape[2]; ++k)
    sum += bits(read_whole(args.a, at3(args.a, b, i, k))) * bits(read_whole(args.b, at3(args.b, b, k, j)));
  sum *= bits(args.whole_alpha);
  if (args.add.data && args.whole_beta != 0)
    sum += bits(args.whole_beta) * bits(read_whole(args.add, at3(args.add, b, i, j)));
  write_whole(args.to, at3(args.to, b, i, j), wrap(sum));
}

SG_FN void multiply_element(const MatmulArgs& args, int64_t b, int64_t i, int64_t j) {
  const Element type = args.a.element;
  if (is_complex(type)) return multiply_complex(args, b, i, j);
  if (!is_floating(type)) return multiply_whole(args, b, i, j);
  MatmulTerms of{b, b, 0, args.a.shape[2]};
  if (args.along == MatmulArgs::Along::m || args.along == MatmulArgs::Along::n) {
    const int64_t g = group_at(args.ends, args.along == MatmulArgs::Along::m ? i : j);
    if (g == args.ends.count) return;  // after the last group: contents are undefined
    if (args.along == MatmulArgs::Along::m) of.a = 0, of.b = g;
    else of.a = g, of.b = 0;
  } else if (args.along == MatmulArgs::Along::k) {
    const int64_t begin = b == 0 ? 0 : read_whole(args.ends, (b - 1) * args.ends.stride[0]);
    const int64_t stop = read_whole(args.ends, b * args.ends.stride[0]);
    if (begin < 0 || stop < begin || stop > of.end) return args.report.raise(Fault::Kind::index, stop, of.end);
    of = {0, 0, begin, stop};
  }
  if (type == Element::f64) multiply_real<double>(args, of, b, i, j);
  else multiply_real<float>(args, of, b, i, j);
}

SG_KERNEL(matmul_elements, MatmulArgs) {
  block.each([&](int lane) {
    const int64_t n = args.to.shape[2], m = args.to.shape[1];
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes)
      multiply_element(args, i / n / m, i / n % m, i % n);
  });
}

// --- attention: the scores of a query against all keys, in place ---

SG_FN double score_of(const ScoreArgs& args, int64_t h, int64_t q, int64_t k) {
  if (args.causal && k > q) return -math::infinity();
  double x = read<double>(args.scores, at3(args.scores, h, q, k)) * args.scale;
  if (!args.mask.data) return x;
  const int64_t offset = at3(args.mask, h, q, k);
  if (args.mask.element == Element::boolean) return read_whole(args.mask, offset) ? x : -math::infinity();
  return x + read<double>(args.mask, offset);
}

SG_FN int64_t at_query(const View& v, int64_t h, int64_t q) { return h * v.stride[0] + q * v.stride[1]; }

struct LargerScore {
  SG_FN double operator()(double a, double b) const { return a != a ? a : (a < b || b != b) ? b : a; }
};
struct SumScores {
  SG_FN double operator()(double a, double b) const { return a + b; }
};

SG_FN double exp_score(const View& v, double x) {
  if (x == -math::infinity()) return 0;  // exp_core is never 0, but a row that sees nothing must sum to 0
  return v.element == Element::f64 ? ::exp(x) : math::exp_core(x);
}

SG_KERNEL(attention_weights, ScoreArgs) {
  const int64_t queries = args.scores.shape[1], keys = args.scores.shape[2];
  for (int64_t row = block.index(); row < args.scores.shape[0] * queries; row += block.count()) {
    const int64_t h = row / queries, q = row % queries;
    auto most_part = block.each([&](int lane) {
      double most = -math::infinity();
      for (int64_t k = lane; k < keys; k += kLanes) most = LargerScore()(most, score_of(args, h, q, k));
      return most;
    });
    const double most = block.reduce(most_part, LargerScore()), shift = most == -math::infinity() ? 0 : most;
    auto part = block.each([&](int lane) {
      double sum = 0;
      for (int64_t k = lane; k < keys; k += kLanes) sum += exp_score(args.scores, score_of(args, h, q, k) - shift);
      return sum;
    });
    const double sum = block.reduce(part, SumScores());
    block.each([&](int lane) {
      for (int64_t k = lane; k < keys; k += kLanes) {
        const double x = exp_score(args.scores, score_of(args, h, q, k) - shift);
        write<double>(args.weights, at3(args.weights, h, q, k), sum == 0 ? 0 : x / sum);
      }
      if (lane == 0 && args.sums.data) {
        const double log = shift + (args.scores.element == Element::f64 ? ::log(sum) : math::log_core(sum));
        write<double>(args.sums, at_query(args.sums, h, q), log * args.log_scale);
      }
      if (lane == 0 && args.maxima.data) write<double>(args.maxima, at_query(args.maxima, h, q), most * args.log_scale);
    });
  }
}

// delta = weights * (delta - sum over keys of delta * weights + log_scale * gradient of the logarithm) * scale
SG_KERNEL(attention_score_gradients, ScoreArgs) {
  const int64_t queries = args.delta.shape[1], keys = args.delta.shape[2];
  for (int64_t row = block.index(); row < args.delta.shape[0] * queries; row += block.count()) {
    const int64_t h = row / queries, q = row % queries;
    auto part = block.each([&](int lane) {
      double sum = 0;
      for (int64_t k = lane; k < keys; k += kLanes)
        sum +=
            read<double>(args.delta, at3(args.delta, h, q, k)) * read<double>(args.scores, at3(args.scores, h, q, k));
      return sum;
    });
    double sum = block.reduce(part, SumScores());
    if (args.sums.data) sum -= read<double>(args.sums, at_query(args.sums, h, q)) * args.log_scale;
    block.each([&](int lane) {
      for (int64_t k = lane; k < keys; k += kLanes) {
        const int64_t offset = at3(args.delta, h, q, k);
        const double p = read<double>(args.scores, at3(args.scores, h, q, k));
        write<double>(args.delta, offset, p * (read<double>(args.delta, offset) - sum) * args.scale);
      }
    });
  }
}

SG_KERNEL(attention_seen, SeenArgs) {
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes) {
      const bool seen = !args.seen.data || read_whole(args.seen, offset_of(args.seen, i)) != 0;
      write<double>(args.to, offset_of(args.to, i),
                    seen ? read<double>(args.from, offset_of(args.from, i)) * args.scale : 0);
    }
  });
}

SG_KERNEL(attention_drop, DropArgs) {
  const work::Key key = *args.key;
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes) {
      const bool kept = work::uniform_of_word(key.word(static_cast<uint64_t>(args.first + i)), 32) < args.kept;
      const double x = read<double>(args.from, offset_of(args.from, i));
      write<double>(args.to, offset_of(args.to, i), x * (kept ? args.factor : 0));
    }
  });
}

// to += from: one lane per element of `to`, which sums, in order, everything that shares it.
SG_KERNEL(attention_mask_gradients, MaskGradientArgs) {
  const View &to = args.to, &from = args.from;
  int64_t own[3], shared[3];
  for (int axis = 0; axis < 3; ++axis) {
    own[axis] = to.stride[axis] == 0 ? 1 : to.shape[axis];
    shared[axis] = to.stride[axis] == 0 ? to.shape[axis] : 1;
  }
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < own[0] * own[1] * own[2]; i += block.count() * kLanes) {
      const int64_t h = i / own[2] / own[1], q = i / own[2] % own[1], k = i % own[2];
      double sum = read<double>(to, at3(to, h, q, k));
      for (int64_t a = 0; a < shared[0]; ++a)
        for (int64_t b = 0; b < shared[1]; ++b)
          for (int64_t c = 0; c < shared[2]; ++c) sum += read<double>(from, at3(from, h + a, q + b, k + c));
      write<double>(to, at3(to, h, q, k), sum);
    }
  });
}

}  // namespace sg::cuda
