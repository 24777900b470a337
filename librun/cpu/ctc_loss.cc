// Connectionist temporal classification: the likelihood of a sequence of labels over all its alignments with the time
// steps, and its gradient. Everything is computed in double, as logarithms.
//
// An alignment passes through states 0 to 2 n for n labels: a blank, the first label, a blank, ... From one step to the
// next it stays, advances by one, or skips the blank between two different labels.
#include <algorithm>
#include <cmath>
#include <limits>

#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

double log_sum(double a, double b, double c) {
  double top = std::max({a, b, c});
  return top == kNever ? kNever : top + std::log(std::exp(a - top) + std::exp(b - top) + std::exp(c - top));
}

// One entry of the batch.
struct Sequence {
  const double* scores;              // [time, classes], rows `step` apart
  int64_t step, time, count, blank;  // number of time steps; number of labels
  const int64_t* labels;
  int64_t states() const { return 2 * count + 1; }
  int64_t label(int64_t state) const { return state % 2 == 0 ? blank : labels[state / 2]; }
  double score(int64_t t, int64_t state) const { return scores[t * step + label(state)]; }
  bool skips(int64_t from, int64_t to) const { return label(from) != label(to); }
};

struct Batch {
  int64_t time, entries, classes, blank;
  const double* scores;  // [time, entries, classes]
  const int64_t *labels, *inputs, *counts;
  std::vector<int64_t> first;  // offset of each entry's first label
  int64_t longest = 0;
  Sequence at(int64_t b) const {
    const int64_t* own = labels + first[static_cast<size_t>(b)];
    return {scores + b * classes, entries * classes, inputs[b], counts[b], blank, own};
  }
};

// Reads lengths from a list or a tensor.
const int64_t* lengths_of(KernelCall& call, std::string_view name) {
  const ParamValue& p = call.param(name);
  if (p.kind != ParamValue::Kind::tensor) return p.integers.data();
  return contiguous_as(call, p.tensor, DType::i64).as<int64_t>();
}

// The data is never trusted: lengths and labels are checked against the sizes.
Result<Batch> batch_of(KernelCall& call) {
  const Tensor &scores = call.tensor("log_probs"), &targets = call.tensor("targets");
  Batch b{};
  b.time = scores.dim(0), b.entries = scores.dim(1), b.classes = scores.dim(2), b.blank = call.integer("blank");
  b.scores = contiguous_as(call, scores, DType::f64).as<double>();
  b.labels = contiguous_as(call, targets, DType::i64).as<int64_t>();
  b.inputs = lengths_of(call, "input_lengths");
  b.counts = lengths_of(call, "target_lengths");
  if (b.blank < 0 || b.blank >= b.classes) return call.fail("the blank is not a class");
  const bool rows = targets.rank == 2;
  const int64_t room = rows ? targets.dim(1) : targets.elements();
  for (int64_t i = 0, used = 0; i < b.entries; ++i) {
    const std::string entry = "entry " + std::to_string(i);
    if (b.inputs[i] < 0 || b.inputs[i] > b.time)
      return call.fail(entry + " has " + std::to_string(b.inputs[i]) + " of " + std::to_string(b.time) + " steps");
    if (b.counts[i] < 0 || b.counts[i] > room - (rows ? 0 : used))
      return call.fail(entry + " has more labels than 'targets' holds");
    b.first.push_back(rows ? i * room : used);
    used += b.counts[i];
    b.longest = std::max(b.longest, b.counts[i]);
    for (int64_t k = 0; k < b.counts[i]; ++k)
      if (int64_t label = b.labels[b.first.back() + k]; label < 0 || label >= b.classes)
        return call.fail("label " + std::to_string(label) + " of " + entry + " is out of range for " +
                         std::to_string(b.classes) + " classes");
  }
  return b;
}

// alpha[t, state]: over all paths that reach the state after step t. Rows are `width` apart.
void forward_variables(const Sequence& s, int64_t width, double* alpha) {
  if (s.time == 0) return;
  alpha[0] = s.score(0, 0);
  if (s.count > 0) alpha[1] = s.score(0, 1);
  for (int64_t t = 1; t < s.time; ++t) {
    const double* before = alpha + (t - 1) * width;
    for (int64_t i = 0; i < s.states(); ++i) {
      double skipped = i > 1 && s.skips(i - 2, i) ? before[i - 2] : kNever;
      alpha[t * width + i] = log_sum(before[i], i > 0 ? before[i - 1] : kNever, skipped) + s.score(t, i);
    }
  }
}

