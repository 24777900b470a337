// The matcher against planted edits, and against the cheapest match.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <map>
#include <set>

#include "libgraph/diff/diff.h"
#include "libgraph/diff/match_state.h"
#include "tests/support/edited_graph.h"

namespace sg {
namespace {

using test::GraphSketch;
using test::Planted;
using test::Rng;

constexpr uint32_t kNone = MatchSide::kNone;

struct Pair {
  Job a, b;
  MatchWords words;
  MatchSide side_a, side_b;
  GraphMatch match;
  Pair(const GraphSketch& before, const GraphSketch& after) : a(before.job()), b(after.job()) {
    side_a = make_match_side(a, *a.programs[0], a.programs[0]->graph, &words);
    side_b = make_match_side(b, *b.programs[0], b.programs[0]->graph, &words);
    match = match_graphs(side_a, side_b, &words);
  }
};

// A matching state with the partners of `match`.
MatchState state_of(const MatchSide& a, const MatchSide& b, const GraphMatch& match) {
  MatchState state(a, b);
  state.match() = match;
  return state;
}

// The edits that a match of nodes stands for, each 1: docs/design/007-diff.md has the model.
size_t match_cost(const MatchSide& a, const MatchSide& b, const GraphMatch& match) {
  MatchState state = state_of(a, b, match);
  size_t cost = static_cast<size_t>(std::count(match.nodes[1].begin(), match.nodes[1].end(), kNone));  // added
  for (uint32_t x = 0; x < a.node_count(); ++x) {
    const uint32_t y = match.nodes[0][x];
    if (y == kNone) {
      ++cost;  // removed
      continue;
    }
    const PairWorth w = state.worth(x, y, false);
    cost += !w.same_op || !w.same_key;
    cost += std::max(a.operands(x).size(), b.operands(y).size()) - w.operands;
  }
  const std::vector<uint8_t> moved = moved_nodes(match.nodes[0]);
  return cost + static_cast<size_t>(std::count(moved.begin(), moved.end(), 1));
}

// Whether the model allows the pair, given the partners of its neighbours.
bool may_be_partners(const MatchSide& a, const MatchSide& b, const GraphMatch& match, uint32_t x, uint32_t y) {
  return state_of(a, b, match).worth(x, y, false).is_allowed();
}

// Searches all matches that the model allows, cutting off those that cost as much as the best one known.
class Cheapest {
 public:
  explicit Cheapest(const Pair& pair) : a_(pair.side_a), b_(pair.side_b), match_(pair.match) {
    best_ = match_cost(a_, b_, match_);
    std::fill(match_.nodes[0].begin(), match_.nodes[0].end(), kNone);
    std::fill(match_.nodes[1].begin(), match_.nodes[1].end(), kNone);
    for (uint32_t v = static_cast<uint32_t>(a_.input_count()); v < a_.value_count(); ++v) match_.values[0][v] = kNone;
    for (uint32_t v = static_cast<uint32_t>(b_.input_count()); v < b_.value_count(); ++v) match_.values[1][v] = kNone;
  }

  size_t cost() {
    extend(0, 0, 0);
    return best_;
  }

 private:
  void extend(uint32_t x, size_t cost, size_t pairs) {
    size_t left = a_.node_count() - x, open_b = b_.node_count() - pairs;
    if (cost + (open_b > left ? open_b - left : 0) >= best_) return;
    if (x == a_.node_count()) return finish();
    for (uint32_t y = 0; y < b_.node_count(); ++y) {
      if (match_.nodes[1][y] != kNone) continue;
      set(x, y, y, a_.first_result[x], b_.first_result[y]);
      extend(x + 1, cost + own_cost(x, y), pairs + 1);
      set(x, y, kNone, a_.first_result[x], b_.first_result[y]);
    }
    extend(x + 1, cost + 1, pairs);
  }

