// Which of the candidates go to the host. The profile of live bytes is a tree over the schedule, and so is who is away
// when: taking a candidate, finding the new peak and the largest that is away there cost a logarithm each.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "libpasses/offload/offload_plan.h"

namespace sg {
namespace {

// Numbers by position, with "add to a range" and "where is the largest": the first such position.
class Profile {
 public:
  explicit Profile(const std::vector<int64_t>& values) {
    while (size_ < values.size()) size_ *= 2;
    most_.assign(2 * size_, INT64_MIN / 2);
    added_.assign(2 * size_, 0);
    for (size_t i = 0; i < values.size(); ++i) most_[size_ + i] = values[i];
    for (size_t i = size_; i-- > 1;) most_[i] = std::max(most_[2 * i], most_[2 * i + 1]);
  }

  void add(uint32_t first, uint32_t last, int64_t bytes) { add(1, 0, size_, first, last + size_t{1}, bytes); }

  int64_t most() const { return most_[1]; }

  uint32_t peak() const {
    size_t i = 1;
    while (i < size_) i = most_[2 * i] >= most_[2 * i + 1] ? 2 * i : 2 * i + 1;
    return static_cast<uint32_t>(i - size_);
  }

 private:
  void add(size_t node, size_t begin, size_t end, size_t first, size_t last, int64_t bytes) {
    if (last <= begin || end <= first) return;
    if (first <= begin && end <= last) {
      most_[node] += bytes;
      added_[node] += bytes;
      return;
    }
    const size_t middle = (begin + end) / 2;
    add(2 * node, begin, middle, first, last, bytes);
    add(2 * node + 1, middle, end, first, last, bytes);
    most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
  }

  size_t size_ = 1;
  std::vector<int64_t> most_, added_;  // a heap: the largest below a node, what was added to all below it
};

// Who covers a position: of those that do, the one that was added last and is still open. Each stands in the tree's
// nodes that make up its positions, so that adding and asking cost a logarithm each; who is found closed is not met
// again.
class Cover {
 public:
  explicit Cover(size_t positions) {
    while (size_ < positions) size_ *= 2;
    head_.assign(2 * size_, kNobody);
  }

  void add(uint32_t first, uint32_t last, uint32_t who) {
    for (size_t begin = first + size_, end = last + size_ + 1; begin < end; begin /= 2, end /= 2) {
      if (begin % 2 == 1) push(begin++, who);
      if (end % 2 == 1) push(--end, who);
    }
  }

  // `order`: those that were added later have the smaller number.
  std::optional<size_t> at(uint32_t position, const std::vector<bool>& is_open, const std::vector<uint32_t>& order) {
    std::optional<size_t> best;
    for (size_t i = position + size_; i >= 1; i /= 2) {
      while (head_[i] != kNobody && !is_open[entries_[head_[i]].who]) head_[i] = entries_[head_[i]].next;
      if (head_[i] == kNobody) continue;
      const size_t who = entries_[head_[i]].who;
      if (!best || order[who] < order[*best]) best = who;
    }
    return best;
  }

 private:
  static constexpr uint32_t kNobody = 0xFFFFFFFFu;
  struct Entry {
    uint32_t who, next;
  };

  void push(size_t node, uint32_t who) {
    entries_.push_back({who, head_[node]});
    head_[node] = static_cast<uint32_t>(entries_.size() - 1);
  }

  size_t size_ = 1;
  std::vector<uint32_t> head_;  // by node of the tree
  std::vector<Entry> entries_;
};

class Chooser {
 public:
  Chooser(const std::vector<OffloadCandidate>& candidates, const std::vector<int64_t>& live_bytes,
          std::optional<int64_t> budget)
      : candidates_(candidates),
        profile_(live_bytes),
        left_(budget.value_or(INT64_MAX)),
        open_(candidates.size(), true),
        order_(candidates.size()),
        rank_(candidates.size()),
        as_asked_(live_bytes.size()),
        longer_(live_bytes.size()) {
    std::iota(order_.begin(), order_.end(), 0u);
    std::ranges::stable_sort(order_,
                             [&](uint32_t a, uint32_t b) { return candidates_[a].bytes > candidates_[b].bytes; });
    for (uint32_t i = 0; i < order_.size(); ++i) rank_[order_[i]] = i;
    for (size_t i = order_.size(); i-- > 0;) add_ways(order_[i]);
  }

  // At the highest point: the largest that is away there at the distances asked for; else the largest that can be.
  void lower_the_peak() {
    while (const std::optional<OffloadChoice::Taken> next = largest_away_at(profile_.peak())) take(*next);
  }

  // Where points are equally high and one of them cannot be lowered, lowering the others won nothing: the largest
  // first.
  void give_back() {
    std::ranges::stable_sort(out_.taken, [&](const auto& a, const auto& b) { return bytes_of(a) > bytes_of(b); });
    const int64_t peak = profile_.most();
    std::erase_if(out_.taken, [&](const OffloadChoice::Taken& taken) {
      move(taken, +1);
      if (profile_.most() > peak) return move(taken, -1), false;
      open_[taken.candidate] = true;
      left_ += bytes_of(taken);
      out_.host_bytes -= bytes_of(taken);
      return true;
    });
  }

