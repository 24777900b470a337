#include "libgraph/capture.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

using namespace sg;
namespace fs = std::filesystem;

namespace {

const fs::path kTraces = "../shared/traces";

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

bool traces_are_here() {
  if (fs::exists(kTraces / "MANIFEST.tsv")) return true;
  std::cerr << "SKIPPED: ../shared/traces is absent\n";
  return false;
}

// "[file]: message" of the error, for INFO.
template <class T>
std::string why(const Result<T>& result) {
  return result.ok() ? "" : print_location(result.error().where) + ": " + result.error().message;
}

}  // namespace

TEST_CASE("every shared capture imports with the nodes that the manifest counts") {
  if (!traces_are_here()) return;
  std::ifstream manifest(kTraces / "MANIFEST.tsv");
  std::string line;
  std::getline(manifest, line);
  size_t captures = 0;
  while (std::getline(manifest, line)) {
    std::istringstream fields(line);
    std::string file;
    size_t nodes = 0, getitems = 0, inputs = 0, outputs = 0, symbols = 0, nested = 0, world = 0;
    fields >> file >> nodes >> getitems >> inputs >> outputs >> symbols >> nested >> world;
    Diagnostics notes;
    auto job = import_captures({{file, read_file(kTraces / file)}}, {}, &notes);
    INFO(file << " " << why(job));
    REQUIRE(job.ok());
    REQUIRE(job->programs.size() == 1);
    const Program& program = *job->programs[0];
    CHECK(program.graph.node_count() == nodes - getitems);
    CHECK(program.graph.inputs().size() == inputs);
    CHECK(program.graph.outputs().size() == outputs);
    CHECK(program.symbols.size() == symbols);
    CHECK(program.nested.size() == nested);
    CHECK(job->world == world);
    CHECK(job->is_spmd() == (world == 1));
    ++captures;
  }
  CHECK(captures == 65);
}
