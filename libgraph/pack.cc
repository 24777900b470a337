#include "libgraph/pack.h"

#include <algorithm>
#include <numeric>

namespace sg {
namespace {

constexpr int64_t kMaxTotalBytes = int64_t{1} << 62;

int64_t align_up(int64_t x, int64_t alignment) { return (x + alignment - 1) / alignment * alignment; }

// Bytes in use, as disjoint stretches in ascending order; neighbours that touch are one.
class Stretches {
 public:
  bool empty() const { return list_.empty(); }
  void clear() { list_.clear(); }

  // The lowest y >= x with [y, y + bytes) free.
  int64_t first_free(int64_t x, int64_t bytes) const {
    for (auto it = first_ending_after(x); it != list_.end() && it->begin < x + bytes; ++it) x = it->end;
    return x;
  }

  void add(int64_t begin, int64_t end) {
    auto low = std::lower_bound(list_.begin(), list_.end(), begin, [](const Stretch& s, int64_t b) { return s.end < b; });
    auto high = low;
    for (; high != list_.end() && high->begin <= end; ++high) {
      begin = std::min(begin, high->begin);
      end = std::max(end, high->end);
    }
    if (low == high) {
      list_.insert(low, {begin, end});
      return;
    }
    *low = {begin, end};
    list_.erase(low + 1, high);
  }

 private:
  struct Stretch {
    int64_t begin, end;
  };
  std::vector<Stretch>::const_iterator first_ending_after(int64_t x) const {
    return std::upper_bound(list_.begin(), list_.end(), x, [](int64_t v, const Stretch& s) { return v < s.end; });
  }
  std::vector<Stretch> list_;
};

// What is in use when: a segment tree over steps. `whole` of a tree node: by rectangles in use during all of its steps
// (and of no larger node's); `any`: by rectangles in use at some step of it, those that `whole` of a larger node has
// left out.
class Occupancy {
 public:
  explicit Occupancy(uint32_t steps) {
    while (leaves_ < steps) leaves_ *= 2;
    whole_.resize(2 * size_t{leaves_});
    any_.resize(2 * size_t{leaves_});
  }

  void clear() {
    for (uint32_t n : touched_) whole_[n].clear(), any_[n].clear();
    touched_.clear();
  }

  void add(uint32_t first, uint32_t last, int64_t begin, int64_t end) {
    for_each_part(first, last, [&](uint32_t n) {
      touch(n);
      whole_[n].add(begin, end);
      any_[n].add(begin, end);
    });
    for_each_ancestor(first, last, [&](uint32_t n) {
      touch(n);
      any_[n].add(begin, end);
    });
  }

  // Appends the lists that together hold what is in use at some step of first..last.
  void collect(uint32_t first, uint32_t last, std::vector<const Stretches*>* out) const {
    for_each_part(first, last, [&](uint32_t n) {
      if (!any_[n].empty()) out->push_back(&any_[n]);
    });
    for_each_ancestor(first, last, [&](uint32_t n) {
      if (!whole_[n].empty()) out->push_back(&whole_[n]);
    });
  }

 private:
  template <class Fn>
  void for_each_part(uint32_t first, uint32_t last, const Fn& fn) const {
    for (uint32_t l = first + leaves_, r = last + leaves_ + 1; l < r; l /= 2, r /= 2) {
      if (l & 1) fn(l++);
      if (r & 1) fn(--r);
    }
  }

  // Every node that holds `first` or `last`, leaves left out. Some lie below the parts of first..last: what is said of
  // those is true of them too.
  template <class Fn>
  void for_each_ancestor(uint32_t first, uint32_t last, const Fn& fn) const {
    uint32_t l = (first + leaves_) / 2, r = (last + leaves_) / 2;
    for (; l != r; l /= 2, r /= 2) fn(l), fn(r);
    for (; l >= 1; l /= 2) fn(l);
  }

  void touch(uint32_t n) {
    if (any_[n].empty()) touched_.push_back(n);
  }

