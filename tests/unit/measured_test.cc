#include "libgraph/sim/measured.h"

#include <catch2/catch.hpp>

#include "libgraph/sim/report.h"
#include "tests/support/parse.h"
#include "tests/support/rng.h"

using namespace sg;
using sg::test::parse;

namespace {

MeasuredTrace read(std::string text) {
  Result<MeasuredTrace> trace = MeasuredTrace::read("t.json", std::move(text));
  INFO((trace.ok() ? "" : trace.error().message));
  REQUIRE(trace.ok());
  return std::move(*trace);
}

std::string event(const char* cat, const char* name, int pid, int tid, double ts, double dur,
                  const std::string& args = "{}") {
  return "{\"ph\":\"X\",\"cat\":\"" + std::string(cat) + "\",\"name\":\"" + name + "\",\"pid\":" + std::to_string(pid) +
         ",\"tid\":" + std::to_string(tid) + ",\"ts\":" + std::to_string(ts) + ",\"dur\":" + std::to_string(dur) +
         ",\"args\":" + args + "},\n";
}

std::string trace_of(std::string events) {
  events.resize(events.size() - 2);
  return "{\"schemaVersion\": 1, \"traceEvents\": [\n" + events + "]}\n";
}

// Two steps of a GPU, as PyTorch's profiler writes them: CPU ops, launches, kernels that begin later.
std::string gpu_steps() {
  std::string out;
  for (int step = 0; step < 2; ++step) {
    double t = 1e12 + step * 1000;
    auto id = [&](int n) { return std::to_string(10 * step + n); };
    out += event("user_annotation", step ? "ProfilerStep#4" : "ProfilerStep#3", 77, 77, t, 1000);
    out += event("cpu_op", "aten::linear", 77, 77, t + 1, 40, "{\"External id\": " + id(1) + "}");
    out += event("cpu_op", "aten::addmm", 77, 77, t + 2, 30, "{\"External id\": " + id(2) + "}");
    out += event("cuda_runtime", "cudaLaunchKernel", 77, 77, t + 5, 3,
                 "{\"External id\": " + id(2) + ", \"correlation\": " + id(3) + "}");
    out += event("cpu_op", "aten::add", 77, 77, t + 50, 9, "{\"External id\": " + id(4) + "}");
    out += event("cpu_op", "aten::_flash_attention_forward", 77, 77, t + 60, 9, "{\"External id\": " + id(5) + "}");
    out += event("kernel", "sm90_xmma_gemm_bf16", 0, 7, t + 100, 200,
                 "{\"External id\": " + id(2) + ", \"correlation\": " + id(3) + "}");
    out += event("kernel", "vectorized_elementwise_kernel(int)", 0, 7, t + 300, 50, "{\"External id\": " + id(4) + "}");
    out += event("kernel", "flash_fwd_kernel", 0, 7, t + 400, 100, "{\"External id\": " + id(5) + "}");
    out += event("kernel", "triton_poi_fused_add_0(float*)", 0, 7, t + 500, 20);
    out += event("kernel", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 20, t + 150, 300);
    out += event("kernel", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 0, 24, t + 520, 80);
    out += event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 0, 9, t + 530, 5);
    out += event("gpu_memset", "Memset (Device)", 0, 7, t + 540, 5, "{\"correlation\": " + id(3) + "}");
  }
  return out;
}

constexpr const char* kMeasuredStep = R"(sg 1.0 job "t" world 2
group @g [0 1]
device cuda:0

graph rank *
  input %x : bf16[8192, 4096] "x"
  input %w : bf16[4096, 4096] "w"

  forward -
    %a = _c10d_functional.all_gather_into_tensor(%w, 2, @g) : bf16[8192, 4096]
    %y = aten.mm(%x, %w)                                    : bf16[8192, 4096]
    %z = aten.add.Tensor(%y, %x)                            : bf16[8192, 4096]
    %v = _c10d_functional.wait_tensor(%a)                   : bf16[8192, 4096]
    %u = aten.add.Tensor(%z, %v)                            : bf16[8192, 4096]

  output %u
)";

}  // namespace

TEST_CASE("kernels are of the kind of the op that launched them", "[measured]") {
  MeasuredTrace trace = read(trace_of(gpu_steps()));
  const MeasuredStep& s = trace.step();
  CHECK(s.source == "PyTorch");
  CHECK(s.steps == 2);
  CHECK(s.ranks == 1);
  CHECK(s.step_us == Approx(1000));
  CHECK(s.begin_us == Approx(1e12));
  CHECK(s.compute.at("matmul").us == Approx(205));  // the memset belongs to the launch of addmm
  CHECK(s.compute.at("matmul").count == Approx(2));
  CHECK(s.compute.at("memory").us == Approx(50));
  CHECK(s.compute.at("attention").us == Approx(100));
  CHECK(s.compute.size() == 3);
  CHECK(s.unknown_us.at("triton_poi_fused_add_0") == Approx(20));
  CHECK(s.under_way.at("all_gather").us == Approx(300));
  CHECK(s.exposed.at("all_gather").us == Approx(50));  // from 350 to 400
  CHECK(s.exposed.at("all_to_all").us == Approx(80));
  CHECK(s.under_way.at("copy").us == Approx(5));
}

