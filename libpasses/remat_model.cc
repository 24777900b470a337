#include "libpasses/remat_model.h"

#include <algorithm>

#include "libgraph/cost.h"
#include "libgraph/in_place.h"
#include "libgraph/op.h"
#include "libgraph/transfer.h"

namespace sg {
namespace {

// What a device does while it moves a byte, and what a byte on the wire costs beside one in memory: round figures for
// today's accelerators. They decide between values, and nothing else rests on them.
constexpr double kFlopsPerByte = 200, kWireBytes = 20;

constexpr uint32_t kNone = RematModel::kNone;

template <class Fn>
void for_operands(const Graph& graph, NodeId n, const Fn& fn) {
  for (const Arg& arg : graph.node(n).args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::value)) fn(a.as_value());
    });
}

double cost_of(CostModel* model, const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  const NodeCost cost = model->node(graph, n);
  const double time = std::max(cost.bytes, cost.flops / kFlopsPerByte);
  return op != nullptr && op->has(kCollective) ? time * kWireBytes : time;
}

// Memory that something writes to, waits left out: what made it does not tell what is in it.
std::vector<bool> written_classes(const Graph& graph, const AliasAnalysis& alias) {
  std::vector<bool> out(alias.storages().size() + 1);
  for (NodeId n : graph.nodes()) {
    const OpInfo* op = graph.op_info(n);
    if (op != nullptr && op->has(kWait)) continue;
    for (StorageId s : alias.writes(n)) out[alias.storage(s).alias_class] = true;
  }
  return out;
}

RematBar bar_of(const Graph& graph, const AliasAnalysis& alias, const std::vector<bool>& written, NodeId n, bool collectives) {
  const OpInfo* op = graph.op_info(n);
  if (graph.node(n).phase != Phase::forward) return RematBar::not_forward;
  if (op == nullptr) return RematBar::unknown_op;
  const bool exchanges = op->has(kCollective) || op->has(kWait);
  if (exchanges && !collectives) return RematBar::exchange;
  if (exchanges ? op->writes() && !op->has(kWait) : !(op->has(kPure) || draws_random(graph, n))) return RematBar::effect;
  if (op->has(kHostSync) || op->has(kAssert)) return RematBar::effect;
  if (op->has(kSize) || !alias.binds(n).empty()) return RematBar::size;
  if (graph.node(n).result_count == 0) return RematBar::no_result;
  for (uint32_t i = 0; i < graph.node(n).result_count; ++i) {
    // A view of an input is as good as the input: whether what it shows changes is asked for each copy.
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
    case RematBar::not_forward: return "it is no part of the forward";
    case RematBar::unknown_op: return "nothing is known about its op";
    case RematBar::effect: return "it has an effect, which would happen twice";
    case RematBar::size: return "the data decides it, and sizes rest on it";
    case RematBar::exchange: return "ranks would exchange data that not all of them ask for";
    case RematBar::written: return "something writes into it";
    case RematBar::shared_memory: return "it may lie in other memory";
    case RematBar::no_result: return "it has no result";
  }
  return "";
}

// What is asked while the model is made. Memory is that of the sizes given; what may be done holds for all sizes.
struct RematModel::Learner {
  Learner(const Program& program, const Graph& graph, const SizeValues& values)
      : sizes(values), alias(program, graph, {&values}), general(program, graph), schedule(graph, general),
        live(compute_liveness(program, graph, values)) {}

  const SizeValues& sizes;
  const AliasAnalysis alias, general;
  const Schedule schedule;
  const Liveness live;
};

RematModel::RematModel(const Program& program, const Graph& graph, const SizeValues& sizes, bool collectives) : graph_(graph) {
  const Learner known(program, graph, sizes);
  const std::vector<bool> written = written_classes(graph, known.general);
  CostModel costs(program, sizes);
  position_.assign(graph.node_id_limit(), kNone);
  for (uint32_t i = 0; i < known.live.schedule.size(); ++i) position_[known.live.schedule[i].index] = i;
  originals_.resize(known.alias.storages().size());
  for (uint32_t s = 0; s < originals_.size(); ++s) add_storage(s, known);
  nodes_.reserve(known.live.schedule.size());
  for (NodeId n : known.live.schedule) {
    add_node(n, known);
    nodes_.back().bar = bar_of(graph, known.general, written, n, collectives);
    if (nodes_.back().is_wait && nodes_.back().bar == RematBar::none) nodes_.back().bar = bar_of_launch(nodes_.back());
    nodes_.back().cost = cost_of(&costs, graph, n);
  }
  for (const Output& output : graph.outputs())
    if (output.value) outputs_.push_back(operand_for(output.value, known.alias));
  add_calls(known.live);
  add_uses();
}

