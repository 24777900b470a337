#include "librun/profile.h"

#include <catch2/catch.hpp>

#include "libgraph/sim/measured.h"
#include "tests/support/parse.h"

using namespace sg;
using sg::test::parse;

namespace {

// Reaches each of its marks at a time that the test gives.
class ScriptedClock : public DeviceClock {
 public:
  explicit ScriptedClock(std::vector<double> times) : script_(std::move(times)) {}
  Status restart() override {
    spans_.clear();
    count_ = 0;
    mark();
    return ok_status();
  }
  uint64_t mark() override { return count_++; }
  const std::vector<Span>& spans() const override { return spans_; }
  Result<std::vector<double>> times() override {
    REQUIRE(count_ == script_.size());
    return script_;
  }
  // A span between the next two marks.
  void span(Span::Kind kind, int64_t bytes) {
    const uint64_t begin = mark();
    spans_.push_back({kind, bytes, begin, mark()});
  }

 private:
  std::vector<double> script_;
  std::vector<Span> spans_;
  uint64_t count_ = 0;
};

NodeId node_named(const Graph& graph, std::string_view label) {
  for (NodeId n : graph.nodes())
    if (graph.label(n) == label) return n;
  FAIL(label);
  return {};
}

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("a profile of a device has its times: of nodes, of collectives beside them, of copies within them") {
  Job job = parse(R"(sg 1.0 job "t" world 2
group @g [0 1]
group @g:1 [0 1]
graph rank *
  input %x : f32[4, 4] "x"
  %s = _c10d_functional.all_reduce(%x, "sum", @g) : f32[4, 4]
  %y = aten.mm(%x, %x)                            : f32[4, 4]
  %v = _c10d_functional.wait_tensor(%s)           : f32[4, 4]
  output %v
  output %y
)");
  const Graph& graph = job.programs[0]->graph;
  using Kind = DeviceClock::Span::Kind;
  //                  start | launch, its flight | mm, an upload    | wait   | after the last node
  ScriptedClock clock({0, 0, 5, 45, 2, /*mm*/ 2, 10, 20, 30, /*wait*/ 30, 45, /*loss*/ 50, 52});
  Profile profile(job, 0, Profile::Clock::now());
  REQUIRE(profile.begin_step(&clock).ok());
  profile.before(graph, node_named(graph, "s"));
  clock.span(Kind::collective, 64);
  profile.ran(graph, node_named(graph, "s"), 1);
  profile.before(graph, node_named(graph, "y"));
  clock.span(Kind::upload, 32);
  profile.ran(graph, node_named(graph, "y"), 3);
  profile.before(graph, node_named(graph, "v"));
  profile.ran(graph, node_named(graph, "v"), 1);
  clock.span(Kind::download, 4);
  REQUIRE(profile.end_step().ok());
  const Profile* const all[] = {&profile};
  const std::string text = profile_json(all);
  CHECK(count_of(text, R"("bytes":32,"node":"y")") == 1);
  CHECK(count_of(text, R"("bytes":4})") == 1);  // requested by no node
  CHECK(count_of(text, R"("fused":3)") == 1);
  CHECK(count_of(text, R"("name":"copies")") == 1);
  CHECK(count_of(text, R"("name":"group g")") == 1);  // each communicator's track has its own name
  CHECK(count_of(text, R"("name":"group g:1")") == 1);
  Result<MeasuredTrace> trace = MeasuredTrace::read("t.json", text);
  REQUIRE(trace.ok());
  const MeasuredStep& s = trace->step();
  CHECK(s.step_us == Approx(45).margin(1e-6));
  CHECK(s.compute.at("matmul").us == Approx(28));
  CHECK(s.under_way.size() == 1);  // copies are not collectives
  CHECK(s.under_way.at("all_reduce").us == Approx(40));
  CHECK(s.exposed.at("all_reduce").us == Approx(17));  // its launch, and the part that the wait waits for
  CHECK(s.unknown_us.empty());
}

TEST_CASE("what a body of a call asks for belongs to the node of the body") {
  Job job = parse(R"(sg 1.0 job "t" world 1
graph rank *
  input %x : f32[4] "x"
  %a = aten.neg(%x) : f32[4]
  %b = aten.neg(%a) : f32[4]
  output %b
)");
  const Graph& graph = job.programs[0]->graph;
  const NodeId call = node_named(graph, "a"), inner = node_named(graph, "b");
  ScriptedClock clock({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  Profile profile(job, 0, Profile::Clock::now());
  REQUIRE(profile.begin_step(&clock).ok());
  profile.before(graph, call);
  clock.span(DeviceClock::Span::Kind::upload, 1);  // before the body
  for (int i = 0; i < 2; ++i) {
    profile.before(graph, inner);
    if (i == 1) clock.span(DeviceClock::Span::Kind::upload, 2);
    profile.ran(graph, inner, 1);
  }
  clock.span(DeviceClock::Span::Kind::upload, 3);  // after it
  profile.ran(graph, call, 1);
  REQUIRE(profile.end_step().ok());
  const Profile* const all[] = {&profile};
  const std::string text = profile_json(all);
  CHECK(count_of(text, R"("bytes":1,"node":"a")") == 1);
  CHECK(count_of(text, R"("bytes":2,"node":"b")") == 1);
  CHECK(count_of(text, R"("bytes":3,"node":"a")") == 1);
}
