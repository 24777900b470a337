#include "libgraph/sim/simulate.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

#include "libgraph/sim/report.h"
#include "libgraph/sim/step_clock.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"

using namespace sg;
using sg::test::parse;

namespace {

// 1 byte takes 1 us, a kernel at least 10 us, a gather of any size 100 us; the host takes no time.
Machine toy() {
  Result<Machine> m = parse_machine("name: toy\nbase: h100-8\n", "toy");
  REQUIRE(m.ok());
  for (const MachineKey& key : machine_keys())
    if (key.may_be_zero) key.field(*m) = 0;
  for (const char* path :
       {"device.f64_tflops=1e9", "device.f32_tflops=1e9", "device.f16_tflops=1e9", "device.bf16_tflops=1e9",
        "device.vector_tflops=1e9", "device.memory_gbps=1e9", "device.copy_gbps=1e-3", "device.kernel_us=10",
        "efficiency.matmul=1", "efficiency.grouped_matmul=1", "efficiency.convolution=1", "efficiency.attention=1",
        "efficiency.attention_backward=1", "efficiency.memory=1", "efficiency.irregular=1", "network.ranks_per_node=8",
        "network.ll.within_gbps=1e12", "network.ll.cap_one_node_gbps=1e12", "network.ll.base_us=100"})
    REQUIRE(set_machine(&*m, path).ok());
  return std::move(*m);
}

Result<Simulation> run(const Job& job, const SimOptions& options) {
  Result<std::vector<SymbolValues>> values = assume_values(job, infer_ranges(job), Assumption());
  REQUIRE(values.ok());
  return simulate(job, *values, options);
}

ProgramTimeline timeline(std::string_view body, const Machine& machine) {
  Job job = parse("sg 1.0 job \"t\" world 2\ngroup @g [0 1]\ngroup @h [0 1]\ndevice cuda:0\n\n" + std::string(body));
  Result<Simulation> s = run(job, {machine});
  REQUIRE(s.ok());
  return s->worst();
}

double parts_of(const ProgramTimeline& t) {
  return t.compute_us + t.exposed_total_us() + t.copy_us + t.host_us + t.tail_us;
}

constexpr const char* kGather = R"(graph rank *
  input %x : f32[16] "x"

  forward -
    %a = _c10d_functional.all_gather_into_tensor(%x, 2, @g) : f32[32]
    %b = aten.neg(%x)                                       : f32[16]
    %c = aten.neg(%b)                                       : f32[16]
    %w = _c10d_functional.wait_tensor(%a)                   : f32[32]
    %d = aten.neg(%w)                                       : f32[32]

  output %c
  output %d
)";

}  // namespace

TEST_CASE("compute hides what is launched before it, and waits for the rest") {
  ProgramTimeline t = timeline(kGather, toy());
  CHECK(t.makespan_us == Approx(110));
  CHECK(t.compute_us == Approx(30));
  CHECK(t.exposed_us.at("all_gather") == Approx(80));
  CHECK(t.host_us == 0);
  CHECK(t.tail_us == 0);
  std::vector<uint32_t> path = critical_path(t);
  REQUIRE(path.size() == 2);
  CHECK(t.events[path[0]].resource == Resource::communicator);
  CHECK(t.events[path[1]].begin_us == Approx(100));
}

TEST_CASE("a slow host is told apart from slow links") {
  Machine m = toy();
  REQUIRE(set_machine(&m, "host.launch_us=60").ok());
  ProgramTimeline t = timeline(kGather, m);  // launches end at 60, 120, 180, 240; the gather at 160
  CHECK(t.makespan_us == Approx(250));
  CHECK(t.exposed_total_us() == 0);
  CHECK(t.host_us == Approx(220));
}

