// Strategy model: many orders by a list scheduler, the best of them made better where the graph is small enough for
// that. The most promising rules come first: large graphs get no others.
#include <algorithm>
#include <memory>
#include <numeric>

#include "libpasses/overlap/overlap_list.h"

namespace sg::overlap_parts {
namespace {

constexpr size_t kListPlays = 800'000;      // nodes that list scheduling may play, of each start ...
constexpr size_t kLeastRules = 8;           // ... and so many orders more in any case
constexpr size_t kPolishPlays = 1'500'000;  // nodes that moving single nodes may play
constexpr size_t kPolishedNodes = 400;      // above that, single moves find too little
constexpr double kGain = 1e-3;              // shorter by less than this is no reason to move nodes

// The next of a fixed row of numbers: equal work gives equal orders on every machine.
class Numbers {
 public:
  uint32_t below(uint32_t limit) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>((state_ >> 33) % limit);
  }

 private:
  uint64_t state_ = 1;
};

class Search {
 public:
  Search(Step& step, const ModelLimits& limits)
      : step_(step), limits_(limits), clock_(step.costs), best_(step.precedence.size()) {
    std::iota(best_.begin(), best_.end(), 0);
    first_ = now_ = play(step_, clock_, best_);
  }

  bool run(const std::vector<Order>& starts) {
    if (limits_.launches && !keeps_launches(best_)) {  // the graph's own order is none of those asked for
      best_ = step_.precedence.sorted(chains_of(*limits_.launches));
      if (best_.empty()) return false;
      now_ = play(step_, clock_, best_);
      is_bound_ = true;
    }
    const bool is_early = limits_.start == OrderStart::launched_early;
    const Order own = is_early ? launched_early(step_) : best_;
    if (is_early && (own == best_ || !keeps_launches(own))) return true;  // no start of its own
    offer(own);
    std::vector<const Order*> from = {&own};
    for (const Order& start : starts) {
      offer(start);
      if (keeps_launches(start)) from.push_back(&start);
    }
    list(from);
    sink_waits();
    if (limits_.polish) polish();
    return true;
  }

  Order take() {
    if (is_bound_) return std::move(best_);
    const bool shorter = now_.makespan_us < first_.makespan_us * (1 - kGain);
    const bool fits = now_.peak_bytes <= limits_.peak_bytes && first_.peak_bytes > limits_.peak_bytes;
    if (!shorter && !fits) std::iota(best_.begin(), best_.end(), 0);
    return std::move(best_);
  }

 private:
  // Within the limit goes before shorter, where the graph's own order is above it; nothing is ever longer than that.
  bool better(const Played& a, const Played& b) const {
    if (a.makespan_us > first_.makespan_us && !is_bound_) return false;
    const int64_t over_a = std::max<int64_t>(a.peak_bytes - limits_.peak_bytes, 0);
    const int64_t over_b = std::max<int64_t>(b.peak_bytes - limits_.peak_bytes, 0);
    if (over_a != over_b) return over_a < over_b;
    return a.makespan_us < b.makespan_us || (a.makespan_us == b.makespan_us && a.peak_bytes < b.peak_bytes);
  }

  static std::vector<std::pair<uint32_t, uint32_t>> chains_of(const Lists& launches) {
    std::vector<std::pair<uint32_t, uint32_t>> out;
    for (uint32_t g = 0; g < launches.size(); ++g)
      for (size_t k = 1; k < launches[g].size(); ++k) out.emplace_back(launches[g][k - 1], launches[g][k]);
    return out;
  }

  bool keeps_launches(const Order& order) const {
    if (!limits_.launches) return true;
    std::vector<uint32_t> at(order.size());
    for (uint32_t i = 0; i < order.size(); ++i) at[order[i]] = i;
    for (uint32_t g = 0; g < limits_.launches->size(); ++g)
      for (size_t k = 1; k < (*limits_.launches)[g].size(); ++k)
        if (at[(*limits_.launches)[g][k - 1]] > at[(*limits_.launches)[g][k]]) return false;
    return true;
  }

  bool offer(const Order& order) {
    if (!keeps_launches(order)) return false;
    const Played played = play(step_, clock_, order);
    if (!better(played, now_)) return false;
    best_ = order;
    now_ = played;
    return true;
  }

