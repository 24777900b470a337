// Collectives of A that one new collective of B replaces: of the same kind and group, covering their sources and users,
// together with the nodes that pack and unpack. A further new collective with the same sources repeats them:
// recomputed, then merged. Also the reverse: a collective split up.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "libgraph/base/human.h"
#include "libgraph/diff/diff_explain.h"
#include "libgraph/facts/cost.h"

namespace sg {
namespace {

using Values = std::set<uint32_t>;

class Merges {
 public:
  // `whole`: the side with the merged collectives.
  Merges(ExplainState* state, int whole, std::map<uint32_t, uint32_t>* users)
      : state_(*state), whole_(whole), diff_(state->diff()), users_(*users) {}

  void run() {
    std::vector<Traffic> parts = traffic(1 - whole_), wholes = traffic(whole_);
    std::map<uint32_t, std::vector<size_t>> by_source;
    for (size_t i = 0; i < wholes.size(); ++i)
      for (uint32_t v : wholes[i].sources) by_source[v].push_back(i);
    std::vector<std::vector<size_t>> members(wholes.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].sources.empty()) continue;
      size_t best = MatchSide::kNone;
      std::tuple<bool, bool, size_t> best_rank;
      for (size_t j : by_source[*parts[i].sources.begin()]) {
        const Traffic& t = wholes[j];
        if (t.kind != parts[i].kind || t.group != parts[i].group || !contains(t.sources, parts[i].sources)) continue;
        bool same_phase = state_.node(whole_, t.node).phase == state_.node(1 - whole_, parts[i].node).phase;
        std::tuple<bool, bool, size_t> rank = {!contains(t.users, parts[i].users), !same_phase, t.sources.size()};
        if (best == MatchSide::kNone || rank < best_rank) best = j, best_rank = rank;
      }
      if (best != MatchSide::kNone) members[best].push_back(i);
    }
    for (size_t j = 0; j < wholes.size(); ++j)
      if (whole_ == 1 ? !members[j].empty() : members[j].size() > 1) merge(parts, members[j], wholes[j]);
    for (size_t j = 0; j < wholes.size(); ++j)
      if (members[j].empty()) do_again(parts, wholes[j]);
  }

 private:
  // Sources and users of an unmatched collective's data, in A's numbering, and the unmatched nodes on the way.
  struct Traffic {
    uint32_t node = MatchSide::kNone;
    std::string kind;
    std::string group;
    Values sources, users;
    std::vector<uint32_t> nodes;
  };

