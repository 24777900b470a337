#include "tests/support/sharded_step.h"

#include <vector>

#include "tests/support/rng.h"

namespace sg::test {
namespace {

constexpr int64_t kWidth = 4;

std::string matrix(int64_t rows) { return "f32[" + std::to_string(rows) + ", " + std::to_string(kWidth) + "]"; }

// `own` draws what one rank alone has; everything else is the same for both.
class RankWriter {
 public:
  RankWriter(int64_t rows, Rng own) : rows_(rows), own_(own) {}

  std::string write(size_t layers) {
    for (size_t i = 0; i < layers; ++i) forward(std::to_string(i), std::to_string(i + 1));
    for (size_t i = layers; i-- > 0;) backward(std::to_string(i), std::to_string(i + 1));
    return inputs_ + "  input %x0 : " + matrix(rows_) + "\n  input %g" + std::to_string(layers) + " : " +
           matrix(rows_) + "\n" + body_ + "  output %g0\n" + outputs_;
  }

 private:
  void gather(const std::string& name, const std::string& i) {
    inputs_ += "  param %" + name + i + " : " + matrix(kWidth / 2) + " \"layers." + i + "." + name + "\"\n";
    body_ += "    %a" + name + i + " = _c10d_functional.all_gather_into_tensor(%" + name + i +
             ", 2, @fsdp) : " + matrix(kWidth) + "\n    %full_" + name + i + " = _c10d_functional.wait_tensor(%a" +
             name + i + ") : " + matrix(kWidth) + "\n";
  }

  void add(const std::string& result, const std::string& call, int64_t rows) {
    body_ += "    %" + result + " = aten." + call + " : " + matrix(rows) + "\n";
  }

  // Memory that this rank alone takes for a moment.
  void pad(const std::string& name, const std::string& of) {
    if (!own_.percent(40)) return;
    const int64_t copies = own_.between(2, 8);
    std::string list = "%" + of;
    for (int64_t k = 1; k < copies; ++k) list += ", %" + of;
    add("wide_" + name, "cat([" + list + "])", copies * rows_);
    body_ += "    %sum_" + name + " = aten.sum(%wide_" + name + ") : f32[]\n";
    outputs_ += "  output %sum_" + name + "\n";
  }

  void forward(const std::string& i, const std::string& next) {
    body_ += "  forward layers." + i + "\n";
    gather("w", i);
    add("m" + i, "mm(%x" + i + ", %full_w" + i + ")", rows_);
    add("e" + i, "exp(%m" + i + ")", rows_);
    pad("f" + i, "e" + i);
    gather("v", i);
    add("o" + i, "mm(%e" + i + ", %full_v" + i + ")", rows_);
    add("x" + next, "sigmoid(%o" + i + ")", rows_);
    pad("o" + i, "x" + next);
  }

  void backward(const std::string& i, const std::string& next) {
    body_ += "  backward layers." + i + "\n";
    add("s" + i, "sigmoid_backward(%g" + next + ", %x" + next + ")", rows_);
    add("h" + i, "mm(%s" + i + ", %full_v" + i + ")", rows_);
    pad("b" + i, "h" + i);
    add("d" + i, "mul.Tensor(%h" + i + ", %e" + i + ")", rows_);
    if (own_.percent(30)) add("n" + i, "mul.Tensor(%d" + i + ", %m" + i + ")", rows_);
    else add("n" + i, "neg(%d" + i + ")", rows_);
    pad("d" + i, "n" + i);
    add("g" + i, "mm(%n" + i + ", %full_w" + i + ")", rows_);
  }

  const int64_t rows_;
  Rng own_;
  std::string inputs_, body_, outputs_;
};

}  // namespace

std::string sharded_step(uint64_t seed, size_t layers) {
  Rng rng(seed);
  const int64_t rows = rng.pick({int64_t{2}, int64_t{4}, int64_t{16}});
  std::string out = "sg 1.0 job \"sharded\" world 2\ngroup @fsdp [0 1] \"0\"\n";
  for (int rank : {0, 1})
    out += "graph rank " + std::to_string(rank) + "\n" + RankWriter(rows, Rng(rng.next())).write(layers);
  return out;
}

}  // namespace sg::test