void RematModel::add_storage(uint32_t s, const Learner& known) {
  const LiveStorage* inside = known.live.find(StorageId(s));
  originals_[s].bytes = inside != nullptr && !inside->is_host ? inside->bytes : 0;     // the host's is apart
  const auto members = known.alias.class_members(known.alias.storage(StorageId(s)).alias_class);
  originals_[s].is_single = members.size() == 1;
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
  for (uint32_t i = 0; i < node.result_count; ++i) add_result(&facts, known.alias.storage_of(node.result(i)), known.alias);
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
  if (const uint32_t c = class_of(known.general, v); c != kNoClass) {
    const uint32_t write = known.schedule.next_write(c, known.schedule.position(facts.id));
    if (write != UINT32_MAX) operand.good_until = write - 1;
    operand.is_certain = known.general.storage(known.general.storage_of(v)).certain;
  }
  const OpInfo* op = graph_.op_info(facts.id);                     // a wait waits for its first argument, a call for what it likes
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
    facts->made_bytes += originals_[s.index].bytes;
    facts->is_output |= alias.storage(s).is_output;
  }
  if (NodeId maker = alias.storage(s).def; facts->maker == kNone && maker) facts->maker = position_[maker.index];
  results_.push_back(memory);
}

// Which operands' memory each result could lie in, were they to die here: first those that it fills.
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
        if (dying == nullptr || !dying->bytes_known || dying->is_host != result->is_host || (dying->bytes == result->bytes) != whole || dying->bytes < result->bytes) return;
        if (!std::ranges::binary_search(reads, dying->storage)) return;
        if (in_place_offset(graph_, known.alias, known.sizes, facts.id, result->owner, result->bytes, v, dying->bytes))
          reuses_.push_back({r - facts.results, operand - facts.operands});
      });
    }
  }
}

// A wait goes with what it waits for.
RematBar RematModel::bar_of_launch(const NodeFacts& wait) const {
  const uint32_t launch = wait.operands == wait.operands_end ? kNone : operands_[wait.operands].launch;
  return launch == kNone ? RematBar::effect : nodes_[launch].bar;
}

// What bodies of calls need beyond the results.
void RematModel::add_calls(const Liveness& live) {
  for (const CallSite& call : live.calls) {
    NodeFacts& facts = nodes_[call.position];
    facts.call_bytes = std::max<int64_t>(live.bodies[call.body.index]->lower_bound_bytes - facts.made_bytes, 0);
  }
}

void RematModel::add_uses() {
  output_uses_.assign(nodes_.size(), 0);
  for (const Operand& output : outputs_)
    if (output.def != kNone) ++output_uses_[output.def];
  std::vector<uint32_t> maker(originals_.size(), kNone);
  for (uint32_t at = 0; at < nodes_.size(); ++at)
    for (uint32_t r = nodes_[at].results; r < nodes_[at].results_end; ++r)
      if (results_[r].is_made) maker[results_[r].storage] = at;
  std::vector<uint8_t> waited(results_.size(), 0);
  for (uint32_t at = 0; at < nodes_.size(); ++at)
    for (uint32_t o = nodes_[at].operands; o < nodes_[at].operands_end; ++o) {
      if (const uint32_t launch = operands_[o].launch; launch != kNone)
        for (uint32_t r = nodes_[launch].results; r < nodes_[launch].results_end; ++r)
          waited[r] |= operands_[o].def != launch || r == nodes_[launch].results + operands_[o].result;
      if (operands_[o].storage == kNone || maker[operands_[o].storage] == kNone) continue;
      NodeFacts& made_by = nodes_[maker[operands_[o].storage]];
      if (nodes_[at].is_forward) made_by.last_forward = at;
      else if (made_by.first_later == kNone) made_by.first_later = at;
    }
  for (NodeFacts& facts : nodes_) {
    facts.lands = facts.results != facts.results_end;
    for (uint32_t r = facts.results; r < facts.results_end; ++r) facts.lands &= waited[r] != 0;
  }
}

// --- one run ---

