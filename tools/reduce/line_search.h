// LineSearch: whether one of a text's lines has a match of a regular expression (ECMAScript), found by a given time.
//
// Time      Goes with the length of the line, whatever the expression: all ways to match are followed at once. Only one
//           with back-references is searched by trial and error, which can take any time; the deadline ends it.
// Stack     How deep the library calls itself goes with the expression, or the line: it has its own thread for that.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <regex>
#include <string>

#include "libgraph/base/result.h"

namespace sg::reduce {

class LineSearch {
 public:
  using Clock = std::chrono::steady_clock;

  LineSearch() = default;
  static Result<LineSearch> parse(const std::string& expression);  // the error is a usage error without a hint

  enum class Found : uint8_t { no, yes, late };
  // The next line of a text; false: there is none.
  using Lines = std::function<bool(std::string*)>;
  // Up to the first line that has a match. Fails when there is no thread or memory. May be called by several threads.
  Result<Found> found_in(const Lines& next, Clock::time_point deadline) const;

  size_t longest_line() const { return refers_back_ ? 4096 : 1 << 20; }  // longer ones are searched in pieces

 private:
  std::regex regex_;
  bool refers_back_ = false;
};

}  // namespace sg::reduce
