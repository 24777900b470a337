#include "libgraph/plan/pack.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "libgraph/plan/pack_draw.h"
#include "libgraph/plan/pack_occupancy.h"
#include "libgraph/plan/pack_sweep.h"
#include "libgraph/plan/pack_valley.h"

namespace sg {
namespace {

__extension__ typedef __int128 Wide;  // bytes times steps

constexpr int64_t kMaxTotalBytes = int64_t{1} << 62;
constexpr size_t kWorkOfPlacement = 400;  // elementary steps of one first fit when there are few holes

int64_t align_up(int64_t x, int64_t alignment) { return (x + alignment - 1) / alignment * alignment; }

// Merges steps: a new one starts only where something begins after something ended, as in between items are only added.
// Two rectangles overlap in the new steps exactly if they did in the old.
void renumber_steps(PackInput* input) {
  std::vector<uint8_t> begins(input->steps, 0), ends(input->steps, 0);
  for (const PackRect& r : input->rects) begins[r.first] = ends[r.last] = 1;
  std::vector<uint32_t> renumbered(input->steps);
  uint32_t epoch = 0;
  bool ended = false;
  for (uint32_t i = 0; i < input->steps; ++i) {
    if (begins[i] && ended) ++epoch, ended = false;
    renumbered[i] = epoch;
    ended |= ends[i] != 0;
  }
  for (PackRect& r : input->rects) r.first = renumbered[r.first], r.last = renumbered[r.last];
  input->steps = epoch + 1;
}

class Packer {
 public:
  Packer(const PackInput& input, const PackOptions& options) : input_(input), options_(options) {}

  Packing run() {
    if (sizes_overflow()) {
      best_.overflow = true;
      best_.bytes = best_.lower_bound = INT64_MAX;
      return std::move(best_);
    }
    renumber_steps(&input_);
    occupancy_ = Occupancy(input_.steps);
    measure();
    try_orders();
    if (options_.search) search();
    lower_some();
    return std::move(best_);
  }

 private:
  struct Traits {
    int64_t bytes = 0;  // the item's extent
    Wide area = 0;
    uint32_t first = 0, last = 0;
    int64_t crowd = 0;  // the largest total in use during its life
  };
  using Order = std::vector<uint32_t>;

  bool sizes_overflow() const {
    int64_t total = 0;
    for (const PackItem& item : input_.items) {
      int64_t extent = 0, end;
      for (const PackRect& r : rects_of(item)) {
        if (__builtin_add_overflow(r.offset, r.bytes, &end)) return true;
        extent = std::max(extent, end);
      }
      if (__builtin_add_overflow(total, extent, &total) || __builtin_add_overflow(total, item.alignment, &total))
        return true;
      if (total > kMaxTotalBytes) return true;
    }
    return false;
  }

  struct Rects {
    const PackRect *first, *last;
    const PackRect* begin() const { return first; }
    const PackRect* end() const { return last; }
  };
  Rects rects_of(const PackItem& item) const {
    return {input_.rects.data() + item.rect_begin, input_.rects.data() + item.rect_begin + item.rect_count};
  }

  void measure() {
    std::vector<int64_t> in_use = sum_in_use();
    best_.lower_bound = in_use.empty() ? 0 : *std::max_element(in_use.begin(), in_use.end());
    for (const PackItem& item : input_.items) {
      Traits t;
      t.first = UINT32_MAX;
      for (const PackRect& r : rects_of(item)) {
        t.bytes = std::max(t.bytes, r.offset + r.bytes);
        t.area += Wide{r.bytes} * (r.last - r.first + 1);
        t.first = std::min(t.first, r.first);
        t.last = std::max(t.last, r.last);
      }
      traits_.push_back(t);
    }
    add_crowds(in_use);
  }

  // Bytes in use by step. Rectangles of one item may overlap (a result that takes over memory): their union counts.
  std::vector<int64_t> sum_in_use() const {
    std::vector<int64_t> change(input_.steps + 1, 0);
    for (const PackItem& item : input_.items) {
      if (item.rect_count == 1) {
        const PackRect& r = input_.rects[item.rect_begin];
        change[r.first] += r.bytes, change[r.last + 1] -= r.bytes;
      } else {
        add_union(item, &change);
      }
    }
    std::vector<int64_t> out(input_.steps);
    std::partial_sum(change.begin(), change.end() - 1, out.begin());
    return out;
  }

