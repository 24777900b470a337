// Sweeps: a node whose operands all have partners matches the node with exactly these operands; likewise with users.
#include <algorithm>

#include "libgraph/diff/match_steps.h"

namespace sg {
namespace {

using Rank = Matching::Rank;

class Sweep {
 public:
  explicit Sweep(Matching* m) : m_(*m) {}

  void run(Copies copies) {
    for (uint32_t y = 0; y < m_.count(1); ++y)
      if (m_.is_free(1, y)) take(m_.by_operands->fit(y), y, copies);
    for (uint32_t y = m_.count(1); y-- > 0;)
      if (m_.is_free(1, y)) take(m_.by_uses->fit(y), y, copies);
  }

 private:
  void take(const MatchGroups::Fit& fit, uint32_t y, Copies copies) {
    if (fit.free_a == 0) return;
    bool is_clear = fit.free_a == 1 && fit.free_b == 1;
    if (is_clear) {
      for (uint32_t x : fit.of_a)
        if (m_.is_free(0, x)) return m_.pair(x, y);
    } else if (copies != Copies::leave) {
      share_out(fit, copies == Copies::take_all);
    }
  }

  // Distributes several nodes of A and B that all have the same operands (or uses).
  void share_out(const MatchGroups::Fit& fit, bool all) {
    const bool few = size_t{fit.free_a} * fit.free_b <= Matching::kMaxCandidates * Matching::kMaxCandidates;
    if (!few && !all) return;  // said without a look at each, as every one of them asks
    std::vector<uint32_t> a, b;
    for (uint32_t x : fit.of_a)
      if (m_.is_free(0, x)) a.push_back(x);
    for (uint32_t y : fit.of_b)
      if (m_.is_free(1, y)) b.push_back(y);
    if (few) share_by_worth(a, b, all);
    if (!all) return;
    share_by(a, b, [&](int s, uint32_t n) { return std::array<uint32_t, 2>{m_.ahead(s, n), m_.side(s).place[n]}; });
    share_by(a, b, [&](int s, uint32_t n) { return std::array<uint32_t, 2>{m_.side(s).place[n], 0}; });
    share_by(a, b, [&](int, uint32_t) { return std::array<uint32_t, 2>{0, 0}; });
  }

  // Best pairs first. All have the same operands: the node that stays in its phase and module is the original, others
  // are copies of it, however many users they have.
  void share_by_worth(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b, bool all) {
    struct Choice {
      Rank rank;
      uint32_t x, y;
    };
    std::vector<Choice> choices;
    for (uint32_t x : a)
      for (uint32_t y : b) {
        Rank r = m_.rank(x, y, m_.state.worth(x, y, true), 1);
        r[0] = m_.ahead(0, x) == m_.ahead(1, y);  // the keys are equal anyway
        choices.push_back({{r[1], r[0], r[2], r[3], r[4]}, x, y});
      }
    std::stable_sort(choices.begin(), choices.end(), [](const Choice& p, const Choice& q) { return p.rank > q.rank; });
    auto is_open = [&](const Choice& c) { return m_.is_free(0, c.x) && m_.is_free(1, c.y); };
    auto alike = [](const Choice& c, const Choice& d) {
      return std::equal(c.rank.begin(), c.rank.end() - 1, d.rank.begin());
    };
    for (size_t i = 0; i < choices.size(); ++i) {
      if (!is_open(choices[i])) continue;
      bool is_clear = true;
      for (size_t j = i + 1; !all && is_clear && j < choices.size() && alike(choices[i], choices[j]); ++j)
        is_clear = !(is_open(choices[j]) && (choices[j].x == choices[i].x || choices[j].y == choices[i].y));
      if (is_clear) m_.pair(choices[i].x, choices[i].y);
      else if (!all) break;  // lower-ranked pairs must not take the nodes in dispute
    }
  }

  template <class ClassOf>
  void share_by(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b, const ClassOf& class_of) {
    SequenceTable table;
    std::vector<std::vector<uint32_t>> waiting;
    for (size_t i = a.size(); i-- > 0;) {
      if (!m_.is_free(0, a[i])) continue;
      uint32_t c = table.intern(class_of(0, a[i]));
      waiting.resize(table.size());
      waiting[c].push_back(a[i]);
    }
    for (uint32_t y : b) {
      uint32_t c = m_.is_free(1, y) ? table.find(class_of(1, y)) : MatchSide::kNone;
      if (c == MatchSide::kNone || waiting[c].empty()) continue;
      m_.pair(waiting[c].back(), y);
      waiting[c].pop_back();
    }
  }

  Matching& m_;
};

}  // namespace

void sweep(Matching* m, Copies copies) { Sweep(m).run(copies); }

}  // namespace sg
