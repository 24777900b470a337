// What sg-overlap says: what moved, what the exchanges of each region look like now, what the job gains.
#include <algorithm>
#include <map>

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/op.h"
#include "libpasses/overlap/overlap_job.h"

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

std::string figures_text(const Figures& before, const Figures& after) {
  return human_time(before.makespan_us * 1e-6) + " -> " + human_time(after.makespan_us * 1e-6) + " a step, peak " +
         human_bytes(static_cast<double>(before.peak_bytes)) + " -> " +
         human_bytes(static_cast<double>(after.peak_bytes));
}

void write_regions(JsonWriter* json, const std::vector<RegionPhases>& regions, std::string* text) {
  json->key("regions").begin_array();
  for (const RegionPhases& r : regions) {
    const std::string direction = r.is_backward ? "backward" : "forward";
    *text += r.region + " " + direction + ": " + (r.skipped.empty() ? r.phases : "left as it is: " + r.skipped) + "\n";
    json->begin_object().key("region").string(r.region).key("direction").string(direction);
    json->key(r.skipped.empty() ? "phases" : "skipped").string(r.skipped.empty() ? r.phases : r.skipped).end_object();
  }
  json->end_array();
}

std::string line_of(const MoveLine& m) {
  std::string out = m.kind + " %" + m.node + ": " + plural(static_cast<size_t>(std::abs(m.nodes)), "node") +
                    (m.nodes < 0 ? " earlier" : " later");
  if (m.before_us != m.after_us)
    out += ", compute stands still for " + human_time(m.before_us * 1e-6) + " -> " + human_time(m.after_us * 1e-6);
  return m.why.empty() ? out : out + "; " + m.why;
}

void write_moves(JsonWriter* json, const MoveReport& report, std::string* text) {
  json->key("moved").natural(report.moved).key("moves").begin_array();
  for (const MoveLine& m : report.lines) {
    *text += line_of(m) + "\n";
    json->begin_object().key("node").string(m.node).key("kind").string(m.kind).key("nodes").integer(m.nodes);
    if (m.kind == "wait") json->key("stall_us").begin_array().floating(m.before_us).floating(m.after_us).end_array();
    json->key("why").string(m.why).end_object();
  }
  json->end_array();
  if (report.moved > report.lines.size())
    *text += "and " + plural(report.moved - report.lines.size(), "node") + " that compute\n";
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

size_t moved_nodes(const JobOrder& orders) {
  size_t most = 0;
  for (const Order& order : orders.by_program) {
    const std::vector<bool> stays = staying(order);
    most = std::max(most, static_cast<size_t>(std::count(stays.begin(), stays.end(), false)));
  }
  return most;
}

size_t regions_of(const JobOrder& orders) {
  if (orders.references.empty()) return 0;
  return static_cast<size_t>(
      std::ranges::count_if(orders.references[0].regions, [](const RegionPhases& r) { return r.skipped.empty(); }));
}

std::string summary_of(const OverlapOptions& options, const JobOrder& orders, const Verdict& out, size_t moved) {
  if (!out.kept) return "unchanged, nothing to gain: " + out.why;
  std::string text = plural(moved, "node") + " moved";
  if (options.strategy == OverlapStrategy::reference) {
    const size_t regions = regions_of(orders);
    text = regions == 0 ? "nothing to order: no chunked region has token exchanges"
                        : text + " in " + plural(regions, "region");
    if (!orders.dense.empty())
      text = (regions == 0 ? std::string() : text + ", ") + plural(orders.dense.size(), "collective") +
             " launched in dense compute";
  }
  return out.measured ? text + ", " + figures_text(out.before, out.after) + " on " + options.machine : text;
}

void explain_change(const Job& before, const Job& after, const OverlapOptions& options, const JobOrder& orders,
                    const Verdict& out, Change* change) {
  JsonWriter json;
  json.begin_object().key("strategy").string(options.strategy == OverlapStrategy::model ? "model" : "reference");
  json.key("kept").boolean(out.kept);
  if (out.measured) {
    json.key("machine").string(options.machine);
    json.key("makespan_us").begin_array().floating(out.before.makespan_us).floating(out.after.makespan_us).end_array();
    json.key("peak_bytes").begin_array().integer(out.before.peak_bytes).integer(out.after.peak_bytes).end_array();
  }
  const bool reference = !orders.references.empty();
  write_regions(&json, reference ? orders.references[0].regions : region_phases(after.programs[0]->graph),
                &change->plan);
  if (!orders.dense.empty()) {
    json.key("dense").begin_array();
    for (const DenseMove& m : orders.dense) json.string(m.what), change->plan += m.what + "\n";
    json.end_array();
  }
  if (out.kept)
    write_moves(&json,
                report_moves(before, *before.programs[0], orders.precedence(0), orders.costs(0), orders.by_program[0]),
                &change->plan);
  change->plan_json += json.end_object().take();
}

}  // namespace sg::overlap_parts
