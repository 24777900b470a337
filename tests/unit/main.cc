// The entry point of the unit tests; the tests are in the *_test.cc files next to it. Exit code 77: nothing failed, but
// a test had nothing to read (tests/support/traces.h).
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include "tests/support/traces.h"

int main(int argc, char** argv) {
  const int code = Catch::Session().run(argc, argv);
  return code == 0 && sg::test::has_skipped() ? 77 : code;
}
