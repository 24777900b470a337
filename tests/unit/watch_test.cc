#include "librun/check/watch.h"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "librun/check/dump.h"
#include "tests/support/parse.h"

using namespace sg;
using sg::test::parse;

namespace {

constexpr const char* kMasked = R"(sg 1.0 job "t" world 1
graph rank *
  input %x : f32[2]
  forward -
    %full = aten.full([2], -inf) : f32[2]
    %scores = aten.add.Tensor(%full, %x) : f32[2]
    %soft = aten.exp(%scores) : f32[2]
    %bad = aten.log(%x) : f32[2]
  output %soft
)";

// What the watch reports for results given in the order of the nodes.
std::string first_found(const char* words, std::initializer_list<std::array<float, 2>> results) {
  Job job = parse(kMasked);
  const Graph& graph = job.programs[0]->graph;
  Watch watch(*job.programs[0], parse_watch(words).value());
  NodeId n = graph.first();
  for (std::array<float, 2> values : results) {
    const int64_t shape[] = {2};
    const Tensor t = make_tensor(reinterpret_cast<std::byte*>(values.data()), DType::f32, shape);
    Status status = watch.after(graph, n, std::span(&t, 1));
    if (!status.ok()) return status.error().message;
    n = graph.next(n);
  }
  return "nothing";
}

const float kInf = INFINITY;

}  // namespace

TEST_CASE("a literal infinity and what is made of it are no finding, any other is") {
  CHECK(first_found("inf", {{-kInf, -kInf}, {-kInf, 1}, {0, 3}, {1, 2}}) == "nothing");
  CHECK(first_found("inf", {{-kInf, -kInf}, {-kInf, 1}, {0, 3}, {1, -kInf}}) ==
        "%bad has 1 infinite of 2 elements, the first at [1]");
  CHECK(first_found("inf", {{1, 1}, {2, 2}, {kInf, 3}, {1, 2}}) ==
        "%soft has 1 infinite of 2 elements, the first at [0]");
}

TEST_CASE("an infinity that an input brings along is no finding, a weight's is") {
  Job job = parse(R"(sg 1.0 job "t" world 1
graph rank *
  constant %mask : f32[2]
  param %w : f32[2] "w"
  forward -
    %row = aten.unsqueeze.default(%mask, 0) : f32[1, 2]
    %rows = aten.expand.default(%row, [1, 2]) : f32[1, 2]
    %scores = aten.add.Tensor(%w, %rows) : f32[1, 2]
    %weights = aten.clone(%w) : f32[2]
  output %scores
)");
  const Graph& graph = job.programs[0]->graph;
  std::array<float, 2> masked = {-kInf, 0}, plain = {1, 0};
  const int64_t shape[] = {2};
  auto tensor = [&](auto& values) {
    return make_tensor(reinterpret_cast<std::byte*>(values.data()), DType::f32, shape);
  };
  Watch watch(*job.programs[0], parse_watch("inf").value());
  const Tensor infinite = tensor(masked);
  auto passes = [&](std::string_view node) {
    return watch.after(graph, graph.find_node(node), std::span(&infinite, 1)).ok();
  };
  watch.begin_step(graph, std::array{infinite, infinite});
  CHECK(passes("scores"));
  CHECK_FALSE(passes("weights"));
  watch.begin_step(graph, std::array{tensor(plain), infinite});  // what the last step found is forgotten
  CHECK_FALSE(passes("scores"));
}

TEST_CASE("views of a literal infinity have it, too") {
  Job job = parse(R"(sg 1.0 job "t" world 1
graph rank *
  input %x : f32[2]
  forward -
    %full = aten.full([2], -inf) : f32[2]
    %row = aten.unsqueeze.default(%full, 0) : f32[1, 2]
    %left, %right = aten.split.Tensor(%row, 1, 1)
    %scores = aten.add.Tensor(%x, %right)
  output %scores
)");
  const Graph& graph = job.programs[0]->graph;
  std::array<float, 2> values = {-kInf, -kInf};
  const int64_t shape[] = {2};
  const Tensor t = make_tensor(reinterpret_cast<std::byte*>(values.data()), DType::f32, shape);
  Watch watch(*job.programs[0], parse_watch("inf").value());
  for (const char* node : {"full", "scores"}) CHECK(watch.after(graph, graph.find_node(node), std::span(&t, 1)).ok());
}

TEST_CASE("memory into which an infinity was written has it, by all names; so has what a collective brings") {
  Job job = parse(R"(sg 1.0 job "t" world 2
group @dp [0 1]
graph rank *
  input %x : f32[2]
  input %m : bool[2]
  forward -
    %y = aten.clone(%x) : f32[2]
    %filled = aten.masked_fill_.Scalar(%y, %m, -inf)
    %scores = aten.mul.Tensor(%y, 1.0)
    %all = _c10d_functional.all_gather_into_tensor(%filled, 2, @dp)
    %gathered = _c10d_functional.wait_tensor(%all)
    %twice = aten.add.Tensor(%gathered, 1.0)
    %other = aten.mul.Tensor(%x, 2.0)
  output %scores
  output %twice
  output %other
)");
  const Graph& graph = job.programs[0]->graph;
  std::array<float, 2> values = {-kInf, 0}, plain = {1, 0};
  const int64_t shape[] = {2};
  Watch watch(*job.programs[0], parse_watch("inf").value());
  auto passes = [&](std::string_view node, auto& of) {
    const Tensor t = make_tensor(reinterpret_cast<std::byte*>(of.data()), DType::f32, shape);
    return watch.after(graph, graph.find_node(node), std::span(&t, 1)).ok();
  };
  CHECK(passes("y", plain));
  for (const char* node : {"filled", "scores", "all", "gathered", "twice"}) CHECK(passes(node, values));
  CHECK_FALSE(passes("other", values));
}

TEST_CASE("a NaN is a finding wherever it comes from") {
  CHECK(first_found("nan,inf", {{-kInf, -kInf}, {-kInf, NAN}}) == "%scores has 1 NaN of 2 elements, the first at [1]");
  CHECK(first_found("nan", {{-kInf, -kInf}, {-kInf, 1}, {0, 3}, {kInf, 3}}) == "nothing");
  CHECK(first_found("inf", {{-kInf, -kInf}, {-kInf, NAN}, {0, 1}, {1, 1}}) == "nothing");
}

TEST_CASE("words that --watch does not know are refused") {
  CHECK(parse_watch("nan,zero").error().message == "--watch looks for nan and inf, not for \"zero\"");
}

TEST_CASE("patterns of results: stars, bodies of calls, and those that fit nothing") {
  Job job = parse(kMasked);
  auto check = [&](std::string pattern) { return check_dump_patterns(job, std::span(&pattern, 1)).ok(); };
  CHECK(check("so*"));
  CHECK(check("*"));
  CHECK_FALSE(check("x"));  // an input is not a result
  CHECK_FALSE(check("sofd"));
  std::string wrong = "socres";
  CHECK(check_dump_patterns(job, std::span(&wrong, 1)).error().hint == "did you mean `scores`?");
}
