#include "libpasses/chunk/chunk_plan.h"

#include <algorithm>

#include "libgraph/operands.h"
#include "libpasses/chunk/chunk_memory.h"
#include "libpasses/chunk/chunk_planner.h"
#include "libpasses/chunk/chunk_regions.h"
#include "libpasses/value_numbers.h"

namespace sg {

ChunkPlanner::ChunkPlanner(const Program& program, const ChunkOptions& options, const std::vector<ChunkRegion>& regions,
                           const std::vector<uint32_t>& region_of, const std::vector<RowsTogether>& together,
                           bool best_effort)
    : program_(program),
      graph_(program.graph),
      options_(options),
      region_of_(region_of),
      together_(together),
      why_not_(program, best_effort),
      received_(received_values(graph_)) {
  plan_.regions = regions;
  find_equal_values();
  plan_.world.states.resize(graph_.value_id_limit());
  plan_.world.settled.assign(graph_.value_id_limit(), false);
  plan_.world.seeds.resize(graph_.value_id_limit());
  plan_.is_body.assign(graph_.node_id_limit(), false);
  plan_.made_in.assign(graph_.value_id_limit(), kNoDomain);
  plan_.full_use.assign(graph_.value_id_limit(), false);
  results_.resize(regions.size());
}

std::optional<RefusedRegion> ChunkPlanner::run(const std::vector<std::vector<NodeId>>& nodes,
                                               const std::vector<bool>& from_data) {
  for (uint32_t r = 0; r < plan_.regions.size(); ++r) {
    if (!plan_.regions[r].refusal.empty()) continue;
    if (Status s = start_region(r, nodes[r], from_data); !s.ok()) return RefusedRegion{r, s.error()};
  }
  for (NodeId n : graph_.nodes())
    if (auto refused = visit(n)) return refused;
  for (NodeId n : fills_)
    if (!plan_.is_body[n.index])
      if (auto refused = use_operands(n)) return refused;
  for (const Output& output : graph_.outputs())
    if (!output.value.is_none())
      if (auto refused = use_whole(output.value, "a result of the step")) return refused;
  std::ranges::sort(plan_.body, [&](const BodyNode& a, const BodyNode& b) { return graph_.before(a.node, b.node); });
  if (auto refused = find_untouched_region()) return refused;
  if (auto bad = find_memory_conflict(program_, plan_))
    return RefusedRegion{bad->region, why_not_.at_node(bad->node, kMemoryRule, bad->message)};
  find_views_that_may_copy(program_, &plan_);
  return std::nullopt;
}

void ChunkPlanner::find_equal_values() {
  const AliasAnalysis alias(program_, graph_);
  const ValueNumbers numbers(graph_, alias, ValueNumbers::Launches::functions);
  plan_.world.equal.resize(graph_.value_id_limit());
  for (uint32_t v = 0; v < plan_.world.equal.size(); ++v) plan_.world.equal[v] = ValueId(v);
  for (NodeId n : graph_.nodes())
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
      plan_.world.equal[graph_.node(n).result(i).index] = graph_.node(numbers.leader(n)).result(i);
}

Status ChunkPlanner::start_region(uint32_t r, const std::vector<NodeId>& nodes, const std::vector<bool>& from_data) {
  ChunkRegion& region = plan_.regions[r];
  region.activation = find_activation(graph_, r, nodes, region_of_, from_data);
  SG_ASSIGN(const RowCut cut, find_cut(program_, options_, region, together_, why_not_));
  region.along = {rows_domain(cut.entries), cut.axis, cut.unit};
  return ok_status();
}

uint32_t ChunkPlanner::rows_domain(Expr size) {
  for (uint32_t d = 0; d < plan_.world.domains.size(); ++d)
    if (plan_.world.domains[d].is_rows && plan_.world.domains[d].size == size) return d;
  AxisDomain fresh;
  fresh.size = size;
  return plan_.world.add_domain(fresh);
}

// --- walking ---

std::optional<RefusedRegion> ChunkPlanner::visit(NodeId n) {
  const uint32_t r = region_at(n);
  if (r != kNoRegion) {
    seed(n, r);
    bool chunked = !seeded_.empty();
    for_operands(graph_, n, [&](ValueId v) { chunked = chunked || (state(v).is_chunked() && !state(v).common); });
    if (chunked) return visit_body(n, r);
    freeze_constants(n);
    mark_constant(n);
    return use_operands(n);
  }
  freeze_constants(n);
  return use_operands(n);
}

uint32_t ChunkPlanner::region_at(NodeId n) const {
  const uint32_t r = region_of_[n.index];
  if (r != kNoRegion) return plan_.regions[r].refusal.empty() ? r : kNoRegion;
  return may_lie_between(n) && leads_back(n) ? region_between(n) : kNoRegion;
}

bool ChunkPlanner::may_lie_between(NodeId n) const {
  return region_of_[n.index] == kNoRegion && graph_.node(n).phase == Phase::backward &&
         (graph_.node(n).module.is_none() || graph_.op_name(n) == "aten.add.Tensor");
}

// False for an addition whose result leaves the region: it is done once, on whole values, instead of once per chunk.
bool ChunkPlanner::leads_back(NodeId n) const {
  for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
    for (NodeId user : graph_.users(graph_.node(n).result(i)))
      if (region_of_[user.index] != kNoRegion || may_lie_between(user)) return true;
  return graph_.op_name(n) != "aten.add.Tensor";
}

// The region of a node that autograd added, without a module or with a foreign one: the region that made all its
// tensors.
uint32_t ChunkPlanner::region_between(NodeId n) const {
  uint32_t region = kNoRegion;
  bool all = graph_.node(n).result_count > 0 && graph_.op_info(n) != nullptr && graph_.op_info(n)->has(kPure);
  for_operands(graph_, n, [&](ValueId v) {
    const uint32_t made = state(v).is_chunked() ? plan_.made_in[v.index] : kNoDomain;
    all = all && made != kNoDomain && (region == kNoRegion || region == made);
    region = made;
  });
  return all ? region : kNoRegion;
}

// Finds operands that this region cuts: its activation, and in the backward gradients with the shape of one of its
// results: what the backward made, or another rank has sent.
void ChunkPlanner::seed(NodeId n, uint32_t r) {
  for (ValueId v : seeded_) plan_.world.seeds[v.index] = AxisState();
  seeded_.clear();
  const ChunkRegion& region = plan_.regions[r];
  for_operands(graph_, n, [&](ValueId v) {
    if (state(v).kind != AxisKind::whole || graph_.type(v).kind != TypeKind::tensor) return;
    std::optional<Along> along;
    if (v == region.activation) along = region.along;
    const NodeId def = graph_.value(v).def;
    const bool is_gradient = def && (graph_.node(def).phase == Phase::backward || received_[v.index]);
    if (!along && is_gradient && region_of_[def.index] != r && graph_.node(n).phase == Phase::backward)
      for (const auto& [shape, result] : results_[r])
        if (shape == graph_.type(v).shape) along = result;
    if (!along) return;
    plan_.world.seeds[v.index] = along_state(*along);
    seeded_.push_back(v);
  });
}

// Marks the operands of a node outside all bodies as used whole.
std::optional<RefusedRegion> ChunkPlanner::use_operands(NodeId n) {
  std::optional<RefusedRegion> out;
  for_operands(graph_, n, [&](ValueId v) {
    if (!out) out = use_whole(v, "%" + std::string(graph_.label(n)));
  });
  return out;
}

std::optional<RefusedRegion> ChunkPlanner::use_whole(ValueId v, const std::string& user) {
  const AxisState& s = state(v);
  if (!s.is_chunked() || plan_.full_use[v.index]) return std::nullopt;
  const NodeId def = graph_.value(v).def;
  auto refuse = [&](const std::string& why) {
    return RefusedRegion{plan_.made_in[v.index],
                         why_not_.at_node(def, "results", why + ", and " + user + " needs the whole of it")};
  };
  if (s.kind == AxisKind::along && !plan_.world.domains[s.along.domain].is_rows)
    return refuse("%" + std::string(graph_.name(v)) + " lies in an order that the data decides");
  if (s.kind == AxisKind::along && s.local)
    return refuse("%" + std::string(graph_.name(v)) + " holds positions of each chunk's own");
  if (s.kind == AxisKind::size && !s.common &&
      (s.along.domain == kNoDomain || !plan_.world.domains[s.along.domain].is_rows))
    return refuse("%" + std::string(graph_.name(v)) + " is a number of each chunk's own");
  if (const OpInfo* op = graph_.op_info(def); op != nullptr && op->has(kCollective) && !op->has(kWait))
    return refuse("%" + std::string(graph_.name(v)) + " is still under way where the module ends");
  plan_.full_use[v.index] = true;
  note_result(v);
  return std::nullopt;
}

// Records a value that leaves a forward region, whole or in chunks: its gradient has the same shape.
void ChunkPlanner::note_result(ValueId v) {
  const AxisState& s = state(v);
  if (s.kind != AxisKind::along || graph_.node(graph_.value(v).def).phase != Phase::forward) return;
  auto& list = results_[plan_.made_in[v.index]];
  const std::pair result(graph_.type(v).shape, s.along);
  if (std::ranges::find(list, result) == list.end()) list.push_back(result);
}

void ChunkPlanner::mark_constant(NodeId n) {
  const OpInfo* op = graph_.op_info(n);
  if (op == nullptr || (!is_constant_fill(*op) && !is_iota(*op))) return;
  plan_.world.state(graph_.node(n).result(0)).kind = is_iota(*op) ? AxisKind::iota : AxisKind::constant;
}

// A constant stays whole if a whole node uses it or writes to it.
void ChunkPlanner::freeze_constants(NodeId n) {
  for_operands(graph_, n, [&](ValueId v) {
    if (state(v).kind == AxisKind::constant || state(v).kind == AxisKind::iota)
      plan_.world.state(v).kind = AxisKind::whole;
  });
}

std::optional<RefusedRegion> ChunkPlanner::find_untouched_region() const {
  for (uint32_t r = 0; r < plan_.regions.size(); ++r) {
    const ChunkRegion& region = plan_.regions[r];
    const auto is_here = [&](const BodyNode& body) { return body.region == r; };
    if (region.refusal.empty() && std::ranges::none_of(plan_.body, is_here))
      return RefusedRegion{r, why_not_.of_module(region, "nothing in it depends on the rows of %" +
                                                             std::string(graph_.name(region.activation)))};
  }
  return std::nullopt;
}

Result<ChunkPlan> plan_chunks(const Program& program, const ChunkOptions& options, ProgramRegions* found,
                              std::vector<Error>* refused) {
  if (found->regions.empty()) return ChunkPlan();
  const std::vector<bool> from_data = values_from_data(program);
  std::vector<RowsTogether> together;
  for (;;) {
    ChunkPlanner planner(program, options, found->regions, found->of_node, together, refused != nullptr);
    auto stopped = planner.run(found->nodes, from_data);
    if (!stopped) return planner.take();
    if (stopped->unless) {
      together.push_back(*stopped->unless);
      continue;
    }
    together.clear();  // what the other regions want is found again
    if (refused == nullptr || stopped->region >= found->regions.size()) return std::move(stopped->error);
    found->regions[stopped->region].refusal = stopped->error.message;
    refused->push_back(std::move(stopped->error));
  }
}

}  // namespace sg