double loss_of(const Sequence& s, int64_t width, const double* alpha) {
  if (s.time == 0) return s.count == 0 ? 0 : -kNever;
  const double* last = alpha + (s.time - 1) * width;
  return -log_sum(last[2 * s.count], s.count > 0 ? last[2 * s.count - 1] : kNever, kNever);
}

Status ctc_loss(KernelCall& call) {
  SG_ASSIGN(Batch batch, batch_of(call));
  const int64_t own_width = 2 * batch.longest + 1;
  if (call.result(1).is_none()) SG_TRY(call.allocate_result(1, std::array{batch.entries, batch.time, own_width}));
  const int64_t width = call.result(1).dim(2);
  if (width < own_width) return call.fail("the longest sequence has more states than the graph has room for");
  Tensor losses = call.scratch().tensor(DType::f64, call.result(0).sizes());
  Tensor alpha = call.scratch().tensor(DType::f64, call.result(1).sizes());
  std::fill_n(alpha.as<double>(), alpha.elements(), kNever);
  for_rows(call, batch.entries, batch.time * width, [&](int64_t b, int) {
    double* own = alpha.as<double>() + b * batch.time * width;
    forward_variables(batch.at(b), width, own);
    losses.as<double>()[b] = loss_of(batch.at(b), width, own);
  });
  copy(call, call.result(0), losses);
  copy(call, call.result(1), alpha);
  return ok_status();
}

// beta[state]: over all paths from there, including step t; `next` is the beta of step t + 1.
void backward_variables(const Sequence& s, int64_t t, const double* next, double* beta) {
  const int64_t last = 2 * s.count;
  for (int64_t i = 0; i <= last; ++i) {
    if (t + 1 == s.time) {
      beta[i] = i + 1 >= last ? s.score(t, i) : kNever;
      continue;
    }
    double skipped = i + 1 < last && s.skips(i, i + 2) ? next[i + 2] : kNever;
    beta[i] = log_sum(next[i], i < last ? next[i + 1] : kNever, skipped) + s.score(t, i);
  }
}

Status ctc_loss_backward(KernelCall& call) {
  SG_ASSIGN(Batch batch, batch_of(call));
  const Tensor& given = call.tensor("log_alpha");
  const int64_t width = given.dim(2), own_width = 2 * batch.longest + 1;
  if (width < own_width) return call.fail("'log_alpha' has fewer states than the longest sequence");
  const auto* alpha = contiguous_as(call, given, DType::f64).as<double>();
  const auto* losses = contiguous_as(call, call.tensor("neg_log_likelihood"), DType::f64).as<double>();
  const auto* grads = contiguous_as(call, call.tensor("grad"), DType::f64).as<double>();
  const bool zero_infinity = call.flag("zero_infinity");
  Tensor out = call.scratch().tensor(DType::f64, call.result().sizes());
  fill(call, out, Scalar::integer(0));
  const int64_t space = 2 * own_width + batch.classes;
  auto* spaces = call.scratch().take<double>(space * call.team().size());
  for_rows(call, batch.entries, batch.time * width, [&](int64_t b, int thread) {
    const Sequence s = batch.at(b);
    if (zero_infinity && losses[b] == -kNever) return;
    double *now = spaces + thread * space, *next = now + own_width, *by_class = next + own_width;
    for (int64_t t = s.time - 1; t >= 0; --t, std::swap(now, next)) {
      backward_variables(s, t, next, now);
      std::fill_n(by_class, batch.classes, kNever);
      for (int64_t i = 0; i < s.states(); ++i) {
        double& sum = by_class[s.label(i)];
        sum = log_sum(sum, alpha[(b * batch.time + t) * width + i] + now[i], kNever);
      }
      double* to = out.as<double>() + (t * batch.entries + b) * batch.classes;
      for (int64_t c = 0; c < batch.classes; ++c) {
        double score = s.scores[t * s.step + c];
        to[c] = (std::exp(score) - std::exp(by_class[c] + losses[b] - score)) * grads[b];
      }
    }
  });
  copy(call, call.result(), out);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten._ctc_loss.default", ctc_loss},
    {"aten._ctc_loss.Tensor", ctc_loss},
    {"aten._ctc_loss_backward.default", ctc_loss_backward},
    {"aten._ctc_loss_backward.Tensor", ctc_loss_backward},
};

}  // namespace

std::span<const KernelRow> ctc_loss_kernels() { return kRows; }

}  // namespace sg::cpu
