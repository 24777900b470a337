// Nodes whose neighbours on both sides are unmatched.
#include <algorithm>

#include "libgraph/diff/match_steps.h"

namespace sg {
namespace {

class Surroundings {
 public:
  explicit Surroundings(Matching* m) : m_(*m) {}

  // Classifies nodes by their key and their neighbours' keys (matched neighbours are distinguished), then once more by
  // these classes.
  void run() {
    std::array<std::vector<uint32_t>, 2> classes = {m_.side(0).key, m_.side(1).key};
    for (int radius = 1; radius <= 2; ++radius) {
      SequenceTable table;
      std::array<std::vector<uint32_t>, 2> next;
      for (int s = 0; s < 2; ++s) {
        next[s].assign(m_.count(s), 0);
        for (uint32_t n = 0; n < m_.count(s); ++n)
          if (m_.is_free(s, n)) next[s][n] = table.intern(surroundings(s, n, classes[s]));
      }
      classes = next;
      if (radius == 2) m_.pair_unique(classes);
    }
  }

 private:
  uint32_t colour(int s, uint32_t n, const std::vector<uint32_t>& classes) const {
    uint32_t p = m_.state.partner(s, n);
    return p == MatchSide::kNone ? classes[n] * 2 : (s == 0 ? n : p) * 2 + 1;
  }

  const std::vector<uint32_t>& surroundings(int s, uint32_t n, const std::vector<uint32_t>& classes) {
    const MatchSide& here = m_.side(s);
    buffer_ = {here.key[n]};
    for (uint32_t v : here.operands(n))
      buffer_.push_back(here.maker[v] == MatchSide::kNone ? MatchSide::kNone - 1 : colour(s, here.maker[v], classes));
    if (here.commutative[n]) std::sort(buffer_.begin() + 1, buffer_.end());
    for (uint32_t v = here.first_result[n]; v < here.first_result[n + 1]; ++v) {
      buffer_.push_back(MatchSide::kNone);
      size_t begin = buffer_.size();
      for (const MatchUse& use : here.uses(v))
        buffer_.push_back(use.is_output ? MatchSide::kNone - 2 : colour(s, use.user, classes));
      std::sort(buffer_.begin() + static_cast<ptrdiff_t>(begin), buffer_.end());
    }
    return buffer_;
  }

  Matching& m_;
  std::vector<uint32_t> buffer_;
};

class Alignment {
 public:
  explicit Alignment(Matching* m) : m_(*m) {}

  // Aligns, by key, the unmatched nodes between adjacent fixed points of both schedules.
  void run() {
    std::vector<uint32_t> fixed = longest_run(m_.state.match().nodes[0]);
    std::vector<std::pair<uint32_t, uint32_t>> found;
    uint32_t x = 0, y = 0;
    for (size_t i = 0; i <= fixed.size(); ++i) {
      uint32_t end_x = i < fixed.size() ? fixed[i] : m_.count(0),
               end_y = i < fixed.size() ? m_.state.partner(0, fixed[i]) : m_.count(1);
      align(free_between(0, x, end_x), free_between(1, y, end_y), &found);
      x = end_x + 1, y = end_y + 1;
    }
    for (auto [p, q] : found) m_.pair(p, q);
  }

 private:
  std::vector<uint32_t> free_between(int s, uint32_t begin, uint32_t end) const {
    std::vector<uint32_t> out;
    for (uint32_t n = begin; n < end; ++n)
      if (m_.is_free(s, n)) out.push_back(n);
    return out;
  }

  // A longest common subsequence of keys; skipped if that is too much work.
  void align(std::vector<uint32_t> a, std::vector<uint32_t> b, std::vector<std::pair<uint32_t, uint32_t>>* found) {
    constexpr size_t kMaxCells = 1 << 16;
    if (a.empty() || b.empty()) return;
    auto key = [&](int s, uint32_t n) { return m_.side(s).key[n]; };
    if (a.size() * b.size() > std::min(kMaxCells, cells_left_)) return;
    cells_left_ -= a.size() * b.size();
    size_t width = b.size() + 1;
    std::vector<uint32_t> best((a.size() + 1) * width, 0);
    for (size_t i = a.size(); i-- > 0;)
      for (size_t j = b.size(); j-- > 0;)
        best[i * width + j] = key(0, a[i]) == key(1, b[j])
                                  ? best[(i + 1) * width + j + 1] + 1
                                  : std::max(best[(i + 1) * width + j], best[i * width + j + 1]);
    for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
      if (key(0, a[i]) == key(1, b[j])) found->push_back({a[i++], b[j++]});
      else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) ++i;
      else ++j;
    }
  }

  Matching& m_;
  size_t cells_left_ = 1 << 24;
};

}  // namespace

void match_by_surroundings(Matching* m) { Surroundings(m).run(); }
void match_between_fixed_points(Matching* m) { Alignment(m).run(); }

}  // namespace sg
