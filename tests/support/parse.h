// A job from text, for tests: a parse error fails the test and shows itself.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <string_view>

#include "libgraph/text/text.h"

namespace sg::test {

inline Job parse(std::string_view text) {
  Diagnostics diagnostics;
  Result<Job> job = parse_text(text, "test", &diagnostics);
  std::string all;
  for (const Diagnostic& d : diagnostics.list()) all += print_location(d.where) + ": " + d.message + "\n";
  INFO(all);
  REQUIRE(job.ok());
  return std::move(job).value();
}

}  // namespace sg::test
