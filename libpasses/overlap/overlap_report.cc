// What sg-overlap says of an order: what moved, and what the exchanges of each region look like now.
#include <algorithm>
#include <map>

#include "libgraph/op.h"
#include "libpasses/overlap/overlap_parts.h"

namespace sg::overlap_parts {
namespace {

bool has(const Graph& graph, NodeId n, Trait trait) {
  const OpInfo* op = graph.op_info(n);
  return op != nullptr && op->has(trait);
}

const char* kind_of(const Graph& graph, NodeId n) {
  if (has(graph, n, kCollective)) return "launch";
  if (has(graph, n, kWait)) return "wait";
  if (has(graph, n, kHostSync)) return "sync";
  return nullptr;
}

// By place: how long compute stands still at each wait. Empty without costs.
std::vector<double> stalls(const Precedence& precedence, const StepCosts* costs, const Order& order) {
  if (!costs) return {};
  std::vector<double> out(order.size());
  StepClock clock(*costs);
  for (uint32_t i : order) {
    const double before = clock.now_us();
    clock.play(precedence.node(i));
    const auto ops = costs->ops(precedence.node(i));
    if (ops.size() == 1 && ops[0].kind == StepOp::Kind::wait) out[i] = std::max(0.0, clock.compute_us() - before);
  }
  return out;
}

// The node that `place` must follow, or must stay before, and that stands nearest to it.
std::string nearest(const Job& job, const Program& program, const Precedence& precedence,
                    const std::vector<uint32_t>& at, uint32_t place, bool earlier) {
  const auto list = earlier ? precedence.before(place) : precedence.after(place);
  if (list.empty()) return {};
  const uint32_t other = earlier ? *std::ranges::max_element(list, {}, [&](uint32_t i) { return at[i]; })
                                 : *std::ranges::min_element(list, {}, [&](uint32_t i) { return at[i]; });
  const uint32_t follower = earlier ? place : other, leader = earlier ? other : place;
  for (const Constraint& c : precedence.facts().constraints_into(precedence.node(follower)))
    if (c.before == precedence.node(leader)) return explain(job, program.graph, precedence.node(follower), c);
  return {};
}

}  // namespace

MoveReport report_moves(const Job& job, const Program& program, const Precedence& precedence, const StepCosts* costs,
                        const Order& order) {
  MoveReport out;
  const std::vector<bool> stays = staying(order);
  std::vector<uint32_t> at(order.size());
  Order own(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) at[order[i]] = i, own[i] = i;
  const std::vector<double> before = stalls(precedence, costs, own), after = stalls(precedence, costs, order);
  for (uint32_t place : order) {
    if (stays[place]) continue;
    ++out.moved;
    const NodeId n = precedence.node(place);
    const char* kind = kind_of(program.graph, n);
    if (!kind) continue;
    MoveLine line{std::string(program.graph.label(n)), kind, static_cast<int64_t>(at[place]) - place, 0, 0, {}};
    if (!before.empty()) line.before_us = before[place], line.after_us = after[place];
    line.why = nearest(job, program, precedence, at, place, line.nodes <= 0);
    out.lines.push_back(std::move(line));
  }
  return out;
}

std::vector<RegionPhases> region_phases(const Graph& graph) {
  std::vector<RegionPhases> out;
  std::map<std::pair<StrId, bool>, size_t> known;
  std::map<NodeId, std::string> launches;
  const StringTable& strings = graph.pool().strings;
  for (NodeId n : graph.nodes()) {
    const NodeMeta& meta = graph.meta(n);
    const ChunkInfo& chunk = meta.chunk;
    if (chunk.region.is_none() || chunk.index < 0) continue;
    std::string event;
    if (has(graph, n, kCollective) && meta.ep_step == EpStep::token_exchange) {
      event = (meta.ep_role == EpRole::combine ? "C" : "D") + std::to_string(chunk.index);
      launches[n] = event;
    } else if (has(graph, n, kWait) && !graph.node(n).args.empty() && graph.node(n).args[0].is(ArgKind::value)) {
      auto it = launches.find(graph.value(graph.node(n).args[0].as_value()).def);
      if (it != launches.end()) event = it->second.substr(0, 1) + "w" + it->second.substr(1);
    }
    if (event.empty()) continue;
    const bool backward = chunk.is_backward == 1 || (chunk.is_backward < 0 && graph.node(n).phase != Phase::forward);
    auto [it, added] = known.try_emplace({chunk.region, backward}, out.size());
    if (added) out.push_back({std::string(strings[chunk.region]), backward, {}, {}});
    std::string& phases = out[it->second].phases;
    phases += (phases.empty() ? "" : " ") + event;
  }
  return out;
}

}  // namespace sg::overlap_parts
