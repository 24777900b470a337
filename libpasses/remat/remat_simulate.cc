// Simulates a decision: where copies go, what disappears, and when each piece of memory is in use. A search runs this
// hundreds of times, so a run touches only what a decision can change: operands that never read a copy are visited
// once, while walking the schedule.
#include <algorithm>

#include "libpasses/remat/remat_model.h"

namespace sg {
RematOutcome RematModel::place(const RematDecision& decision) {
  find_copies(decision);
  return listed();
}

RematOutcome RematModel::simulate(const RematDecision& decision) {
  find_copies(decision);
  RematOutcome out = listed();
  walk();
  land();
  const RematWeight weight = sum_up(&out.live_bytes);
  out.peak_bytes = weight.peak_bytes;
  out.peak_at = weight.peak_at;
  return out;
}

RematWeight RematModel::weigh(const RematDecision& decision) {
  find_copies(decision);
  walk();
  land();
  return sum_up(nullptr);
}

double RematModel::cost(const RematDecision& decision) {
  find_copies(decision);
  return cost_of_run();
}

RematOutcome RematModel::listed() const {
  RematOutcome out;
  for (const CopyState& copy : copies_)
    if (copy.is_used) out.copies.push_back({copy.node, copy.before});
  out.gone.assign(gone_.rbegin(), gone_.rend());
  out.stale = stale_;
  out.cost = cost_of_run();
  return out;
}

double RematModel::cost_of_run() const {
  double out = 0;
  for (uint32_t n : gone_) out -= nodes_[n].cost;
  for (const CopyState& copy : copies_)
    if (copy.is_used) out += nodes_[copy.node].cost;
  return out;
}

// --- copies ---

void RematModel::find_copies(const RematDecision& decision) {
  reset(decision);
  size_t renewed = 0;
  for (size_t i = 0; i < moving_nodes_.size(); ++i) {
    const uint32_t b = moving_nodes_[i];
    for (; renewed < decision.renew.size() && decision.renew[renewed].before <= b; ++renewed) {
      const uint32_t node = decision.renew[renewed].node;
      wanted_[node] = (traits_[node] & kMayCopy) != 0;
      expired_[node] = 1;
    }
    const std::span moving(moving_.data() + moving_begin_[i], moving_.data() + moving_begin_[i + 1]);
    if (traits_[b] & kForward)
      for (uint32_t o : moving) read_piece_[o] = lies_in_[result_begin_[operand_def_[o]] + operands_[o].result];
    else pull(b, moving);
    place_views(b);
  }
  mark_used();
  find_gone();
}

void RematModel::reset(const RematDecision& decision) {
  const size_t count = nodes_.size();
  bytes_ = original_bytes_;
  copies_.clear();
  copy_pieces_.clear();
  resolved_.clear();
  stale_.clear();
  redirected_.clear();
  wanted_.resize(count);
  for (size_t at = 0; at < count; ++at) wanted_[at] = decision.recompute[at] != 0 && (traits_[at] & kMayCopy) != 0;
  copy_of_.assign(count, kNone);
  asked_for_.assign(count, kNone);
  expired_.assign(count, 0);
  is_stale_.assign(count, 0);
}

inline void RematModel::ask_for(uint32_t def, uint32_t b) {
  if (def == kNone || !wanted_[def] || is_stale_[def] || asked_for_[def] == b) return;
  if (copy_of_[def] != kNone && !expired_[def]) return;
  asked_for_[def] = b;
  needed_.push_back(def);
  stack_.push_back(def);
}

// Creates the copies that `b` needs and that do not exist yet.
void RematModel::pull(uint32_t b, std::span<const uint32_t> moving) {
  needed_.clear();
  for (uint32_t o : moving) ask_for(operand_def_[o], b);
  while (!stack_.empty()) {
    const uint32_t user = stack_.back();
    stack_.pop_back();
    for (uint32_t o = operand_begin_[user]; o < operand_begin_[user + 1]; ++o) ask_for(operand_def_[o], b);
  }
  std::ranges::sort(needed_);
  for (uint32_t n : needed_) {
    expired_[n] = 0;
    if (try_copy(n, b)) continue;
    stale_.emplace_back(n, b);
    is_stale_[n] = copy_of_[n] == kNone;
  }
  for (uint32_t o : moving) {
    const Resolved from = resolve(o);
    read_copy_[o] = from.copy;
    read_piece_[o] = from.piece;
    if (from.copy == kNone) continue;
    copies_[from.copy].is_used = true;
    redirected_.push_back(o);
    read_launch_[o] = operands_[o].launch == kNone ? kNone : copy_of_[operands_[o].launch];
  }
}

// A view after the forward reads its operand, which may be a copy now.
void RematModel::place_views(uint32_t at) {
  for (uint32_t r = result_begin_[at]; r < result_begin_[at + 1]; ++r)
    if (results_[r].operand != kNone) lies_in_[r] = read_piece_[operand_begin_[at] + results_[r].operand];
}

inline RematModel::Resolved RematModel::resolve(uint32_t o) const {
  const Operand& operand = operands_[o];
  const uint32_t copy = operand.def == kNone ? kNone : copy_of_[operand.def];
  if (operand.result == kNone) return {copy, operand.storage};
  return {copy, copy == kNone ? lies_in_[result_begin_[operand.def] + operand.result]
                              : copy_pieces_[copies_[copy].pieces + operand.result]};
}

// False if the copy would not read what the original read.
bool RematModel::can_copy(const CopyState& copy) const {
  const NodeFacts& facts = nodes_[copy.node];
  for (uint32_t o = facts.operands; o < facts.operands_end; ++o) {
    const Resolved& from = resolved_[copy.operands + o - facts.operands];
    const bool is_fresh = from.piece == kNone || (from.piece >= original_bytes_.size() && operands_[o].is_certain);
    if (!is_fresh && operands_[o].good_until < copy.before) return false;
    if (facts.is_wait && from.copy == kNone) return false;  // it would be a second wait for one launch
  }
  return true;
}

bool RematModel::try_copy(uint32_t n, uint32_t b) {
  const uint32_t first = operand_begin_[n], last = operand_begin_[n + 1];
  CopyState copy;
  copy.node = n;
  copy.before = b;
  copy.operands = static_cast<uint32_t>(resolved_.size());
  for (uint32_t o = first; o < last; ++o) {
    resolved_.push_back(resolve(o));
    if (operands_[o].launch != kNone) copy.launch = copy_of_[operands_[o].launch];
  }
  if (!can_copy(copy)) {
    resolved_.resize(copy.operands);
    return false;
  }
  copy.pieces = static_cast<uint32_t>(copy_pieces_.size());
  for (uint32_t r = result_begin_[n]; r < result_begin_[n + 1]; ++r) {
    uint32_t piece = results_[r].storage;
    if (results_[r].is_made) {
      piece = static_cast<uint32_t>(bytes_.size());
      bytes_.push_back(original_bytes_[results_[r].storage]);
    } else if (results_[r].operand != kNone) {
      piece = resolved_[copy.operands + results_[r].operand].piece;
    }
    copy_pieces_.push_back(piece);
  }
  copy_of_[n] = static_cast<uint32_t>(copies_.size());
  copies_.push_back(copy);
  return true;
}

// Marks the copies in use: not those requested only by nodes that could not be copied in the end.
void RematModel::mark_used() {
  for (size_t c = copies_.size(); c-- > 0;) {
    if (!copies_[c].is_used) continue;
    const uint32_t n = copies_[c].node, count = operand_begin_[n + 1] - operand_begin_[n];
    for (uint32_t i = 0; i < count; ++i)
      if (const uint32_t source = resolved_[copies_[c].operands + i].copy; source != kNone)
        copies_[source].is_used = true;
  }
  for (const CopyState& copy : copies_) copy_of_[copy.node] = kNone;
  for (uint32_t c = 0; c < copies_.size(); ++c)
    if (copies_[c].is_used) copy_of_[copies_[c].node] = c;
}

// Finds the originals that disappear: copied, with no users left.
void RematModel::find_gone() {
  uses_ = all_uses_;
  for (uint32_t o : redirected_) --uses_[operand_def_[o]];
  for (const CopyState& copy : copies_) {
    if (!copy.is_used) continue;
    const uint32_t first = operand_begin_[copy.node], last = operand_begin_[copy.node + 1];
    for (uint32_t o = first; o < last; ++o)
      if (operand_def_[o] != kNone && resolved_[copy.operands + o - first].copy == kNone) ++uses_[operand_def_[o]];
  }
  gone_.clear();
  is_gone_.assign(nodes_.size(), 0);
  for (uint32_t n = size(); n-- > 0;) {
    if (copy_of_[n] == kNone || uses_[n] != 0) continue;
    is_gone_[n] = 1;
    gone_.push_back(n);
    for (uint32_t o = operand_begin_[n]; o < operand_begin_[n + 1]; ++o)
      if (operand_def_[o] != kNone) --uses_[operand_def_[o]];
  }
}

// --- memory ---

// Builds the new schedule, and when each piece of memory is in use.
void RematModel::walk() {
  const size_t pieces = bytes_.size();
  first_.assign(pieces, kNone);
  last_.assign(pieces, 0);
  is_taken_.assign(pieces, 0);
  is_output_piece_.assign(pieces, 0);
  landing_.assign(nodes_.size() + copies_.size(), 0);
  steps_.clear();
  launches_.clear();
  uint32_t next = 0;
  for (uint32_t at = 0; at < nodes_.size(); ++at) {
    for (; next < copies_.size() && copies_[next].before == at; ++next)
      if (copies_[next].is_used) step_copy(next);
    if (!is_gone_[at]) step(at);
  }
}

inline void RematModel::step(uint32_t at) {
  const uint32_t time = static_cast<uint32_t>(steps_.size());
  steps_.push_back({at, kNone});
  for (uint32_t o = operand_begin_[at]; o < operand_begin_[at + 1]; ++o)
    if (const uint32_t piece = read_piece_[o]; piece != kNone) last_[piece] = time;
  for (uint32_t r = result_begin_[at]; r < result_begin_[at + 1]; ++r) {
    const uint32_t piece = lies_in_[r];
    if (results_[r].is_made) first_[piece] = time;
    if (piece != kNone) last_[piece] = time;
  }
  if (traits_[at] & (kWaits | kLaunches)) pass_waits(steps_.back(), time);
}

inline void RematModel::step_copy(uint32_t c) {
  const CopyState& copy = copies_[c];
  const uint32_t time = static_cast<uint32_t>(steps_.size());
  steps_.push_back({copy.node, c});
  const uint32_t operands = operand_begin_[copy.node + 1] - operand_begin_[copy.node], first = result_begin_[copy.node];
  for (uint32_t i = 0; i < operands; ++i)
    if (const uint32_t piece = resolved_[copy.operands + i].piece; piece != kNone) last_[piece] = time;
  for (uint32_t r = first; r < result_begin_[copy.node + 1]; ++r) {
    const uint32_t piece = copy_pieces_[copy.pieces + r - first];
    if (results_[r].is_made) first_[piece] = time;
    if (piece != kNone) last_[piece] = time;
  }
  if (traits_[copy.node] & (kWaits | kLaunches)) pass_waits(steps_.back(), time);
}

void RematModel::pass_waits(const Step& now, uint32_t time) {
  if (traits_[now.at] & kLaunches) launches_.push_back(time);
  for (uint32_t o = operand_begin_[now.at]; o < operand_begin_[now.at + 1]; ++o) {
    const uint32_t launch = operands_[o].launch;
    if (launch == kNone) continue;
    const uint32_t copied = now.copy != kNone        ? copies_[now.copy].launch
                            : read_copy_[o] == kNone ? kNone
                                                     : read_launch_[o];
    landing_[copied == kNone ? launch : size() + copied] = time;
  }
}

inline uint32_t RematModel::piece_read(const Step& s, uint32_t which) const {
  return s.copy == kNone ? read_piece_[operand_begin_[s.at] + which]
                         : resolved_[copies_[s.copy].operands + which].piece;
}

inline uint32_t RematModel::piece_made(const Step& s, uint32_t which) const {
  return s.copy == kNone ? lies_in_[result_begin_[s.at] + which] : copy_pieces_[copies_[s.copy].pieces + which];
}

inline void RematModel::touch(uint32_t piece, uint32_t time) {
  if (piece != kNone) last_[piece] = std::max(last_[piece], time);
}

// A collective uses its memory until its wait; outputs stay; pieces that may share memory live together.
void RematModel::land() {
  const uint32_t end = steps_.empty() ? 0 : static_cast<uint32_t>(steps_.size()) - 1;
  for (uint32_t time : launches_) {
    const Step& s = steps_[time];
    const NodeFacts& facts = nodes_[s.at];
    const uint32_t landing = landing_[s.copy == kNone ? s.at : size() + s.copy];
    const uint32_t until = facts.lands && landing != 0 ? landing : end;
    for (uint32_t i = 0; i < facts.operands_end - facts.operands; ++i) touch(piece_read(s, i), until);
    for (uint32_t r = 0; r < facts.results_end - facts.results; ++r) touch(piece_made(s, r), until);
  }
  for (const Operand& output : outputs_) {
    const uint32_t piece =
        output.result == kNone ? output.storage : lies_in_[result_begin_[output.def] + output.result];
    if (piece == kNone) continue;
    is_output_piece_[piece] = 1;
    touch(piece, end);
  }
  for (const auto& members : classes_) {
    uint32_t last = 0;
    for (uint32_t s : members) last = std::max(last, last_[s]);
    for (uint32_t s : members) touch(s, last);
  }
}

// Bytes of results that reuse memory dying at that point.
int64_t RematModel::reused_at(uint32_t time) {
  const Step& now = steps_[time];
  const NodeFacts& facts = nodes_[now.at];
  uint32_t done = kNone;
  int64_t out = 0;
  for (uint32_t i = facts.reuses; i < facts.reuses_end; ++i) {
    if (reuses_[i].result == done) continue;
    const uint32_t dying = piece_read(now, reuses_[i].operand);
    if (dying == kNone || last_[dying] != time || first_[dying] == time || first_[dying] == kNone) continue;
    if (is_output_piece_[dying] || is_taken_[dying] || (dying < is_single_.size() && !is_single_[dying])) continue;
    is_taken_[dying] = 1;
    done = reuses_[i].result;
    out += bytes_[piece_made(now, done)];
  }
  return out;
}

RematWeight RematModel::sum_up(std::vector<int64_t>* live_bytes) {
  change_.assign(steps_.size() + 1, 0);
  for (size_t piece = 0; piece < bytes_.size(); ++piece) {
    if (first_[piece] == kNone) continue;
    change_[first_[piece]] += bytes_[piece];
    change_[last_[piece] + 1] -= bytes_[piece];
  }
  if (live_bytes != nullptr) live_bytes->assign(nodes_.size(), 0);
  RematWeight out;
  out.cost = cost_of_run();
  int64_t live = 0;
  for (uint32_t time = 0; time < steps_.size(); ++time) {
    live += change_[time];
    const Step& s = steps_[time];
    int64_t now = live;
    if (traits_[s.at] & kMayReuse) now = std::max<int64_t>(live - reused_at(time), 0);
    if (traits_[s.at] & kCalls) now += nodes_[s.at].call_bytes;
    if (now <= out.peak_bytes && live_bytes == nullptr) continue;
    const uint32_t at = s.copy == kNone ? s.at : copies_[s.copy].before;
    if (live_bytes != nullptr) (*live_bytes)[at] = std::max((*live_bytes)[at], now);
    if (now > out.peak_bytes) out.peak_bytes = now, out.peak_at = at, peak_step_ = time;
  }
  return out;
}

// The first step of the copies that stand before the same node as this step, or before this node.
uint32_t RematModel::first_beside(uint32_t time) const {
  auto before = [&](const Step& s) { return s.copy == kNone ? s.at : copies_[s.copy].before; };
  while (time > 0 && steps_[time - 1].copy != kNone && before(steps_[time - 1]) == before(steps_[time])) --time;
  return time;
}

std::vector<uint32_t> RematModel::at_peak(const RematDecision& decision) {
  weigh(decision);
  std::vector<uint32_t> out;
  if (steps_.empty()) return out;
  std::vector<uint8_t> is_there(nodes_.size(), 0);
  auto lives = [&](uint32_t piece) {
    return bytes_[piece] > 0 && first_[piece] != kNone && first_[piece] <= peak_step_ && last_[piece] >= peak_step_;
  };
  for (uint32_t s = 0; s < maker_of_.size(); ++s)
    if (maker_of_[s] != kNone && lives(s)) is_there[maker_of_[s]] = 1;
  for (const CopyState& copy : copies_)
    for (uint32_t r = result_begin_[copy.node]; r < result_begin_[copy.node + 1]; ++r)
      if (copy.is_used && results_[r].is_made && lives(copy_pieces_[copy.pieces + r - result_begin_[copy.node]]))
        is_there[copy.node] = 1;
  for (uint32_t time = first_beside(peak_step_); time < steps_.size() && steps_[time].copy != kNone; ++time)
    is_there[steps_[time].at] = 1;
  for (uint32_t at = 0; at < nodes_.size(); ++at)
    if (is_there[at]) out.push_back(at);
  return out;
}

std::vector<uint32_t> RematModel::longest_waits(const RematDecision& decision) {
  find_copies(decision);
  walk();
  constexpr uint32_t kShortest = 8;  // nodes: shorter waits do not count
  std::vector<uint32_t> out(nodes_.size(), kNone), longest(bytes_.size(), kShortest), before(bytes_.size(), kNone),
      used(bytes_.size(), 0);
  for (uint32_t time = 0; time < steps_.size(); ++time) {
    const Step& now = steps_[time];
    for (uint32_t i = 0; i < operand_begin_[now.at + 1] - operand_begin_[now.at]; ++i) {
      const uint32_t piece = piece_read(now, i);
      if (piece == kNone || piece < original_bytes_.size()) continue;
      const uint32_t wait = time - std::max(used[piece], first_[piece]);
      if (wait > longest[piece])
        longest[piece] = wait, before[piece] = now.copy == kNone ? now.at : copies_[now.copy].before;
      used[piece] = time;
    }
  }
  for (const CopyState& copy : copies_)
    for (uint32_t r = result_begin_[copy.node]; r < result_begin_[copy.node + 1]; ++r)
      if (results_[r].is_made) out[copy.node] = before[copy_pieces_[copy.pieces + r - result_begin_[copy.node]]];
  return out;
}

}  // namespace sg
