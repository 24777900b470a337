#include "libgraph/plan/plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "libgraph/facts/in_place.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"

using namespace sg;
using sg::test::parse_programs;

namespace {

const SizeValues kThree = [](StrId) -> std::optional<int64_t> { return 3; };

struct Planned {
  Liveness live;
  MemoryPlan plan;
};

Planned plan_of(const Job& job, const SizeValues& sizes = kThree, const PlanOptions& options = {}) {
  Planned out;
  out.live = compute_liveness(*job.programs[0], job.programs[0]->graph, sizes);
  out.plan = plan_memory(out.live, options);
  return out;
}

int64_t offset(const Job& job, const Planned& p, std::string_view name) {
  const Graph& graph = job.programs[0]->graph;
  return p.plan.offset_of(p.live.storage_of[graph.find_value(name).index]);
}

// The extents in memory while node i runs. Storages that take over another one at this node have its owner, a frame has
// the one of its call's results.
struct Extent {
  int64_t begin, end;
  uint32_t owner;  // extents of one owner may overlap
};

std::vector<Extent> extents_at(const Liveness& live, const MemoryPlan& plan, uint32_t position) {
  std::vector<Extent> out;
  std::map<uint32_t, uint32_t> joined;  // storage -> owner
  for (uint32_t i = 0; i < live.storages.size(); ++i) {
    const LiveStorage& s = live.storages[i];
    if (s.takes_over && s.first_position == position) joined[i] = live.index_of[s.takes_over.index];
  }
  for (size_t c = 0; c < live.calls.size(); ++c) {
    if (live.calls[c].position != position || live.bodies.empty()) continue;
    uint32_t owner = static_cast<uint32_t>(live.storages.size() + c);
    const MemoryPlan& body = plan.bodies[live.calls[c].body.index];
    if (body.arena_bytes > 0) out.push_back({plan.frame_offsets[c], plan.frame_offsets[c] + body.arena_bytes, owner});
    for (const CallSite::Result& r : live.calls[c].results) {
      joined[live.index_of[r.storage.index]] = owner;
      REQUIRE(plan.offset_of(r.storage) == plan.frame_offsets[c] + body.offset_of(r.in_body));
    }
  }
  for (uint32_t i = 0; i < live.storages.size(); ++i) {
    const LiveStorage& s = live.storages[i];
    if (position < s.first_position || position > s.last_position || s.bytes == 0) continue;
    int64_t at = plan.offset_of(s.storage);
    out.push_back({at, at + s.bytes, joined.count(i) ? joined[i] : i});
  }
  return out;
}

void check_plan(const Liveness& live, const MemoryPlan& plan) {
  REQUIRE(plan.arena_bytes >= plan.lower_bound_bytes);
  REQUIRE(plan.lower_bound_bytes == live.lower_bound_bytes);
  for (const LiveStorage& s : live.storages) {
    int64_t at = plan.offset_of(s.storage);
    REQUIRE((at == MemoryPlan::kNoOffset) == !s.bytes_known);
    if (!s.bytes_known) {
      REQUIRE(std::binary_search(plan.pooled.begin(), plan.pooled.end(), s.storage));
      continue;
    }
    REQUIRE(at % plan_alignment(s.bytes) == 0);
    REQUIRE(at + s.bytes <= plan.arena_bytes);
    if (s.takes_over) REQUIRE(at == plan.offset_of(s.takes_over) + s.takes_over_at);
  }
  for (uint32_t i = 0; i < live.schedule.size(); ++i) {
    std::vector<Extent> extents = extents_at(live, plan, i);
    std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    Extent reach{0, 0, UINT32_MAX};  // the furthest end so far
    for (const Extent& e : extents) {
      if (e.begin < reach.end) REQUIRE(e.owner == reach.owner);
      if (e.end > reach.end) reach = e;
    }
  }
}

}  // namespace

TEST_CASE("memory is shared by what is not in use together, and only by that") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[256] "x"

  forward -
    %a = aten.cumsum(%x, 0)   : f32[256]
    %b = aten.cumsum(%a, 0)   : f32[256]
    %c = aten.cumsum(%b, 0)   : f32[256]
    %d = aten.neg(%c)         : f32[256]
    %v = aten.view(%d, [16, 16]) : f32[16, 16]

  output %v
)");
  Planned p = plan_of(job);
  CHECK(p.plan.arena_bytes == 2048);
  CHECK(offset(job, p, "a") == offset(job, p, "c"));
  CHECK(offset(job, p, "a") != offset(job, p, "b"));
  CHECK(offset(job, p, "c") == offset(job, p, "d"));  // in place
  CHECK(offset(job, p, "v") == offset(job, p, "d"));
  CHECK(offset(job, p, "x") == MemoryPlan::kNoOffset);
  CHECK(p.plan.output_bytes == 1024);
}

TEST_CASE("scalars share a line, larger storages begin one") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[100] "x"

  forward -
    %a = aten.cumsum(%x, 0)   : f32[100]
    %s = aten.sum(%a)         : f32[]
    %t = aten.prod(%a)        : f32[]
    %b = aten.cumsum(%a, 0)   : f32[100]

  output %a
  output %b
  output %s
  output %t
)");
  Planned p = plan_of(job);
  CHECK(offset(job, p, "a") % 64 == 0);
  CHECK(offset(job, p, "b") % 64 == 0);
  CHECK(offset(job, p, "s") % 4 == 0);
  CHECK(p.plan.lower_bound_bytes == 808);
  CHECK(p.plan.arena_bytes == 848);  // the scalars are between a and b
}

