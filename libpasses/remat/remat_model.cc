#include "libpasses/remat/remat_model.h"

#include <algorithm>

#include "libgraph/facts/cost.h"
#include "libgraph/facts/in_place.h"
#include "libgraph/facts/purity.h"
#include "libgraph/facts/transfer.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libpasses/schedule.h"

namespace sg {
namespace {

// Operations a device performs in the time it moves a byte, and the cost of a byte on the wire relative to memory:
// round figures for current accelerators, used only to choose between values.
constexpr double kFlopsPerByte = 200, kWireBytes = 20;

double cost_of(CostModel* model, const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  const NodeCost cost = model->node(graph, n);
  const double time = std::max(cost.bytes, cost.flops / kFlopsPerByte);
  return op != nullptr && op->has(kCollective) ? time * kWireBytes : time;
}

// Memory that is written to (other than by waits): its contents are not determined by the node that created it.
std::vector<bool> written_classes(const Graph& graph, const AliasAnalysis& alias) {
  std::vector<bool> out(alias.storages().size() + 1);
  for (NodeId n : graph.nodes()) {
    const OpInfo* op = graph.op_info(n);
    if (op != nullptr && op->has(kWait)) continue;
    for (StorageId s : alias.writes(n)) out[alias.storage(s).alias_class] = true;
  }
  return out;
}

// Whether it is a launch on a group whose collectives are kept; a wait follows its launch.
bool is_kept(const Graph& graph, NodeId n, const std::vector<bool>& kept_groups) {
  return std::ranges::any_of(graph.node(n).args, [&](const Arg& arg) {
    return arg.is(ArgKind::group) && arg.as_group().index < kept_groups.size() && kept_groups[arg.as_group().index];
  });
}

// Whether something else than a wait takes what the launch gives, and more of it than its sizes: a copy of it would
// have to find the copy's wait.
bool is_read_past_wait(const Graph& graph, NodeId launch) {
  for (uint32_t i = 0; i < graph.node(launch).result_count; ++i)
    for (NodeId user : graph.users(graph.node(launch).result(i)))
      if (const OpInfo* op = graph.op_info(user); op == nullptr || !(op->has(kWait) || asks_for_sizes(graph, user)))
        return true;
  return false;
}

RematBar bar_of(const Graph& graph, const AliasAnalysis& alias, const std::vector<bool>& written, NodeId n,
                const std::vector<bool>& kept_groups) {
  const OpInfo* op = graph.op_info(n);
  if (graph.node(n).phase != Phase::forward) return RematBar::not_forward;
  if (op == nullptr) return RematBar::unknown_op;
  const bool exchanges = op->has(kCollective) || op->has(kWait);
  if (exchanges && is_kept(graph, n, kept_groups)) return RematBar::exchange;
  if (exchanges && !op->has(kWait) && is_read_past_wait(graph, n)) return RematBar::shared_memory;
  if (exchanges ? op->writes() && !op->has(kWait) : !(is_pure(graph, n) || draws_random(graph, n)))
    return RematBar::effect;
  if (op->has(kHostSync) || op->has(kAssert)) return RematBar::effect;
  if (op->has(kSize) || !alias.binds(n).empty()) return RematBar::size;
  if (graph.node(n).result_count == 0) return RematBar::no_result;
  for (uint32_t i = 0; i < graph.node(n).result_count; ++i) {
    // A view of an input counts as the input; whether its contents change is checked for each copy.
    const StorageId s = alias.storage_of(graph.node(n).result(i));
    if (s.is_none() || alias.may_be_input(s)) continue;
    if (!alias.storage(s).certain) return RematBar::shared_memory;
    if (!exchanges && written[alias.storage(s).alias_class]) return RematBar::written;
  }
  return RematBar::none;
}

}  // namespace

std::string_view remat_bar_text(RematBar bar) {
  switch (bar) {
    case RematBar::none: return "it may be recomputed";
    case RematBar::not_forward: return "it is not part of the forward";
    case RematBar::unknown_op: return "nothing is known about its op";
    case RematBar::effect: return "it has an effect, which would happen twice";
    case RematBar::size: return "it depends on the data, and sizes depend on it";
    case RematBar::exchange: return "ranks would exchange data that not all of them ask for";
    case RematBar::written: return "something writes into it";
    case RematBar::shared_memory: return "it may lie in other memory";
    case RematBar::no_result: return "it has no result";
  }
  return "";
}

// Queries used while building the model. Memory is for the given sizes; what is allowed holds for all sizes.
struct RematModel::Learner {
  Learner(const Program& program, const Graph& graph, const SizeValues& values)
      : sizes(values),
        alias(program, graph, {&values}),
        general(program, graph),
        schedule(graph, general),
        live(compute_liveness(program, graph, values)) {}

