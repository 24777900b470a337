// --init seed:N: values for the inputs that no file gives.
//
// Keyed  An element's value is a function of the seed, the input's FQN (its name when it has none) and the element's
//        row-major index in the *global* tensor: shards agree, replicas are equal, and the same parameter has the same
//        values in every graph of a model that uses it alike.
// Values by kind and by use (input_use.h), never by name:
//          parameters    matrices and tables: normal, deviation 1/sqrt(fan-in); vectors: ones if they scale, zeros
//                        if they are added
//          buffers       zeros; ones if a norm takes the root or something is divided by it; uniform in [0, 1) if
//                        it scales; complex ones lie on the unit circle (rotary tables)
//          user inputs   floats normal, single numbers and divisors 1; integers uniform in what their consumers index,
//                        or where parts of equal length begin (bags)
//          masks         every other element is true: a row of two or more has both, whichever way the mask is read; an
//                        integer is a mask if it is unbounded and cast to bool, compared with 0 or 1, subtracted from
//                        1, or used as a factor
//          tangents      ones; optimizer state zeros
//        Unbounded integers, and constants, are not made up: inputs.h finds those, or asks for them by name.
// Ranks  If several programs have an input of the same name, it gets one rule: what all of them allow.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/expr/assume.h"
#include "libgraph/job.h"
#include "librun/values/inputs.h"

namespace sg {

class ThreadTeam;

struct InitRule {
  enum class Kind : uint8_t { ask, zeros, ones, normal, uniform, above_zero, unit_circle, index, every_other, starts };
  Kind kind = Kind::ask;
  double scale = 1;               // normal: the deviation
  int64_t below = 0;              // index: in [from, below); starts: as even as possible, of so many entries
  std::string because;            // index: the reason for the bound; else for the rule
  int64_t from = 0;               // index
  bool is_compared_only = false;  // index: nothing is indexed by it
};

// "seed:7" -> 7
Result<uint64_t> parse_init(std::string_view text);

class InitPlan {
 public:
  // `like`: the plan of another graph of the same model, whose rules take precedence (--compare), so that a use that a
  // pass has hidden makes no difference.
  explicit InitPlan(const Job& job, const InitPlan* like = nullptr);

  const InitRule& rule(const Program& program, size_t input) const;

 private:
  friend class InitMaker;
  struct Entry {
    std::string name;  // the key
    InitRule rule;
  };
  const Job& job_;
  std::vector<Entry> entries_;  // sorted by name
  const Entry* find(std::string_view name) const;
};

// Makes up the inputs of one rank. The plan must outlive it.
class InitMaker : public InputMaker {
 public:
  InitMaker(const InitPlan& plan, uint32_t rank, uint64_t seed, ThreadTeam* team = nullptr);
  bool can_make(size_t input) const override;
  void set_sizes(const SymbolValues& sizes) override;
  Status make(size_t input, const Tensor& tensor) override;
  // "`tokens` (%arg3_1): integers in [0, 256): rows of %arg0_1, in %embedding": one line for each made-up input that is
  // not a parameter or buffer, and for those with random integers. One line for all parameters and buffers if files
  // were given, since they may have been forgotten there.
  std::vector<std::string> describe(bool has_files = false) const;

 private:
  InitRule rule(size_t input) const;

  const InitPlan& plan_;
  const Program* program_;  // null: the job does not contain the rank
  uint32_t rank_;
  uint64_t seed_;
  ThreadTeam* team_;
  SymbolValues sizes_;
  std::vector<std::optional<int64_t>> below_;  // by input: upper limit of an index at the sizes of this run
  std::vector<bool> made_;
};

}  // namespace sg
