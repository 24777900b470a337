// Collectives of A that one new collective of B replaces: of one kind and group, with its sources and its users; with the nodes
// that pack and unpack.
#include <algorithm>
#include <set>
#include <tuple>

#include "libgraph/cost.h"
#include "libgraph/diff_explain.h"
#include "libgraph/human.h"

namespace sg {
namespace {

constexpr uint32_t kNone = MatchSide::kNone;
using Values = std::set<uint32_t>;

class Merges {
 public:
  explicit Merges(ExplainState* state) : state_(*state), diff_(state->diff()) {}

  void run() {
    std::vector<Traffic> before = traffic(0), after = traffic(1);
    std::map<uint32_t, std::vector<size_t>> by_source;
    for (size_t i = 0; i < after.size(); ++i)
      for (uint32_t v : after[i].sources) by_source[v].push_back(i);
    std::vector<std::vector<size_t>> members(after.size());
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i].sources.empty()) continue;
      size_t best = kNone;
      std::tuple<bool, bool, size_t> best_rank;
      for (size_t j : by_source[*before[i].sources.begin()]) {
        const Traffic& t = after[j];
        if (t.kind != before[i].kind || t.group != before[i].group || !contains(t.sources, before[i].sources)) continue;
        bool same_phase = state_.node(1, t.node).phase == state_.node(0, before[i].node).phase;
        std::tuple<bool, bool, size_t> rank = {!contains(t.users, before[i].users), !same_phase, t.sources.size()};
        if (best == kNone || rank < best_rank) best = j, best_rank = rank;
      }
      if (best != kNone) members[best].push_back(i);
    }
    for (size_t j = 0; j < after.size(); ++j)
      if (!members[j].empty()) merge(before, members[j], after[j]);
  }

 private:
  // Where the data of a free collective comes from and goes to, in numbers of A, and the free nodes on the way.
  struct Traffic {
    uint32_t node = kNone;
    std::string kind;
    std::string group;
    Values sources, users;
    std::vector<uint32_t> nodes;
  };

  uint32_t common_value(int s, uint32_t v) const { return s == 0 ? v : diff_.match.values[1][v]; }
  uint32_t common_node(int s, uint32_t n) const { return s == 0 ? n : diff_.match.nodes[1][n]; }
  bool has_partner(int s, uint32_t v) const { return diff_.match.values[s][v] != kNone; }

  void walk_back(int s, Traffic* t) const {
    std::vector<uint32_t> work = {t->node};
    std::set<uint32_t> seen = {t->node};
    const MatchSide& side = state_.side(s);
    while (!work.empty() && t->nodes.size() < kMaxWalk) {
      uint32_t n = work.back();
      work.pop_back();
      t->nodes.push_back(n);
      for (uint32_t v : side.operands(n)) {
        uint32_t m = side.maker[v];
        if (has_partner(s, v)) t->sources.insert(common_value(s, v));
        else if (m != kNone && state_.is_free(s, m) && !state_.has(s, m, kCollective) && seen.insert(m).second) work.push_back(m);
      }
    }
  }

  void walk_on(int s, Traffic* t) const {
    std::vector<uint32_t> work = {t->node};
    std::set<uint32_t> seen(t->nodes.begin(), t->nodes.end());
    size_t limit = t->nodes.size() + kMaxWalk;
    const MatchSide& side = state_.side(s);
    while (!work.empty() && t->nodes.size() < limit) {
      uint32_t n = work.back();
      work.pop_back();
      // Who writes into something made elsewhere is a use of it: the users of what it writes are users of the data.
      for (uint32_t v : touched(s, n)) {
        if (uint32_t m = side.maker[v]; m != n && seen.insert(m).second) t->nodes.push_back(m);
        for (const MatchUse& use : side.uses(v)) {
          if (use.is_output) t->users.insert(kOutput | (s == 0 ? use.user : diff_.match.outputs[1][use.user]));
          else if (!state_.is_free(s, use.user)) t->users.insert(common_node(s, use.user));
          else if (!state_.has(s, use.user, kCollective) && seen.insert(use.user).second)
            t->nodes.push_back(use.user), work.push_back(use.user);
        }
      }
    }
  }

  // Results, and for an op that writes, the values made by free nodes that its arguments are views of.
  std::vector<uint32_t> touched(int s, uint32_t n) const {
    const MatchSide& side = state_.side(s);
    std::vector<uint32_t> out;
    for (uint32_t v = side.first_result[n]; v < side.first_result[n + 1]; ++v) out.push_back(v);
    if (state_.info(s, n) == nullptr || !state_.info(s, n)->writes()) return out;
    for (uint32_t v : side.operands(n))
      for (int depth = 0; depth < 8 && side.maker[v] != kNone && state_.is_free(s, side.maker[v]); ++depth) {
        uint32_t m = side.maker[v];
        out.push_back(v);
        if (!state_.has(s, m, kView) || side.operands(m).empty()) break;
        v = side.operands(m)[0];
      }
    return out;
  }

  std::vector<Traffic> traffic(int s) const {
    std::vector<Traffic> out;
    size_t budget = kMaxWalk * 64;
    for (uint32_t n = 0; n < state_.count(s) && budget > 0; ++n) {
      if (!state_.is_free(s, n) || !state_.has(s, n, kCollective) || !state_.is_open(s, n)) continue;
      Communication c = communication_of(state_.job(s), state_.program(s), state_.graph(s), state_.side(s).nodes[n],
                                         [](StrId) { return std::nullopt; });
      Traffic t;
      t.node = n, t.kind = c.kind;
      const std::vector<Group>& groups = state_.job(s).groups;
      if (c.group && c.group.index < groups.size())
        t.group = state_.job(s).pool->strings.str(groups[c.group.index].axis) + ":" + std::to_string(groups[c.group.index].ordinal);
      walk_back(s, &t), walk_on(s, &t);
      budget -= std::min(budget, t.nodes.size());
      out.push_back(std::move(t));
    }
    return out;
  }

  static bool contains(const Values& all, const Values& part) { return std::includes(all.begin(), all.end(), part.begin(), part.end()); }

  void merge(const std::vector<Traffic>& before, const std::vector<size_t>& members, const Traffic& after) {
    uint32_t id = state_.next();
    std::vector<uint32_t> gone, made;
    Values users;
    for (size_t i : members) {
      for (uint32_t n : before[i].nodes)
        if (state_.take(0, n, id)) gone.push_back(n);
      users.insert(before[i].users.begin(), before[i].users.end());
    }
    for (uint32_t n : after.nodes)
      if (state_.take(1, n, id)) made.push_back(n);
    for (uint32_t x : users)
      if (x < state_.count(0) && only_explained_operands(x)) state_.tell(x, id, is_operand);
    for (ItemEdit& item : diff_.items)
      if (item.subject == "output" && item.kind == EditKind::changed && users.contains(kOutput | item.port) &&
          item.changes.size() == 1 && item.changes[0].aspect == Aspect::operand)
        item.explanation = id;
    bool is_backward = state_.node(1, after.node).phase == Phase::backward ||
                       state_.meta(1, after.node).collective.direction == BucketDirection::backward;
    std::string axis = after.group.substr(0, after.group.rfind(':'));
    std::string text = std::to_string(members.size()) + " " + after.kind + " on @" + axis +
                       (members.size() == 1 ? " remade in a bucket" : " merged into one") + (is_backward ? " (backward)" : " (forward)") + ": " +
                       plural(gone.size(), "node") + " became " + std::to_string(made.size());
    state_.add(ExplanationKind::merged, std::move(text), state_.blocks(0, gone), gone.size(), made.size(),
               {{"merged", members.size()}});
  }

  // Whether every operand of x that is another one now was made, or is made, by a node that is explained.
  bool only_explained_operands(uint32_t x) const {
    std::span<const uint32_t> p = state_.side(0).operands(x), q = state_.side(1).operands(state_.partner(0, x));
    bool all = p.size() == q.size();
    for (size_t i = 0; all && i < p.size(); ++i) {
      auto told = [&](int s, uint32_t v) { return state_.side(s).maker[v] != kNone && state_.cause(s, state_.side(s).maker[v]) != kNone; };
      all = diff_.match.values[0][p[i]] == q[i] || told(0, p[i]) || told(1, q[i]);
    }
    return all;
  }

  static constexpr size_t kMaxWalk = 4096;
  static constexpr uint32_t kOutput = 0x80000000u;    // a user that is an output, not a node
  ExplainState& state_;
  GraphDiff& diff_;
};

}  // namespace

void explain_merges(ExplainState* state) { Merges(state).run(); }

}  // namespace sg