  uint32_t leaves_ = 1;
  std::vector<Stretches> whole_, any_;   // by tree node; the root is 1, the children of n are 2n and 2n + 1
  std::vector<uint32_t> touched_;
};

// Steps at which something begins after something ended: between them nothing changes but for what is added, so that
// two rectangles meet in the renumbered steps exactly when they met before.
std::vector<uint32_t> renumber_steps(const PackInput& input) {
  std::vector<uint8_t> begins(input.steps, 0), ends(input.steps, 0);
  for (const PackRect& r : input.rects) begins[r.first] = ends[r.last] = 1;
  std::vector<uint32_t> out(input.steps);
  uint32_t epoch = 0;
  bool ended = false;
  for (uint32_t i = 0; i < input.steps; ++i) {
    if (begins[i] && ended) ++epoch, ended = false;
    out[i] = epoch;
    ended |= ends[i] != 0;
  }
  return out;
}

struct Random {   // splitmix64
  uint64_t state = 0x5EED;
  uint64_t below(uint64_t n) {
    uint64_t z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (z ^ (z >> 31)) % n;
  }
};

class Packer {
 public:
  Packer(const PackInput& input, const PackOptions& options) : items_(input.items), rects_(input.rects), options_(options) {
    std::vector<uint32_t> epoch = renumber_steps(input);
    for (PackRect& r : rects_) r.first = epoch[r.first], r.last = epoch[r.last];
    steps_ = epoch.empty() ? 1 : epoch.back() + 1;
    occupancy_ = Occupancy(steps_);
  }

  Packing run() {
    if (sizes_overflow()) {
      best_.overflow = true;
      best_.bytes = best_.lower_bound = INT64_MAX;
      return std::move(best_);
    }
    measure();
    try_orders();
    if (options_.search) search();
    return std::move(best_);
  }

 private:
  struct Traits {
    int64_t bytes = 0;       // the item's extent
    double area = 0;
    uint32_t first = 0, last = 0;
    int64_t crowd = 0;       // the largest sum in use while it is
  };
  using Order = std::vector<uint32_t>;

