#include "libpasses/auto_chunk/auto_chunk_plan.h"

#include "libpasses/auto_chunk/auto_chunk_planner.h"
#include "libpasses/chunk/chunk_regions.h"

namespace sg {

Result<AutoPlan> plan_auto_chunk(Program* program, NodeId amplifier, const AutoCut& cut, size_t* reached) {
  AutoPlanner planner(program, amplifier, cut);
  auto plan = planner.run();
  *reached = planner.reached();
  return plan;
}

// Whether the op's result is chunked if this axis of an operand is.
static bool keeps_axis(const Program& program, NodeId n, ValueId operand, uint32_t axis, Expr size) {
  const Graph& graph = program.graph;
  AxisWorld world;
  world.states.resize(graph.value_id_limit()), world.seeds.resize(graph.value_id_limit());
  for (uint32_t v = 0; v < graph.value_id_limit(); ++v) world.equal.push_back(ValueId(v));
  AxisDomain rows;
  rows.size = size;
  world.add_domain(rows);
  world.seeds[operand.index] = along_state({0, axis, graph.pool().exprs.constant(1)});
  AxisCall call(&world, program, n);
  const AxisRow* row = find_axis_rule(call.op);
  return row != nullptr && run_axis_rule(*row, call).ok() && !call.given.empty() &&
         call.given[0].kind == AxisKind::along;
}

std::vector<AutoCut> possible_cuts(const Program& program, NodeId amplifier) {
  const Graph& graph = program.graph;
  ExprPool& exprs = graph.pool().exprs;
  const std::vector<bool> from_data = values_from_data(program);
  std::vector<AutoCut> out;
  for_operands(graph, amplifier, [&](ValueId v) {
    const Type& type = graph.type(v);
    if (type.kind != TypeKind::tensor || !from_data[v.index]) return;
    for (uint32_t axis = 0; axis < type.shape.size(); ++axis) {
      const Expr size = type.shape[axis];
      if (const auto known = exprs.constant_value(size); known && *known < 2) continue;
      if (std::ranges::any_of(out, [&](const AutoCut& c) { return c.operand == v && c.axis == axis; })) continue;
      if (!keeps_axis(program, amplifier, v, axis, size)) continue;
      out.push_back({v, axis, size, exprs.constant(1), Expr()});
      // [batch, length] viewed as one axis: cut between entries of the batch, or along the length.
      const NodeId def = graph.value(v).def;
      if (axis != 0 || !def || !graph.op_info(def) ||
          !(graph.op_info(def)->has(kView) || graph.op_info(def)->has(kMayAlias)) ||
          !graph.node(def).args[0].is(ArgKind::value))
        continue;
      const std::vector<Expr>& before = graph.type(graph.node(def).args[0].as_value()).shape;
      if (before.size() < 2 || before[0] == size) continue;
      const Expr unit = exprs.floordiv(size, before[0]);
      if (exprs.mul(unit, before[0]) != size || exprs.constant_value(before[0]).value_or(2) < 2) continue;
      out.push_back({v, axis, before[0], unit, Expr()});
      if (before[1] == unit && exprs.constant_value(unit).value_or(2) > 1)
        out.push_back({v, axis, unit, exprs.constant(1), before[0]});
    }
  });
  return out;
}

}  // namespace sg