RematOutcome RematModel::run(const RematDecision& decision, bool with_memory) {
  RematOutcome out;
  reset(decision);
  size_t renewed = 0;
  for (uint32_t b = 0; b < nodes_.size(); ++b) {
    for (; renewed < decision.renew.size() && decision.renew[renewed].before <= b; ++renewed)
      wanted_[decision.renew[renewed].node] = expired_[decision.renew[renewed].node] = 1;
    if (!nodes_[b].is_forward) pull(b, &out);
    place_views(b);
  }
  mark_used();
  find_gone(&out);
  for (const CopyState& copy : copies_) {
    if (!copy.is_used) continue;
    out.copies.push_back({copy.node, copy.before});
    out.cost += nodes_[copy.node].cost;
  }
  if (!with_memory) return out;
  walk();
  land();
  find_reuse();
  sum_up(&out);
  return out;
}

void RematModel::reset(const RematDecision& decision) {
  pieces_ = originals_;
  copies_.clear();
  copy_pieces_.clear();
  resolved_.clear();
  steps_.clear();
  wanted_ = decision.recompute;
  copy_of_.assign(nodes_.size(), kNone);
  asked_for_.assign(nodes_.size(), kNone);
  expired_.assign(nodes_.size(), 0);
  stale_.assign(nodes_.size(), 0);
  gone_.assign(nodes_.size(), 0);
  read_by_.resize(operands_.size());
  lies_in_.resize(results_.size());
  for (size_t r = 0; r < results_.size(); ++r) lies_in_[r] = results_[r].storage;
}

bool RematModel::is_needed(uint32_t def, uint32_t b) const {
  if (def == kNone || !wanted_[def] || nodes_[def].bar != RematBar::none || stale_[def] || asked_for_[def] == b) return false;
  return copy_of_[def] == kNone || expired_[def];
}

// Copies of all that `b` needs and that is not there yet.
void RematModel::pull(uint32_t b, RematOutcome* out) {
  needed_.clear();
  stack_.assign(1, b);
  while (!stack_.empty()) {
    const NodeFacts& user = nodes_[stack_.back()];
    stack_.pop_back();
    for (uint32_t o = user.operands; o < user.operands_end; ++o) {
      const uint32_t def = operands_[o].def;
      if (!is_needed(def, b)) continue;
      asked_for_[def] = b;
      needed_.push_back(def);
      stack_.push_back(def);
    }
  }
  std::ranges::sort(needed_);
  for (uint32_t n : needed_) {
    expired_[n] = 0;
    if (try_copy(n, b)) continue;
    out->stale.emplace_back(n, b);
    stale_[n] = copy_of_[n] == kNone;
  }
  for (uint32_t o = nodes_[b].operands; o < nodes_[b].operands_end; ++o) {
    read_by_[o] = resolve(operands_[o]);
    if (read_by_[o].copy == kNone) continue;
    copies_[read_by_[o].copy].is_used = true;
    if (operands_[o].launch != kNone) read_by_[o].launch = copy_of_[operands_[o].launch];
  }
}

// A view behind the forward shows what it takes: that may be a copy now.
void RematModel::place_views(uint32_t at) {
  for (uint32_t r = nodes_[at].results; r < nodes_[at].results_end; ++r)
    if (results_[r].operand != kNone) lies_in_[r] = operand_of({at, kNone}, results_[r].operand).piece;
}

uint32_t RematModel::original_piece(const Operand& operand) const {
  return operand.result == kNone ? operand.storage : lies_in_[nodes_[operand.def].results + operand.result];
}

RematModel::Resolved RematModel::resolve(const Operand& operand) const {
  const uint32_t copy = operand.def == kNone ? kNone : copy_of_[operand.def];
  if (copy == kNone || operand.result == kNone) return {copy, original_piece(operand)};
  return {copy, copy_pieces_[copies_[copy].pieces + operand.result]};
}

// False when what the copy would read is not what the original read.
bool RematModel::try_copy(uint32_t n, uint32_t b) {
  const NodeFacts& facts = nodes_[n];
  for (uint32_t o = facts.operands; o < facts.operands_end; ++o) {
    const Resolved from = resolve(operands_[o]);
    const bool is_fresh = from.piece == kNone || (from.piece >= originals_.size() && operands_[o].is_certain);
    if (!is_fresh && operands_[o].good_until < b) return false;
    if (facts.is_wait && from.copy == kNone) return false;       // it would be the second wait for one launch
  }
  CopyState copy;
  copy.node = n;
  copy.before = b;
  copy.operands = static_cast<uint32_t>(resolved_.size());
  for (uint32_t o = facts.operands; o < facts.operands_end; ++o) {
    resolved_.push_back(resolve(operands_[o]));
    if (operands_[o].launch != kNone) copy.launch = copy_of_[operands_[o].launch];
  }
  copy.pieces = static_cast<uint32_t>(copy_pieces_.size());
  for (uint32_t r = facts.results; r < facts.results_end; ++r) {
    uint32_t piece = results_[r].storage;
    if (results_[r].is_made) {
      piece = static_cast<uint32_t>(pieces_.size());
      pieces_.push_back({kNone, 0, originals_[results_[r].storage].bytes, false, false, true});
    } else if (results_[r].operand != kNone) {
      piece = resolved_[copy.operands + results_[r].operand].piece;
    }
    copy_pieces_.push_back(piece);
  }
  copy_of_[n] = static_cast<uint32_t>(copies_.size());
  copies_.push_back(copy);
  return true;
}

