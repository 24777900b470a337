// sg-overlap: what an order costs, which orders are legal, and how good the model's orders are.
#include "libpasses/overlap/overlap.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <numeric>
#include <optional>

#include "libgraph/import/capture.h"
#include "libgraph/infer/infer.h"
#include "libgraph/plan/plan.h"
#include "libgraph/verify/verify.h"
#include "libpasses/auto_chunk/auto_chunk.h"
#include "libpasses/bucket/bucket.h"
#include "libpasses/chunk/chunk.h"
#include "libpasses/offload/offload.h"
#include "libpasses/overlap/overlap_parts.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"
#include "tests/support/rng.h"
#include "tests/support/traces.h"

using namespace sg;
using namespace sg::overlap_parts;
using sg::test::Rng;

namespace {

// With types, without which nothing would cost anything.
Job parse_typed(std::string_view text) {
  Job job = test::parse(text);
  for (auto& program : job.programs) infer_missing_types(*program);
  return job;
}

// A byte takes a microsecond, a message at least 30 us; the host is fast.
Machine slow_machine() {
  Result<Machine> m = parse_machine("name: slow\nbase: h100-8\n", "slow");
  REQUIRE(m.ok());
  for (const char* set :
       {"device.memory_gbps=1e-3", "device.vector_tflops=1e9", "device.kernel_us=1", "efficiency.memory=1",
        "efficiency.irregular=1", "host.launch_us=0.1", "host.sync_us=5", "network.ll.base_us=30",
        "network.ll.within_gbps=1e-3", "network.ll.cap_one_node_gbps=1e-3", "network.simple.one_node_gbps=0",
        "network.exchange.within_gbps=1e-3", "network.exchange.base_us=30"})
    REQUIRE(set_machine(&*m, set).ok());
  return std::move(*m);
}

std::vector<SymbolValues> values_of(const Job& job) {
  Result<std::vector<SymbolValues>> values = assume_values(job, infer_ranges(job), {});
  return values.ok() ? std::move(*values) : std::vector<SymbolValues>();
}

// Another order of the same graph: sometimes any ready node, otherwise the first ready one.
Order shuffled(const Precedence& precedence, Rng* rng) {
  std::vector<uint32_t> waits(precedence.size()), ready;
  for (uint32_t i = 0; i < precedence.size(); ++i) {
    waits[i] = static_cast<uint32_t>(precedence.before(i).size());
    if (waits[i] == 0) ready.push_back(i);
  }
  Order out;
  while (!ready.empty()) {
    const size_t pick = rng->percent(50) ? rng->below(ready.size())
                                         : static_cast<size_t>(std::ranges::min_element(ready) - ready.begin());
    const uint32_t at = ready[pick];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
    out.push_back(at);
    for (uint32_t s : precedence.after(at))
      if (--waits[s] == 0) ready.push_back(s);
  }
  return out;
}

// A step of a few nodes: work of several lengths, gathers and exchanges on two groups, a sum at the end.
Job small_step(uint64_t seed) {
  Rng rng(seed);
  std::string text = "sg 1.0 job \"small\" world 2\ngroup @a [0 1]\ngroup @b [0 1]\ndevice cuda:0\ngraph rank *\n";
  std::vector<std::string> values = {"x", "y"};
  text += "  input %x : f32[" + std::to_string(2 * rng.between(1, 4)) + "]\n  input %y : f32[" +
          std::to_string(2 * rng.between(1, 4)) + "]\n  forward -\n";
  std::vector<std::string> under_way;
  int next = 0, movable = 0;
  const int least = static_cast<int>(rng.between(6, 9));
  while (movable < least || !under_way.empty()) {
    const std::string name = "n" + std::to_string(next++);
    if (!under_way.empty() && (movable >= least || rng.percent(40))) {
      text += "    %" + name + " = _c10d_functional.wait_tensor(%" + under_way.back() + ")\n";
      under_way.pop_back();
      values.push_back(name);
    } else if (rng.percent(35) && movable + 2 <= 9) {
      text += "    %" + name + " = _c10d_functional.all_reduce(%" + rng.pick(values) + ", \"sum\", " +
              (rng.percent(50) ? "@a" : "@b") + ")\n";
      under_way.push_back(name);
    } else {
      text += "    %" + name + " = aten." + (rng.percent(50) ? "neg" : "exp") + "(%" + rng.pick(values) + ")\n";
      values.push_back(name);
    }
    ++movable;
  }
  for (size_t i = 2; i < values.size(); ++i) text += "  output %" + values[i] + "\n";
  return parse_typed(text);
}

// The shortest step over all orders within the memory limit; plays every order except those that cannot be better.
class BruteForce {
 public:
  BruteForce(Step& step, int64_t limit) : step_(step), limit_(limit), waits_(step.precedence.size()) {
    for (uint32_t i = 0; i < waits_.size(); ++i) waits_[i] = step.precedence.before(i).size();
  }
  double run() {
    step_.memory.reset();
    go(StepClock(step_.costs), step_.memory, 0);
    return best_;
  }

