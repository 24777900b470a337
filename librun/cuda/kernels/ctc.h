// Connectionist temporal classification: one block per batch entry, with lanes over the states of the alignment
// (defined in librun/cpu/ctc_loss.cc), step by step.
//
// Everything is a logarithm, in double, and each sum has the same order as on the CPU. Lengths and labels from the data
// are checked against the sizes before use; an entry with wrong ones is skipped and reported.
#pragma once

#include "librun/cuda/kernels/reduce_row.h"

namespace sg::cuda {

struct CtcArgs {
  const double* scores = nullptr;  // [time, entries, classes]
  const int64_t *labels = nullptr, *inputs = nullptr, *counts = nullptr;
  int64_t time = 0, entries = 0, classes = 0, blank = 0;
  int64_t room = 0;  // labels: room of each entry if they are in rows, else of all together, entries concatenated
  bool in_rows = false;
  int64_t width = 0;                  // states of the longest entry
  double* alpha = nullptr;            // [entries, time, width]: over all paths to a state after a step; kept
  double* losses = nullptr;           // [entries]; for the backward
  const double* gradients = nullptr;  // backward: [entries]
  double* beta = nullptr;             // [entries, 2, width], scratch
  double* to = nullptr;               // [time, entries, classes], initially zeros
  bool zero_infinity = false;
  Report report;
};

SG_FN double never() { return -math::infinity(); }

SG_FN double log_sum(double a, double b, double c) {
  double top = a;
  if (top < b) top = b;
  if (top < c) top = c;
  return top == never() ? top : top + ::log(::exp(a - top) + ::exp(b - top) + ::exp(c - top));
}

struct CtcEntry {
  const CtcArgs& args;
  const int64_t* labels;
  int64_t index, time, count;

  SG_FN int64_t states() const { return 2 * count + 1; }
  SG_FN int64_t label(int64_t state) const { return state % 2 == 0 ? args.blank : labels[state / 2]; }
  SG_FN double of_class(int64_t t, int64_t c) const {
    return args.scores[(t * args.entries + index) * args.classes + c];
  }
  SG_FN double score(int64_t t, int64_t state) const { return of_class(t, label(state)); }
  SG_FN bool skips(int64_t from, int64_t to) const { return label(from) != label(to); }
  SG_FN double* alpha(int64_t t) const { return args.alpha + (index * args.time + t) * args.width; }
};

// The entry of this block; `time` is -1 if it has an error. All lanes get the same result.
SG_FN CtcEntry ctc_entry(const Block& block, const CtcArgs& args) {
  const int64_t b = block.index();
  CtcEntry entry{args, args.labels, b, args.inputs[b], args.counts[b]};
  int64_t first = args.in_rows ? b * args.room : 0, left = args.room;
  for (int64_t i = 0; !args.in_rows && i < b; ++i) {
    const int64_t other = args.counts[i];  // an entry with a wrong count reports it itself
    if (other < 0 || other > left) return {args, args.labels, b, -1, 0};
    first += other, left -= other;
  }
  const int64_t most = (args.width - 1) / 2 < left ? (args.width - 1) / 2 : left;
  const bool fits = entry.time >= 0 && entry.time <= args.time && entry.count >= 0 && entry.count <= most;
  entry.labels += first;
  auto wrong = block.each([&](int lane) -> int64_t {
    if (!fits && lane == 0) {
      const bool is_count = entry.time >= 0 && entry.time <= args.time;
      args.report.raise(Fault::Kind::index, is_count ? entry.count : entry.time, (is_count ? most : args.time) + 1);
    }
    int64_t found = !fits;
    for (int64_t k = lane; fits && k < entry.count; k += kLanes)
      if (entry.labels[k] < 0 || entry.labels[k] >= args.classes) {
        args.report.raise(Fault::Kind::index, entry.labels[k], args.classes);
        found = 1;
      }
    return found;
  });
  if (block.reduce(wrong, Sum()) != 0) entry.time = -1;
  return entry;
}

SG_FN double ctc_alpha(const CtcEntry& s, int64_t t, int64_t i) {
  if (i >= s.states()) return never();
  if (t == 0) return i <= 1 ? s.score(0, i) : never();
  const double* before = s.alpha(t - 1);
  const double skipped = i > 1 && s.skips(i - 2, i) ? before[i - 2] : never();
  return log_sum(before[i], i > 0 ? before[i - 1] : never(), skipped) + s.score(t, i);
}

SG_FN double ctc_loss_of(const CtcEntry& s) {
  if (s.time == 0) return s.count == 0 ? 0 : -never();
  const double* last = s.alpha(s.time - 1);
  return -log_sum(last[2 * s.count], s.count > 0 ? last[2 * s.count - 1] : never(), never());
}

SG_KERNEL(ctc_forward, CtcArgs) {
  const CtcEntry s = ctc_entry(block, args);
  for (int64_t t = 0; t < args.time; ++t) {
    block.each([&](int lane) {
      for (int64_t i = lane; i < args.width; i += kLanes) s.alpha(t)[i] = t < s.time ? ctc_alpha(s, t, i) : never();
    });
    block.sync();
  }
  block.each([&](int lane) {
    if (lane == 0) args.losses[s.index] = s.time < 0 ? 0 : ctc_loss_of(s);
  });
}

// Over all paths from state `i`, including step t; `next` is the beta of the next step.
SG_FN double ctc_beta(const CtcEntry& s, int64_t t, int64_t i, const double* next) {
  const int64_t last = 2 * s.count;
  if (t + 1 == s.time) return i + 1 >= last ? s.score(t, i) : never();
  const double skipped = i + 1 < last && s.skips(i, i + 2) ? next[i + 2] : never();
  return log_sum(next[i], i < last ? next[i + 1] : never(), skipped) + s.score(t, i);
}

// For a class at step t: over all alignments in one of its states at that step.
SG_FN double ctc_gradient(const CtcEntry& s, int64_t t, int64_t c, const double* beta) {
  double sum = never();
  for (int64_t i = 0; i < s.states(); ++i)
    if (s.label(i) == c) sum = log_sum(sum, s.alpha(t)[i] + beta[i], never());
  const double score = s.of_class(t, c);
  return (::exp(score) - ::exp(sum + s.args.losses[s.index] - score)) * s.args.gradients[s.index];
}

SG_KERNEL(ctc_backward, CtcArgs) {
  const CtcEntry s = ctc_entry(block, args);
  const bool is_left_out = args.zero_infinity && args.losses[s.index] == -never();
  double* beta = args.beta + s.index * 2 * args.width;
  for (int64_t t = is_left_out ? -1 : s.time - 1; t >= 0; --t) {
    double *now = beta + t % 2 * args.width, *next = beta + (t + 1) % 2 * args.width;
    block.each([&](int lane) {
      for (int64_t i = lane; i < s.states(); i += kLanes) now[i] = ctc_beta(s, t, i, next);
    });
    block.sync();
    block.each([&](int lane) {
      for (int64_t c = lane; c < args.classes; c += kLanes)
        args.to[(t * args.entries + s.index) * args.classes + c] = ctc_gradient(s, t, c, now);
    });
  }
}

}  // namespace sg::cuda
