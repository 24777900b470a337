#include "libgraph/plan/liveness.h"

#include <catch2/catch.hpp>

#include "libgraph/operands.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"

using namespace sg;
using sg::test::parse_programs;

namespace {

const SizeValues kNoSizes = [](StrId) -> std::optional<int64_t> { return std::nullopt; };

Liveness live(const Job& job, const SizeValues& sizes = kNoSizes) {
  return compute_liveness(*job.programs[0], job.programs[0]->graph, sizes);
}

}  // namespace

TEST_CASE("memory is live from its maker to its last user, views and outputs counted") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[256] "x"

  forward -
    %a = aten.sum.dim_IntList(%x, [0], true)   : f32[1]
    %b = aten.cat([%x, %x])                    : f32[512]
    %v = aten.slice.Tensor(%b, 0, 0, 256)      : f32[256]
    %c = aten.cumsum(%v, 0)                    : f32[256]
    %d = aten.cumsum(%c, 0)                    : f32[256]

  output %a
  output %d
)");
  Liveness l = live(job);
  CHECK(l.input_bytes == 1024);
  CHECK(l.live_bytes == std::vector<int64_t>{4, 4 + 2048, 4 + 2048, 4 + 2048 + 1024, 4 + 1024 + 1024});
  CHECK(l.lower_bound_bytes == 3076);
  CHECK(l.peak_position == 3);
  REQUIRE(l.live_at_peak.size() == 3);
  CHECK(job.programs[0]->graph.name(l.storages[l.live_at_peak[0]].owner) == "b");
}

TEST_CASE("a pointwise result takes over an argument that dies, when that is legal") {
  struct Case {
    const char* line;
    bool reuses;
  };
  const Case cases[] = {
      {"%d = aten.neg(%c) : f32[16, 16]", true},
      {"%d = aten.add.Tensor(%c, %x) : f32[16, 16]", true},
      {"%d = aten.add.Tensor(%c, %t) : f32[16, 16]", false},         // also reads it in another order
      {"%d = aten.neg(%t) : f32[16, 16]", false},                    // element i comes from elsewhere
      {"%d = aten._to_copy(%c, dtype=bf16) : bf16[16, 16]", false},  // another size
      {"%d = aten.mm(%c, %x) : f32[16, 16]", false},                 // not a pointwise op
      {"%d = aten.neg(%x) : f32[16, 16]", false},                    // an input is outside
  };
  for (const Case& c : cases) {
    INFO(c.line);
    Job job = parse_programs(std::string(R"(graph rank *
  input %x : f32[16, 16] "x"

  forward -
    %c = aten.mm(%x, %x) : f32[16, 16]
    %t = aten.t(%c) : f32[16, 16] stride [1, 16]
    )") + c.line + "\n\n  output %d\n");
    Liveness l = live(job);
    CHECK(l.storages.back().takes_over.is_none() == !c.reuses);
    if (c.reuses) CHECK(l.lower_bound_bytes == 1024);
  }
}

TEST_CASE("what a collective reads stays until its wait") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[256] "x"

  forward -
    %a = aten.cumsum(%x, 0)                                   : f32[256]
    %g = _c10d_functional.all_gather_into_tensor(%a, 2, @g)   : f32[512]
    %b = aten.cumsum(%x, 0)                                   : f32[256]
    %w = _c10d_functional.wait_tensor(%g)                     : f32[512]
    %c = aten.cumsum(%w, 0)                                   : f32[512]

  output %b
  output %c
)");
  CHECK(live(job).live_bytes == std::vector<int64_t>{1024, 3072, 4096, 4096, 5120});
}

TEST_CASE("a call needs what its body needs") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[256] "x"

  forward -
    %a, = sg.call(graph:body, [%x])  : f32[256]

  output %a