 private:
  void go(const StepClock& clock, const StepMemory& memory, size_t done) {
    if (clock.makespan_us() >= best_) return;
    if (done == waits_.size()) {
      best_ = clock.makespan_us();
      return;
    }
    for (uint32_t i = 0; i < waits_.size(); ++i) {
      if (waits_[i] != 0 || memory.peak_if(i) > limit_) continue;
      waits_[i] = SIZE_MAX;
      for (uint32_t s : step_.precedence.after(i)) --waits_[s];
      StepClock next(clock);
      StepMemory then(memory);
      next.play(step_.precedence.node(i));
      then.play(i);
      go(next, then, done + 1);
      for (uint32_t s : step_.precedence.after(i)) ++waits_[s];
      waits_[i] = 0;
    }
  }

  Step& step_;
  int64_t limit_;
  std::vector<size_t> waits_;
  double best_ = 1e300;
};

struct Spread {
  size_t exact = 0, within_2 = 0, within_10 = 0, cases = 0;
  double worst = 1;
  void add(double ratio) {
    exact += ratio < 1 + 1e-9, within_2 += ratio <= 1.02, within_10 += ratio <= 1.1, ++cases;
    worst = std::max(worst, ratio);
  }
  void print(const char* name) const {
    std::printf("%s: %zu steps, optimal %zu, within 2 %% %zu, within 10 %% %zu, worst %.3f\n", name, cases, exact,
                within_2, within_10, worst);
  }
};

}  // namespace