// Copies that only a node asked for that could not be copied in the end are not used.
void RematModel::mark_used() {
  for (size_t c = copies_.size(); c-- > 0;) {
    const uint32_t count = nodes_[copies_[c].node].operands_end - nodes_[copies_[c].node].operands;
    for (uint32_t i = 0; copies_[c].is_used && i < count; ++i)
      if (const uint32_t source = resolved_[copies_[c].operands + i].copy; source != kNone) copies_[source].is_used = true;
  }
  for (const CopyState& copy : copies_) copy_of_[copy.node] = kNone;
  for (uint32_t c = 0; c < copies_.size(); ++c)
    if (copies_[c].is_used) copy_of_[copies_[c].node] = c;
}

// Originals that were copied and that nobody uses any more.
void RematModel::find_gone(RematOutcome* out) {
  uses_ = output_uses_;
  for (const NodeFacts& user : nodes_)
    for (uint32_t o = user.operands; o < user.operands_end; ++o)
      if (const uint32_t def = operands_[o].def; def != kNone && (user.is_forward || read_by_[o].copy == kNone)) ++uses_[def];
  for (const CopyState& copy : copies_) {
    const NodeFacts& facts = nodes_[copy.node];
    for (uint32_t o = facts.operands; copy.is_used && o < facts.operands_end; ++o)
      if (operands_[o].def != kNone && resolved_[copy.operands + o - facts.operands].copy == kNone) ++uses_[operands_[o].def];
  }
  for (uint32_t n = size(); n-- > 0;) {
    if (copy_of_[n] == kNone || uses_[n] != 0) continue;
    gone_[n] = 1;
    out->gone.push_back(n);
    out->cost -= nodes_[n].cost;
    for (uint32_t o = nodes_[n].operands; o < nodes_[n].operands_end; ++o)
      if (operands_[o].def != kNone) --uses_[operands_[o].def];
  }
  std::ranges::reverse(out->gone);
}

// The new schedule: when each piece of memory is in use.
void RematModel::walk() {
  landing_.assign(nodes_.size() + copies_.size(), 0);
  size_t next = 0;
  for (uint32_t at = 0; at < nodes_.size(); ++at) {
    for (; next < copies_.size() && copies_[next].before == at; ++next)
      if (copies_[next].is_used) step(copies_[next].node, static_cast<uint32_t>(next));
    if (!gone_[at]) step(at, kNone);
  }
}

void RematModel::touch(uint32_t piece, uint32_t time) {
  if (piece != kNone) pieces_[piece].last = std::max(pieces_[piece].last, time);
}

RematModel::Resolved RematModel::operand_of(const Step& s, uint32_t which) const {
  const NodeFacts& facts = nodes_[s.at];
  if (s.copy != kNone) return resolved_[copies_[s.copy].operands + which];
  return facts.is_forward ? Resolved{kNone, original_piece(operands_[facts.operands + which])} : read_by_[facts.operands + which];
}

uint32_t RematModel::piece_of(const Step& s, uint32_t which) const {
  return s.copy == kNone ? lies_in_[nodes_[s.at].results + which] : copy_pieces_[copies_[s.copy].pieces + which];
}

void RematModel::step(uint32_t at, uint32_t copy) {
  const Step now{at, copy};
  const uint32_t time = static_cast<uint32_t>(steps_.size());
  steps_.push_back(now);
  const NodeFacts& facts = nodes_[at];
  for (uint32_t i = 0; i < facts.operands_end - facts.operands; ++i) {
    touch(operand_of(now, i).piece, time);
    const uint32_t launch = operands_[facts.operands + i].launch;
    if (launch == kNone) continue;
    const uint32_t copied = copy != kNone ? copies_[copy].launch : facts.is_forward ? kNone : read_by_[facts.operands + i].launch;
    landing_[copied == kNone ? launch : size() + copied] = time;
  }
  for (uint32_t r = 0; r < facts.results_end - facts.results; ++r) {
    const uint32_t piece = piece_of(now, r);
    if (results_[facts.results + r].is_made) pieces_[piece].first = time;
    touch(piece, time);
  }
}