  bool sizes_overflow() const {
    int64_t total = 0;
    for (const PackItem& item : items_) {
      int64_t extent = 0, end;
      for (const PackRect& r : rects_of(item)) {
        if (__builtin_add_overflow(r.offset, r.bytes, &end)) return true;
        extent = std::max(extent, end);
      }
      if (__builtin_add_overflow(total, extent, &total) || __builtin_add_overflow(total, item.alignment, &total)) return true;
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
    return {rects_.data() + item.rect_begin, rects_.data() + item.rect_begin + item.rect_count};
  }

  void measure() {
    std::vector<int64_t> in_use = sum_in_use();
    best_.lower_bound = in_use.empty() ? 0 : *std::max_element(in_use.begin(), in_use.end());
    for (const PackItem& item : items_) {
      Traits t;
      t.first = UINT32_MAX;
      for (const PackRect& r : rects_of(item)) {
        t.bytes = std::max(t.bytes, r.offset + r.bytes);
        t.area += static_cast<double>(r.bytes) * (r.last - r.first + 1);
        t.first = std::min(t.first, r.first);
        t.last = std::max(t.last, r.last);
      }
      traits_.push_back(t);
    }
    add_crowds(in_use);
  }

  // By step. Within an item, rectangles may overlap (a result in the memory that it takes over): their union counts.
  std::vector<int64_t> sum_in_use() const {
    std::vector<int64_t> change(steps_ + 1, 0);
    for (const PackItem& item : items_) {
      if (item.rect_count == 1) {
        const PackRect& r = rects_[item.rect_begin];
        change[r.first] += r.bytes, change[r.last + 1] -= r.bytes;
      } else {
        add_union(item, &change);
      }
    }
    std::vector<int64_t> out(steps_);
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

  void add_crowds(const std::vector<int64_t>& in_use) {   // the largest of a range, by a table of powers of two
    std::vector<std::vector<int64_t>> table{in_use};
    for (uint32_t width = 1; 2 * width <= steps_; width *= 2) {
      const std::vector<int64_t>& half = table.back();
      std::vector<int64_t> next(steps_ - 2 * width + 1);
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
    Order order(items_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return less(traits_[a], traits_[b]); });
    return order;
  }

  void try_orders() {
    auto life = [](const Traits& t) { return t.last - t.first; };
    try_order(sorted([](auto& a, auto& b) { return a.bytes != b.bytes ? a.bytes > b.bytes : a.first < b.first; }));
    try_order(sorted([](auto& a, auto& b) { return a.crowd != b.crowd ? a.crowd > b.crowd : a.bytes > b.bytes; }));
    try_order(sorted([](auto& a, auto& b) { return a.area != b.area ? a.area > b.area : a.first < b.first; }));
    try_order(sorted([&](auto& a, auto& b) { return life(a) != life(b) ? life(a) > life(b) : a.bytes > b.bytes; }));
    try_order(sorted([&](auto& a, auto& b) {
      return a.crowd != b.crowd ? a.crowd > b.crowd : life(a) != life(b) ? life(a) > life(b) : a.bytes > b.bytes;
    }));
    try_order(sorted([](auto& a, auto& b) { return a.first != b.first ? a.first < b.first : a.bytes > b.bytes; }));
    try_order(sorted([](auto& a, auto& b) { return a.last != b.last ? a.last > b.last : a.bytes > b.bytes; }));
  }

  bool may_go_on() const {
    return best_.bytes > best_.lower_bound && placed_ + items_.size() <= options_.placements;
  }

  // Whether this order is at least as good as the best so far, which it then is.
  bool try_order(const Order& order) {
    if (!best_order_.empty() && !may_go_on()) return false;
    int64_t bytes = place_all(order);
    if (!best_order_.empty() && bytes > best_.bytes) return false;
    best_.bytes = bytes;
    best_.places = places_;
    best_order_ = order;
    return true;
  }

  int64_t place_all(const Order& order) {
    occupancy_.clear();
    places_.assign(items_.size(), 0);
    int64_t bytes = 0;
    for (uint32_t i : order) {
      places_[i] = lowest_place(items_[i]);
      for (const PackRect& r : rects_of(items_[i]))
        occupancy_.add(r.first, r.last, places_[i] + r.offset, places_[i] + r.offset + r.bytes);
      bytes = std::max(bytes, places_[i] + traits_[i].bytes);
    }
    placed_ += order.size();
    return bytes;
  }

  int64_t lowest_place(const PackItem& item) {
    lists_.clear();
    ends_.clear();
    for (const PackRect& r : rects_of(item)) {
      occupancy_.collect(r.first, r.last, &lists_);
      ends_.push_back(lists_.size());
    }
    int64_t place = 0;
    for (bool moved = true; moved;) {
      moved = false;
      size_t list = 0;
      for (uint32_t i = 0; i < item.rect_count; ++i) {
        const PackRect& r = rects_[item.rect_begin + i];
        for (; list < ends_[i]; ++list) {
          int64_t at = lists_[list]->first_free(place + r.offset, r.bytes) - r.offset;
          if (at != place) place = align_up(at, item.alignment), moved = true;
        }
      }
    }
    return place;
  }

  // Moves one of the items that end highest to a random earlier turn, and keeps what is not worse.
  void search() {
    Random random;
    std::vector<uint32_t> top;
    while (!items_.empty() && may_go_on()) {
      top.clear();
      for (uint32_t turn = 1; turn < best_order_.size(); ++turn)
        if (best_.places[best_order_[turn]] + traits_[best_order_[turn]].bytes == best_.bytes) top.push_back(turn);
      if (top.empty()) return;
      Order order = best_order_;
      uint32_t from = top[random.below(top.size())];
      uint32_t to = static_cast<uint32_t>(random.below(from));
      std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
      try_order(order);
    }
  }

  std::vector<PackItem> items_;
  std::vector<PackRect> rects_;           // steps renumbered
  PackOptions options_;
  uint32_t steps_ = 1;
  Occupancy occupancy_{1};
  std::vector<Traits> traits_;            // by item
  Packing best_;
  Order best_order_;
  size_t placed_ = 0;
  std::vector<int64_t> places_;           // of the order at hand, as those that follow
  std::vector<const Stretches*> lists_;
  std::vector<size_t> ends_;              // by rectangle: where its lists end
};

}  // namespace

Packing pack(const PackInput& input, const PackOptions& options) { return Packer(input, options).run(); }

}  // namespace sg
