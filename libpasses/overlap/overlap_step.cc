// One program as a question of order: precedence, and what an order costs.
#include <algorithm>
#include <queue>

#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libpasses/overlap/overlap_parts.h"

namespace sg::overlap_parts {
namespace {

using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;

// Used operands, and results.
template <class Fn>
void for_each_value(const Graph& graph, NodeId n, const Fn& fn) {
  for_used_operands(graph, n, fn);
  const Node& node = graph.node(n);
  for (uint32_t r = 0; r < node.result_count; ++r) fn(node.result(r));
}

}  // namespace

Lists::Lists(size_t count, const Pairs& pairs) : begin_(count + 1), entries_(pairs.size()) {
  for (const auto& [list, entry] : pairs) ++begin_[list + 1];
  for (size_t i = 0; i < count; ++i) begin_[i + 1] += begin_[i];
  std::vector<uint32_t> next(begin_.begin(), begin_.end() - 1);
  for (const auto& [list, entry] : pairs) entries_[next[list]++] = entry;
}

Precedence::Precedence(const Program& program, const Graph& graph, OrderScope scope)
    : facts_(program, graph, scope), place_(graph.node_id_limit()) {
  for (NodeId n : graph.nodes()) {
    place_[n.index] = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back(n);
  }
  Pairs before, after;
  auto add = [&](uint32_t first, uint32_t then) {
    before.emplace_back(then, first);
    after.emplace_back(first, then);
  };
  for (uint32_t i = 0; i < nodes_.size(); ++i)
    for (const Constraint& c : facts_.constraints_into(nodes_[i])) add(place_[c.before.index], i);
  if (scope == OrderScope::rank)
    for (const auto& [first, then] : launches_before_waits()) add(first, then);
  before_ = Lists(nodes_.size(), before);
  after_ = Lists(nodes_.size(), after);
}

// Where each rank has an order of its own. Ranks that did not wait for each other in a circle before still do not if
// each launches in the order that it had, on all of its communicators together, and moves no wait above a launch.
Pairs Precedence::launches_before_waits() const {
  Pairs out;
  std::optional<uint32_t> last;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const bool launches = !facts_.alias().groups(nodes_[i]).empty();
    const bool waits = (facts_.alias().effects(nodes_[i]) & kEffectWait) != 0;
    if (last && (launches || waits)) out.emplace_back(*last, i);
    if (launches) last = i;
  }
  return out;
}

std::optional<std::pair<uint32_t, uint32_t>> Precedence::violated(const Order& order) const {
  std::vector<uint32_t> at(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) at[order[i]] = i;
  for (uint32_t i = 0; i < order.size(); ++i)
    for (uint32_t b : before(i))
      if (at[b] > at[i]) return std::pair(b, i);
  return std::nullopt;
}

Order Precedence::sorted(const Pairs& edges) const {
  Pairs more;
  std::vector<uint32_t> waits(size());
  for (const auto& [a, b] : edges) more.emplace_back(a, b), ++waits[b];
  const Lists extra(size(), more);
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t i = 0; i < size(); ++i) {
    waits[i] += static_cast<uint32_t>(before(i).size());
    if (waits[i] == 0) ready.push(i);
  }
  Order out;
  while (!ready.empty()) {
    const uint32_t i = ready.top();
    ready.pop();
    out.push_back(i);
    for (uint32_t s : after(i))
      if (--waits[s] == 0) ready.push(s);
    for (uint32_t s : extra[i])
      if (--waits[s] == 0) ready.push(s);
  }
  return out.size() == size() ? out : Order();
}