graph rank * nested "body"
  input %p : f32[256] "p"

  forward -
    %q = aten.cat([%p, %p, %p])            : f32[768]
    %r = aten.slice.Tensor(%q, 0, 0, 256)  : f32[256]
    %s = aten.cumsum(%r, 0)                : f32[256]

  output %s
)");
  Liveness l = live(job);
  CHECK(l.lower_bound_bytes == 4096);
  CHECK(l.call_bytes_at_peak == 3072);
}

TEST_CASE("what is asked for its size alone need not be in memory") {
  Job job = parse_programs(R"(graph rank *
  symbol s0 input [2, inf] hint 6
  input %x : f32[s0] "x"

  forward -
    %a = aten.cat([%x, %x])        : f32[2*s0]
    %b = aten.cumsum(%a, 0)        : f32[2*s0]
    %c = aten.cumsum(%b, 0)        : f32[2*s0]
    %n = aten.sym_size.int(%a, 0)  : int 2*s0
    %d = aten.cumsum(%c, 0)        : f32[2*s0]
    %e = aten.mul.Tensor(%d, %n)   : f32[2*s0]

  output %e
)");
  SizeValues ten = [](StrId) -> std::optional<int64_t> { return 10; };
  CHECK(live(job, ten).lower_bound_bytes == 160);
}

TEST_CASE("sizes without a value are counted, not guessed") {
  Job job = parse_programs(R"(graph rank *
  symbol s0 input [2, inf] hint 6
  input %x : f32[s0] "x"

  forward -
    %a = aten.cumsum(%x, 0)  : f32[s0]

  output %a
)");
  CHECK(live(job).unknown_sizes == 1);
  CHECK(live(job).lower_bound_bytes == 0);
  SizeValues ten = [](StrId) -> std::optional<int64_t> { return 10; };
  CHECK(live(job, ten).lower_bound_bytes == 40);
}

TEST_CASE("liveness of random jobs agrees with counting at each node") {
  SizeValues three = [](StrId) -> std::optional<int64_t> { return 3; };
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Job job = test::random_job(seed);
    for (const auto& program : job.programs) {
      const Graph& graph = program->graph;
      Liveness l = compute_liveness(*program, graph, three);
      AliasAnalysis alias(*program, graph, {&three});
      int64_t largest = 0;
      for (uint32_t i = 0; i < l.schedule.size(); ++i) {
        int64_t sum = i == l.peak_position ? l.call_bytes_at_peak : 0;
        for (const LiveStorage& s : l.storages) {
          if (s.first_position <= i && s.last_position >= i) sum += s.bytes;
          if (s.takes_over && s.first_position == i) sum -= s.bytes;
        }
        if (i == l.peak_position) CHECK(sum == l.lower_bound_bytes);
        largest = std::max(largest, sum);
        for_used_operands(graph, l.schedule[i], [&](ValueId v) {  // nothing is used outside its lifetime
          for (const LiveStorage& s : l.storages)
            if (s.storage == alias.storage_of(v)) REQUIRE((s.first_position <= i && i <= s.last_position));
        });
      }
      CHECK(largest <= l.lower_bound_bytes);
      int64_t listed = l.call_bytes_at_peak;
      for (uint32_t s : l.live_at_peak) listed += l.storages[s].bytes;
      CHECK(listed == l.lower_bound_bytes);
    }
  }
}

TEST_CASE("softmax and its gradient work row by row, in place") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[8, 32] "x"

  forward -
    %a = aten.cumsum(%x, 0)                                        : f32[8, 32]
    %s = aten._softmax(%a, -1, false)                              : f32[8, 32]
    %g = aten.cumsum(%x, 1)                                        : f32[8, 32]
    %d = aten._softmax_backward_data(%g, %s, -1, f32)              : f32[8, 32]

  output %d
)");
  Liveness l = live(job);
  CHECK(l.storages[1].takes_over == l.storages[0].storage);
  CHECK(l.storages[3].takes_over == l.storages[2].storage);
  CHECK(l.lower_bound_bytes == 2048);
}
