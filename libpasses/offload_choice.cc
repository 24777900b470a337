// Which of the candidates go to the host. The profile of live bytes is a tree over the schedule, so that taking a
// candidate and finding the new peak cost a logarithm each.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "libpasses/offload_plan.h"

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

class Chooser {
 public:
  Chooser(const std::vector<OffloadCandidate>& candidates, const std::vector<int64_t>& live_bytes,
          std::optional<int64_t> budget)
      : candidates_(candidates),
        profile_(live_bytes),
        left_(budget.value_or(INT64_MAX)),
        open_(candidates.size(), true),
        order_(candidates.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::ranges::stable_sort(order_, [&](size_t a, size_t b) { return candidates_[a].bytes > candidates_[b].bytes; });
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
  std::optional<OffloadChoice::Taken> largest_away_at(uint32_t peak) {
    if (2 * closed_ > order_.size()) std::erase_if(order_, [&](size_t i) { return !open_[i]; }), closed_ = 0;
    std::optional<OffloadChoice::Taken> longer;
    for (size_t i : order_) {
      const std::optional<size_t> way = open_[i] ? way_at(candidates_[i], peak) : std::nullopt;
      if (!way) continue;
      if (candidates_[i].bytes > left_) leave_out(i);
      else if (*way == 0) return OffloadChoice::Taken{i, 0};
      else if (!longer) longer = {i, *way};
    }
    return longer;
  }

  void leave_out(size_t i) {
    open_[i] = false;
    ++closed_;
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
    ++closed_;
    left_ -= c.bytes;
    out_.host_bytes += c.bytes;
    out_.taken.push_back(taken);
  }

  const std::vector<OffloadCandidate>& candidates_;
  Profile profile_;
  int64_t left_;
  std::vector<bool> open_;
  std::vector<size_t> order_;  // the largest first; some of those that are closed still in it
  size_t closed_ = 0;          // of order_
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
