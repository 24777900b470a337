// The model of PyTorch's caching allocator, and the memory of a step under it.
#include "libgraph/plan/caching_allocator.h"

#include <catch2/catch.hpp>

#include "libgraph/infer/infer.h"
#include "libgraph/plan/allocation.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"
#include "tests/support/rng.h"

using namespace sg;
using sg::test::parse;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
const SizeValues kNoSizes = [](StrId) -> std::optional<int64_t> { return std::nullopt; };

AllocationReport report_of(const Job& job, AllocatorKind kind) {
  const Program& program = *job.programs[0];
  return allocate_step(program, compute_liveness(program, program.graph, kNoSizes), kind);
}

}  // namespace

TEST_CASE("blocks and segments of single requests") {
  struct Case {
    int64_t bytes, block, segment;
  };
  const Case cases[] = {
      {1, 512, 2 * kMiB},
      {512, 512, 2 * kMiB},
      {513, 1024, 2 * kMiB},
      {1048576, 1048576, 2 * kMiB},
      {1048577, 1049088, 20 * kMiB},
      {10485248, 10485248, 20 * kMiB},
      {10485760, 10485760, 10 * kMiB},
      {11848909, 11849216, 12 * kMiB},
  };
  for (const Case& c : cases) {
    INFO(c.bytes);
    CachingAllocator allocator;
    allocator.allocate(c.bytes);
    CHECK(CachingAllocator::rounded(c.bytes) == c.block);
    CHECK(allocator.reserved_bytes() == c.segment);
    CHECK(allocator.segment_count() == 1);
    // The rest of the segment is split off if it is large enough.
    const bool is_small = c.block <= kMiB;
    const bool splits = is_small || c.segment - c.block > kMiB;
    CHECK(allocator.allocated_bytes() == (splits ? c.block : c.segment));
  }
}

TEST_CASE("small requests share a segment, and never one with large ones") {
  CachingAllocator allocator;
  for (int i = 0; i < 4096; ++i) allocator.allocate(512);
  CHECK(allocator.reserved_bytes() == 2 * kMiB);
  allocator.allocate(1);
  CHECK(allocator.reserved_bytes() == 4 * kMiB);
  allocator.allocate(2 * kMiB);
  CHECK(allocator.reserved_bytes() == 24 * kMiB);
  allocator.allocate(2 * kMiB);
  CHECK(allocator.reserved_bytes() == 24 * kMiB);
}

TEST_CASE("the smallest free block that fits is taken, and neighbours become one again") {
  CachingAllocator allocator;
  const auto a = allocator.allocate(4 * kMiB), b = allocator.allocate(4 * kMiB), c = allocator.allocate(8 * kMiB);
  CHECK(allocator.segment_count() == 1);
  allocator.free(a);
  allocator.free(c);                         // merges with the 4 MiB after it: 12 MiB
  CHECK(allocator.allocate(3 * kMiB) == a);  // rather than from the 12
  allocator.free(a);
  allocator.free(b);
  CHECK(allocator.allocated_bytes() == 0);
  allocator.allocate(9 * kMiB);
  allocator.allocate(9 * kMiB);  // 18 of the 20 that were merged
  CHECK(allocator.segment_count() == 1);
  CHECK(allocator.reserved_bytes() == 20 * kMiB);
  CHECK(allocator.most_allocated_bytes() == 18 * kMiB);
}

TEST_CASE("a large block is not split for a rest of 1 MiB or less") {
  CachingAllocator allocator;
  const auto whole = allocator.allocate(12 * kMiB);
  allocator.free(whole);
  allocator.allocate(11 * kMiB);
  CHECK(allocator.allocated_bytes() == 12 * kMiB);  // the rest stays with it
  CHECK(allocator.segment_count() == 1);
}

