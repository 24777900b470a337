// For every released schema, schema/compat has a file written with it, which every later reader must load.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "libgraph/binary/binary.h"
#include "libgraph/verify/verify.h"
#include "tests/support/sample_job.h"

using namespace sg;

namespace {

const std::filesystem::path kFolder = "schema/compat";

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::filesystem::path> files_ending(const std::string& extension) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    if (entry.path().extension() == extension) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TEST_CASE("a file of every released schema loads and says what it said") {
  REQUIRE(!files_ending(".fbs").empty());
  for (std::filesystem::path schema : files_ending(".fbs")) {
    std::string bytes = contents(schema.replace_extension(".sg"));
    INFO(schema);
    Result<Job> job = read_binary(bytes, schema.string());
    REQUIRE(job.ok());
    Diagnostics findings;
    verify(*job, {}, &findings);
    CHECK(findings.error_count() == 0);
    const Graph& g = job->programs.at(0)->graph;
    CHECK(g.node_count() == 2);
    CHECK(g.inputs().size() == 1);
    CHECK(g.outputs().size() == 2);
    CHECK(job->pool->exprs.print(g.type(g.find_value("a")).shape[0]) == "max(1, u0)");
    CHECK(g.meta(g.find_node("split")).recompute == Recompute::must_save);
    CHECK(g.node(g.find_node("join")).forward == g.find_node("split"));
    Result<std::string> again = write_binary(*job);
    REQUIRE(again.ok());
    CHECK(write_binary(*read_binary(*again, "again.sg")).value() == *again);
  }
}

// While schema 1.0 is the newest one, equal jobs must give exactly the bytes that were released.
TEST_CASE("the sample of the newest schema is written byte for byte as released") {
  std::string version = "v" + std::to_string(kSchemaMajor) + "." + std::to_string(kSchemaMinor);
  CHECK(contents(kFolder / (version + ".sg")) == write_binary(test::sample_job()).value());
}