  void add_union(const PackItem& item, std::vector<int64_t>* change) const {
    std::vector<uint32_t> cuts;
    for (const PackRect& r : rects_of(item)) cuts.push_back(r.first), cuts.push_back(r.last + 1);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      std::vector<std::pair<int64_t, int64_t>> parts;
      for (const PackRect& r : rects_of(item))
        if (r.first <= cuts[i] && r.last >= cuts[i]) parts.push_back({r.offset, r.offset + r.bytes});
      std::sort(parts.begin(), parts.end());
      int64_t sum = 0, end = 0;
      for (const auto& [b, e] : parts) sum += std::max<int64_t>(e - std::max(b, end), 0), end = std::max(end, e);
      (*change)[cuts[i]] += sum, (*change)[cuts[i + 1]] -= sum;
    }
  }

  void add_crowds(const std::vector<int64_t>& in_use) {  // range maximum, by a table of powers of two
    std::vector<std::vector<int64_t>> table{in_use};
    for (uint32_t width = 1; 2 * width <= input_.steps; width *= 2) {
      const std::vector<int64_t>& half = table.back();
      std::vector<int64_t> next(input_.steps - 2 * width + 1);
      for (size_t i = 0; i < next.size(); ++i) next[i] = std::max(half[i], half[i + width]);
      table.push_back(std::move(next));
    }
    for (Traits& t : traits_) {
      int level = 31 - __builtin_clz(t.last - t.first + 1);
      t.crowd = std::max(table[level][t.first], table[level][t.last + 1 - (1u << level)]);
    }
  }

  template <class Less>
  Order sorted(const Less& less) const {
    Order order(input_.items.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return less(traits_[a], traits_[b]); });
    return order;
  }

  void try_orders() {
    try_order(sorted([](auto& a, auto& b) { return a.bytes != b.bytes ? a.bytes > b.bytes : a.first < b.first; }));
    try_order(sorted([](auto& a, auto& b) { return a.crowd != b.crowd ? a.crowd > b.crowd : a.bytes > b.bytes; }));
    try_order(sorted([](auto& a, auto& b) { return a.area != b.area ? a.area > b.area : a.first < b.first; }));
    try_order(sorted([](auto& a, auto& b) {
      uint32_t x = a.last - a.first, y = b.last - b.first;
      return x != y ? x > y : a.bytes > b.bytes;
    }));
    try_order(sorted([](auto& a, auto& b) { return a.first != b.first ? a.first < b.first : a.bytes > b.bytes; }));
  }

  // Stops at 1.0005 of the lower bound; the closer the result, the less work the rest is worth.
  bool may_go_on(size_t work) const {
    int64_t lost = best_.bytes - best_.lower_bound;
    size_t limit = options_.work;
    if (lost <= best_.lower_bound / 66) limit /= 2;   // 1.015
    if (lost <= best_.lower_bound / 200) limit /= 4;  // 1.005
    return lost > best_.lower_bound / 2000 && work_ + work <= limit;
  }

  // Places the items in this order and keeps the result if it is better.
  void try_order(const Order& order) {
    bool is_first = best_.places.empty();
    if (!is_first && !may_go_on(order.size() * kWorkOfPlacement)) return;
    if (auto bytes = place_all(order, is_first ? INT64_MAX : best_.bytes - 1)) keep(order, *bytes);
    else if (is_first) sweep();
  }