  const SizeValues& sizes;
  const AliasAnalysis alias, general;
  const Schedule schedule;
  const Liveness live;
};

RematModel::RematModel(const Program& program, const Graph& graph, const SizeValues& sizes,
                       const std::vector<bool>& kept_groups)
    : graph_(graph) {
  const Learner known(program, graph, sizes);
  const std::vector<bool> written = written_classes(graph, known.general);
  CostModel costs(program, sizes);
  position_.assign(graph.node_id_limit(), kNone);
  for (uint32_t i = 0; i < known.live.schedule.size(); ++i) position_[known.live.schedule[i].index] = i;
  original_bytes_.resize(known.alias.storages().size());
  is_single_.resize(original_bytes_.size());
  for (uint32_t s = 0; s < original_bytes_.size(); ++s) add_storage(s, known);
  nodes_.reserve(known.live.schedule.size());
  for (NodeId n : known.live.schedule) {
    add_node(n, known);
    nodes_.back().bar = bar_of(graph, known.general, written, n, kept_groups);
    if (nodes_.back().is_wait && nodes_.back().bar == RematBar::none) nodes_.back().bar = bar_of_launch(nodes_.back());
    nodes_.back().cost = cost_of(&costs, graph, n);
  }
  for (const Output& output : graph.outputs())
    if (output.value) outputs_.push_back(operand_for(output.value, known.alias));
  add_calls(known.live);
  add_uses();
  find_traits();
  find_moving();
}

void RematModel::add_storage(uint32_t s, const Learner& known) {
  const LiveStorage* inside = known.live.find(StorageId(s));
  original_bytes_[s] = inside != nullptr && !inside->is_host ? inside->bytes : 0;  // host memory is counted separately
  const auto members = known.alias.class_members(known.alias.storage(StorageId(s)).alias_class);
  is_single_[s] = members.size() == 1;
  if (members.size() == 1 || members[0] != StorageId(s)) return;
  classes_.emplace_back();
  for (StorageId m : members)
    if (known.live.find(m) != nullptr) classes_.back().push_back(m.index);
}

void RematModel::add_node(NodeId n, const Learner& known) {
  const OpInfo* op = graph_.op_info(n);
  const Node& node = graph_.node(n);
  NodeFacts facts;
  facts.id = n;
  facts.is_forward = node.phase == Phase::forward;
  facts.is_launch = op != nullptr && (op->has(kCollective) || starts_transfer(op));
  facts.is_wait = (known.alias.effects(n) & kEffectWait) != 0;
  facts.operands = static_cast<uint32_t>(operands_.size());
  for_operands(graph_, n, [&](ValueId v) { add_operand(facts, v, known); });
  facts.operands_end = static_cast<uint32_t>(operands_.size());
  facts.results = static_cast<uint32_t>(results_.size());
  for (uint32_t i = 0; i < node.result_count; ++i)
    add_result(&facts, known.alias.storage_of(node.result(i)), known.alias);
  facts.results_end = static_cast<uint32_t>(results_.size());
  facts.reuses = static_cast<uint32_t>(reuses_.size());
  if (op != nullptr && reuses_in_place(*op)) add_reuses(facts, known);
  facts.reuses_end = static_cast<uint32_t>(reuses_.size());
  nodes_.push_back(facts);
}

RematModel::Operand RematModel::operand_for(ValueId v, const AliasAnalysis& alias) const {
  Operand out;
  if (NodeId def = graph_.value(v).def) out.def = position_[def.index];
  const StorageId s = alias.storage_of(v);
  if (s.is_none()) return out;
  out.storage = s.index;
  if (out.def == kNone) return out;
  for (uint32_t r = nodes_[out.def].results; r < nodes_[out.def].results_end; ++r)
    if (results_[r].storage == s.index) out.result = r - nodes_[out.def].results;
  return out;
}

void RematModel::add_operand(const NodeFacts& facts, ValueId v, const Learner& known) {
  Operand operand = operand_for(v, known.alias);
  if (asks_for_sizes(graph_, facts.id)) operand.storage = operand.result = kNone;
  if (const uint32_t c = class_of(known.general, v); c != kNoClass) {
    const uint32_t write = known.schedule.next_write(c, known.schedule.position(facts.id));
    if (write != UINT32_MAX) operand.good_until = write - 1;
    operand.is_certain = known.general.storage(known.general.storage_of(v)).certain;
  }
  const OpInfo* op = graph_.op_info(facts.id);  // a wait waits for its first argument
  if (facts.is_wait && (operands_.size() == facts.operands || op == nullptr || !op->has(kWait)))
    if (NodeId launch = known.alias.launch_of(v)) operand.launch = position_[launch.index];
  operands_.push_back(operand);
}

void RematModel::add_result(NodeFacts* facts, StorageId s, const AliasAnalysis& alias) {
  if (s.is_none()) return;
  for (uint32_t r = facts->results; r < results_.size(); ++r)
    if (results_[r].storage == s.index) return;
  ResultMemory memory;
  memory.storage = s.index;
  memory.is_made = alias.storage(s).def == facts->id;
  for (uint32_t o = facts->operands; !memory.is_made && o < facts->operands_end; ++o)
    if (operands_[o].storage == s.index && memory.operand == kNone) memory.operand = o - facts->operands;
  if (memory.is_made) {
    facts->made_bytes += original_bytes_[s.index];
    facts->is_output |= alias.storage(s).is_output;
  }
  if (NodeId maker = alias.storage(s).def; facts->maker == kNone && maker) facts->maker = position_[maker.index];
  results_.push_back(memory);
}

// The operands whose memory each result could reuse if they died here; operands of equal size first.
void RematModel::add_reuses(const NodeFacts& facts, const Learner& known) {
  const Liveness& live = known.live;
  for (uint32_t r = facts.results; r < facts.results_end; ++r) {
    const LiveStorage* result = results_[r].is_made ? live.find(StorageId(results_[r].storage)) : nullptr;
    if (result == nullptr || !result->bytes_known || result->bytes == 0) continue;
    const auto reads = known.alias.reads(facts.id);
    for (bool whole : {true, false}) {
      uint32_t which = facts.operands;
      for_operands(graph_, facts.id, [&](ValueId v) {
        const uint32_t operand = which++;
        const LiveStorage* dying = live.find(known.alias.storage_of(v));
        if (dying == nullptr || !dying->bytes_known || dying->is_host != result->is_host ||
            (dying->bytes == result->bytes) != whole || dying->bytes < result->bytes)
          return;
        if (!std::ranges::binary_search(reads, dying->storage)) return;
        if (in_place_offset(graph_, known.alias, known.sizes, facts.id, {result->owner, result->bytes},
                            {v, dying->bytes}))
          reuses_.push_back({r - facts.results, operand - facts.operands});
      });
    }
  }
}

// A wait is decided together with its launch.
RematBar RematModel::bar_of_launch(const NodeFacts& wait) const {
  const uint32_t launch = wait.operands == wait.operands_end ? kNone : operands_[wait.operands].launch;
  return launch == kNone ? RematBar::effect : nodes_[launch].bar;
}

// Memory that bodies of calls need beyond their results.
void RematModel::add_calls(const Liveness& live) {
  for (const CallSite& call : live.calls) {
    NodeFacts& facts = nodes_[call.position];
    facts.call_bytes = std::max<int64_t>(live.bodies[call.body.index]->lower_bound_bytes - facts.made_bytes, 0);
  }
}

void RematModel::add_uses() {
  all_uses_.assign(nodes_.size(), 0);
  for (const Operand& output : outputs_)
    if (output.def != kNone) ++all_uses_[output.def];
  maker_of_.assign(original_bytes_.size(), kNone);
  for (uint32_t at = 0; at < nodes_.size(); ++at)
    for (uint32_t r = nodes_[at].results; r < nodes_[at].results_end; ++r)
      if (results_[r].is_made) maker_of_[results_[r].storage] = at;
  std::vector<uint8_t> waited(results_.size(), 0);
  for (uint32_t at = 0; at < nodes_.size(); ++at)
    for (uint32_t o = nodes_[at].operands; o < nodes_[at].operands_end; ++o) {
      if (const uint32_t launch = operands_[o].launch; launch != kNone)
        for (uint32_t r = nodes_[launch].results; r < nodes_[launch].results_end; ++r)
          waited[r] |= operands_[o].def != launch || r == nodes_[launch].results + operands_[o].result;
      if (operands_[o].storage == kNone || maker_of_[operands_[o].storage] == kNone) continue;
      NodeFacts& made_by = nodes_[maker_of_[operands_[o].storage]];
      if (nodes_[at].is_forward) made_by.last_forward = at;
      else if (made_by.first_later == kNone) made_by.first_later = at;
    }
  for (NodeFacts& facts : nodes_) {
    facts.lands = facts.results != facts.results_end;
    for (uint32_t r = facts.results; r < facts.results_end; ++r) facts.lands &= waited[r] != 0;
  }
}

// Packs the data that runs read.
void RematModel::find_traits() {
  traits_.resize(nodes_.size());
  for (uint32_t at = 0; at < nodes_.size(); ++at) {
    const NodeFacts& facts = nodes_[at];
    bool waits = false;
    for (uint32_t o = facts.operands; o < facts.operands_end; ++o) waits |= operands_[o].launch != kNone;
    auto trait = [](bool has, Trait which) { return has ? unsigned{which} : 0u; };
    traits_[at] =
        static_cast<uint8_t>(trait(facts.is_forward, kForward) | trait(facts.bar == RematBar::none, kMayCopy) |
                             trait(facts.is_launch, kLaunches) | trait(waits, kWaits) |
                             trait(facts.reuses != facts.reuses_end, kMayReuse) | trait(facts.call_bytes != 0, kCalls));
    operand_begin_.push_back(facts.operands);
    result_begin_.push_back(facts.results);
  }
  operand_begin_.push_back(static_cast<uint32_t>(operands_.size()));
  result_begin_.push_back(static_cast<uint32_t>(results_.size()));
  for (const Operand& operand : operands_) {
    operand_def_.push_back(operand.def);
    read_piece_.push_back(operand.storage);
    if (operand.def != kNone) ++all_uses_[operand.def];
  }
  read_copy_.assign(operands_.size(), kNone);
  read_launch_.assign(operands_.size(), kNone);
  for (const ResultMemory& result : results_) lies_in_.push_back(result.storage);
}

// Operands that read a copy in some run, and those that read it through views.
void RematModel::find_moving() {
  std::vector<uint8_t> is_moving(results_.size(), 0);
  for (uint32_t at = 0; at < nodes_.size(); ++at) {
    const size_t before = moving_.size();
    for (uint32_t o = operand_begin_[at]; o < operand_begin_[at + 1]; ++o) {
      const Operand& operand = operands_[o];
      if (operand.def == kNone) continue;
      const bool may_read_copy = !(traits_[at] & kForward) && (traits_[operand.def] & kMayCopy);
      const bool shows = operand.result != kNone && is_moving[result_begin_[operand.def] + operand.result];
      if (may_read_copy || shows) moving_.push_back(o);
    }
    if (moving_.size() == before) continue;
    moving_nodes_.push_back(at);
    moving_begin_.push_back(static_cast<uint32_t>(before));
    const std::span here(moving_.data() + before, moving_.data() + moving_.size());
    for (uint32_t r = result_begin_[at]; r < result_begin_[at + 1]; ++r)
      is_moving[r] =
          results_[r].operand != kNone && std::ranges::binary_search(here, operand_begin_[at] + results_[r].operand);
  }
  moving_begin_.push_back(static_cast<uint32_t>(moving_.size()));
}

}  // namespace sg
