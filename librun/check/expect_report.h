// What --expect is told, and what it finds (expect.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/dtype.h"

namespace sg {

// The summary of a comparison that proves nothing.
inline constexpr std::string_view kAllNan = "all are nothing but NaN";
inline constexpr double kRoundings = 3;  // our error, twice as large as theirs, plus theirs

struct ExpectOptions {
  std::optional<double> rtol, atol;
  bool bitwise = false;
  // --compare: names in this graph -> names in the file; values without an entry have no counterpart.
  std::optional<std::unordered_map<std::string, std::string>> counterparts;
};

struct ExpectRow {
  std::string name;  // the name in the file
  std::string title;
  std::string problem;              // another shape or dtype; empty = was compared
  DType narrowest = DType::none;    // none = no float involved
  double rtol = 0, atol = 0;        // as applied; atol is absolute
  double rounding = 0;              // the file's own error; 0 = unknown, or not applicable
  int64_t count = 0, beyond = 0;    // elements; those beyond the tolerance
  double max_abs = 0, max_rel = 0;  // over all elements; infinite if one side is not finite and they differ
  double worst = 0;                 // the largest error in units of the tolerance: above 1 fails
  std::vector<int64_t> where;       // index of that element
  double value_there = 0, expected_there = 0;
  bool only_nan = false;       // passed but proves nothing: every element is NaN
  bool only_rounding = false;  // the same: as far off as it is large, which is within the file's own error
  bool passed() const { return problem.empty() && beyond == 0; }
};

struct ExpectReport {
  std::vector<ExpectRow> rows;  // worst first
  size_t failed = 0;
  size_t not_compared = 0;         // values of the graph that the file does not name
  size_t without_counterpart = 0;  // values of the file that the graph lacks (ExpectOptions::counterparts)
  bool in_double = false;          // the run computed in double, although the graph does not
  std::string draws_random;        // a node that draws random numbers; empty = none does
  std::string chooses;             // a node that chooses by values and lies behind one that failed; empty = none does
  std::string recorded;            // --compare: a file beside the inputs that records roundings; empty = there is none
  bool passed() const { return failed == 0; }
};

}  // namespace sg