namespace {

// Compares the clock with `simulate` for the job's own order and for `rounds` others. Returns the number of
// comparisons.
size_t hold_clock(const Job& job, const SimOptions& options, uint64_t seed, int rounds) {
  const std::vector<SymbolValues> values = values_of(job);
  if (values.empty()) return 0;
  Step step(job, *job.programs[0], values[0], options, OrderScope::job);
  StepClock clock(step.costs);
  Rng rng(seed);
  size_t held = 0;
  for (int round = 0; round <= rounds; ++round) {
    Order order(step.precedence.size());
    std::iota(order.begin(), order.end(), 0);
    if (round > 0) order = shuffled(step.precedence, &rng);
    REQUIRE_FALSE(step.precedence.violated(order));
    Job moved(job);
    apply_order(&moved.programs[0]->graph, step.precedence, order);
    Result<Simulation> simulation = simulate(moved, values, options);
    REQUIRE(simulation.ok());
    INFO("round " << round);
    REQUIRE(play(step, clock, order).makespan_us == simulation->worst().makespan_us);
    ++held;
  }
  return held;
}

// A step whose calls take pending collectives: their bodies wait for them, late and in bodies of their own.
Job step_of_calls(uint64_t seed) {
  Rng rng(seed);
  std::string text = "sg 1.0 job \"calls\" world 2\ngroup @a [0 1]\ngroup @b [0 1]\ndevice cuda:0\ngraph rank *\n";
  text += "  input %x : f32[4]\n  forward -\n";
  std::vector<std::string> values = {"x"}, under_way;
  const auto group = [&] { return std::string(rng.percent(50) ? "@a" : "@b"); };
  int next = 0;
  while (next < 14 || !under_way.empty()) {
    const std::string name = "n" + std::to_string(next++);
    const bool ends = next > 14;
    if (!under_way.empty() && (ends || rng.percent(50))) {
      const size_t pick = rng.below(under_way.size());
      const std::string taken = under_way[pick];
      under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(pick));
      if (rng.percent(70))
        text += "    %" + name + ", = sg.call(graph:" + (rng.percent(50) ? "late" : "outer") + ", [%" + taken + ", %" +
                rng.pick(values) + "])\n";
      else text += "    %" + name + " = _c10d_functional.wait_tensor(%" + taken + ")\n";
      values.push_back(name);
    } else if (rng.percent(60)) {
      text += "    %" + name + " = _c10d_functional.all_reduce(%" + rng.pick(values) + ", \"sum\", " + group() + ")\n";
      under_way.push_back(name);
    } else {
      text += "    %" + name + " = aten.neg(%" + rng.pick(values) + ")\n";
      values.push_back(name);
    }
  }
  for (size_t i = 1; i < values.size(); ++i) text += "  output %" + values[i] + "\n";
  return parse_typed(text + R"(graph rank * nested late
  input %p : f32[4]
  input %q : f32[4]
  forward -
    %s = _c10d_functional.all_reduce(%q, "sum", @a)
    %k = aten.exp(%q)
    %w = _c10d_functional.wait_tensor(%p)
    %t = _c10d_functional.wait_tensor(%s)
    %u = aten.add.Tensor(%w, %k)
    %r = aten.add.Tensor(%u, %t)
  output %r
graph rank * nested outer
  input %p : f32[4]
  input %q : f32[4]
  forward -
    %k = aten.neg(%q)
    %s = _c10d_functional.all_reduce(%k, "sum", @b)
    %r, = sg.call(graph:late, [%s, %q])
    %w = _c10d_functional.wait_tensor(%p)
    %t = aten.add.Tensor(%r, %w)
  output %t
)");
}

std::optional<Job> capture(const std::string& path) {
  std::optional<std::string> bytes = test::trace(path);
  if (!bytes) return std::nullopt;
  Result<Job> job = import_captures({{path, std::move(*bytes)}}, {true}, nullptr);
  REQUIRE(job.ok());
  return std::move(*job);
}

bool has_calls(const Job& job) {
  for (NodeId n : job.programs[0]->graph.nodes())
    if (job.programs[0]->graph.op_name(n) == "sg.call") return true;
  return false;
}

}  // namespace

TEST_CASE("the clock says of any order what the simulation says of a graph in that order") {
  const SimOptions options{slow_machine(), 0, false};
  size_t held = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    held += hold_clock(test::random_job(seed, {.nodes = 40, .ranks_apart = false}), options, seed, 2);
  }
  REQUIRE(held > 100);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed << " of calls");
    const Job job = step_of_calls(seed);
    Diagnostics findings;
    verify(job, {}, &findings);
    REQUIRE_FALSE(findings.has_errors());
    REQUIRE(hold_clock(job, options, seed, 3) == 4);
  }
}

