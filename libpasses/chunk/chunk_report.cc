#include "libpasses/chunk/chunk_report.h"

#include "libgraph/base/human.h"

namespace sg {
namespace {

bool is_by_row(const Graph& graph, const ChunkRegion& region) {
  return graph.pool().exprs.constant_value(region.along.unit) == 1;
}

std::string axis_name(const Graph& graph, const ChunkRegion& region) {
  const std::string out =
      "axis " + std::to_string(region.along.axis) + " of %" + std::string(graph.name(region.activation));
  const ExprPool& exprs = graph.pool().exprs;
  return out + (is_by_row(graph, region) ? "" : ", at entries of " + exprs.print(region.along.unit) + " rows,");
}

}  // namespace

ChunkReport::ChunkReport(int64_t chunks, bool many_graphs) : chunks_(chunks), many_graphs_(many_graphs) {
  json_.begin_array();
}

std::string ChunkReport::take_json() {
  json_.end_array();
  return json_.take();
}

void ChunkReport::add(const Program& program, const ChunkPlan& plan) {
  if (many_graphs_ && !plan.regions.empty()) text_ += place_of(program, program.graph, NodeId()) + "\n";
  for (uint32_t r = 0; r < plan.regions.size(); ++r) {
    json_.begin_object().member("module", plan.regions[r].module);
    if (many_graphs_) json_.member("graph", place_of(program, program.graph, NodeId()));
    add_region(program.graph, plan, r);
    json_.end_object();
  }
}

void ChunkReport::add_region(const Graph& graph, const ChunkPlan& plan, uint32_t r) {
  const ChunkRegion& region = plan.regions[r];
  if (!region.refusal.empty()) {
    text_ += region.module + ": left whole: " + region.refusal + "\n";
    json_.member("refusal", region.refusal);
    return;
  }
  size_t forward = 0, backward = 0;
  for (const BodyNode& body : plan.body)
    if (body.region == r) ++(graph.node(body.node).phase == Phase::forward ? forward : backward);
  text_ += region.module + ": " + axis_name(graph, region) + " in " + std::to_string(chunks_) + " chunks; " +
           plural(forward, "node") + " forward, " + std::to_string(backward) + " backward\n";
  json_.member("activation", graph.name(region.activation)).member("axis", region.along.axis);
  if (!is_by_row(graph, region)) json_.member("entry_rows", graph.pool().exprs.print(region.along.unit));
  json_.member("forward", forward).member("backward", backward).key("results").begin_array();
  for (const BodyNode& body : plan.body)
    for (uint32_t i = 0; body.region == r && i < graph.node(body.node).result_count; ++i)
      if (const ValueId v = graph.node(body.node).result(i); plan.full_use[v.index])
        add_result(graph, v, plan.world.states[v.index]);
  json_.end_array();
}

void ChunkReport::add_result(const Graph& graph, ValueId v, const AxisState& s) {
  const std::string how = s.kind == AxisKind::partial ? "summed"
                          : s.kind == AxisKind::size  ? "a number"
                                                      : "concatenated along axis " + std::to_string(s.along.axis);
  text_ += "  %" + std::string(graph.name(v)) + " is " + how + "\n";
  json_.begin_object().member("value", graph.name(v)).member("how", how).end_object();
}

}  // namespace sg
