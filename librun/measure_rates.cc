#include "librun/measure_rates.h"

#include <algorithm>

#include "libgraph/base/joined.h"
#include "libgraph/facts/cost.h"
#include "libgraph/infer/infer.h"
#include "libgraph/text/text.h"
#include "librun/comm/comm_local.h"
#include "librun/session.h"

namespace sg {
namespace {

// A graph as text. `nodes` is repeated `chain` times: # stands for the number of the link, ^ for the previous one. {N}:
// elements of a large tensor; {R}: its rows of 256; {W}: number of ranks; {S}, {P}: elements that a rank exchanges in
// total and with each rank; {1}: a list with a one for each rank.
struct Probe {
  std::string_view name, inputs, nodes;  // the last node of the chain defines %y
  int chain = 1;
  bool communicates = false;
};

constexpr Probe kProbes[] = {
    {"matmul_f32", "param %w : f32[1024, 1024]\ninput %y0 : f32[1024, 1024]\n", "%y# = aten.mm(%y^, %w)\n", 2},
    {"matmul_bf16", "param %w : bf16[1024, 1024]\ninput %y0 : bf16[1024, 1024]\n", "%y# = aten.mm(%y^, %w)\n", 2},
    {"matmul_f16", "param %w : f16[1024, 1024]\ninput %y0 : f16[1024, 1024]\n", "%y# = aten.mm(%y^, %w)\n", 2},
    {"matmul_f64", "param %w : f64[512, 512]\ninput %y0 : f64[512, 512]\n", "%y# = aten.mm(%y^, %w)\n", 4},
    {"grouped_matmul", "param %w : bf16[8, 512, 512]\ninput %x : bf16[2048, 512]\n",
     "%o# = aten.arange.start_step(256, 2049, 256, dtype=i32, device=cpu, pin_memory=false)\n"
     "%y# = aten._grouped_mm(%x, %w, %o#)\n"},
    {"convolution", "param %w : f32[64, 64, 3, 3]\ninput %y0 : f32[4, 64, 32, 32]\n",
     "%y# = aten.convolution(%y^, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)\n", 2},
    {"attention", "input %q : f32[2, 8, 512, 64]\ninput %k : f32[2, 8, 512, 64]\ninput %v : f32[2, 8, 512, 64]\n",
     "%y#, %l# = aten._scaled_dot_product_flash_attention_for_cpu(%q, %k, %v, 0.0, true)\n", 2},
    {"attention_backward",
     "input %q : f32[2, 8, 512, 64]\ninput %k : f32[2, 8, 512, 64]\ninput %v : f32[2, 8, 512, 64]\n"
     "input %l : f32[2, 8, 512]\n",
     "%y#, %a#, %b# = aten._scaled_dot_product_flash_attention_for_cpu_backward(%q, %q, %k, %v, %q, %l, 0.0, true)\n"},
    {"memory", "input %a : f32[{N}]\ninput %b : f32[{N}]\n", "%y# = aten.add.Tensor(%a, %b)\n"},
    {"copy", "input %a : f32[{N}]\n", "%y# = aten.clone(%a)\n"},
    {"irregular", "input %a : f32[{R}, 256]\ninput %i : i64[{R}]\n", "%y# = aten.index.Tensor(%a, [%i])\n"},
    {"vector", "input %y0 : f32[65536]\ninput %b : f32[65536]\n", "%y# = aten.add.Tensor(%y^, %b)\n", 64},
    {"kernel", "input %w : f32[4, 4]\ninput %y0 : f32[4, 4]\n", "%y# = aten.mm(%y^, %w)\n", 1000},
    {"all_reduce_small", "input %y0 : f32[2]\n",
     "%s# = _c10d_functional.all_reduce(%y^, \"sum\", @all)\n%y# = _c10d_functional.wait_tensor(%s#)\n", 100, true},
    {"all_reduce", "input %y0 : f32[{S}]\n",
     "%s# = _c10d_functional.all_reduce(%y^, \"sum\", @all)\n%y# = _c10d_functional.wait_tensor(%s#)\n", 4, true},
    {"all_to_all_small", "input %y0 : f32[{W}]\n",
     "%s# = _c10d_functional.all_to_all_single(%y^, [{1}], [{1}], @all)\n"
     "%y# = _c10d_functional.wait_tensor(%s#)\n",
     100, true},
    {"all_to_all", "input %y0 : f32[{S}]\n",
     "%s# = _c10d_functional.all_to_all_single(%y^, [{P}], [{P}], @all)\n"
     "%y# = _c10d_functional.wait_tensor(%s#)\n",
     4, true},
};

constexpr int64_t kLargeElements = 32 << 20;     // of all ranks together: exceeds the caches
constexpr int64_t kExchangedElements = 4 << 20;  // per rank, at most

std::string with(std::string text, std::string_view mark, const std::string& value) {
  for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += value.size())
    text.replace(at, mark.size(), value);
  return text;
}

std::string repeated(int64_t value, uint32_t times) { return joined(std::vector(times, value), ", "); }

std::string text_of(const Probe& probe, uint32_t ranks) {
  std::string out = "sg 1.0 job \"measure\" world " + std::to_string(ranks) + "\ngroup @all [";
  for (uint32_t r = 0; r < ranks; ++r) out += (r ? " " : "") + std::to_string(r);
  out += "]\ngraph rank *\n" + std::string(probe.inputs);
  for (int i = 1; i <= probe.chain; ++i)
    out += with(with(std::string(probe.nodes), "#", std::to_string(i)), "^", std::to_string(i - 1));
  int64_t large = std::max<int64_t>(kLargeElements / ranks, 1 << 20),
          part = std::min<int64_t>(kExchangedElements, large) / ranks;
  out += "output %y" + std::to_string(probe.chain) + "\n";
  out = with(with(out, "{N}", std::to_string(large)), "{R}", std::to_string(large / 256));
  out = with(with(out, "{W}", std::to_string(ranks)), "{1}", repeated(1, ranks));
  return with(with(out, "{S}", std::to_string(part * ranks)), "{P}", repeated(part, ranks));
}

void count_work(const Job& job, ProbeTimes* out) {
  const Program& program = *job.programs[0];
  const SizeValues none = [](StrId) { return std::optional<int64_t>(); };
  CostModel costs(program, none);
  for (NodeId n : program.graph.nodes()) {
    const OpInfo* op = program.graph.op_info(n);
    if (op->has(kCollective)) {
      out->payload_bytes = communication_of(job, program, program.graph, n, none).payload_bytes;
      ++out->nodes;
    } else if (!op->has(kWait)) {
      NodeCost cost = costs.node(program.graph, n);
      out->flops += cost.flops;
      out->bytes += cost.bytes;
      ++out->nodes;
    }
  }
}

Result<ProbeTimes> run_probe(const Probe& probe, const RateOptions& options) {
  Diagnostics said;
  SG_ASSIGN(Job job, parse_text(text_of(probe, options.ranks), std::string(probe.name), &said));
  for (auto& program : job.programs) infer_missing_types(*program);
  ProbeTimes out;
  out.name = probe.name;
  count_work(job, &out);
  SessionOptions session;
  session.rank.threads = options.threads;
  session.steps = options.repeats + 1;
  session.init_seed = 0;
  auto comms = make_local_communicators(job);
  SG_ASSIGN(SessionReport report, run_session(job, comms, session));
  out.seconds.assign(report.step_seconds.begin() + 1, report.step_seconds.end());
  return out;
}

}  // namespace

Result<std::vector<ProbeTimes>> measure_rates(const RateOptions& options) {
  std::vector<ProbeTimes> out;
  for (const Probe& probe : kProbes) {
    if (probe.communicates && options.ranks < 2) continue;
    SG_ASSIGN(ProbeTimes times, run_probe(probe, options));
    out.push_back(std::move(times));
  }
  return out;
}

}  // namespace sg
