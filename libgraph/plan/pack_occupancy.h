// What lies where during which steps, for first fit. Internal to pack.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sg {

// Bytes in use, as disjoint stretches in ascending order; neighbours that touch are one.
class Stretches {
 public:
  bool empty() const { return list_.empty(); }
  void clear() { list_.clear(); }

  struct Stretch {
    int64_t begin, end;
  };
  // A look at them from below upwards, valid until the next change. No question asks for a place lower than the last.
  class View {
   public:
    explicit View(const std::vector<Stretch>& list)
        : at_(list.data()), last_(at_ + list.size()), end_(list.empty() ? 0 : list.back().end) {}
    int64_t end() const { return end_; }

    // The lowest y >= x with [y, y + bytes) free. Adds the steps that took to `work`.
    int64_t first_free(int64_t x, int64_t bytes, size_t* work) {
      *work += 4;
      if (end_ <= x) return x;
      if (at_->end <= x) pass(x);
      const Stretch* const first = at_;
      for (; at_ != last_ && at_->begin < x + bytes; ++at_) x = at_->end;
      *work += static_cast<size_t>(at_ - first);
      return x;
    }

   private:
    // To the first stretch that ends above x: there is one.
    void pass(int64_t x) {
      for (int i = 0; i < 4; ++i)
        if ((++at_)->end > x) return;
      at_ = std::upper_bound(at_, last_, x, [](int64_t v, const Stretch& s) { return v < s.end; });
    }

    const Stretch* at_;  // those before it end at or below the last place asked for
    const Stretch* last_;
    int64_t end_;
  };
  View view() const { return View(list_); }

  // The steps that took, of which moving a few stretches is one.
  size_t add(int64_t begin, int64_t end) {
    auto low =
        std::lower_bound(list_.begin(), list_.end(), begin, [](const Stretch& s, int64_t b) { return s.end < b; });
    auto high = low;
    for (; high != list_.end() && high->begin <= end; ++high) {
      begin = std::min(begin, high->begin);
      end = std::max(end, high->end);
    }
    const size_t moved = static_cast<size_t>(list_.end() - high);
    if (low == high) {
      list_.insert(low, {begin, end});
      return moved / 8;
    }
    *low = {begin, end};
    if (low + 1 == high) return 0;
    list_.erase(low + 1, high);
    return moved / 8;
  }

 private:
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

  // The steps that took, where stretches had to make way.
  size_t add(uint32_t first, uint32_t last, int64_t begin, int64_t end) {
    size_t work = 0;
    for_each_part(first, last, [&](uint32_t n) {
      touch(n);
      work += whole_[n].add(begin, end) + any_[n].add(begin, end);
    });
    for_each_ancestor(first, last, [&](uint32_t n) {
      touch(n);
      work += any_[n].add(begin, end);
    });
    return work;
  }

  // Appends the lists that together hold what is in use at some step of first..last.
  void collect(uint32_t first, uint32_t last, std::vector<Stretches::View>* out) const {
    for_each_part(first, last, [&](uint32_t n) {
      if (!any_[n].empty()) out->push_back(any_[n].view());
    });
    for_each_ancestor(first, last, [&](uint32_t n) {
      if (!whole_[n].empty()) out->push_back(whole_[n].view());
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
  std::vector<Stretches> whole_, any_;  // by tree node; the root is 1, the children of n are 2n and 2n + 1
  std::vector<uint32_t> touched_;
};

}  // namespace sg