TEST_CASE("a number for the host stops the launches behind it") {
  Machine m = toy();
  REQUIRE(set_machine(&m, "host.sync_us=7").ok());
  ProgramTimeline t = timeline(R"(graph rank *
  symbol u0 data [0, 8]
  input %x : i64[] "x"

  forward -
    %a = aten.neg(%x)                       : i64[]
    %u = aten._local_scalar_dense(%a)       : int u0
    %b = aten.neg(%a)                       : i64[]

  output %b
)",
                               m);
  CHECK(t.makespan_us == Approx(27));
  CHECK(t.host_us == Approx(7));
}

TEST_CASE("copies to and from the host run beside compute until somebody needs them") {
  ProgramTimeline t = timeline(R"(graph rank *
  input %x : f32[8] "x"

  forward -
    %a = sg.offload(%x, device="cpu")         : f32[8] on cpu
    %b = aten.neg(%x)                         : f32[8]
    %v = sg.wait(%a)                          : f32[8] on cpu
    %r = sg.reload(%v, device="cuda:0")       : f32[8]
    %d = aten.neg(%b)                         : f32[8]
    %w = sg.wait(%r)                          : f32[8]
    %c = aten.neg(%w)                         : f32[8]

  output %d
  output %c
)",
                               toy());
  CHECK(t.compute_us == Approx(30));
  CHECK(t.makespan_us == Approx(32 + 32 + 10));
  CHECK(t.copy_us == Approx(22 + 22));
}

namespace {

// From `simulate`; the clock must agree.
double makespan(std::string_view body) {
  const ProgramTimeline t = timeline(body, toy());
  Job job = parse("sg 1.0 job \"t\" world 2\ngroup @g [0 1]\ngroup @h [0 1]\ndevice cuda:0\n\n" + std::string(body));
  Result<std::vector<SymbolValues>> values = assume_values(job, infer_ranges(job), Assumption());
  REQUIRE(values.ok());
  const SimOptions options{toy()};
  const StepCosts costs(job, *job.programs[0], (*values)[0], options);
  StepClock clock(costs);
  for (NodeId n : job.programs[0]->graph.nodes()) clock.play(n);
  CHECK(clock.makespan_us() == t.makespan_us);
  return t.makespan_us;
}

}  // namespace

