// --expect: compares a run's values with a file's.
//
// Names      those of outputs.h. Outputs that the file does not name are not compared, but counted; a name that the
//            graph lacks is `unreadable`, detected before the run.
// Close      |value - expected| <= atol + rtol * |expected|, element by element. NaN equals NaN, an infinity equals
//            itself. Integers and booleans are exact. Complex numbers are compared part by part.
// Tolerance  by the narrowest float type on the way to the value (precision.h):
//              f64    rtol 1e-7     atol 1e-7
//              f32    rtol 1e-4     atol 1e-5
//              bf16, f16 (and narrower)   rtol 1.6e-2, atol 1e-2 of the largest finite magnitude that is expected
//            --rtol and --atol each replace their column for all floats.
// Rounding   a file may record how far its own values are from the truth: metadata `rounding.NAME`, the largest error
//            of an element, as captures write it (PyTorch against the same step in double). Values of f32, bf16 or f16
//            may then be off by kRoundings times that, if this is more than the tolerance allows: a model that
//            multiplies rounding errors does so in every run, and our error may be twice PyTorch's own.
// Bitwise    same dtype, same bits; NaNs are equal whatever their bits.
// A value of another dtype or shape than expected has failed; doubles may be expected of any float, so that the outputs
// of a run with --numerics f64 are an oracle for the others, and such a run may be compared with the dtype that the
// graph records.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/json.h"
#include "librun/outputs.h"

namespace sg {

// What the last line says of a comparison that shows nothing.
inline constexpr std::string_view kAllNan = "all are nothing but NaN";
inline constexpr double kRoundings = 3;  // ours, twice as large as theirs, and theirs

struct ExpectOptions {
  std::optional<double> rtol, atol;
  bool bitwise = false;
  // --compare: names of the file by what they are called in this graph; those that are not there have no counterpart.
  std::optional<std::unordered_map<std::string, std::string>> counterparts;
};

struct ExpectRow {
  std::string name;  // as the file has it
  std::string title;
  std::string problem;              // another shape or dtype; empty = compared
  DType narrowest = DType::none;    // none = no float on the way
  double rtol = 0, atol = 0;        // in force; atol in absolute terms
  double rounding = 0;              // the file's own error; 0 = not said, or of no use here
  int64_t count = 0, beyond = 0;    // elements; those beyond the tolerance
  double max_abs = 0, max_rel = 0;  // of all elements; infinite where one side is not finite and differs
  double worst = 0;                 // the largest error in tolerances: above 1 has failed
  std::vector<int64_t> where;       // index of that element
  double value_there = 0, expected_there = 0;
  bool only_nan = false;  // has passed, and shows nothing: every element is NaN
  bool passed() const { return problem.empty() && beyond == 0; }
};

struct ExpectReport {
  std::vector<ExpectRow> rows;  // worst first
  size_t failed = 0;
  size_t not_compared = 0;         // values of the graph that the file does not name
  size_t without_counterpart = 0;  // values of the file that the graph does not have (ExpectOptions::counterparts)
  bool in_double = false;          // the run was one of doubles, the graph is not
  std::string draws_random;        // a node that draws random numbers; empty = none does
  bool passed() const { return failed == 0; }
};

class Expectation {
 public:
  // For a rank's program and the file of that rank.
  // With counterparts, a file of which the graph has no value at all is an error (cannot apply).
  static Result<Expectation> open(const Program& program, const AliasAnalysis& alias, const std::string& file,
                                  const ExpectOptions& options);
  ExpectReport compare(const RunValues& values) const;

 private:
  struct Item {
    NamedValue value;
    const StoredTensor* expected;
    DType recorded;
    DType narrowest;
    double rounding;
  };
  Expectation(TensorFile file, const Graph& graph, ExpectOptions options)
      : file_(std::move(file)), graph_(&graph), options_(options) {}

  TensorFile file_;
  const Graph* graph_;
  ExpectOptions options_;
  std::vector<Item> items_;  // by name in the file
  size_t not_compared_ = 0, without_counterpart_ = 0;
  std::string draws_random_;  // the first node that does
};

// What is expected of one tensor: the comparison itself, for other tools too. `expected` is contiguous and may be
// unaligned. The row's name, title, narrowest type and rounding are the caller's.
void compare_tensor(const Tensor& value, const StoredTensor& expected, const ExpectOptions& options, ExpectRow* row);

// A table, failures first, at most `max_passed` of the rest; then one line of summary. `prefix` begins each line.
std::string expect_text(const ExpectReport& report, size_t max_passed = 3, std::string_view prefix = "");
// An object: {"passed", "compared", "failed", "not_compared", "outputs": [...]}.
void write_expect(const ExpectReport& report, JsonWriter* out);

}  // namespace sg