StepMemory::StepMemory(const Program& program, const Precedence& precedence, const SizeValues& values) {
  const Graph& graph = program.graph;
  const Liveness liveness = compute_liveness(program, graph, values);
  pieces_.resize(liveness.storages.size());
  body_bytes_.resize(precedence.size());
  auto piece_of = [&](StorageId s) { return s.is_none() ? kNone : liveness.index_of[s.index]; };
  Pairs made, touched;
  for (uint32_t i = 0; i < pieces_.size(); ++i) {
    const LiveStorage& s = liveness.storages[i];
    if (s.is_host) continue;
    pieces_[i] = {s.bytes, s.is_output ? 1u : 0u, s.takes_over.is_none() ? kNone : piece_of(s.takes_over)};
    made.emplace_back(precedence.place(s.def), i);
  }
  std::vector<uint32_t> list, last(pieces_.size());
  for (uint32_t at = 0; at < precedence.size(); ++at) {
    const NodeId n = precedence.node(at);
    list.clear();
    auto need = [&](ValueId v) {
      if (const uint32_t p = piece_of(liveness.storage_of[v.index]); p != kNone) list.push_back(p);
    };
    for_each_value(graph, n, need);
    if (const OpInfo* op = graph.op_info(n); op && op->has(kWait))  // in flight until here
      for_each_value(graph, n, [&](ValueId v) {
        if (const NodeId launch = precedence.facts().alias().launch_of(v)) for_each_value(graph, launch, need);
      });
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    for (uint32_t p : list) touched.emplace_back(at, p), ++pieces_[p].uses, last[p] = at;
  }
  // What liveness keeps for longer: what may share memory with something else, and what nobody waits for.
  for (uint32_t i = 0; i < pieces_.size(); ++i) {
    const LiveStorage& s = liveness.storages[i];
    if (s.is_host || s.last_position <= last[i]) continue;
    if (s.last_position + 1 < precedence.size()) touched.emplace_back(s.last_position, i);
    ++pieces_[i].uses;
  }
  for (const CallSite& call : liveness.calls) {
    int64_t bytes = liveness.bodies[call.body.index] ? liveness.bodies[call.body.index]->lower_bound_bytes : 0;
    for (const CallSite::Result& r : call.results)
      if (const LiveStorage* s = liveness.find(r.storage)) bytes -= s->bytes;
    body_bytes_[precedence.place(call.node)] = std::max<int64_t>(bytes, 0);
  }
  made_ = Lists(precedence.size(), made);
  touched_ = Lists(precedence.size(), touched);
  reset();
}

void StepMemory::reset() {
  left_.resize(pieces_.size());
  for (size_t i = 0; i < pieces_.size(); ++i) left_[i] = pieces_[i].uses;
  live_ = peak_ = 0;
}

int64_t StepMemory::peak_if(uint32_t place) const {
  int64_t bytes = live_ + body_bytes_[place];
  for (uint32_t p : made_[place]) {
    bytes += pieces_[p].bytes;
    if (const uint32_t from = pieces_[p].takes_over; from != kNone && ends_at(from))
      bytes -= std::min(pieces_[from].bytes, pieces_[p].bytes);
  }
  return bytes;
}

std::optional<int64_t> StepMemory::fixed_need(uint32_t place) const {
  int64_t bytes = body_bytes_[place];
  for (uint32_t p : made_[place]) {
    if (pieces_[p].takes_over != kNone) return std::nullopt;
    bytes += pieces_[p].bytes;
  }
  return bytes;
}

void StepMemory::play(uint32_t place) {
  peak_ = std::max(peak_, peak_if(place));
  for (uint32_t p : made_[place]) live_ += pieces_[p].bytes;
  for (uint32_t p : touched_[place])
    if (--left_[p] == 0) live_ -= pieces_[p].bytes;
}

Step::Step(const Job& job, const Program& program, const SymbolValues& values, const SimOptions& options,
           OrderScope scope)
    : precedence(program, program.graph, scope),
      costs(job, program, values, options),
      sizes([&values](StrId s) { return values.value(s); }),
      memory(program, precedence, sizes) {}

Played play(Step& step, StepClock& clock, const Order& order) {
  clock.reset();
  step.memory.reset();
  for (uint32_t i : order) {
    clock.play(step.precedence.node(i));
    step.memory.play(i);
  }
  return {clock.makespan_us(), step.memory.peak_bytes()};
}

Lists launches_of(const Precedence& precedence, size_t groups) {
  Pairs pairs;
  for (uint32_t i = 0; i < precedence.size(); ++i)
    for (GroupId g : precedence.facts().alias().groups(precedence.node(i)))
      if (g.index < groups) pairs.emplace_back(g.index, i);
  return Lists(groups, pairs);
}

std::vector<bool> staying(const Order& order) {
  std::vector<uint32_t> tails, at_tail, before(order.size(), UINT32_MAX);  // positions
  for (uint32_t i = 0; i < order.size(); ++i) {
    const auto k = static_cast<size_t>(std::lower_bound(tails.begin(), tails.end(), order[i]) - tails.begin());
    if (k == tails.size()) tails.push_back(0), at_tail.push_back(0);
    tails[k] = order[i];
    at_tail[k] = i;
    if (k > 0) before[i] = at_tail[k - 1];
  }
  std::vector<bool> stays(order.size());
  for (uint32_t i = at_tail.empty() ? UINT32_MAX : at_tail.back(); i != UINT32_MAX; i = before[i])
    stays[order[i]] = true;
  return stays;
}

void apply_order(Graph* graph, const Precedence& precedence, const Order& order) {
  NodeId cursor;
  for (uint32_t i : order) {
    const NodeId n = precedence.node(i);
    const NodeId next = cursor ? graph->next(cursor) : graph->first();
    if (next != n) graph->move_before(n, next);
    cursor = n;
  }
}

}  // namespace sg::overlap_parts
