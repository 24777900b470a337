// Jobs from text, for tests: a parse error fails the test and shows itself.
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

// The programs of two ranks that are one group, @g, on processors.
inline Job parse_programs(std::string_view programs) {
  return parse("sg 1.0 job \"t\" world 2\ngroup @g [0 1]\ndevice cpu\n\n" + std::string(programs));
}

}  // namespace sg::test
