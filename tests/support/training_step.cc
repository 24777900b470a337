#include "tests/support/training_step.h"

#include <algorithm>
#include <vector>

#include "tests/support/rng.h"

namespace sg::test {
namespace {

constexpr int kRows = 16;
constexpr int kWidths[] = {4, 8, 16, 32, 64};

struct Tensor {
  std::string name;
  int width = 0;
};

class StepWriter {
 public:
  StepWriter(uint64_t seed, const TrainingStepOptions& options) : rng_(seed), options_(options) {}

  std::string write() {
    forward_.push_back({"%x", 16});
    for (size_t layer = 0; layer < options_.layers; ++layer) {
      body_ += "  forward layers." + std::to_string(layer) + "\n";
      const size_t end = options_.values * (layer + 1) / options_.layers;
      while (made_ < end) add_forward();
    }
    body_ += "  forward head\n";
    add("%loss", "aten.sum.default(" + forward_.back().name + ")", "f32[]");
    body_ += "  backward layers.0\n";
    for (size_t i = forward_.size(); i-- > 1;) add_backward(forward_[i]);
    outputs_.push_back(gradient_.name);
    body_ += "\n  output %loss\n";
    for (const std::string& name : outputs_) body_ += "  output " + name + "\n";
    return "sg 1.0 job \"step\" world 1\ngraph rank *\n  input %x : f32[16, 16]\n" + inputs_ + "\n" + body_;
  }

 private:
  static std::string type(int rows, int width) {
    return "f32[" + std::to_string(rows) + ", " + std::to_string(width) + "]";
  }

  void add(const std::string& name, const std::string& call, const std::string& result, const std::string& rest = {}) {
    body_ += "    " + name + " = " + call + " : " + result + rest + "\n";
  }

  std::string weight(int from, int to) {
    const std::string name = "%w" + std::to_string(weights_++);
    inputs_ += "  param " + name + " : " + type(from, to) + " \"" + name.substr(1) + "\"\n";
    return name;
  }

  // A forward value, most often a recent one.
  const Tensor& pick_forward() {
    const size_t back =
        std::min<size_t>(rng_.below(4) == 0 ? rng_.below(forward_.size()) : rng_.below(2), forward_.size() - 1);
    return forward_[forward_.size() - 1 - back];
  }

  void add_forward() {
    const Tensor from = pick_forward();
    Tensor out{"%v" + std::to_string(made_++), from.width};
    if (rng_.percent(options_.random)) {
      add(out.name, "aten.rand_like(" + from.name + ")", type(kRows, out.width), " stream " + std::to_string(made_));
    } else if (rng_.percent(50)) {
      out.width = rng_.pick(kWidths);
      add(out.name, "aten.mm(" + from.name + ", " + weight(from.width, out.width) + ")", type(kRows, out.width));
    } else if (const Tensor other = pick_forward(); other.width == from.width && rng_.percent(50)) {
      add(out.name, "aten.mul.Tensor(" + from.name + ", " + other.name + ")", type(kRows, out.width));
    } else {
      static constexpr const char* kOps[] = {"aten.exp", "aten.tanh", "aten.sigmoid"};
      add(out.name, std::string(rng_.pick(kOps)) + "(" + from.name + ")", type(kRows, out.width));
    }
    forward_.push_back(out);
    if (!rng_.percent(options_.views)) return;
    const Tensor view{out.name + "_view", out.width};
    add(view.name, "aten.view(" + out.name + ", [" + std::to_string(kRows) + ", " + std::to_string(out.width) + "])",
        type(kRows, out.width));
    forward_.push_back(view);
  }

  // Combines the gradient so far, brought to the width of `v`, with `v`.
  void add_backward(const Tensor& v) {
    const std::string n = std::to_string(steps_++);
    if (gradient_.name.empty()) {
      gradient_ = {"%g" + n, v.width};
      add(gradient_.name, "aten.neg(" + v.name + ")", type(kRows, v.width));
      return;
    }
    if (rng_.percent(20)) return;  // not used in the backward
    if (gradient_.width != v.width) {
      const Tensor turned{"%t" + n, v.width};
      add(turned.name, "aten.mm(" + gradient_.name + ", " + weight(gradient_.width, v.width) + ")",
          type(kRows, v.width));
      gradient_ = turned;
    }
    if (rng_.percent(25)) {
      add("%s" + n, "aten.mul.Tensor(" + gradient_.name + ", " + v.name + ")", type(kRows, v.width));
      add("%o" + n, "aten.sum.default(%s" + n + ")", "f32[]");
      outputs_.push_back("%o" + n);
    }
    const Tensor next{"%g" + n, v.width};
    add(next.name, "aten.mul.Tensor(" + gradient_.name + ", " + v.name + ")", type(kRows, v.width));
    gradient_ = next;
  }

  Rng rng_;
  TrainingStepOptions options_;
  std::string inputs_, body_;
  std::vector<Tensor> forward_;
  std::vector<std::string> outputs_;
  Tensor gradient_;
  size_t made_ = 0, weights_ = 0, steps_ = 0;
};

}  // namespace

std::string training_step(uint64_t seed, const TrainingStepOptions& options) {
  return StepWriter(seed, options).write();
}

}  // namespace sg::test
