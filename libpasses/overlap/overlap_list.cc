#include "libpasses/overlap/overlap_list.h"

#include <algorithm>
#include <iterator>

namespace sg::overlap_parts {
namespace {

constexpr size_t kTries = 8;  // work that does not fit, before the search for some that does is given up

}  // namespace

ListScheduler::ListScheduler(Step& step, StepClock& clock, const Order& own, const Lists* launches)
    : step_(step),
      clock_(clock),
      own_(own),
      at_(own.size()),
      turn_(own.size()),
      own_us_(own.size()),
      start_us_(own.size()),
      by_path_(own.size()),
      by_place_(own.size()),
      extra_before_(own.size()) {
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  if (launches)
    for (uint32_t g = 0; g < launches->size(); ++g)
      for (size_t k = 1; k < (*launches)[g].size(); ++k)
        pairs.emplace_back((*launches)[g][k - 1], (*launches)[g][k]), ++extra_before_[pairs.back().second];
  extra_after_ = Lists(own.size(), pairs);
  prepare_turns();
  clock_.reset();
  for (uint32_t i = 0; i < own_.size(); ++i) {
    at_[own_[i]] = i;
    by_place_[own_[i]] = -static_cast<double>(i);
    start_us_[i] = clock_.now_us();
    clock_.play(step_.precedence.node(own_[i]));
  }
  for (size_t i = own_.size(); i-- > 0;) {
    const uint32_t place = own_[i];
    double behind = 0;
    for (uint32_t s : step_.precedence.after(place)) behind = std::max(behind, by_path_[s]);
    by_path_[place] = behind + own_us_[place];
  }
}

void ListScheduler::prepare_turns() {
  for (uint32_t place = 0; place < turn_.size(); ++place) {
    const NodeId n = step_.precedence.node(place);
    bool launches = false, holds = false, works = false;
    for (const StepOp& op : step_.costs.ops(n)) {
      launches |= op.kind == StepOp::Kind::launch;
      holds |= op.hold_count != 0;
      works |= op.kind != StepOp::Kind::launch && op.kind != StepOp::Kind::wait;
      own_us_[place] += op.us;
      if (op.kind == StepOp::Kind::launch) longest_launch_us_ = std::max(longest_launch_us_, op.us);
    }
    const bool one = step_.costs.ops(n).size() == 1;
    const bool instant = !works && !launches && !holds && !step_.memory.makes_memory(place);
    const Turn single = holds ? Turn::held : launches ? Turn::launch : Turn::work;
    turn_[place] = instant ? Turn::instant : one ? single : Turn::work;
  }
}

void ListScheduler::start(const ListRule& rule) {
  rule_ = rule;
  clock_.reset();
  step_.memory.reset();
  out_.clear();
  for (auto* list : {&later_, &instants_, &blocked_}) list->clear();
  for (auto* list : {&launches_, &work_, &held_}) list->clear();
  blocked_launches_.clear();
  issued_.assign(own_.size(), false);
  open_ = window_end_ = 0;
  waits_for_.resize(own_.size());
  for (uint32_t i = 0; i < own_.size(); ++i) {
    waits_for_[i] = static_cast<uint32_t>(step_.precedence.before(i).size()) + extra_before_[i];
    if (waits_for_[i] == 0) make_ready(i);
  }
  open_window();
}

// Moves the window on, and takes in what has come to lie in it.
void ListScheduler::open_window() {
  while (open_ < own_.size() && issued_[own_[open_]]) ++open_;
  if (open_ == own_.size()) return;
  const double limit = start_us_[open_] + rule_.window_us;
  while (window_end_ < own_.size() && (window_end_ <= open_ || start_us_[window_end_] <= limit)) ++window_end_;
  while (!later_.empty() && later_.front() < window_end_) {
    std::pop_heap(later_.begin(), later_.end(), std::greater<>());
    const uint32_t place = own_[later_.back()];
    later_.pop_back();
    put(place);
  }
}

void ListScheduler::make_ready(uint32_t place) {
  if (at_[place] < window_end_) return put(place);
  later_.push_back(at_[place]);
  std::push_heap(later_.begin(), later_.end(), std::greater<>());
}

void ListScheduler::put(uint32_t place) {
  auto push = [place](std::vector<Keyed>* heap, double key) {
    heap->emplace_back(key, place);
    std::push_heap(heap->begin(), heap->end());
  };
  switch (turn_[place]) {
    case Turn::instant: instants_.push_back(place); break;
    case Turn::launch: push(&launches_, (*rule_.urgency)[place]); break;
    case Turn::held: push(&held_, -clock_.held_until_us(step_.precedence.node(place))); break;
    case Turn::work: push(&work_, (*rule_.urgency)[place]); break;
  }
}

void ListScheduler::issue(uint32_t place) {
  issued_[place] = true;
  out_.push_back(place);
  clock_.play(step_.precedence.node(place));
  step_.memory.play(place);
  if (turn_[place] != Turn::instant) retry();
  auto release = [&](uint32_t s) {
    if (--waits_for_[s] == 0) make_ready(s);
  };
  for (uint32_t s : step_.precedence.after(place)) release(s);
  for (uint32_t s : extra_after_[place]) release(s);
  if (place == first_open()) open_window();
}

void ListScheduler::hold_back(uint32_t place) {
  const auto need = step_.memory.fixed_need(place);
  if (turn_[place] != Turn::launch || !need) return blocked_.push_back(place);
  std::vector<Keyed>& heap = blocked_launches_[*need];
  heap.emplace_back((*rule_.urgency)[place], place);
  std::push_heap(heap.begin(), heap.end());
}

void ListScheduler::retry() {
  for (uint32_t b : blocked_)
    if (!issued_[b]) put(b);
  blocked_.clear();
  const int64_t room = rule_.peak_bytes - step_.memory.live_bytes();
  for (auto it = blocked_launches_.begin(); it != blocked_launches_.end() && it->first <= room;) {
    std::vector<Keyed>& heap = it->second;
    bool found = false;
    while (!heap.empty() && !found) {
      const uint32_t place = heap.front().second;
      std::pop_heap(heap.begin(), heap.end());
      heap.pop_back();
      if ((found = !issued_[place])) put(place);
    }
    it = heap.empty() ? blocked_launches_.erase(it) : std::next(it);
  }
}

bool ListScheduler::issue_at_once() {
  if (!instants_.empty()) {
    const uint32_t place = instants_.back();
    instants_.pop_back();
    if (!issued_[place]) issue(place);
    return true;
  }
  if (!launches_.empty()) {
    const uint32_t place = launches_.front().second;
    std::pop_heap(launches_.begin(), launches_.end());
    launches_.pop_back();
    if (!issued_[place]) fits(place) ? issue(place) : hold_back(place);
    return true;
  }
  if (held_.empty() || -held_.front().first > clock_.compute_us()) return false;
  const uint32_t place = held_.front().second;
  std::pop_heap(held_.begin(), held_.end());
  held_.pop_back();
  if (!issued_[place]) issue(place);
  return true;
}

uint32_t ListScheduler::take_work() {
  for (size_t tries = 0; tries < kTries && !work_.empty();) {
    const uint32_t place = work_.front().second;
    std::pop_heap(work_.begin(), work_.end());
    work_.pop_back();
    if (issued_[place]) continue;
    if (fits(place)) return place;
    blocked_.push_back(place);
    ++tries;
  }
  return kNone;
}

Order ListScheduler::run(const ListRule& rule) {
  start(rule);
  const std::vector<double>& urgency = *rule_.urgency;
  while (out_.size() < own_.size()) {
    if (issue_at_once()) continue;
    const uint32_t work = take_work();
    while (!held_.empty() && issued_[held_.front().second]) std::pop_heap(held_.begin(), held_.end()), held_.pop_back();
    const uint32_t held = held_.empty() ? kNone : held_.front().second;
    if (work == kNone && held == kNone) {  // nothing fits: as the graph has it
      issue(first_open());
    } else if (work == kNone || (held != kNone && rule_.patience > 0 && urgency[held] > urgency[work] &&
                                 -held_.front().first - clock_.now_us() < rule_.patience * own_us_[work])) {
      std::pop_heap(held_.begin(), held_.end());
      held_.pop_back();
      if (work != kNone) put(work);
      issue(held);
    } else {
      issue(work);
    }
  }
  return std::move(out_);
}

}  // namespace sg::overlap_parts