  uint32_t common_value(int s, uint32_t v) const { return s == 0 ? v : diff_.match.values[1][v]; }
  uint32_t common_node(int s, uint32_t n) const { return s == 0 ? n : diff_.match.nodes[1][n]; }
  bool has_partner(int s, uint32_t v) const { return diff_.match.values[s][v] != MatchSide::kNone; }

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
        else if (m != MatchSide::kNone && is_on_the_way(s, m) && seen.insert(m).second) work.push_back(m);
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
      // A write into memory made elsewhere uses that memory: users of the written value are users of the data.
      for (uint32_t v : touched(s, n)) {
        if (uint32_t m = side.maker[v]; m != n && seen.insert(m).second) t->nodes.push_back(m);
        for (const MatchUse& use : side.uses(v)) {
          if (use.is_output) t->users.insert(kMergedOutput | (s == 0 ? use.user : diff_.match.outputs[1][use.user]));
          else if (!state_.is_free(s, use.user)) t->users.insert(common_node(s, use.user));
          else if (is_on_the_way(s, use.user) && !is_recomputed(s, use.user) && seen.insert(use.user).second)
            t->nodes.push_back(use.user), work.push_back(use.user);
        }
      }
    }
  }

  // Packing and unpacking: no other collective, and no computation with the data.
  bool is_on_the_way(int s, uint32_t n) const {
    return state_.is_free(s, n) && !state_.has(s, n, kCollective) && !state_.has(s, n, kContraction) &&
           !state_.has(s, n, kHigherOrder);
  }

  // Recomputed users of the data are explained as copies.
  bool is_recomputed(int s, uint32_t n) const {
    return state_.meta(s, n).copy.kind == CopyKind::remat && state_.of[s]->original(n) != MatchSide::kNone;
  }

  // The results; for an op that writes, also the values of unmatched nodes that its arguments are views of.
  std::vector<uint32_t> touched(int s, uint32_t n) const {
    const MatchSide& side = state_.side(s);
    std::vector<uint32_t> out;
    for (uint32_t v = side.first_result[n]; v < side.first_result[n + 1]; ++v) out.push_back(v);
    if (state_.info(s, n) == nullptr || !state_.info(s, n)->writes()) return out;
    for (uint32_t v : side.operands(n))
      for (int depth = 0; depth < 8 && side.maker[v] != MatchSide::kNone && state_.is_free(s, side.maker[v]); ++depth) {
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
        t.group = state_.job(s).pool->strings.str(groups[c.group.index].axis) + ":" +
                  std::to_string(groups[c.group.index].ordinal);
      walk_back(s, &t), walk_on(s, &t);
      budget -= std::min(budget, t.nodes.size());
      out.push_back(std::move(t));
    }
    return out;
  }

  static bool contains(const Values& all, const Values& part) {
    return std::includes(all.begin(), all.end(), part.begin(), part.end());
  }

  void merge(const std::vector<Traffic>& parts, const std::vector<size_t>& members, const Traffic& whole) {
    uint32_t id = state_.next();
    std::vector<uint32_t> of_parts, of_whole = take_all(whole_, whole.nodes, id);
    for (size_t i : members) {
      for (uint32_t n : take_all(1 - whole_, parts[i].nodes, id)) of_parts.push_back(n);
      for (uint32_t x : parts[i].users) users_.emplace(x, id);
    }
    size_t gone = whole_ == 1 ? of_parts.size() : of_whole.size(),
           made = whole_ == 1 ? of_whole.size() : of_parts.size();
    std::string count = std::to_string(members.size()) + " " + what(whole), name = bucket(whole, members.size() > 1);
    std::string text = whole_ == 1 ? count + (members.size() == 1 ? " remade in " : " merged into ") + name
                                   : count + " taken out of " + name;
    text += ": " + plural(gone, "node") + " became " + std::to_string(made);
    state_.add(ExplanationKind::merged, std::move(text), state_.blocks(1 - whole_, of_parts), gone, made,
               facts(whole, members.size()));
  }

  // A bucket whose sources are all covered by collectives that were merged into another bucket.
  void do_again(const std::vector<Traffic>& parts, const Traffic& whole) {
    Values covered;
    size_t count = 0;
    for (const Traffic& t : parts)
      if (!t.sources.empty() && t.kind == whole.kind && t.group == whole.group && contains(whole.sources, t.sources))
        covered.insert(t.sources.begin(), t.sources.end()), ++count;
    if (count == 0 || covered != whole.sources) return;
    std::vector<uint32_t> nodes = take_all(whole_, whole.nodes, state_.next());
    for (uint32_t x : whole.users) users_.emplace(x, state_.next());
    std::string text = std::to_string(count) + " " + what(whole) +
                       (whole_ == 1 ? " done again in " : " no longer done again in ") + bucket(whole, count > 1) +
                       ": " + plural(nodes.size(), whole_ == 1 ? "new node" : "node") + (whole_ == 1 ? "" : " gone");
    std::map<std::string, size_t> all = facts(whole, 0);
    all["again"] = count;
    state_.add(ExplanationKind::merged, std::move(text), state_.blocks(whole_, nodes), whole_ == 0 ? nodes.size() : 0,
               whole_ == 1 ? nodes.size() : 0, std::move(all));
  }

  std::vector<uint32_t> take_all(int s, const std::vector<uint32_t>& nodes, uint32_t id) {
    std::vector<uint32_t> out;
    for (uint32_t n : nodes)
      if (state_.take(s, n, id)) out.push_back(n);
    return out;
  }

  static std::string what(const Traffic& t) { return t.kind + " on @" + t.group.substr(0, t.group.rfind(':')); }

  std::string bucket(const Traffic& t, bool several) const {
    const CollectiveInfo& c = state_.meta(whole_, t.node).collective;
    bool is_backward = state_.node(whole_, t.node).phase == Phase::backward || c.direction == BucketDirection::backward;
    std::string name = c.bucket >= 0 ? "bucket " + std::to_string(c.bucket) : several ? "one" : "a bucket";
    return name + (is_backward ? " (backward)" : " (forward)");
  }

  std::map<std::string, size_t> facts(const Traffic& t, size_t merged) const {
    std::map<std::string, size_t> out = {{"merged", merged}};
    if (int32_t id = state_.meta(whole_, t.node).collective.bucket; id >= 0) out["bucket"] = static_cast<size_t>(id);
    return out;
  }

  static constexpr size_t kMaxWalk = 4096;
  ExplainState& state_;
  const int whole_;
  GraphDiff& diff_;
  std::map<uint32_t, uint32_t>& users_;
};

// Whether for every operand of x that changed, the maker on either side is an explained node.
bool only_explained_operands(const ExplainState& state, uint32_t x) {
  std::span<const uint32_t> p = state.side(0).operands(x), q = state.side(1).operands(state.partner(0, x));
  bool all = p.size() == q.size();
  for (size_t i = 0; all && i < p.size(); ++i) {
    auto told = [&](int s, uint32_t v) {
      return state.side(s).maker[v] != MatchSide::kNone && state.cause(s, state.side(s).maker[v]) != MatchSide::kNone;
    };
    uint32_t ignored = MatchSide::kNone;
    all = told(0, p[i]) || told(1, q[i]) || state.same_operand(p[i], q[i], &ignored);
  }
  return all;
}

}  // namespace

void explain_merges(ExplainState* state, std::map<uint32_t, uint32_t>* users) {
  Merges(state, 1, users).run();
  Merges(state, 0, users).run();
}

void follow_merges(ExplainState* state, const std::map<uint32_t, uint32_t>& users) {
  for (auto [x, id] : users)
    if (x < state->count(0) && !state->is_free(0, x) && only_explained_operands(*state, x))
      state->tell(x, id, is_operand);
  for (ItemEdit& item : state->diff().items) {
    auto user = users.find(kMergedOutput | item.port);
    if (user != users.end() && item.subject == "output" && item.kind == EditKind::changed && item.changes.size() == 1 &&
        is_operand(item.changes[0]))
      item.explanation = user->second;
  }
}

}  // namespace sg
