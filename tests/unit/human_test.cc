#include "libgraph/base/human.h"

#include <catch2/catch.hpp>

using namespace sg;

TEST_CASE("times are written with four digits that count") {
  struct Case {
    double seconds;
    const char* text;
  };
  for (const Case& c : {Case{0, "0 us"},
                        {2.5e-7, "0.250 us"},
                        {9.9996e-6, "10.00 us"},
                        {99.996e-6, "100.0 us"},
                        {832e-6, "832.0 us"},
                        {999.96e-6, "1.000 ms"},
                        {0.04845, "48.45 ms"},
                        {0.99996, "1.000 s"},
                        {12, "12.00 s"},
                        {12345.6, "12346 s"},
                        {-0.0015, "-1.500 ms"}})
    CHECK(human_time(c.seconds) == c.text);
}

TEST_CASE("what a reader would not see is spelt out") {
  CHECK(one_line("a\u202eb\u0085c\u2014\u00e9\x1b\n\xff") == "a\\u202eb\\u0085c\u2014\u00e9\\x1b\\n\\xff");
  CHECK(without_controls("a\ufeff\tb\n", false) == "a\\ufeff\tb\n");
}

TEST_CASE("cells are as wide as asked, and never touch what is beside them") {
  CHECK(left_cell("ab", 4) == "ab  ");
  CHECK(right_cell("ab", 4) == "  ab");
  CHECK(left_cell("abcd", 4) == "abcd ");
  CHECK(right_cell("abcdef", 4) == " abcdef");
}