TEST_CASE("the clock says of captures what the simulation says, as they are and behind passes") {
  Result<Machine> h100 = find_machine("h100-8");
  REQUIRE(h100.ok());
  using Pass = std::function<Result<Change>(Job*, PassContext&)>;
  const std::vector<std::pair<const char*, Pass>> passes = {
      {"captured", [](Job*, PassContext&) { return Change(); }},
      {"auto chunks", [](Job* job, PassContext& c) { return auto_chunk(job, {.chunks = 4, .min_output = 1024}, c); }},
      {"offloaded", [](Job* job, PassContext& c) { return offload(job, {.budget_bytes = 0, .all = true}, c); }},
      {"in buckets", [](Job* job, PassContext& c) { return bucket(job, {}, c); }},
      {"in chunks", [](Job* job, PassContext& c) { return chunk(job, {.modules = "layers.*.moe"}, c); }},
  };
  size_t with_calls = 0, changed = 0;
  for (const char* path : {"multi/llama3-fsdp4/rank0/step.json", "multi/dsv3-ep4/rank0/step.json",
                           "multi/dsv3-ep4-eagerchunk2/rank0/step.json", "single/gpt2-tiny/step.json"}) {
    const std::optional<Job> job = capture(path);
    if (!job) return;
    for (const auto& [name, pass] : passes) {
      Job next(*job);
      Diagnostics notes;
      PassContext context{&notes, true};
      const Result<Change> change = pass(&next, context);
      INFO(path << ", " << name);
      if (!change.ok()) continue;  // the model lacks the module, or the exchange is in chunks already
      changed += change->changed;
      with_calls += has_calls(next);
      REQUIRE(hold_clock(next, {*h100, 0, false}, 1, 1) == 2);
      REQUIRE(hold_clock(next, {slow_machine(), 0, false}, 2, 0) == 1);
    }
  }
  CHECK(changed >= 8);
  CHECK(with_calls >= 2);
}

TEST_CASE("live bytes while playing are those of the liveness of the graph in that order, or a little more") {
  const SimOptions options{slow_machine(), 0, false};
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Job job = test::random_job(seed, {.nodes = 40, .opaque_ops = false, .ranks_apart = false});
    const std::vector<SymbolValues> values = values_of(job);
    if (values.empty()) continue;
    Step step(job, *job.programs[0], values[0], options, OrderScope::job);
    StepClock clock(step.costs);
    Rng rng(seed);
    for (int round = 0; round < 3; ++round) {
      Order order(step.precedence.size());
      std::iota(order.begin(), order.end(), 0);
      if (round > 0) order = shuffled(step.precedence, &rng);
      Job moved(job);
      apply_order(&moved.programs[0]->graph, step.precedence, order);
      const int64_t live = compute_liveness(*moved.programs[0], moved.programs[0]->graph, step.sizes).lower_bound_bytes;
      const int64_t played = play(step, clock, order).peak_bytes;
      INFO("seed " << seed << ", round " << round);
      if (round == 0) CHECK(played == live);
      CHECK(played >= live);
    }
  }
}

TEST_CASE("orders of a random job keep every pair that may not change places") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Job job = test::random_job(seed, {.nodes = 40});
    const Precedence precedence(*job.programs[0], job.programs[0]->graph, OrderScope::job);
    Rng rng(seed);
    const Order order = shuffled(precedence, &rng);
    REQUIRE_FALSE(precedence.violated(order));
    std::vector<uint32_t> at(order.size());
    for (uint32_t i = 0; i < order.size(); ++i) at[order[i]] = i;
    for (uint32_t a = 0; a < order.size(); ++a)
      for (uint32_t b = a + 1; b < order.size(); ++b)
        if (at[a] > at[b]) {
          INFO("seed " << seed << ": " << a << " and " << b);
          REQUIRE(precedence.facts().may_swap(precedence.node(a), precedence.node(b)).allowed);
        }
  }
}

TEST_CASE("launching early keeps every pair that may not change places, in random jobs") {
  const SimOptions options{slow_machine(), 0, false};
  size_t moved = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    const Job job = test::random_job(seed, {.nodes = 60, .world = 2});
    const std::vector<SymbolValues> values = values_of(job);
    if (values.empty()) continue;
    for (const OrderScope scope : {OrderScope::job, OrderScope::rank}) {
      const Step step(job, *job.programs[0], values[0], options, scope);
      const Order order = launched_early(step);
      INFO("seed " << seed);
      REQUIRE(order.size() == step.precedence.size());
      REQUIRE_FALSE(step.precedence.violated(order));
      moved += !std::ranges::is_sorted(order);
    }
  }
  CHECK(moved > 20);
}