  // The largest that still fit.
  void take_the_rest() {
    for (size_t i : order_) {
      if (!open_[i]) continue;
      if (candidates_[i].bytes <= left_) take({i, 0});
      else leave_out(i);
    }
  }

  OffloadChoice result() {
    std::ranges::sort(out_.taken, {}, &OffloadChoice::Taken::candidate);
    out_.of_no_use = static_cast<size_t>(std::ranges::count(open_, true));
    return std::move(out_);
  }

 private:
  void add_ways(uint32_t candidate) {
    const std::vector<OffloadWay>& ways = candidates_[candidate].ways;
    for (size_t way = 0; way < ways.size(); ++way)
      (way == 0 ? as_asked_ : longer_).add(ways[way].away_first, ways[way].away_last, candidate);
  }

  std::optional<OffloadChoice::Taken> largest_away_at(uint32_t peak) {
    for (Cover* cover : {&as_asked_, &longer_})
      while (const std::optional<size_t> i = cover->at(peak, open_, rank_)) {
        if (candidates_[*i].bytes <= left_) return OffloadChoice::Taken{*i, *way_at(candidates_[*i], peak)};
        leave_out(*i);
      }
    return std::nullopt;
  }

  void leave_out(size_t i) {
    open_[i] = false;
    ++out_.over_budget;
  }

  static std::optional<size_t> way_at(const OffloadCandidate& c, uint32_t position) {
    for (size_t way = 0; way < c.ways.size(); ++way)
      if (c.ways[way].is_away_at(position)) return way;
    return std::nullopt;
  }

  int64_t bytes_of(const OffloadChoice::Taken& taken) const { return candidates_[taken.candidate].bytes; }

  // On the device again (+1), or away (-1).
  void move(const OffloadChoice::Taken& taken, int64_t sign) {
    const OffloadWay& way = candidates_[taken.candidate].ways[taken.way];
    profile_.add(way.away_first, way.away_last, sign * bytes_of(taken));
  }

  void take(OffloadChoice::Taken taken) {
    const OffloadCandidate& c = candidates_[taken.candidate];
    move(taken, -1);
    open_[taken.candidate] = false;
    left_ -= c.bytes;
    out_.host_bytes += c.bytes;
    out_.taken.push_back(taken);
  }

  const std::vector<OffloadCandidate>& candidates_;
  Profile profile_;
  int64_t left_;
  std::vector<bool> open_;
  std::vector<uint32_t> order_, rank_;  // the largest first; where each stands in that
  Cover as_asked_, longer_;             // where candidates are away
  OffloadChoice out_;
};

}  // namespace

OffloadChoice choose_offloads(const std::vector<OffloadCandidate>& candidates, const std::vector<int64_t>& live_bytes,
                              std::optional<int64_t> budget_bytes, bool all) {
  if (candidates.empty()) return {};
  Chooser chooser(candidates, live_bytes, budget_bytes);
  chooser.lower_the_peak();
  if (all) chooser.take_the_rest();
  else chooser.give_back();
  return chooser.result();
}

void queue_fetches(const OffloadChoice& choice, const Liveness& liveness, const OffloadClock& clock,
                   uint32_t first_late, std::vector<OffloadCandidate>* candidates) {
  struct Fetch {
    OffloadCandidate* candidate;
    OffloadWay* way;
    double use_us;
  };
  std::unordered_map<NodeId, uint32_t, IdHash> at;
  for (uint32_t i = 0; i < liveness.schedule.size(); ++i) at[liveness.schedule[i]] = i;
  std::vector<Fetch> fetches;
  for (const OffloadChoice::Taken& taken : choice.taken) {
    OffloadCandidate& c = (*candidates)[taken.candidate];
    fetches.push_back({&c, &c.ways[taken.way], clock.begin_us[at[c.first_use]]});
  }
  std::ranges::stable_sort(fetches, [](const Fetch& a, const Fetch& b) { return a.use_us > b.use_us; });
  double free_us = std::numeric_limits<double>::infinity();  // the link, before what was looked at
  for (const Fetch& fetch : fetches) {
    free_us = std::min(free_us, fetch.use_us) - clock.copy_us(fetch.candidate->bytes);
    const auto begin = std::ranges::upper_bound(clock.begin_us, free_us) - clock.begin_us.begin() - 1;
    const uint32_t earliest = std::max(first_late, fetch.way->away_first + 1);
    const uint32_t now = std::max(earliest, static_cast<uint32_t>(std::max<std::ptrdiff_t>(begin, 0)));
    if (now > fetch.way->away_last) continue;  // soon enough as it is
    fetch.way->fetch_before = liveness.schedule[now];
    fetch.way->away_last = now - 1;
  }
}

}  // namespace sg