TEST_CASE("without kernels, ops of the CPU count without what they call", "[measured]") {
  std::string events = event("cpu_op", "aten::my_layer", 1, 1, 0, 100, "{\"External id\": 1}") +
                       event("cpu_op", "aten::addmm", 1, 1, 10, 80, "{\"External id\": 2}") +
                       event("cpu_op", "aten::add_", 1, 1, 20, 30, "{\"External id\": 3}") +
                       event("cpu_op", "aten::add_", 1, 2, 20, 30, "{\"External id\": 4}");
  MeasuredTrace trace = read(trace_of(events));
  const MeasuredStep& s = trace.step();
  CHECK(s.steps == 1);
  CHECK(s.step_us == Approx(100));
  CHECK(s.compute.at("matmul").us == Approx(50));
  CHECK(s.compute.at("memory").us == Approx(60));
  CHECK(s.unknown_us.at("aten::my_layer") == Approx(20));
}

TEST_CASE("a profile of sg-run: nodes by rank and step, bodies apart from their calls, waits for what they wait for",
          "[measured]") {
  std::string events;
  for (int rank = 0; rank < 2; ++rank)
    for (int step = 0; step < 3; ++step) {
      double t = 100 + step * 1000 + rank;
      auto node = [](const char* name) { return "{\"node\": \"" + std::string(name) + "\"}"; };
      events += event("forward", "aten.mm.default", rank, 1, t, 100, node("mm"));
      events += event("forward", "_c10d_functional.all_to_all_single.default", rank, 1, t + 100, 10, node("send"));
      events += event("forward", "sg.call", rank, 1, t + 110, 100, node("call"));
      events += event("forward", "aten.mm.default", rank, 1, t + 115, 90, node("mm"));
      events += event("forward", "_c10d_functional.wait_tensor.default", rank, 1, t + 210, 40, node("wait"));
      events += event("", "_c10d_functional.all_to_all_single.default", rank, 2, t + 110, 140,
                      "{\"node\":\"send\",\"waited_us\":40}");
    }
  MeasuredTrace trace = read(trace_of(events));
  const MeasuredStep& s = trace.step();
  CHECK(s.source == "sg-run");
  CHECK(s.steps == 3);
  CHECK(s.ranks == 2);
  CHECK(s.step_us == Approx(250));
  CHECK(s.compute.at("matmul").us == Approx(190));
  CHECK(s.compute.at("matmul").count == Approx(2));
  CHECK(s.exposed.at("all_to_all").us == Approx(50));  // launch and wait
  CHECK(s.under_way.at("all_to_all").us == Approx(140));
  CHECK(s.unknown_us.at("sg.call") == Approx(10));
}

TEST_CASE("copies to the host are under way and exposed, not computed", "[measured]") {
  const auto node = [](const char* name) { return "{\"node\": \"" + std::string(name) + "\"}"; };
  const std::string nodes = event("forward", "aten.mm.default", 0, 1, 100, 100, node("mm")) +
                            event("forward", "sg.offload", 0, 1, 200, 20, node("out")) +
                            event("forward", "sg.wait", 0, 1, 220, 5, node("wait"));
  SECTION("the processor copies in the node that starts") {
    const MeasuredTrace trace = read(trace_of(nodes));
    const MeasuredStep& s = trace.step();
    CHECK(s.exposed.at("copy").us == Approx(25));
    CHECK(s.under_way.at("copy").us == Approx(20));
    CHECK(s.compute.size() == 1);
    CHECK(s.nodes == std::set<std::string, std::less<>>{"mm", "out", "wait"});
  }
  SECTION("a device has a track for them, other copies are part of their nodes, and collectives have waits, too") {
    const std::string others =
        event("copy", "download", 0, 3, 205, 60, node("out")) + event("copy", "download", 0, 3, 100, 50, node("mm")) +
        event("", "_c10d_functional.all_to_all_single.default", 0, 2, 100, 4, "{\"node\":\"send\",\"waited_us\":2}");
    const MeasuredTrace trace = read(trace_of(nodes + others));
    CHECK(trace.step().exposed.at("copy").us == Approx(23));
    CHECK(trace.step().under_way.at("copy").us == Approx(60));
  }
}

TEST_CASE("steps whose clocks overlap a little are steps", "[measured]") {
  std::string events;
  for (int step = 0; step < 3; ++step) {
    events += event("forward", "aten.mm.default", 0, 1, 100 + step * 50, 30, "{\"node\": \"mm\"}");
    events += event("forward", "aten.add.Tensor", 0, 1, 130 + step * 50, 20.5, "{\"node\": \"add\"}");
  }
  CHECK(read(trace_of(events)).step().steps == 3);
}