// A backward of `layers` whose gradients are divided and reduced: at the end of the step, or each where it is made.
static Job reduced_gradients(int layers, bool at_the_end) {
  std::string text = "sg 1.0 job \"reduced\" world 2\ngroup @a [0 1]\ndevice cuda:0\ngraph rank *\n";
  std::string end, outputs;
  text += "  input %x0 : f32[8]\n  backward -\n";
  for (int i = 0; i < layers; ++i) {
    const std::string n = std::to_string(i);
    text += "    %x" + std::to_string(i + 1) + " = aten.exp(%x" + n + ")\n    %w" + n + " = aten.neg(%x" + n + ")\n";
    std::string& reduction = at_the_end ? end : text;
    reduction += "    %d" + n + " = aten.div.Tensor(%w" + n + ", 2)\n    %r" + n + " = _c10d_functional.all_reduce(%d" +
                 n + ", \"sum\", @a)\n";
    end += "    %g" + n + " = _c10d_functional.wait_tensor(%r" + n + ")\n";
    outputs += "  output %g" + n + "\n";
  }
  return parse_typed(text + end + outputs);
}

TEST_CASE("reductions that a step ends with move to their gradients") {
  const SimOptions options{slow_machine(), 0, false};
  const Job late = reduced_gradients(20, true), early = reduced_gradients(20, false);
  const std::vector<SymbolValues> values = values_of(late), early_values = values_of(early);
  Step step(late, *late.programs[0], values[0], options, OrderScope::job);
  Step wanted(early, *early.programs[0], early_values[0], options, OrderScope::job);
  StepClock clock(step.costs), wanted_clock(wanted.costs);
  Order own(step.precedence.size());
  std::iota(own.begin(), own.end(), 0);
  const Played before = play(step, clock, own);
  const Played aim = play(wanted, wanted_clock, own);
  INFO(before.makespan_us << " us, " << aim.makespan_us << " us");
  REQUIRE(aim.makespan_us < before.makespan_us * 0.8);
  const Played found =
      play(step, clock, find_order(step, {aim.peak_bytes, OrderStart::launched_early, nullptr, false}, {}));
  CHECK(found.makespan_us <= aim.makespan_us);
  CHECK(found.peak_bytes <= aim.peak_bytes);
  for (OrderStart start : {OrderStart::as_it_is, OrderStart::launched_early}) {
    const Played within = play(step, clock, find_order(step, {before.peak_bytes, start, nullptr, false}, {}));
    CHECK(within.peak_bytes <= before.peak_bytes);
  }
}

TEST_CASE("a schedule that is broken on purpose is caught") {
  Job job = parse_typed(R"(sg 1.0 job "two" world 2
group @g [0 1]
graph rank 0
  input %x : f32[4]
  forward -
    %a = _c10d_functional.all_reduce(%x, "sum", @g)
    %b = _c10d_functional.all_gather_into_tensor(%x, 2, @g)
    %aw = _c10d_functional.wait_tensor(%a)
    %bw = _c10d_functional.wait_tensor(%b)
  output %aw
  output %bw
graph rank 1
  input %x : f32[4]
  forward -
    %a = _c10d_functional.all_reduce(%x, "sum", @g)
    %b = _c10d_functional.all_gather_into_tensor(%x, 2, @g)
    %aw = _c10d_functional.wait_tensor(%a)
    %bw = _c10d_functional.wait_tensor(%b)
  output %aw
  output %bw
)");
  Diagnostics fine;
  verify(job, {}, &fine);
  REQUIRE_FALSE(fine.has_errors());
  SECTION("a node before one that it takes a result of") {
    const Precedence precedence(*job.programs[0], job.programs[0]->graph, OrderScope::job);
    REQUIRE(precedence.violated({1, 2, 0, 3}));
    REQUIRE(*precedence.violated({1, 2, 0, 3}) == std::pair<uint32_t, uint32_t>(0, 2));
    REQUIRE_FALSE(precedence.violated({1, 0, 2, 3}));  // legal for the rank if all ranks do it
    REQUIRE(Precedence(*job.programs[0], job.programs[0]->graph, OrderScope::rank).violated({1, 0, 2, 3}));
  }
  SECTION("launches of one rank in another order") {
    Graph& graph = job.programs[0]->graph;
    graph.move_before(graph.find_node("b"), graph.find_node("a"));
    Diagnostics findings;
    verify(job, {}, &findings);
    REQUIRE(findings.has_errors());
  }
  SECTION("launches of both ranks in another order") {
    for (auto& program : job.programs)
      program->graph.move_before(program->graph.find_node("b"), program->graph.find_node("a"));
    Diagnostics findings;
    verify(job, {}, &findings);
    REQUIRE_FALSE(findings.has_errors());
  }
}

