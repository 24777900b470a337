#include "libpasses/auto_chunk/auto_chunk_report.h"

#include <algorithm>
#include <cstdio>

#include "libgraph/base/human.h"
#include "libgraph/facts/cost.h"

namespace sg {
namespace {

std::string facts_of(const std::string& label, const Amplifier& a) {
  char ratio[32];
  std::snprintf(ratio, sizeof ratio, "%.1f", a.ratio());
  return "%" + label + ": " + human_bytes(double(a.bytes)) + " from " + human_bytes(double(a.taken_bytes)) + ", " +
         ratio + " times as much";
}

std::string describe(const AxisState& s) {
  switch (s.kind) {
    case AxisKind::along: return "rows along axis " + std::to_string(s.along.axis);
    case AxisKind::partial: return "a sum";
    case AxisKind::size: return "a size";
    default: return "whole";
  }
}

void write_facts(JsonWriter* json, const std::string& label, const Amplifier& a) {
  json->member("amplifier", label)
      .member("bytes", a.bytes)
      .member("taken_bytes", a.taken_bytes)
      .member("ratio", a.ratio());
}

}  // namespace

AutoChunkReport::Work AutoChunkReport::work_of(const Job& job) {
  Work out;
  for (const auto& program : job.programs) {
    CostModel model(*program, assumed_sizes(*program));
    for (NodeId n : program->graph.nodes()) {
      const NodeCost cost = model.node(program->graph, n);
      out.flops += cost.flops, out.bytes += cost.bytes;
    }
  }
  return out;
}

void AutoChunkReport::start(const Job& job, int64_t peak_bytes) {
  before_ = work_of(job);
  peak_before_ = peak_bytes;
  regions_.begin_array(), skipped_.begin_array();
}

void AutoChunkReport::add_layer(const Graph& graph, const Amplifier& facts) {
  if (layers_++ == 0) first_layer_ = facts_of(std::string(graph.label(facts.node)), facts);
}

void AutoChunkReport::add_skipped(const std::string& label, const Amplifier& facts, const std::string& why) {
  ++skips_;
  text_ += facts_of(label, facts) + "\n  left whole: " + why + "\n";
  skipped_.begin_object();
  write_facts(&skipped_, label, facts);
  skipped_.member("why", why).end_object();
}

void AutoChunkReport::add_region(const std::string& label, const Amplifier& facts, const Job& job,
                                 const std::vector<std::optional<AutoPlan>>& plans, const Predict& predict,
                                 int64_t chunks, bool explain) {
  ++count_;
  if (!explain) return;
  text_ += facts_of(label, facts) + "\n";
  regions_.begin_object();
  write_facts(&regions_, label, facts);
  size_t which = 0;
  while (which < plans.size() && !plans[which]) ++which;
  const AutoPlan& plan = *plans[which];
  const Graph& graph = job.programs[which]->graph;
  ExprPool& exprs = graph.pool().exprs;
  text_ += "  " + exprs.print(plan.rows()) + " rows along axis " + std::to_string(plan.cut.axis) + " of %" +
           std::string(graph.name(plan.cut.operand)) +
           (plan.cut.runs ? ", of each of its " + exprs.print(plan.cut.runs) + " runs," : "") + " in " +
           std::to_string(chunks) + " chunks; a body of " + plural(plan.body.size(), "node") + "\n";
  regions_.member("operand", graph.name(plan.cut.operand))
      .member("axis", plan.cut.axis)
      .member("rows", exprs.print(plan.rows()))
      .member("runs", plan.cut.runs ? exprs.print(plan.cut.runs) : "1")
      .member("chunks", chunks);
  regions_.key("values").begin_array();
  for (const AutoNode& body : plan.body)
    for (uint32_t i = 0; i < graph.node(body.node).result_count; ++i) {
      const ValueId v = graph.node(body.node).result(i);
      const bool leaves = std::ranges::find(plan.results, v) != plan.results.end();
      const std::string state = describe(plan.world.states[v.index]);
      text_ += "    %" + std::string(graph.name(v)) + "  " + std::string(graph.op_name(body.node)) + "  " + state +
               (leaves ? ", leaves the body" : "") + "\n";
      regions_.begin_object()
          .member("value", graph.name(v))
          .member("state", state)
          .member("leaves", leaves)
          .end_object();
    }
  regions_.end_array().key("predicted_peaks").begin_array();
  text_ += "  planned peak";
  for (int64_t n : {int64_t{2}, int64_t{4}, int64_t{8}, int64_t{16}, int64_t{32}, int64_t{64}})
    if (const auto bytes = predict(n)) {
      text_ += (n == 2 ? " with " : ", ") + std::to_string(n) + ": " + human_bytes(double(*bytes));
      regions_.begin_object().member("chunks", n).member("bytes", *bytes).end_object();
    }
  text_ += " chunks\n";
  regions_.end_array().end_object();
}

void AutoChunkReport::finish(const Job& job, int64_t peak_bytes, Change* change) {
  if (layers_ > 0)
    text_ += plural(layers_, "node") + " as large, the first " + first_layer_ +
             ": a later layer contracts what comes of it\n";
  const Work after = work_of(job);
  const double flops = after.flops - before_.flops, bytes = after.bytes - before_.bytes;
  const int64_t peak = count_ > 0 ? peak_bytes : peak_before_;
  text_ += "peak " + human_bytes(double(peak_before_)) + " -> " + human_bytes(double(peak)) + "; " +
           (flops < 0 ? "-" : "+") + human_flops(flops < 0 ? -flops : flops) + ", " + (bytes < 0 ? "-" : "+") +
           human_bytes(bytes < 0 ? -bytes : bytes) + " moved\n";
  regions_.end_array(), skipped_.end_array();
  JsonWriter json;
  json.begin_object()
      .member("peak_before", peak_before_)
      .member("peak_after", peak)
      .member("extra_flops", flops)
      .member("extra_bytes", bytes);
  json.key("regions").raw(regions_.take()).key("left_whole").raw(skipped_.take()).end_object();
  change->plan = std::move(text_);
  change->plan_json = json.take();
}

}  // namespace sg