// Begins and lengths are rounded separately: their sum may exceed the next begin, by less than the clock's resolution.
TEST_CASE("a node that begins where another ends is not within it", "[measured]") {
  const std::string events = event("forward", "aten.mm.default", 0, 1, 2, 28.0001, "{\"node\": \"mm\"}") +
                             event("forward", "aten.add.Tensor", 0, 1, 30, 15, "{\"node\": \"add\"}");
  CHECK(read(trace_of(events)).step().compute.at("matmul").us == Approx(28.0001));
}

TEST_CASE("a machine fitted to a profile simulates its times", "[measured]") {
  Job job = parse(kMeasuredStep);
  Result<std::vector<SymbolValues>> values = assume_values(job, infer_ranges(job), Assumption());
  REQUIRE(values.ok());
  auto on = [&](const Machine& machine) -> Result<ProgramTimeline> {
    Result<Simulation> s = simulate(job, *values, {machine});
    if (!s.ok()) return s.error();
    return std::move(s->programs[0]);
  };
  Result<Machine> start = find_machine("h100-8");
  REQUIRE(start.ok());
  MeasuredStep measured;
  measured.source = "PyTorch";
  measured.compute["matmul"] = {900, 1};
  measured.compute["memory"] = {300, 2};
  measured.under_way["all_gather"] = {700, 1};
  measured.under_way["all_to_all"] = {10, 1};  // the graph has none
  Result<Machine> fitted = fit_machine(*start, measured, on);
  REQUIRE(fitted.ok());
  Result<ProgramTimeline> after = on(*fitted);
  REQUIRE(after.ok());
  for (const Residual& r : residuals(measured, *after)) {
    INFO(r.what << " " << r.kind);
    if (r.measured_us > 0 && r.simulated_us > 0) CHECK(r.simulated_us == Approx(r.measured_us).epsilon(1e-3));
  }
  CHECK(fitted->efficiency.attention == start->efficiency.attention);
  CHECK(fitted->network.exchange.within_gbps == start->network.exchange.within_gbps);
  std::string text = print_residuals(measured, *after);
  CHECK(text.find("  matmul ") != std::string::npos);
  CHECK(text.find("900.0 us") != std::string::npos);
}

TEST_CASE("a simulated timeline lies beside the profile's events, from its first step on", "[measured]") {
  Job job = parse(kMeasuredStep);
  Result<std::vector<SymbolValues>> values = assume_values(job, infer_ranges(job), Assumption());
  Result<Machine> machine = find_machine("h100-8");
  Result<Simulation> s = simulate(job, *values, {*machine});
  REQUIRE(s.ok());
  MeasuredTrace trace = read(trace_of(gpu_steps()));
  std::string both = simulation_trace(job, *s, &trace);
  CHECK(both.find("ncclDevKernel_SendRecv") != std::string::npos);
  CHECK(both.find("\"simulated: each of 2 ranks\"") != std::string::npos);
  CHECK(both.find("\"pid\":1000000000,\"tid\":1,\"ts\":1000000000010.0") != std::string::npos);  // two launches later
  REQUIRE(MeasuredTrace::read("again", both).ok());
}

TEST_CASE("what is no profile is told", "[measured]") {
  auto message = [](std::string text) {
    Result<MeasuredTrace> trace = MeasuredTrace::read("t.json", std::move(text));
    REQUIRE(!trace.ok());
    CHECK(trace.error().kind == ErrorKind::unreadable);
    return trace.error().message;
  };
  message("");
  message("{\"traceEvents\": [");
  CHECK(message("{}") == "not a trace: it has no `traceEvents`");
  CHECK(message("{\"traceEvents\": {}}") == "not a trace: it has no `traceEvents`");
  CHECK(message("[]").find("neither a profile of sg-run nor one of PyTorch") == 0);
  CHECK(message("[1, null, {\"ph\": 3}, {\"ph\": \"X\", \"args\": []}]").find("neither") == 0);
  MeasuredTrace odd = read(R"([
      {"ph":"X","cat":"kernel","name":"k","ts":"soon","dur":-5,"pid":1e300,"tid":{},"args":{"External id":"x"}},
      {"ph":"X","cat":"cpu_op","name":"aten::","ts":1e300,"dur":1e300,"args":{"External id":null}}])");
  CHECK(odd.step().unknown_us.at("k") == 0);
}

TEST_CASE("traces cut and changed at random do no harm", "[measured]") {
  const std::string whole = trace_of(gpu_steps());
  test::Rng rng(5);
  for (int round = 0; round < 400; ++round) {
    std::string text = whole;
    for (int change = 0; change < 4; ++change) text[rng.below(text.size())] = "0129-{}[]\",:eE.tfn "[rng.below(19)];
    Result<MeasuredTrace> trace = MeasuredTrace::read("t.json", text);
    if (!trace.ok()) continue;
    JsonWriter json;
    json.begin_array();
    trace->write_events(&json);
    json.end_array();
    CHECK(trace->step().steps >= 1);
  }
}
