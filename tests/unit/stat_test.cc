#include "libgraph/story/stat.h"

#include <catch2/catch.hpp>

#include "tests/support/parse.h"
#include "tests/support/random_job.h"

using namespace sg;
using sg::test::parse;

TEST_CASE("stats keep the contract of sg-stat --json") {
  Job job = parse(R"(sg 1.0 job "t" world 2
group @fsdp [0 1]
device cpu

graph rank *
  symbol u0 data [0, inf] hint 4
  param %w : f32[8, 16] "w"
  input %x : f32[4, 8] "x"
  input %n : i64[] "n"

  forward layers.0.attention.wq.inner
    %y = aten.mm(%x, %w)                                   : f32[4, 16]
    %u = aten._local_scalar_dense(%n)                      : int u0
    %z = aten.rand([u0])                                   : f32[u0]
    %m = my.mystery(%y)                                    : f32[4, 16]
  backward -
    %g = _c10d_functional.all_reduce(%y, "sum", @fsdp)     : f32[4, 16]
    %v = _c10d_functional.wait_tensor(%g)                  : f32[4, 16]

  output %v
)");
  Stats stats = collect_stats(job);
  REQUIRE(stats.programs.size() == 1);
  const ProgramStats& p = stats.programs[0];
  CHECK(p.total.flops == 1024);
  CHECK(p.by_phase.at("forward").nodes == 4);
  CHECK(p.by_module.at("layers.0.attention").flops == 1024);
  CHECK(p.by_module.at("").nodes == 2);
  CHECK(p.random_ops == 1);
  CHECK(p.opaque_ops.at("my.mystery.default") == 1);
  CHECK(p.incomplete == 1);
  CHECK(p.unbounded == std::vector<std::string>{"u0"});
  CHECK(p.parameter_elements == 128);
  CHECK(p.memory.inputs_bytes == 512 + 128 + 8);
  std::string json = stats_json(stats);
  CHECK(json.find(
            R"({"schema":"sg-stat","version":1,"title":"t","world":2,"nodes":6,"inputs":3,"outputs":1,"ops":{)") == 0);
  CHECK(json.find(R"("collectives":[{"kind":"all_reduce","group":"fsdp","count":1,"bytes":256,"wire_bytes":256}])") !=
        std::string::npos);
  CHECK(json.find(R"("memory":{"inputs_bytes":648,"parameters_bytes":512,"peak_bytes":)") != std::string::npos);
  CHECK(json.find("\"ranks\"") == std::string::npos);
}

TEST_CASE("a body communicates as often as it runs") {
  Job job = parse(R"(sg 1.0 world 2
group @fsdp [0 1]

graph rank *
  input %x : f32[4]
  %a, = sg.call(graph:outer, [%x])                         : f32[4]
  %b, = sg.call(graph:outer, [%a])                         : f32[4]
  %c, = sg.call(graph:inner, [%b])                         : f32[4]
  output %c

graph rank * nested outer
  input %v : f32[4]
  %p, = sg.call(graph:inner, [%v])                         : f32[4]
  %q, = sg.call(graph:inner, [%p])                         : f32[4]
  output %q

graph rank * nested inner
  input %v : f32[4]
  %g = _c10d_functional.all_reduce(%v, "sum", @fsdp)       : f32[4]
  %w = _c10d_functional.wait_tensor(%g)                    : f32[4]
  output %w

graph rank * nested unused
  input %v : f32[4]
  %g = _c10d_functional.all_reduce(%v, "sum", @fsdp)       : f32[4]
  %w = _c10d_functional.wait_tensor(%g)                    : f32[4]
  output %w
)");
  Stats stats = collect_stats(job);
  REQUIRE(stats.programs[0].collectives.size() == 1);
  CHECK(stats.programs[0].collectives[0].count == 5);
  CHECK(stats.programs[0].collectives[0].bytes == 80);
}

TEST_CASE("stats of random jobs add up") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Job job = test::random_job(seed);
    Stats stats = collect_stats(job);
    CHECK(stats.programs.size() == job.programs.size());
    for (const ProgramStats& p : stats.programs) {
      size_t nodes = 0;
      for (const auto& [op, count] : p.ops) nodes += count;
      CHECK(nodes == p.nodes);
      for (const auto* sums : {&p.by_phase, &p.by_module, &p.by_op}) {
        size_t sum = 0;
        for (const auto& [key, cost] : *sums) sum += cost.nodes;
        CHECK(sum == p.nodes);
      }
    }
    std::string json = stats_json(stats);
    CHECK((json.find("\"ranks\":[{\"ranks\":") != std::string::npos) == (job.programs.size() > 1));
  }
}