// A collective may run until it is waited for; outputs stay; what may be one piece of memory lives together.
void RematModel::land() {
  const uint32_t end = steps_.empty() ? 0 : static_cast<uint32_t>(steps_.size()) - 1;
  for (const Step& s : steps_) {
    const NodeFacts& facts = nodes_[s.at];
    if (!facts.is_launch) continue;
    const uint32_t landing = landing_[s.copy == kNone ? s.at : size() + s.copy];
    const uint32_t until = facts.lands && landing != 0 ? landing : end;
    for (uint32_t i = 0; i < facts.operands_end - facts.operands; ++i) touch(operand_of(s, i).piece, until);
    for (uint32_t r = 0; r < facts.results_end - facts.results; ++r) touch(piece_of(s, r), until);
  }
  for (const Operand& output : outputs_) {
    const uint32_t piece = original_piece(output);
    if (piece == kNone) continue;
    pieces_[piece].is_output = true;
    touch(piece, end);
  }
  for (const auto& members : classes_) {
    uint32_t last = 0;
    for (uint32_t s : members) last = std::max(last, pieces_[s].last);
    for (uint32_t s : members) touch(s, last);
  }
}

void RematModel::find_reuse() {
  saved_.assign(steps_.size(), 0);
  for (uint32_t time = 0; time < steps_.size(); ++time) {
    const NodeFacts& facts = nodes_[steps_[time].at];
    uint32_t done = kNone;
    for (uint32_t i = facts.reuses; i < facts.reuses_end; ++i) {
      if (reuses_[i].result == done) continue;
      const uint32_t result = piece_of(steps_[time], reuses_[i].result), dying = operand_of(steps_[time], reuses_[i].operand).piece;
      if (dying == kNone) continue;
      Piece& old = pieces_[dying];
      if (old.first == kNone || old.is_output || old.taken || !old.is_single || old.last != time || old.first == time) continue;
      old.taken = true;
      done = reuses_[i].result;
      saved_[time] += pieces_[result].bytes;
    }
  }
}

void RematModel::sum_up(RematOutcome* out) const {
  std::vector<int64_t> change(steps_.size() + 1, 0);
  for (const Piece& piece : pieces_) {
    if (piece.first == kNone) continue;
    change[piece.first] += piece.bytes;
    change[piece.last + 1] -= piece.bytes;
  }
  out->live_bytes.assign(nodes_.size(), 0);
  int64_t live = 0;
  for (uint32_t time = 0; time < steps_.size(); ++time) {
    live += change[time];
    const Step& s = steps_[time];
    const uint32_t at = s.copy == kNone ? s.at : copies_[s.copy].before;
    const int64_t now = std::max<int64_t>(live - saved_[time], 0) + nodes_[s.at].call_bytes;
    out->live_bytes[at] = std::max(out->live_bytes[at], now);
    if (now > out->peak_bytes) out->peak_bytes = now, out->peak_at = at;
  }
}

std::vector<uint32_t> RematModel::longest_waits(const RematDecision& decision) {
  run(decision, true);
  constexpr uint32_t kShortest = 8;               // nodes: less is no wait
  std::vector<uint32_t> out(nodes_.size(), kNone), longest(pieces_.size(), kShortest), before(pieces_.size(), kNone), used(pieces_.size(), 0);
  for (uint32_t time = 0; time < steps_.size(); ++time) {
    const Step& now = steps_[time];
    const NodeFacts& facts = nodes_[now.at];
    for (uint32_t i = 0; i < facts.operands_end - facts.operands; ++i) {
      const uint32_t piece = operand_of(now, i).piece;
      if (piece == kNone || piece < originals_.size()) continue;
      const uint32_t wait = time - std::max(used[piece], pieces_[piece].first);
      if (wait > longest[piece]) longest[piece] = wait, before[piece] = now.copy == kNone ? now.at : copies_[now.copy].before;
      used[piece] = time;
    }
  }
  for (const CopyState& copy : copies_)
    for (uint32_t r = 0; r < nodes_[copy.node].results_end - nodes_[copy.node].results; ++r)
      if (results_[nodes_[copy.node].results + r].is_made) out[copy.node] = before[copy_pieces_[copy.pieces + r]];
  return out;
}

}  // namespace sg