  void set(uint32_t x, uint32_t y, uint32_t partner, uint32_t v, uint32_t w) {
    match_.nodes[0][x] = partner, match_.nodes[1][y] = partner == kNone ? kNone : x;
    match_.values[0][v] = partner == kNone ? kNone : w, match_.values[1][w] = partner == kNone ? kNone : v;
  }

  size_t own_cost(uint32_t x, uint32_t y) const {
    std::span<const uint32_t> p = a_.operands(x), q = b_.operands(y);
    size_t equal = 0, crossed = 0;
    for (size_t i = 0; i < std::min(p.size(), q.size()); ++i) equal += match_.values[0][p[i]] == q[i];
    if (a_.commutative[x] && b_.commutative[y])
      crossed = (match_.values[0][p[0]] == q[1]) + (match_.values[0][p[1]] == q[0]);
    return (a_.key[x] != b_.key[y]) + std::max(p.size(), q.size()) - std::max(equal, crossed);
  }

  void finish() {
    for (uint32_t x = 0; x < a_.node_count(); ++x)
      if (match_.nodes[0][x] != kNone && !may_be_partners(a_, b_, match_, x, match_.nodes[0][x])) return;
    best_ = std::min(best_, match_cost(a_, b_, match_));
  }

  const MatchSide& a_;
  const MatchSide& b_;
  GraphMatch match_;
  size_t best_ = 0;
};

uint32_t identity_of(const Graph& graph, NodeId n) {
  std::string_view name = graph.label(n);
  return static_cast<uint32_t>(std::stoul(std::string(name.substr(name.find_first_of("0123456789")))));
}

struct Score {
  size_t planted = 0, reported = 0, right = 0;
};

// Counts reported and planted edits by kind.
void add_scores(const GraphSketch& before, const GraphSketch& after, std::map<std::string, Score>* scores) {
  Job a = before.job(), b = after.job();
  JobDiff diff = diff_jobs(a, b);
  const GraphDiff& g = diff.programs[0].graphs[0];
  std::map<std::string, std::set<uint32_t>> reported;
  size_t moved = 0;
  for (const NodeEdit& e : g.edits) {
    if (e.kind() == EditKind::added) reported["added"].insert(identity_of(*g.b, g.side_b.nodes[e.b]));
    else if (e.kind() == EditKind::removed) reported["removed"].insert(identity_of(*g.a, g.side_a.nodes[e.a]));
    for (const Difference& c : e.changes) {
      uint32_t x = identity_of(*g.a, g.side_a.nodes[e.a]), y = identity_of(*g.b, g.side_b.nodes[e.b]);
      if (c.aspect == Aspect::order) ++moved;
      else
        reported[std::string(aspect_name(c.aspect))].insert(x == y ? x
                                                                   : 0x80000000u | x);  // of a wrong pair: never right
    }
  }
  test::TrueEdits truth = true_edits(before, after);
  auto& m = (*scores)["moved"];
  m.planted += truth.moved, m.reported += moved, m.right += std::min(moved, truth.moved);
  std::set<std::string> kinds;
  for (const auto& [kind, list] : truth.by_kind) kinds.insert(kind);
  for (const auto& [kind, list] : reported) kinds.insert(kind);
  for (const std::string& kind : kinds) {
    Score& s = (*scores)[kind];
    const std::vector<uint32_t>& planted = truth.by_kind[kind];
    s.planted += planted.size(), s.reported += reported[kind].size();
    for (uint32_t i : planted) s.right += reported[kind].count(i);
  }
}

// `each`: every kind has to reach the bounds, not only the total: two edits of one node may be reported as another two
// of the same cost.
void check_scores(const std::map<std::string, Score>& scores, const char* title, bool each = true) {
  std::printf("%s\n  %-10s %8s %8s %8s %9s %7s\n", title, "kind", "planted", "reported", "right", "precision",
              "recall");
  Score all;
  for (const auto& [kind, s] : scores) all.planted += s.planted, all.reported += s.reported, all.right += s.right;
  std::map<std::string, Score> rows = scores;
  rows["all"] = all;
  for (const auto& [kind, s] : rows) {
    double precision = s.reported ? static_cast<double>(s.right) / static_cast<double>(s.reported) : 1;
    double recall = s.planted ? static_cast<double>(s.right) / static_cast<double>(s.planted) : 1;
    std::printf("  %-10s %8zu %8zu %8zu %9.3f %7.3f\n", kind.c_str(), s.planted, s.reported, s.right, precision,
                recall);
    if (s.planted == 0 || (!each && kind != "all")) continue;  // what was reported there counts in the total
    INFO(title << ", " << kind);
    CHECK(precision >= 0.95);
    CHECK(recall >= 0.95);
  }
}

}  // namespace

TEST_CASE("match: within 10 % of the cheapest match") {
  size_t ours = 0, cheapest = 0, worse = 0, cases = 0;
  for (uint64_t seed = 1; cases < 400; ++seed) {
    Rng rng(seed);
    GraphSketch before = test::random_small_sketch(rng, 4 + rng.below(9), 2 + rng.below(2));
    GraphSketch after = before;
    size_t edits = 1 + rng.below(3);
    for (size_t i = 0; i < edits; ++i) plant(&after, static_cast<Planted>(rng.below(test::kPlantedKinds)), rng);
    if (after.nodes.size() > 12) continue;
    ++cases;
    Pair pair(before, after);
    size_t mine = match_cost(pair.side_a, pair.side_b, pair.match), best = Cheapest(pair).cost();
    ours += mine, cheapest += best, worse += mine > best;
  }
  std::printf("edits of %zu small pairs: ours %zu, the least possible %zu; more than possible in %zu\n", cases, ours,
              cheapest, worse);
  CHECK(cheapest > 300);
  CHECK(static_cast<double>(ours) <= 1.1 * static_cast<double>(cheapest));
  CHECK(worse <= cases / 50);
}

TEST_CASE("match: planted edits, each kind by itself") {
  constexpr const char* kNames[test::kPlantedKinds] = {"rename", "move", "op",     "literal", "operand", "meta",
                                                       "line",   "add",  "remove", "insert",  "copy"};
  for (size_t kind = 0; kind < test::kPlantedKinds; ++kind) {
    std::map<std::string, Score> scores;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      Rng rng(seed * 100 + kind);
      GraphSketch before = test::random_sketch(rng, 6, 40, 4), after = before;
      for (size_t i = 0, done = 0; i < 200 && done < 6; ++i) done += plant(&after, static_cast<Planted>(kind), rng);
      add_scores(before, after, &scores);
    }
    check_scores(scores, ("planted: " + std::string(kNames[kind])).c_str());
  }
}

TEST_CASE("match: planted edits of all kinds at once") {
  for (size_t percent : {1, 3, 10}) {
    std::map<std::string, Score> scores;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      Rng rng(seed);
      GraphSketch before = test::random_sketch(rng, 20, 60, 5), after = before;
      for (size_t i = 0; i < before.nodes.size() * percent / 100; ++i)
        plant(&after, static_cast<Planted>(rng.below(test::kPlantedKinds)), rng);
      add_scores(before, after, &scores);
    }
    check_scores(scores, (std::to_string(percent) + " % edited").c_str(), percent <= 3);
  }
}

TEST_CASE("match: what is planted is renamed and then found again") {
  Rng rng(5);
  GraphSketch before = test::random_sketch(rng, 10, 50, 4), after = before;
  for (GraphSketch::Node& n : after.nodes) n.renamed = true;
  Job a = before.job(), b = after.job();
  DiffOptions ignore_name;
  ignore_name.ignore_name = true;
  CHECK(diff_jobs(a, b, ignore_name).is_same());
  JobDiff diff = diff_jobs(a, b);
  CHECK(count_edits(diff.programs[0]).renamed == before.nodes.size());
  CHECK(count_edits(diff.programs[0]).changed == 0);
}

}  // namespace sg