TEST_CASE("a result takes over a part of what dies") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[64] "x"

  forward -
    %a = aten.cat([%x, %x])             : f32[128]
    %l = aten.slice.Tensor(%a, 0, 0, 64)   : f32[64]
    %h = aten.slice.Tensor(%a, 0, 64, 128) : f32[64] +64
    %m = aten.mul.Tensor(%h, %l)        : f32[64]
    %e = aten.exp(%m)                   : f32[64]

  output %e
)");
  Planned p = plan_of(job);
  CHECK(p.plan.arena_bytes == 512);
  CHECK(p.plan.lower_bound_bytes == 512);
  CHECK(offset(job, p, "m") == offset(job, p, "a") + 256);
  check_plan(p.live, p.plan);
}

TEST_CASE("a part is not taken over where the other operand reaches into it") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[64] "x"

  forward -
    %a = aten.cat([%x, %x])                : f32[128]
    %l = aten.slice.Tensor(%a, 0, 0, 64)   : f32[64]
    %h = aten.slice.Tensor(%a, 0, 32, 96)  : f32[64] +32
    %m = aten.mul.Tensor(%h, %l)           : f32[64]

  output %m
)");
  Planned p = plan_of(job);
  CHECK(p.live.storages.back().takes_over.is_none());
  CHECK(p.plan.arena_bytes == 768);
}

TEST_CASE("a body lies in the frame of its call, its outputs where the results are") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[256] "x"

  forward -
    %k  = aten.cumsum(%x, 0)         : f32[256]
    %a, = sg.call(graph:body, [%k])  : f32[256]
    %b, = sg.call(graph:body, [%a])  : f32[256]
    %c = aten.add.Tensor(%b, %k)     : f32[256]

  output %c

graph rank * nested "body"
  input %p : f32[256] "p"

  forward -
    %q = aten.cat([%p, %p, %p])            : f32[768]
    %r = aten.slice.Tensor(%q, 0, 0, 256)  : f32[256]
    %s = aten.cumsum(%r, 0)                : f32[256]

  output %s
)");
  Planned p = plan_of(job);
  REQUIRE(p.live.calls.size() == 2);
  REQUIRE(p.live.calls[0].results.size() == 1);
  CHECK(p.plan.bodies[0].arena_bytes == 4096);
  CHECK(p.plan.lower_bound_bytes == 6144);  // k, the argument, and the frame
  CHECK(p.plan.arena_bytes == 6144);
  check_plan(p.live, p.plan);
  check_plan(*p.live.bodies[0], p.plan.bodies[0]);
}

TEST_CASE("what is not waited for keeps its memory") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[256] "x"

  forward -
    %a = aten.cumsum(%x, 0)                                   : f32[256]
    %g = _c10d_functional.all_gather_into_tensor(%a, 2, @g)   : f32[512]
    %b = aten.cumsum(%x, 0)                                   : f32[256]
    %c = aten.cumsum(%b, 0)                                   : f32[256]

  output %c
)");
  Planned p = plan_of(job);
  CHECK(p.plan.arena_bytes == 1024 + 2048 + 1024 + 1024);
}

TEST_CASE("scratch memory is there while its node runs") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[256] "x"

  forward -
    %a = aten.cumsum(%x, 0)   : f32[256]
    %b = aten.cumsum(%a, 0)   : f32[256]
    %c = aten.cumsum(%b, 0)   : f32[256]

  output %c
)");
  PlanOptions options;
  options.scratch_bytes = {0, 1000};
  Planned p = plan_of(job, kThree, options);
  CHECK(p.plan.scratch_offsets[0] == MemoryPlan::kNoOffset);
  CHECK(p.plan.scratch_offsets[1] == 2048);
  CHECK(p.plan.lower_bound_bytes == 3048);
  CHECK(p.plan.arena_bytes == 3048);
}

TEST_CASE("sizes that nobody knows go to the pool, sizes beyond all memory place nothing") {
  Job job = parse_programs(R"(graph rank *
  symbol s0 input [2, inf] hint 6
  input %x : f32[s0] "x"

  forward -
    %a = aten.cumsum(%x, 0)      : f32[s0]
    %s = aten.sum(%a)            : f32[]

  output %a
  output %s
)");
  Planned p = plan_of(job, [](StrId) -> std::optional<int64_t> { return std::nullopt; });
  CHECK(p.plan.pooled.size() == 1);
  CHECK(offset(job, p, "a") == MemoryPlan::kNoOffset);
  CHECK(p.plan.arena_bytes == 4);
  Planned huge = plan_of(job, [](StrId) -> std::optional<int64_t> { return int64_t{1} << 60; });
  CHECK(huge.plan.overflow);
  CHECK(huge.plan.arena_bytes == INT64_MAX);
  CHECK(offset(job, huge, "s") == MemoryPlan::kNoOffset);
}

TEST_CASE("plans of random jobs hold what they promise") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    test::RandomJobOptions options;
    options.nodes = 20 + seed * 5;
    Job job = test::random_job(seed, options);
    PlanOptions quick;
    quick.packing.work = 2000000;
    for (const auto& program : job.programs) {
      Liveness live = compute_liveness(*program, program->graph, kThree);
      MemoryPlan plan = plan_memory(live, quick);
      check_plan(live, plan);
      for (size_t b = 0; b < plan.bodies.size(); ++b)
        if (live.bodies[b]) check_plan(*live.bodies[b], plan.bodies[b]);
      CHECK(plan_memory(live, quick).offsets == plan.offsets);
    }
  }
}