TEST_CASE("whatever is asked for and given back: sums agree, and all can be had again") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    test::Rng rng(seed);
    CachingAllocator allocator;
    std::vector<std::pair<CachingAllocator::Block, int64_t>> held;
    int64_t sum = 0;
    for (int i = 0; i < 2000; ++i) {
      if (held.empty() || rng.percent(55)) {
        const int64_t bytes = static_cast<int64_t>(rng.below(rng.percent(70) ? 40000 : 30000000));
        const int64_t before = allocator.allocated_bytes();
        held.push_back({allocator.allocate(bytes), 0});
        held.back().second = allocator.allocated_bytes() - before;
        REQUIRE(held.back().second >= CachingAllocator::rounded(bytes));
        REQUIRE(held.back().second <= CachingAllocator::rounded(bytes) + kMiB);
        sum += held.back().second;
      } else {
        const size_t k = rng.below(held.size());
        allocator.free(held[k].first);
        sum -= held[k].second;
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(k));
      }
      REQUIRE(allocator.allocated_bytes() == sum);
      REQUIRE(allocator.reserved_bytes() >= sum);
    }
    for (auto& [block, bytes] : held) allocator.free(block);
    CHECK(allocator.allocated_bytes() == 0);
    // Everything is free: the same segments are reused.
    const int64_t reserved = allocator.reserved_bytes();
    allocator.allocate(1);
    CHECK(allocator.reserved_bytes() == std::max(reserved, 2 * kMiB));
  }
}

TEST_CASE("a step's results have blocks while they are used, and a new one where the plan would reuse the old") {
  Job job = parse(R"(sg 1.0
graph rank *
  input %x : f32[128]
  forward -
    %a = aten.neg(%x)
    %v = aten.view(%a, [16, 8])
    %b = aten.exp(%v)
  backward -
    %c = aten.sum(%b)
  output %c
)");
  infer_missing_types(*job.programs[0]);
  const AllocationReport exact = report_of(job, AllocatorKind::exact),
                         cuda = report_of(job, AllocatorKind::cuda_caching);
  CHECK(exact.allocated_bytes == 516);  // %b in the memory of %a; then %b and %c
  CHECK(cuda.allocated_bytes == 1024);  // %a and %b, or %b and the 512 of %c
  CHECK(cuda.reserved_bytes == 2 * kMiB);
  REQUIRE(cuda.timeline.size() == 2);
  CHECK(cuda.timeline[0].phase == "forward");
  CHECK(cuda.timeline[0].nodes == 3);
  CHECK(cuda.timeline[0].peak_bytes == 1024);
  CHECK(cuda.timeline[0].peak_node == "b");
  CHECK(cuda.timeline[0].end_bytes == 512);
  CHECK(cuda.timeline[1].begin_bytes == 512);
  CHECK(cuda.timeline[1].end_bytes == 512);  // the output stays
  CHECK(exact.timeline[1].end_bytes == 4);
}

TEST_CASE("under the allocator a step needs at least what is live without reuse, and frees all but its outputs") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    INFO(seed);
    const Job job = test::random_job(seed);
    const Program& program = *job.programs[0];
    const Liveness live = compute_liveness(program, program.graph, kNoSizes);
    const AllocationReport cuda = allocate_step(program, live, AllocatorKind::cuda_caching);
    const AllocationReport exact = allocate_step(program, live, AllocatorKind::exact);
    CHECK(cuda.reserved_bytes >= cuda.allocated_bytes);
    CHECK(cuda.timeline.size() == exact.timeline.size());
    if (live.calls.empty()) CHECK(cuda.allocated_bytes >= live.lower_bound_bytes);
    int64_t outputs = 0;
    for (const LiveStorage& s : live.storages) outputs += s.is_output && s.bytes > 0 ? s.bytes : 0;
    if (!exact.timeline.empty()) CHECK(exact.timeline.back().end_bytes == outputs);
    if (!cuda.timeline.empty()) CHECK(cuda.timeline.back().end_bytes >= outputs);
  }
}