TEST_CASE("the model's orders beside the best of all orders of small steps") {
  const SimOptions options{slow_machine(), 0, false};
  Spread all, lists;
  size_t shorter = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Job job = small_step(seed);
    const std::vector<SymbolValues> values = values_of(job);
    Step step(job, *job.programs[0], values[0], options, OrderScope::job);
    REQUIRE(step.precedence.size() <= 12);  // the last waits among them cannot move
    StepClock clock(step.costs);
    Order own(step.precedence.size());
    std::iota(own.begin(), own.end(), 0);
    const Played before = play(step, clock, own);
    const double best = BruteForce(step, before.peak_bytes).run();
    REQUIRE(best <= before.makespan_us);
    for (bool polish : {true, false}) {
      const Played played =
          play(step, clock, find_order(step, {before.peak_bytes, OrderStart::as_it_is, nullptr, polish}, {}));
      REQUIRE(played.makespan_us <= before.makespan_us);
      REQUIRE(played.peak_bytes <= before.peak_bytes);
      REQUIRE(played.makespan_us >= best * (1 - 1e-12));
      (polish ? all : lists).add(played.makespan_us / best);
      if (polish) shorter += played.makespan_us < before.makespan_us;
    }
  }
  all.print("model");
  lists.print("model, without moving single nodes");
  CHECK(all.within_10 * 100 >= all.cases * 95);
  CHECK(shorter > 50);
}

TEST_CASE("programs that differ follow one order of launches") {
  const char* kProgram = R"(  input %x : f32[4096, 4096]
  input %y : f32[4096, 4096]
  forward -
    %a = _c10d_functional.all_reduce(%x, "sum", @g)
    %aw = _c10d_functional.wait_tensor(%a)
    %s = aten.mm(%aw, %aw)
    %t = aten.mm(%s, %y)
    %b = _c10d_functional.all_reduce(%y, "sum", @g)
    %bw = _c10d_functional.wait_tensor(%b)
    %u = aten.mm(%bw, %t)
    %v = aten.mm(%y, %y)
)";
  Job job = parse_typed(std::string("sg 1.0 job \"two\" world 2\ngroup @g [0 1]\ngraph rank 0\n") + kProgram +
                        "  output %u\n  output %v\ngraph rank 1\n" + kProgram +
                        "    %w = aten.mm(%v, %y)\n  output %u\n  output %w\n");
  Diagnostics notes;
  PassContext context{&notes, false, true, 1};
  Result<Change> change = overlap(&job, {}, context);
  REQUIRE(change.ok());
  INFO(change->summary);
  REQUIRE(change->changed);
  verify(job, {}, &notes);
  REQUIRE_FALSE(notes.has_errors());
}

TEST_CASE("exchanges that all programs have are counted once") {
  const char* kProgram = R"(
  input %x : f32[4, 4]
  forward -
    %a = _c10d_functional.all_reduce(%x, "sum", @g)
    %aw = _c10d_functional.wait_tensor(%a)
    %b = _c10d_functional.all_to_all_single(%aw, [2, 2], [2, 2], @g)
    %bw = _c10d_functional.wait_tensor(%b)
  output %bw
)";
  Job job = parse_typed(std::string("sg 1.0 job \"two\" world 2\ngroup @g [0 1]\ngraph rank 0") + kProgram +
                        "graph rank 1" + kProgram);
  Diagnostics notes;
  PassContext context{&notes};
  Result<Change> change = isolate(&job, {}, context);
  REQUIRE(change.ok());
  CHECK(change->summary == "1 exchange of @g now on @g:1, priority 1");
}

