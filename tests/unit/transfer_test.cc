// Copies to the host and back: what is live where, what must wait for what, and where it is in a run.

#include <catch2/catch.hpp>

#include "libgraph/facts/order.h"
#include "libgraph/infer/infer.h"
#include "libgraph/plan/liveness.h"
#include "libgraph/plan/plan.h"
#include "libgraph/verify/verify.h"
#include "tests/support/parse.h"

using namespace sg;

namespace {

const SizeValues kNoSizes = [](StrId) -> std::optional<int64_t> { return std::nullopt; };

constexpr const char* kMovedStep = R"(sg 1.0
graph rank *
  input %x : f32[256]
  forward -
    %a = aten.cumsum(%x, 0)
    %host = sg.offload(%a)
    %b = aten.cumsum(%a, 0)
    %kept = sg.wait(%host)
    %c = aten.cumsum(%b, 0)
  backward -
    %fetched = sg.reload(%kept, device=cpu)
    %d = aten.cumsum(%c, 0)
    %back = sg.wait(%fetched)
    %e = aten.add.Tensor(%d, %back)
  output %e
)";

Job parse_inferred(std::string_view text) {
  Job job = test::parse(text);
  infer_missing_types(*job.programs[0]);
  return job;
}

Liveness live(const Job& job) { return compute_liveness(*job.programs[0], job.programs[0]->graph, kNoSizes); }

const LiveStorage& storage(const Job& job, const Liveness& l, const char* name) {
  return *l.find(l.storage_of[job.programs[0]->graph.find_value(name).index]);
}

// The first finding of the verifier for a graph with these nodes.
std::string finding(const std::string& nodes, const std::string& output) {
  const Job job =
      parse_inferred("sg 1.0\ngraph rank *\n  input %x : f32[4]\n  forward -\n" + nodes + "  output " + output + "\n");
  Diagnostics found(5);
  verify(job, {}, &found);
  return found.has_errors() ? found.as_error(ErrorKind::unreadable).message : "";
}

}  // namespace

TEST_CASE("what is on the host counts there, and the device's place is free from the wait to the reload") {
  const Job job = parse_inferred(kMovedStep);
  const Liveness l = live(job);
  const LiveStorage &a = storage(job, l, "a"), &host = storage(job, l, "host"), &back = storage(job, l, "fetched");
  CHECK(host.is_host);
  CHECK_FALSE(a.is_host);
  CHECK_FALSE(back.is_host);
  CHECK(a.last_position == 3);  // the wait
  CHECK(host.first_position == 1);
  CHECK(host.last_position == 7);  // the wait for the copy back
  CHECK(back.first_position == 5);
  CHECK(l.host_bound_bytes == 1024);
  //                                        a     host  b     kept  c     fetch d            back         e, in place
  CHECK(l.live_bytes == std::vector<int64_t>{1024, 1024, 2048, 2048, 2048, 2048, 3072, 2048, 2048});
  const MemoryPlan plan = plan_memory(l);
  CHECK(plan.host_bytes == 1024);
  CHECK(plan.arena_bytes == 3072);
  CHECK(plan.offset_of(host.storage) == 0);
  for (uint32_t i : l.live_at_peak) CHECK_FALSE(l.storages[i].is_host);
}

TEST_CASE("PyTorch's own ops mean the same, and what a wait keeps alive it does not write") {
  const Job job = parse_inferred(R"(sg 1.0
graph rank *
  input %x : f32[256]
  forward -
    %a = aten.cumsum(%x, 0)
    %host = ao.offload(%a)
    %b = aten.cumsum(%a, 0)
    %kept = ao.wait_tensor(%host, %a, %b)
    %c = aten.cumsum(%b, 0)
  backward -
    %fetched = ao.reload(%kept, device:cpu, [256], [1])
    %back = ao.wait_tensor(%fetched, %kept)
    %e = aten.add.Tensor(%c, %back)
  output %e
)");
  Diagnostics found(5);
  verify(job, {}, &found);
  CHECK_FALSE(found.has_errors());
  const Liveness l = live(job);
  CHECK(storage(job, l, "host").is_host);
  CHECK(storage(job, l, "a").last_position == 3);
  const AliasAnalysis alias(*job.programs[0], job.programs[0]->graph);
  const Graph& graph = job.programs[0]->graph;
  const auto writes = alias.writes(graph.find_node("kept"));
  REQUIRE(writes.size() == 1);
  CHECK(writes[0] == alias.storage_of(graph.find_value("host")));
}

TEST_CASE("nobody reads a copy before its wait, or writes what is being copied") {
  CHECK(finding(
            "    %h = sg.offload(%x)\n    %k = sg.wait(%h)\n    %r = sg.reload(%k, device=cpu)\n    %b = sg.wait(%r)\n",
            "%b")
            .empty());
  CHECK(finding("    %h = sg.offload(%x)\n    %r = sg.reload(%h, device=cpu)\n    %b = sg.wait(%r)\n", "%b")
            .find("before it was waited for") != std::string::npos);
  CHECK(finding("    %h = sg.offload(%x)\n    %k = sg.wait(%h)\n    %r = sg.reload(%k, device=cpu)\n", "%r")
            .find("before it was waited for") != std::string::npos);
  CHECK(finding(
            "    %a = aten.neg(%x)\n    %h = sg.offload(%a)\n    %w = aten.add_.Tensor(%a, 1)\n    %k = sg.wait(%h)\n",
            "%k")
            .find("still sends it") != std::string::npos);
}

TEST_CASE("a batch norm writes what is being copied only in training") {
  for (const std::string training : {"false", "true"}) {
    const Job job = parse_inferred(R"(sg 1.0
graph rank *
  input %x : f32[4, 6]
  input %v : f32[6]
  forward -
    %mean = aten.neg(%v)
    %h = sg.offload(%mean)
    %y, %a, %b = aten.native_batch_norm(%x, none, none, %mean, %v, )" +
                                   training + R"(, 0.1, 0.1)
    %k = sg.wait(%h)
  output %y
  output %k
)");
    Diagnostics found(5);
    verify(job, {}, &found);
    CHECK(found.has_errors() == (training == "true"));
  }
}

TEST_CASE("schedulers keep writes of the copied memory behind the wait") {
  const Job job = parse_inferred(R"(sg 1.0
graph rank *
  input %x : f32[4]
  forward -
    %a = aten.neg(%x)
    %h = sg.offload(%a)
    %k = sg.wait(%h)
    %w = aten.add_.Tensor(%a, 1)
  output %k
  output %w
)");
  const Graph& graph = job.programs[0]->graph;
  const OrderFacts facts(*job.programs[0], graph);
  CHECK_FALSE(facts.may_move_before(graph.find_node("w"), graph.find_node("k")).allowed);
  CHECK_FALSE(facts.may_move_before(graph.find_node("k"), graph.find_node("h")).allowed);
}

TEST_CASE("in the body of a call what is on the host counts as the device's") {
  const Job job = parse_inferred(R"(sg 1.0
graph rank *
  input %x : f32[256]
  forward -
    %y = sg.call(graph:body, [%x])
  output %y
graph rank * nested body
  input %p : f32[256]
  forward -
    %h = sg.offload(%p)
    %k = sg.wait(%h)
    %r = aten.cumsum(%k, 0)
  output %r
)");
  const Liveness l = live(job);
  CHECK(l.host_bound_bytes == 0);
  CHECK(plan_memory(l).host_bytes == 0);
  CHECK(l.lower_bound_bytes == 2048);
}