TEST_CASE("what a call takes is complete before its body begins") {
  CHECK(makespan(R"(graph rank *
  input %x : f32[16] "x"

  forward -
    %a = _c10d_functional.all_gather_into_tensor(%x, 2, @g) : f32[32]
    %y, = sg.call(graph:body, [%a, %x])                     : f32[32]

  output %y

graph rank * nested "body"
  input %p : f32[32] "p"
  input %q : f32[16] "q"

  forward -
    %k = aten.neg(%q)                       : f32[16]
    %w = _c10d_functional.wait_tensor(%p)   : f32[32]
    %r = aten.neg(%w)                       : f32[32]

  output %r
)") == Approx(100 + 10 + 10));
  CHECK(makespan(R"(graph rank *
  input %x : f32[8] "x"

  forward -
    %h = sg.offload(%x, device="cpu")    : f32[8] on cpu
    %y, = sg.call(graph:body, [%h, %x])  : f32[8]

  output %y

graph rank * nested "body"
  input %p : f32[8] on cpu "p"
  input %q : f32[8] "q"

  forward -
    %k = aten.neg(%q)                     : f32[8]
    %v = sg.wait(%p)                      : f32[8] on cpu
    %r = sg.reload(%v, device="cuda:0")   : f32[8]
    %w = sg.wait(%r)                      : f32[8]
    %d = aten.neg(%w)                     : f32[8]

  output %d
)") == Approx(32 + 10 + 32 + 10));
}

TEST_CASE("a body's own launches run beside its compute") {
  CHECK(makespan(R"(graph rank *
  input %x : f32[16] "x"

  forward -
    %y, = sg.call(graph:body, [%x])  : f32[32]
    %z, = sg.call(graph:body, [%x])  : f32[32]

  output %y
  output %z

graph rank * nested "body"
  input %q : f32[16] "q"

  forward -
    %a = _c10d_functional.all_gather_into_tensor(%q, 2, @g) : f32[32]
    %k = aten.neg(%q)                                       : f32[16]
    %w = _c10d_functional.wait_tensor(%a)                   : f32[32]
    %r = aten.neg(%w)                                       : f32[32]

  output %r
)") == Approx(2 * 110));
}

TEST_CASE("a wait is for its first argument: others it only keeps alive") {
  CHECK(makespan(R"(graph rank *
  input %x : f32[8] "x"

  forward -
    %a = _c10d_functional.all_gather_into_tensor(%x, 2, @g) : f32[16]
    %h = ao.offload(%x)                                     : f32[8] on cpu
    %v = ao.wait_tensor(%h, %a)                             : f32[8] on cpu
    %d = aten.neg(%x)                                       : f32[8]
    %w = _c10d_functional.wait_tensor(%a)                   : f32[16]

  output %v
  output %d
  output %w
)") == Approx(100));
}

TEST_CASE("communicators run beside each other, calls of one behind each other") {
  auto steps = [](const char* second_group) {
    return std::string(R"(graph rank *
  input %x : f32[16] "x"

  forward -
    %a = _c10d_functional.all_gather_into_tensor(%x, 2, @g) : f32[32]
    %b = _c10d_functional.all_gather_into_tensor(%x, 2, @)") +
           second_group + R"() : f32[32]
    %v = _c10d_functional.wait_tensor(%a)                   : f32[32]
    %w = _c10d_functional.wait_tensor(%b)                   : f32[32]

  output %v
  output %w
)";
  };
  CHECK(timeline(steps("g"), toy()).makespan_us == Approx(200));
  CHECK(timeline(steps("h"), toy()).makespan_us == Approx(100));
}

TEST_CASE("an exchange takes as long as the rank that sends or receives most") {
  // Rows that each of three ranks sends to each: as many leave ranks 1 and 2 in both.
  using Rows = std::array<std::array<int, 3>, 3>;
  const auto time_of = [](const Rows& sent) {
    std::string text = "sg 1.0 job \"t\" world 3\ngroup @g [0 1 2]\n";
    for (size_t rank = 0; rank < 3; ++rank) {
      std::string to, from;
      int received = 0;
      for (size_t peer = 0; peer < 3; ++peer) {
        to += (peer ? ", " : "") + std::to_string(sent[rank][peer]);
        from += (peer ? ", " : "") + std::to_string(sent[peer][rank]);
        received += sent[peer][rank];
      }
      text += "graph rank " + std::to_string(rank) + "\n  input %x : f32[100000, 1000]\n" +
              "  %y = _c10d_functional.all_to_all_single(%x, [" + from + "], [" + to + "], @g) : f32[" +
              std::to_string(received) + ", 1000]\n" + "  %z = _c10d_functional.wait_tensor(%y) : f32[" +
              std::to_string(received) + ", 1000]\n  output %z\n";
    }
    Job job = parse(text);
    Result<Simulation> s = run(job, {*find_machine("h100-8")});
    REQUIRE(s.ok());
    return s->worst().makespan_us;
  };
  const double even = time_of({{{100000, 0, 0}, {100000, 0, 0}, {0, 100000, 0}}});
  const double hot = time_of({{{100000, 0, 0}, {100000, 0, 0}, {100000, 0, 0}}});
  CHECK(hot > 1.2 * even);
}

TEST_CASE("a group takes as long as its part that crosses most hosts") {
  Job job = parse(R"(sg 1.0 job "t" world 4
group @g [0 1] [2 3]
device cuda:0

graph rank *
  input %x : f32[4000, 4000]
  %y = _c10d_functional.all_reduce(%x, "sum", @g) : f32[4000, 4000]
  %z = _c10d_functional.wait_tensor(%y) : f32[4000, 4000]
  output %z
)");
  const auto time_of = [&](const char* ranks_per_node) {
    Result<Machine> m = find_machine("h100-4x8-roce");
    REQUIRE(set_machine(&*m, std::string("network.ranks_per_node=") + ranks_per_node).ok());
    Result<Simulation> s = run(job, {*m});
    REQUIRE(s.ok());
    return s->worst().makespan_us;
  };
  CHECK(time_of("4") == Approx(time_of("2")));
  CHECK(time_of("3") > 1.5 * time_of("2"));  // ranks 2 and 3
}

TEST_CASE("tracks of a trace have a name each, also of communicators of one axis") {
  Job job = parse(R"(sg 1.0 job "t" world 2
group @ep [0 1]
group @ep:1 [0 1]
device cuda:0

graph rank *
  input %x : f32[16] "x"

  forward -
    %a = _c10d_functional.all_gather_into_tensor(%x, 2, @ep)   : f32[32]
    %b = _c10d_functional.all_gather_into_tensor(%x, 2, @ep:1) : f32[32]
    %v = _c10d_functional.wait_tensor(%a)                      : f32[32]
    %w = _c10d_functional.wait_tensor(%b)                      : f32[32]

  output %v
  output %w
)");
  Result<Simulation> s = run(job, {toy()});
  REQUIRE(s.ok());
  const std::string trace = simulation_trace(job, *s);
  const std::string key = R"("args":{"name":")";
  std::vector<std::string> names;
  for (size_t at = trace.find(key); at != trace.npos; at = trace.find(key, at + 1)) {
    const size_t begin = at + key.size();
    names.push_back(trace.substr(begin, trace.find('"', begin) - begin));
  }
  CHECK(std::ranges::find(names, "group ep:1") != names.end());
  std::ranges::sort(names);
  CHECK(std::ranges::adjacent_find(names) == names.end());
}

TEST_CASE("half of the rows take more than half of the time, and large products reach their share of the peak") {
  Result<Machine> m = find_machine("h100-8");
  REQUIRE(m.ok());
  auto time_of = [&](int rows) {
    Job job =
        parse("sg 1.0 job \"t\" world 1\ndevice cuda:0\n\ngraph rank *\n  input %x : bf16[" + std::to_string(rows) +
              ", 4096] \"x\"\n  input %w : bf16[4096, 4096] \"w\"\n\n  forward -\n    %y = aten.mm(%x, %w) : bf16[" +
              std::to_string(rows) + ", 4096]\n\n  output %y\n");
    Result<Simulation> s = run(job, {*m});
    REQUIRE(s.ok());
    return s->worst().compute_us;
  };
  double large = 2.0 * 65536 * 4096 * 4096 / (989e12 * m->efficiency.matmul) * 1e6;
  CHECK(time_of(65536) >= large);
  CHECK(time_of(65536) <= 1.05 * large);
  CHECK(time_of(256) > 0.55 * time_of(512));
}

TEST_CASE("products of float8 run at the machine's rate of float8, or at that of bf16 where it has none") {
  Result<Machine> m = find_machine("h100-8");
  REQUIRE(m.ok());
  auto compute_us = [&] {
    Result<Simulation> s = run(
        parse("sg 1.0\ngraph rank *\n  input %x : f8e4m3fn[8192, 8192]\n  input %w : f8e4m3fn[8192, 8192]\n  input "
              "%s : f32[]\n  %y = aten._scaled_mm(%x, %w, %s, %s, none, none, bf16) : bf16[8192, 8192]\n  output %y\n"),
        {*m});
    REQUIRE(s.ok());
    return s->worst().compute_us;
  };
  const double with = compute_us();
  m->device.f8_tflops = 0;
  CHECK(compute_us() == Approx(with * 1979 / 989).epsilon(1e-3));
}

TEST_CASE("random jobs: parts add up, streams keep their order, waits hold") {
  Result<Machine> m = find_machine("h100-4x8-roce");
  REQUIRE(m.ok());
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    Job job = sg::test::random_job(seed);
    Result<std::vector<SymbolValues>> values = assume_values(job, infer_ranges(job), Assumption());
    if (!values.ok()) continue;
    Result<Simulation> s = simulate(job, *values, {*m});
    INFO("seed " << seed);
    REQUIRE(s.ok());
    for (const ProgramTimeline& t : s->programs) {
      CHECK(parts_of(t) == Approx(t.makespan_us));
      std::map<std::pair<Resource, uint32_t>, double> free_from;
      double compute_end = 0, latest = 0;
      for (const SimEvent& e : t.events) {
        double& from = free_from[{e.resource, e.resource == Resource::communicator ? e.group.index : 0}];
        CHECK(e.begin_us >= from * (1 - 1e-12));
        CHECK(e.begin_us >= (e.resource == Resource::communicator ? compute_end : 0));
        from = e.end_us;
        latest = std::max(latest, e.end_us);
        if (e.resource == Resource::compute) compute_end = e.end_us;
        if (e.cause != SimEvent::kNoCause) CHECK(t.events[e.cause].end_us <= e.begin_us * (1 + 1e-12));
      }
      CHECK(t.makespan_us >= latest);
    }
    CHECK(!simulation_json(job, *m, *s, 5).empty());
  }
}

TEST_CASE("a rank kept apart takes the time that one program for all takes") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    sg::test::RandomJobOptions options;
    options.world = 4;
    options.ranks_apart = false;
    Job job = sg::test::random_job(seed, options);
    Result<Machine> m = find_machine("h100-8");
    Result<std::vector<SymbolValues>> values = assume_values(job, infer_ranges(job), Assumption());
    if (!values.ok() || !job.is_spmd()) continue;
    Result<Simulation> together = simulate(job, *values, {*m});
    REQUIRE(together.ok());
    Job apart(job);
    apart.programs[0]->ranks = {0};
    for (uint32_t r = 1; r < 4; ++r) {
      Program& copy = apart.add_program();
      copy = Program(apart.pool.get());
      copy.ranks = {r};
      copy.symbols = job.programs[0]->symbols;
      copy.graph = Graph(job.programs[0]->graph, apart.pool.get());
      for (const auto& nested : job.programs[0]->nested)
        copy.nested.push_back(std::make_unique<Nested>(Nested{nested->name, Graph(nested->graph, apart.pool.get())}));
    }
    std::vector<SymbolValues> each(4, (*values)[0]);
    Result<Simulation> four = simulate(apart, each, {*m});
    INFO("seed " << seed);
    REQUIRE(four.ok());
    for (const ProgramTimeline& t : four->programs) CHECK(t.makespan_us == Approx(together->worst().makespan_us));
  }
}

