#include "tests/support/traces.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

namespace sg::test {
namespace {

const std::filesystem::path kTraces = "../shared/traces";
bool was_skipped = false;

}  // namespace

bool traces_are_here() {
  if (std::filesystem::exists(kTraces / "MANIFEST.tsv")) return true;
  std::cerr << "SKIPPED: ../shared/traces is absent\n";
  was_skipped = true;
  return false;
}

std::optional<std::string> trace(const std::string& path) {
  if (!traces_are_here()) return std::nullopt;
  std::ifstream in(kTraces / path, std::ios::binary);
  INFO(path);
  REQUIRE(in.is_open());
  return std::string(std::istreambuf_iterator<char>(in), {});
}

bool has_skipped() { return was_skipped; }

}  // namespace sg::test
