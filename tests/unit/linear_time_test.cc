// What a hostile file may hold many of has a linear cost: symbols, nested graphs, layouts of metadata.
#include <catch2/catch.hpp>
#include <ctime>
#include <string>

#include "libgraph/binary/binary.h"
#include "libgraph/diff/diff.h"
#include "libgraph/expr/assume.h"
#include "libgraph/sim/simulate.h"
#include "libgraph/text/text.h"
#include "libgraph/verify/verify.h"
#include "libgraph/view/view_data.h"
#include "libgraph/view/view_formats.h"
#include "tests/support/linear_time.h"

namespace sg {
namespace {

using test::kLinearSeconds;
using test::seconds_since;

// Text -> job -> findings -> bytes -> job -> text: the path of a graph through the tools.
void go_round(const std::string& text) {
  std::clock_t start = std::clock();
  Diagnostics diagnostics;
  Result<Job> job = parse_text(text, "many.txt", &diagnostics);
  REQUIRE(job.ok());
  verify(*job, {}, &diagnostics);
  Result<std::string> bytes = write_binary(*job);
  REQUIRE(bytes.ok());
  Result<Job> again = read_binary(*bytes, "many.sg");
  REQUIRE(again.ok());
  CHECK(print_text(*again) == print_text(*job));
  CHECK(seconds_since(start) < kLinearSeconds);
}

const std::string kHead = "sg 1.0 job \"many\" world 1\n\ngraph rank *\n";

}  // namespace

TEST_CASE("many symbols, each bound by a node of its own") {
  std::string symbols, nodes;
  for (int i = 0; i < 200'000; ++i) {
    std::string name = "u" + std::to_string(i);
    symbols += "  symbol " + name + " data [0, 9]\n";
    nodes += "  %x" + std::to_string(i) + " = foreign.read() : int " + name + "\n";
  }
  go_round(kHead + symbols + nodes);
}

TEST_CASE("many nested graphs") {
  std::string text = kHead + "  %x = foreign.make() : f32[4]\n";
  for (int i = 0; i < 200'000; ++i) text += "graph rank * nested n" + std::to_string(i) + "\n  output none\n";
  go_round(text);
}

TEST_CASE("many nodes in a picture") {
  std::string text = kHead + "  %x0 = foreign.make() : f32[4]\n";
  for (int i = 0; i < 200'000; ++i)
    text += "  %x" + std::to_string(i + 1) + " = foreign.next(%x" + std::to_string(i) + ") : f32[4]\n";
  Diagnostics diagnostics;
  Result<Job> job = parse_text(text, "many.txt", &diagnostics);
  REQUIRE(job.ok());
  std::clock_t start = std::clock();
  CHECK(view_dot(*job).find("n199999 -> n200000") != std::string::npos);
  CHECK(seconds_since(start) < kLinearSeconds);
}

TEST_CASE("many names that are made unique") {
  Job job;
  Graph& graph = job.add_program().graph;
  NodeSpec spec;
  spec.op = job.pool->op("foreign.make");
  spec.result_types = {Pool::kUnknownType};
  std::clock_t start = std::clock();
  for (int i = 0; i < 300'000; ++i) graph.append(spec);
  CHECK(graph.label(graph.last()) == "make_299999");
  CHECK(seconds_since(start) < kLinearSeconds);
}

// Each rank takes from the one before and sends to the next, over a group for each two; all meet in one group.
TEST_CASE("many ranks that run different programs") {
  constexpr int kRanks = 6'000;
  std::string text = "sg 1.0 job \"many\" world " + std::to_string(kRanks) + "\ngroup @all [";
  for (int r = 0; r < kRanks; ++r) text += std::to_string(r) + " ";
  text += "]\n";
  for (int r = 1; r < kRanks; ++r)
    text += "group @p" + std::to_string(r) + " [" + std::to_string(r - 1) + " " + std::to_string(r) + "]\n";
  for (int r = 0; r < kRanks; ++r) {
    text += "graph rank " + std::to_string(r) + "\n  input %x : f32[" + std::to_string(r + 4) +
            "]\n  input %g : f32[4]\n  input %none : f32[0]\n"
            "  %sum = _c10d_functional.all_reduce(%g, \"sum\", @all) : f32[4]\n"
            "  %summed = _c10d_functional.wait_tensor(%sum) : f32[4]\n";
    if (r > 0)
      text += "  %take = _c10d_functional.all_to_all_single(%none, [4, 0], [0, 0], @p" + std::to_string(r) +
              ") : f32[4]\n  %taken = _c10d_functional.wait_tensor(%take) : f32[4]\n";
    if (r + 1 < kRanks)
      text += "  %send = _c10d_functional.all_to_all_single(%g, [0, 0], [0, 4], @p" + std::to_string(r + 1) +
              ") : f32[0]\n  %sent = _c10d_functional.wait_tensor(%send) : f32[0]\n";
  }
  Diagnostics diagnostics;
  Result<Job> job = parse_text(text, "many.txt", &diagnostics);
  REQUIRE(job.ok());
  std::clock_t start = std::clock();
  verify(*job, {}, &diagnostics);
  CHECK_FALSE(diagnostics.has_errors());
  const std::vector<SymbolValues> values(job->programs.size());
  Result<Simulation> simulation = simulate(*job, values, SimOptions());
  REQUIRE(simulation.ok());
  const JobDiff diff = diff_jobs(*job, *job, DiffOptions());
  CHECK(diff.is_same());
  ViewSources from;
  from.values = &values, from.simulation = &*simulation, from.diff = &diff;
  from.before = {&*job, &values, &*simulation};
  CHECK(view_json(*job, from).size() > 0);
  CHECK(seconds_since(start) < kLinearSeconds);
}

}  // namespace sg