  // Windows are multiples of the longest collective: what may hide it lies within a few of them; wider ones need more
  // memory.
  void list(const std::vector<const Order*>& starts) {
    std::vector<std::unique_ptr<ListScheduler>> schedulers;
    for (const Order* start : starts)
      schedulers.push_back(std::make_unique<ListScheduler>(step_, clock_, *start, limits_.launches));
    const double unit = std::max(schedulers[0]->longest_launch_us(), first_.makespan_us * 1e-3);
    size_t plays = 0, rules = 0;
    for (double window : {1.5 * unit, 4 * unit, 0.5 * unit, 16 * unit, first_.makespan_us})
      for (double patience : {0.5, 0.0})
        for (auto by : {&ListScheduler::urgency_by_place, &ListScheduler::urgency_by_path}) {
          plays += step_.precedence.size();
          if (plays > kListPlays && ++rules > kLeastRules) return;
          for (auto& scheduler : schedulers)
            offer(scheduler->run({&((*scheduler).*by)(), window, patience, limits_.peak_bytes}));
        }
  }

  // The list scheduler places waits where they are over by its clock. A real step is never exactly that: each goes down
  // to the first node that needs it, where memory allows.
  void sink_waits() {
    const Precedence& precedence = step_.precedence;
    std::vector<uint32_t> at(best_.size()), goes_before(best_.size());
    for (uint32_t i = 0; i < best_.size(); ++i) at[best_[i]] = i;
    std::vector<std::vector<uint32_t>> in_front(best_.size());  // by position: waits that go there
    std::vector<uint32_t> last;
    std::vector<bool> moves(best_.size());
    for (uint32_t i = 0; i < best_.size(); ++i) {
      const auto ops = step_.costs.ops(precedence.node(best_[i]));
      if (ops.size() != 1 || ops[0].kind != StepOp::Kind::wait || ops[0].hold_count == 0) continue;
      uint32_t to = static_cast<uint32_t>(best_.size());
      for (uint32_t s : precedence.after(best_[i])) to = std::min(to, at[s]);
      moves[i] = true;
      to == best_.size() ? last.push_back(best_[i]) : in_front[to].push_back(best_[i]);
    }
    Order order;
    for (uint32_t i = 0; i < best_.size(); ++i) {
      order.insert(order.end(), in_front[i].begin(), in_front[i].end());
      if (!moves[i]) order.push_back(best_[i]);
    }
    order.insert(order.end(), last.begin(), last.end());
    if (precedence.violated(order)) return;
    const Played played = play(step_, clock_, order);
    if (played.makespan_us > now_.makespan_us || played.peak_bytes > std::max(limits_.peak_bytes, now_.peak_bytes))
      return;
    best_ = std::move(order);
    now_ = played;
  }

  // Single nodes to other places, as long as that is no worse.
  void polish() {
    const uint32_t n = static_cast<uint32_t>(best_.size());
    if (n < 2 || n > kPolishedNodes) return;
    Numbers numbers;
    Order tried;
    for (size_t plays = 0; plays < kPolishPlays; plays += n) {
      const uint32_t from = numbers.below(n);
      const auto [low, high] = range_of(from);
      if (low == high) continue;
      uint32_t to = low + numbers.below(high - low + 1);
      tried = best_;
      to > from ? std::rotate(tried.begin() + from, tried.begin() + from + 1, tried.begin() + to + 1)
                : std::rotate(tried.begin() + to, tried.begin() + from, tried.begin() + from + 1);
      if (!keeps_launches(tried)) continue;
      const Played played = play(step_, clock_, tried);
      if (!better(played, now_) && (played.makespan_us != now_.makespan_us || played.peak_bytes > now_.peak_bytes))
        continue;
      std::swap(best_, tried);
      now_ = played;
    }
  }

  // Positions that the node at `from` may have, others as they are.
  std::pair<uint32_t, uint32_t> range_of(uint32_t from) const {
    const Precedence& precedence = step_.precedence;
    auto holds = [&](std::span<const uint32_t> list, uint32_t place) {
      return std::find(list.begin(), list.end(), place) != list.end();
    };
    uint32_t low = from, high = from;
    while (low > 0 && !holds(precedence.before(best_[from]), best_[low - 1])) --low;
    while (high + 1 < best_.size() && !holds(precedence.after(best_[from]), best_[high + 1])) ++high;
    return {low, high};
  }

  Step& step_;
  const ModelLimits& limits_;
  StepClock clock_;
  Order best_;
  Played first_, now_;     // of the graph's own order; of best_
  bool is_bound_ = false;  // to the launches of another program, in another order than the graph's own
};

}  // namespace

Order find_order(Step& step, const ModelLimits& limits, const std::vector<Order>& starts) {
  Search search(step, limits);
  return search.run(starts) ? search.take() : Order();
}

}  // namespace sg::overlap_parts