TEST_CASE("model flops utilization counts products at the peak of their type, once") {
  const auto mfu = [](const std::string& more) {
    const std::string head = R"(graph rank *
  input %a : bf16[64, 64] "a"
  input %b : f32[64, 64] "b"

  forward -
    %x = aten.mm(%a, %a)  : bf16[64, 64]
    %y = aten.mm(%b, %b)  : f32[64, 64]
    %z = aten.neg(%y)     : f32[64, 64]
)";
    Machine machine = toy();
    REQUIRE(set_machine(&machine, "device.bf16_tflops=1e-3").ok());
    REQUIRE(set_machine(&machine, "device.f32_tflops=5e-4").ok());
    const ProgramTimeline t = timeline(head + more + "\n  output %x\n  output %z\n", machine);
    return std::pair(t.mfu() * t.makespan_us, t.flops);
  };
  const double flops = 2.0 * 64 * 64 * 64;
  const auto plain = mfu("");
  CHECK(plain.first == Approx(flops * 1e-3 + flops * 2e-3));  // microseconds
  const auto more = mfu("    %c = aten.mm(%a, %a)  : bf16[64, 64]  chunk_of x");
  CHECK(more.first == Approx(flops * 2e-3 + flops * 2e-3));
  const auto again = mfu("    %c = aten.mm(%a, %a)  : bf16[64, 64]  remat_of x");
  CHECK(again.first == Approx(plain.first));
  CHECK(again.second == more.second);
}
