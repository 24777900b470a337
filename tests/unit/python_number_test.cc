// Numbers as Python has them: tests/data/python_numbers.txt, which tests/support/make_python_numbers.py asks Python
// for.
#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "libgraph/python_number.h"

using namespace sg;

namespace {

Scalar number_of(const std::string& word) {
  if (word.find_first_of("xni") != std::string::npos) return Scalar::floating(std::strtod(word.c_str(), nullptr));
  return Scalar::integer(std::strtoll(word.c_str(), nullptr, 10));
}

// To the bit; all NaNs are one. A bool is the whole number that it is.
bool same(const std::optional<Scalar>& a, const std::string& word) {
  if (!a || word == "none") return !a && word == "none";
  const Scalar b = number_of(word);
  if (a->is_integral() != b.is_integral()) return false;
  if (b.is_integral()) return a->i == b.i;
  return (std::isnan(a->re) && std::isnan(b.re)) || std::bit_cast<uint64_t>(a->re) == std::bit_cast<uint64_t>(b.re);
}

}  // namespace

TEST_CASE("numbers are Python's, at their edges, too") {
  std::ifstream file("tests/data/python_numbers.txt");
  size_t calls = 0;
  for (std::string line; std::getline(file, line); ++calls) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    INFO(line);
    REQUIRE(words.size() >= 3);
    std::vector<Scalar> given;
    for (size_t i = 1; i + 1 < words.size(); ++i) given.push_back(number_of(words[i]));
    CHECK(same(python_number(words[0], given), words.back()));
  }
  CHECK(calls > 9000);
}
