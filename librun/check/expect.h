// --expect: compares a run's values with a file's.
//
// Names      those of outputs.h. Outputs that the file does not name are not compared, but counted; a name that the
//            graph lacks is `unreadable`, detected before the run.
// Close      |value - expected| <= atol + rtol * |expected|, element by element. NaN equals NaN, an infinity equals
//            itself. Integers and booleans are exact. Complex numbers are compared part by part.
// Tolerance  by the narrowest float type involved in the value's computation (precision.h):
//              f64    rtol 1e-7     atol 1e-7
//              f32    rtol 1e-4     atol 1e-5
//              bf16, f16 (and narrower)   rtol 1.6e-2, atol 1e-2 of the largest expected finite magnitude
//            --rtol and --atol each replace their column for all floats.
// Rounding   a file may record the error of its own values: metadata `rounding.NAME`, the largest error of an element,
//            as captures write it (PyTorch against the same step in double). Values of f32, bf16 or f16 may then
//            deviate by kRoundings times that, if it exceeds the tolerance: a model that amplifies rounding errors does
//            so in every run, and our error may be twice PyTorch's own.
// Bitwise    same dtype, same bits; all NaNs are equal.
// A value with another dtype or shape than expected fails. Exceptions: doubles may be expected of any float, so that
// the outputs of a run with --numerics f64 can serve as an oracle for other runs, and such a run may be compared with
// the dtype that the graph records.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/json.h"
#include "librun/check/expect_report.h"
#include "librun/values/outputs.h"

namespace sg {

class Expectation {
 public:
  // Opens the file of a rank for its program. With counterparts, a file that shares no value with the graph is an error
  // (cannot apply).
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
    NodeId choice;  // by values, on which it depends; none = there is none
  };
  Expectation(TensorFile file, const Graph& graph, ExpectOptions options)
      : file_(std::move(file)), graph_(&graph), options_(options) {}

  TensorFile file_;
  const Graph* graph_;
  ExpectOptions options_;
  std::vector<Item> items_;  // by name in the file
  size_t not_compared_ = 0, without_counterpart_ = 0;
  std::string draws_random_;  // the first such node
};

// Compares one tensor; also used by other tools. `expected` is contiguous and may be unaligned. The caller fills in the
// row's name, title, narrowest type and rounding.
void compare_tensor(const Tensor& value, const StoredTensor& expected, const ExpectOptions& options, ExpectRow* row);

// A table, failures first, with at most `max_passed` passed rows; then one line of summary. `prefix` begins each line.
std::string expect_text(const ExpectReport& report, size_t max_passed = 3, std::string_view prefix = "");
// An object: {"passed", "compared", "failed", "not_compared", "outputs": [...]}.
void write_expect(const ExpectReport& report, JsonWriter* out);

}  // namespace sg
