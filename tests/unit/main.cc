// The entry point of the unit tests; the tests are in the *_test.cc files next to it.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