  void sweep() {
    for (const SweepFrom from : {SweepFrom::first_step, SweepFrom::last_step}) {
      places_ = sweep_places(input_, from);
      int64_t bytes = 0;
      for (size_t i = 0; i < places_.size(); ++i) bytes = std::max(bytes, places_[i] + traits_[i].bytes);
      if (from == SweepFrom::last_step && bytes >= best_.bytes) continue;
      Order order(places_.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return places_[a] < places_[b]; });
      keep(order, bytes);
    }
  }

  void keep(const Order& order, int64_t bytes) {
    best_.bytes = bytes;
    best_.places = places_;
    best_order_ = order;
  }

  // Gives items marked `low` the first places if the rest still fits.
  void lower_some() {
    Order order(input_.items.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      bool x = input_.items[a].low, y = input_.items[b].low;
      return x != y ? x : best_.places[a] < best_.places[b];
    });
    if (order.empty() || !input_.items[order[0]].low) return;
    if (auto bytes = place_all(order, best_.bytes)) keep(order, *bytes);
  }

  // The end of the highest item; none once an item ends above `limit` or the work is used up.
  std::optional<int64_t> place_all(const Order& order, int64_t limit) {
    occupancy_.clear();
    fit_work_ = 0;
    places_.assign(input_.items.size(), 0);
    int64_t bytes = 0;
    for (uint32_t i : order) {
      places_[i] = lowest_place(input_.items[i]);
      bytes = std::max(bytes, places_[i] + traits_[i].bytes);
      if (bytes > limit || fit_work_ > options_.work) break;
      for (const PackRect& r : rects_of(input_.items[i]))
        fit_work_ += occupancy_.add(r.first, r.last, places_[i] + r.offset, places_[i] + r.offset + r.bytes);
    }
    work_ += std::max(order.size() * kWorkOfPlacement, fit_work_);
    return bytes <= limit && fit_work_ <= options_.work ? std::optional(bytes) : std::nullopt;
  }

  int64_t lowest_place(const PackItem& item) {
    lists_.clear();
    ends_.clear();
    for (const PackRect& r : rects_of(item)) {
      occupancy_.collect(r.first, r.last, &lists_);
      ends_.push_back(lists_.size());
    }
    int64_t place = 0;
    // Cycles through the lists until all in a row leave the item where it is.
    size_t settled = 0, list = 0;
    for (uint32_t i = 0; settled < lists_.size();) {
      while (list >= ends_[i]) ++i;
      const PackRect& r = input_.rects[item.rect_begin + i];
      const int64_t at = lists_[list].first_free(place + r.offset, r.bytes, &fit_work_) - r.offset;
      ++settled;
      if (at != place) place = align_up(at, item.alignment), settled = place == at ? 1 : 0;
      if (++list == lists_.size()) list = i = 0;
    }
    return place;
  }

  // --- search: valleys filled by rules; half of the rules are new, half are mutations of an elite ---

  struct Elite {
    ValleyFill::Outcome outcome;
    ValleyRules rules;
  };

  void search() {
    if (input_.items.empty() || !may_go_on(0)) return;
    if (input_.items.size() <= kFewItems && input_.rects.size() == input_.items.size()) return try_all_orders();
    std::vector<uint32_t> large, small;
    for (uint32_t i : sorted([](auto&a, auto&b) { return a.bytes > b.bytes; }))
      (is_small(i) ? small : large).push_back(i);
    ValleyFill valleys(input_, large);
    int64_t best_top = INT64_MAX;
    bool has_compounds = input_.rects.size() > input_.items.size();
    for (uint32_t turn = 0; may_go_on(0); ++turn) {
      if (has_compounds && turn % 4 == 3) change_order();
      bool is_new = turn < kFirstTurns || turn % 2 == 0 || elites_.empty();
      size_t parent = is_new ? 0 : random_.below(elites_.size());
      ValleyRules rules = is_new ? new_rules(turn) : changed(elites_[parent].rules);
      int64_t limit = !is_new                    ? elites_[parent].outcome.top
                      : elites_.size() < kElites ? INT64_MAX
                                                 : elites_.back().outcome.top;
      size_t before = valleys.work();
      auto outcome = valleys.fill(rules, best_.lower_bound, limit, before + options_.work - work_);
      work_ += valleys.work() - before + 4 * traits_.size();
      if (outcome.top == INT64_MAX) continue;
      if (outcome.top < best_top || (outcome.top == best_top && best_top < best_.bytes && random_.below(8) == 0))
        try_order(order_by_place(valleys.places(), large, small));
      best_top = std::min(best_top, outcome.top);
      admit({outcome, std::move(rules)}, is_new, parent);
    }
  }

  // For single rectangles one of all orders is optimal, so no random search is needed.
  void try_all_orders() {
    Order order(input_.items.size());
    std::iota(order.begin(), order.end(), 0);
    do try_order(order);
    while (may_go_on(0) && std::next_permutation(order.begin(), order.end()));
  }

  // New rules compete with the worst elite, mutations only with their parent: this keeps the elites diverse.
  void admit(Elite elite, bool is_new, size_t parent) {
    if (is_new && elites_.size() < kElites) {
      elites_.push_back(std::move(elite));
    } else {
      Elite& rival = is_new ? elites_.back() : elites_[parent];
      if (elite.outcome > rival.outcome) return;
      rival = std::move(elite);
    }
    std::stable_sort(elites_.begin(), elites_.end(),
                     [](const Elite& a, const Elite& b) { return a.outcome < b.outcome; });
  }

  // Moves one of the highest items to an earlier turn. Valley filling knows little about items of several rectangles.
  void change_order() {
    std::vector<uint32_t> top;
    for (uint32_t turn = 1; turn < best_order_.size(); ++turn)
      if (best_.places[best_order_[turn]] + traits_[best_order_[turn]].bytes == best_.bytes) top.push_back(turn);
    if (top.empty() || !may_go_on(best_order_.size() * kWorkOfPlacement)) return;
    Order order = best_order_;
    uint32_t from = top[random_.below(top.size())], to = static_cast<uint32_t>(random_.below(from));
    std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
    if (auto bytes = place_all(order, best_.bytes)) keep(order, *bytes);
  }

  // Small items fill the holes that large ones leave; 8192 of them are no more than the lower bound.
  bool is_small(uint32_t i) const { return traits_[i].bytes < 64 || traits_[i].bytes < best_.lower_bound / 8192; }

  // First fit in the order of places moves nothing up (for items of one rectangle).
  static Order order_by_place(const std::vector<int64_t>& places, Order large, const Order& small) {
    std::stable_sort(large.begin(), large.end(), [&](uint32_t a, uint32_t b) { return places[a] < places[b]; });
    large.insert(large.end(), small.begin(), small.end());
    return large;
  }

  // Long and large items first, with random weights; sometimes also those in use at the peak.
  ValleyRules new_rules(uint32_t turn) {
    static constexpr int64_t kFirst[kFirstTurns][2] = {{64, 1}, {0, 64}, {64, 64}, {20, 64}};
    static constexpr int64_t kNoise[] = {7000, 23000, 59000};
    int64_t by_life = draw(92), by_size = draw(92), by_crowd = random_.below(3) == 0 ? draw(360) : 0;
    int64_t noise = kNoise[turn % 3];
    ValleyRules rules;
    if (random_.below(2) == 0) rules.full_bonus = draw(80000);
    if (random_.below(2) == 0) rules.wall_bonus = draw(47000);
    if (random_.below(2) == 0) rules.level_bonus = draw(47000);
    if (turn < kFirstTurns) {
      rules = {};
      by_life = kFirst[turn][0], by_size = kFirst[turn][1], by_crowd = noise = 0;
    }
    rules.keys.resize(traits_.size());
    for (size_t i = 0; i < rules.keys.size(); ++i) {
      const Traits& t = traits_[i];
      int64_t crowd = static_cast<int64_t>(Wide{t.crowd} * 256 / std::max<int64_t>(best_.lower_bound, 1));
      rules.keys[i] = by_life * scaled_log(t.last - t.first + 1) + by_size * scaled_log(t.bytes) + by_crowd * crowd +
                      random_.around_zero(noise);
    }
    return rules;
  }

  ValleyRules changed(ValleyRules rules) {
    std::vector<int64_t>& keys = rules.keys;
    size_t changes = 1 + random_.below(random_.below(4) == 0 ? keys.size() / 8 + 1 : 6);
    while (changes-- > 0)
      keys[random_.below(keys.size())] += random_.around_zero(random_.below(2) == 0 ? 47000 : 140000);
    return rules;
  }

  int64_t draw(uint64_t below) { return static_cast<int64_t>(random_.below(below)); }

  static constexpr size_t kFewItems = 7;  // 5040 orders: a few milliseconds
  static constexpr uint32_t kFirstTurns = 4;
  static constexpr size_t kElites = 8;

  PackInput input_;  // steps renumbered
  PackOptions options_;
  Occupancy occupancy_{1};
  std::vector<Traits> traits_;  // by item
  Packing best_;
  Order best_order_;
  std::vector<Elite> elites_;       // best first
  size_t work_ = 0, fit_work_ = 0;  // of all orders; of the current one
  PackRandom random_;
  std::vector<int64_t> places_;  // of the current order, as the fields below
  std::vector<Stretches::View> lists_;
  std::vector<size_t> ends_;  // by rectangle: the end of its lists
};

}  // namespace

Packing pack(const PackInput& input, const PackOptions& options) { return Packer(input, options).run(); }

}  // namespace sg
