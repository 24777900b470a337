#include "libgraph/plan/plan_report.h"

#include <catch2/catch.hpp>

#include "libgraph/expr/range_infer.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"

using namespace sg;
using sg::test::parse;

namespace {

const SizeValues kNoSizes = [](StrId) -> std::optional<int64_t> { return std::nullopt; };

const char kReportedStep[] = R"(sg 1.0 job "a step" world 2
group @g [0 1]
device cpu

graph rank *
  symbol u0 data [0, 10]
  symbol u1 data [0, inf]
  param %w : f32[256] "w"
  input %n : i64[] "n"

  forward layers.0   # model.py:12
    %a = aten.cumsum(%w, 0)                  : f32[256]
    %u = aten._local_scalar_dense(%n)        : int u0
    %v = aten._local_scalar_dense(%n)        : int u1
    %r = aten.rand([u0])                     : f32[u0]
    %s = aten.rand([u1])                     : f32[u1]
  backward layers.0
    %b = aten.cat([%a, %a])                  : f32[512]
    %c = aten.cumsum(%b, 0)                  : f32[512]

  output %c
)";

}  // namespace

TEST_CASE("a plan report names who holds what at the peak, and what the pool may hold") {
  Job job = parse(kReportedStep);
  RangeInference ranges = infer_ranges(job);
  PlanReport r = report_plan(job, *job.programs[0], kNoSizes, &ranges.facts[0]);
  CHECK(r.inputs_bytes == 1032);
  CHECK(r.parameters_bytes == 1024);
  CHECK(r.lower_bound_bytes == 4096);
  CHECK(r.peak_bytes == r.lower_bound_bytes + r.fragmentation_bytes());
  CHECK(r.output_bytes == 2048);
  CHECK(r.peak_node == "c");
  CHECK(r.peak_phase == "backward");
  REQUIRE(r.live_at_peak.size() == 2);
  CHECK(r.live_at_peak[0].name == "b");
  CHECK(r.live_at_peak[0].until == "c");
  CHECK(r.live_at_peak[1].until == "");
  REQUIRE(r.phases.size() == 2);
  CHECK(r.phases[0].bytes == 1024);
  CHECK(r.phases[1].bytes == 4096);
  REQUIRE(r.pooled.size() == 2);
  CHECK(r.pooled[0].owner.name == "r");
  CHECK(r.pooled[0].owner.bytes == 40);
  CHECK(!r.pooled[1].is_bounded);
  CHECK(r.pool_bound_bytes == 40);
  CHECK(r.pool_unbounded == 1);
  PlanReport unbounded = report_plan(job, *job.programs[0], kNoSizes);
  CHECK(unbounded.pool_unbounded == 2);
}

TEST_CASE("a plan report as text and as JSON") {
  Job job = parse(kReportedStep);
  RangeInference ranges = infer_ranges(job);
  PlanReport r = report_plan(job, *job.programs[0], kNoSizes, &ranges.facts[0]);
  CHECK(print_plan(r, 1) == R"(a step
each of 2 ranks
  inputs      1.01 KiB, of them parameters 1.00 KiB
  planned     4.00 KiB, of them outputs 2.00 KiB
  at once     4.00 KiB live: fragmentation 0 B, 0.00 %
  pool        2 tensors of data-dependent size, at most 40 B at once; 1 without a bound
  forward     1.00 KiB at %a
  backward    4.00 KiB at %c
  live at the peak, %c (layers.0)
    2.00 KiB  %b                           aten.cat.default                     backward layers.0
    2.00 KiB  (1 more)
)");
  JsonWriter json;
  write_plan(r, &json);
  CHECK(json.text().find(
            R"({"ranks":[],"inputs_bytes":1032,"parameters_bytes":1024,"peak_bytes":4096,"lower_bound_bytes":4096,)") ==
        0);
  CHECK(json.text().find(R"("phases":[{"phase":"forward","bytes":1024,"node":"a"},)") != std::string::npos);
}

TEST_CASE("plan reports of random jobs add up") {
  SizeValues three = [](StrId) -> std::optional<int64_t> { return 3; };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Job job = test::random_job(seed);
    for (const auto& program : job.programs) {
      PlanReport r = report_plan(job, *program, three);
      int64_t sum = r.call_bytes, largest = 0;
      for (const PlanOwner& o : r.live_at_peak) sum += o.bytes;
      for (const PhasePeak& p : r.phases) largest = std::max(largest, p.bytes);
      CHECK(sum == r.lower_bound_bytes);
      CHECK(largest == r.lower_bound_bytes);
      CHECK(r.fragmentation_bytes() >= 0);
    }
  }
}