// Ranks with programs of their own that reduce with one or another of them: made as one history of all ranks, so that
// they do not wait for each other in a circle.
static Job meetings(uint64_t seed) {
  Rng rng(seed);
  const uint32_t world = static_cast<uint32_t>(rng.between(2, 4));
  std::string text = "sg 1.0 job \"meetings\" world " + std::to_string(world) + "\n", programs;
  for (uint32_t a = 0; a < world; ++a)
    for (uint32_t b = a + 1; b < world; ++b)
      text += "group @g" + std::to_string(a) + std::to_string(b) + " [" + std::to_string(a) + " " + std::to_string(b) +
              "]\n";
  struct Rank {
    std::string nodes;
    std::vector<std::string> values = {"x"}, under_way;
    int next = 0;
    std::string add(const std::string& call) {
      nodes += "    %v" + std::to_string(next) + " = " + call + "\n";
      return "v" + std::to_string(next++);
    }
  };
  std::vector<Rank> ranks(world);
  auto wait = [&](Rank& r) {
    r.values.push_back(r.add("_c10d_functional.wait_tensor(%" + r.under_way.back() + ")"));
    r.under_way.pop_back();
  };
  for (int i = 0; i < 40; ++i) {
    const uint32_t a = static_cast<uint32_t>(rng.below(world - 1));
    const uint32_t b = static_cast<uint32_t>(rng.between(a + 1, world - 1));
    Rank& alone = ranks[rng.percent(50) ? a : b];
    if (rng.percent(40)) {
      for (Rank* r : {&ranks[a], &ranks[b]})
        r->under_way.push_back(r->add("_c10d_functional.all_reduce(%" + rng.pick(r->values) + ", \"sum\", @g" +
                                      std::to_string(a) + std::to_string(b) + ")"));
    } else if (rng.percent(40) && !alone.under_way.empty()) {
      wait(alone);
    } else {
      alone.values.push_back(alone.add("aten.neg(%" + rng.pick(alone.values) + ")"));
    }
  }
  for (uint32_t r = 0; r < world; ++r) {
    while (!ranks[r].under_way.empty()) wait(ranks[r]);
    programs += "graph rank " + std::to_string(r) + "\n  input %x : f32[8]\n  forward -\n" + ranks[r].nodes;
    for (size_t v = 1; v < ranks[r].values.size(); ++v) programs += "  output %" + ranks[r].values[v] + "\n";
  }
  return parse_typed(text + "device cuda:0\n" + programs);
}

TEST_CASE("ranks with programs of their own do not come to wait for each other") {
  size_t changed = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Job job = meetings(seed);
    Diagnostics notes;
    PassContext context{&notes, false, true, 1};
    Result<Change> change = overlap(&job, {}, context);
    INFO("seed " << seed << ": " << (notes.list().empty() ? "" : notes.list()[0].message));
    REQUIRE(change.ok());
    REQUIRE(notes.list().empty());
    changed += change->changed;
    Diagnostics findings;
    verify(job, {}, &findings);
    REQUIRE_FALSE(findings.has_errors());
  }
  CHECK(changed > 50);
}

TEST_CASE("random jobs are valid behind it") {
  size_t changed = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Job job = test::random_job(seed, {.nodes = 50});
    if (values_of(job).empty()) continue;
    Diagnostics notes;
    PassContext context{&notes, false, true, 1};
    Result<Change> change = overlap(&job, {}, context);
    INFO("seed " << seed);
    REQUIRE(change.ok());
    changed += change->changed;
    context.best_effort = true;
    Result<Change> phases = overlap(&job, {.strategy = OverlapStrategy::reference, .dense_fsdp = true}, context);
    REQUIRE(phases.ok());
    Diagnostics findings;
    verify(job, {}, &findings);
    REQUIRE_FALSE(findings.has_errors());
  }
  REQUIRE(changed > 5);
}
