// What the edits of a graph amount to. Each finder takes edits that nobody has explained yet and puts an explanation over them.
#include <algorithm>
#include <map>
#include <set>

#include "libgraph/cost.h"
#include "libgraph/diff_copies.h"
#include "libgraph/diff_program.h"
#include "libgraph/diff_same.h"
#include "libgraph/human.h"
#include "libgraph/module_ranges.h"
#include "libgraph/op.h"

namespace sg {
namespace {

constexpr uint32_t kNone = MatchSide::kNone;
using Values = std::set<uint32_t>;

class Explainer {
 public:
  Explainer(const Job& a, const Job& b, const ProgramDiff& program, GraphDiff* diff)
      : jobs_{&a, &b}, program_(program), diff_(*diff) {
    for (int s = 0; s < 2; ++s) edit_of_[s].assign(side(s).node_count(), kNone);
    for (uint32_t e = 0; e < diff_.edits.size(); ++e) {
      if (diff_.edits[e].a != kNone) edit_of_[0][diff_.edits[e].a] = e;
      if (diff_.edits[e].b != kNone) edit_of_[1][diff_.edits[e].b] = e;
    }
  }

  void run() {
    chunks();
    merges();
    dead();
    passed_on(0);
    NodeCopies of_b(diff_, 1), of_a(diff_, 0);
    of_[0] = &of_a, of_[1] = &of_b;
    copies(1, of_b, ExplanationKind::recomputed);
    copies(0, of_a, ExplanationKind::deduplicated);
    passed_on(1);
    other_forms();
    follow_operands();
    follow_outputs();
    follow_links();
    tags();
  }

 private:
  const MatchSide& side(int s) const { return s == 0 ? diff_.side_a : diff_.side_b; }
  const Graph& graph(int s) const { return *side(s).graph; }
  bool is_free(int s, uint32_t n) const { return diff_.match.nodes[s][n] == kNone; }
  const Node& node(int s, uint32_t n) const { return graph(s).node(side(s).nodes[n]); }
  const NodeMeta& meta(int s, uint32_t n) const { return graph(s).meta(side(s).nodes[n]); }
  std::string_view module(int s, uint32_t n) const {
    StrId m = node(s, n).module;
    return m ? graph(s).pool().strings[m] : std::string_view();
  }
  const OpInfo* info(int s, uint32_t n) const { return graph(s).op_info(side(s).nodes[n]); }
  bool is_collective(int s, uint32_t n) const { return info(s, n) && info(s, n)->has(kCollective); }

  bool is_open(int s, uint32_t n) const {
    return edit_of_[s][n] != kNone && diff_.edits[edit_of_[s][n]].explanation == kNone;
  }
  bool take(int s, uint32_t n, uint32_t explanation) {
    if (!is_open(s, n)) return false;
    diff_.edits[edit_of_[s][n]].explanation = explanation;
    return true;
  }
  uint32_t next() const { return static_cast<uint32_t>(diff_.explanations.size()); }
  std::string blocks(int s, const std::vector<uint32_t>& nodes) const {
    std::vector<std::string_view> names;
    for (uint32_t n : nodes) names.push_back(module(s, n));
    return blocks_of(names);
  }

  // --- chunks: what the metadata says ---

  struct Region {
    std::map<int32_t, size_t> of_chunk;   // nodes of each chunk
    std::set<std::string> originals;
    std::vector<uint32_t> nodes;          // of B, boundary included
  };

  // Regions that A has too: what is new in them is something else, a copy by remat say.
  std::set<std::string> known_regions() const {
    std::set<std::string> out;
    for (uint32_t x = 0; x < side(0).node_count(); ++x)
      if (StrId region = meta(0, x).chunk.region) out.insert(graph(0).pool().strings.str(region));
    return out;
  }

  void chunks() {
    std::map<std::pair<std::string, int>, Region> regions;
    const Pool& pool = graph(1).pool();
    const std::set<std::string> known = known_regions();
    for (uint32_t y = 0; y < side(1).node_count(); ++y) {
      const ChunkInfo& c = meta(1, y).chunk;
      if (!c.region || !is_open(1, y) || known.contains(pool.strings.str(c.region))) continue;
      Region& region = regions[{pool.strings.str(c.region), c.is_backward}];
      region.nodes.push_back(y);
      if (c.index < 0) continue;
      ++region.of_chunk[c.index];
      if (c.original) region.originals.insert(pool.strings.str(c.original));
    }
    for (const auto& [name, region] : regions)
      if (region.of_chunk.size() > 1) chunk(name.first, name.second, region);
  }

  void chunk(const std::string& name, int backward, const Region& region) {
    size_t copies = 0, gone = 0;
    for (auto [index, count] : region.of_chunk) copies += count;
    uint32_t id = next();
    for (uint32_t y : region.nodes) take(1, y, id);
    for (const std::string& original : region.originals)
      if (NodeId n = graph(0).find_node(original)) gone += take(0, side(0).position_of[n.index], id);
    size_t originals = region.originals.size(), boundary = region.nodes.size() - copies;
    std::string part = backward == 1 ? " (backward)" : backward == 0 ? " (forward)" : "";
    std::string body = originals ? plural(originals, "node") + " became " + std::to_string(copies) : plural(copies, "node");
    diff_.explanations.push_back({ExplanationKind::chunked,
                                  "split into " + plural(region.of_chunk.size(), "chunk") + part + ": " + body +
                                      (boundary ? ", " + plural(boundary, "boundary node") : ""),
                                  name, originals, region.nodes.size(),
                                  {{"chunks", region.of_chunk.size()}, {"originals", originals}, {"copies", copies}, {"boundary", boundary}}});
  }

  // --- collectives merged into one ---

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
    while (!work.empty() && t->nodes.size() < kMaxWalk) {
      uint32_t n = work.back();
      work.pop_back();
      t->nodes.push_back(n);
      for (uint32_t v : side(s).operands(n)) {
        uint32_t m = side(s).maker[v];
        if (has_partner(s, v)) t->sources.insert(common_value(s, v));
        else if (m != kNone && is_free(s, m) && !is_collective(s, m) && seen.insert(m).second) work.push_back(m);
      }
    }
  }

  void walk_on(int s, Traffic* t) const {
    std::vector<uint32_t> work = {t->node};
    std::set<uint32_t> seen(t->nodes.begin(), t->nodes.end());
    size_t limit = t->nodes.size() + kMaxWalk;
    while (!work.empty() && t->nodes.size() < limit) {
      uint32_t n = work.back();
      work.pop_back();
      // Who writes into something made elsewhere is a use of it: the users of what it writes are users of the data.
      for (uint32_t v : touched(s, n)) {
        if (uint32_t m = side(s).maker[v]; m != n && seen.insert(m).second) t->nodes.push_back(m);
        for (const MatchUse& use : side(s).uses(v)) {
          if (use.is_output) t->users.insert(kOutput | (s == 0 ? use.user : diff_.match.outputs[1][use.user]));
          else if (!is_free(s, use.user)) t->users.insert(common_node(s, use.user));
          else if (!is_collective(s, use.user) && seen.insert(use.user).second) t->nodes.push_back(use.user), work.push_back(use.user);
        }
      }
    }
  }

  // Results, and for an op that writes, the values made by free nodes that its arguments are views of.
  std::vector<uint32_t> touched(int s, uint32_t n) const {
    std::vector<uint32_t> out;
    for (uint32_t v = side(s).first_result[n]; v < side(s).first_result[n + 1]; ++v) out.push_back(v);
    if (info(s, n) == nullptr || !info(s, n)->writes()) return out;
    for (uint32_t v : side(s).operands(n))
      for (int depth = 0; depth < 8 && side(s).maker[v] != kNone && is_free(s, side(s).maker[v]); ++depth) {
        uint32_t m = side(s).maker[v];
        out.push_back(v);
        if (!info(s, m) || !info(s, m)->has(kView) || side(s).operands(m).empty()) break;
        v = side(s).operands(m)[0];
      }
    return out;
  }

  std::vector<Traffic> traffic(int s) const {
    std::vector<Traffic> out;
    const Program& program = s == 0 ? *program_.a : *program_.b;
    size_t budget = kMaxWalk * 64;
    for (uint32_t n = 0; n < side(s).node_count() && budget > 0; ++n) {
      if (!is_free(s, n) || !is_collective(s, n) || !is_open(s, n)) continue;
      Communication c = communication_of(*jobs_[s], program, graph(s), side(s).nodes[n], [](StrId) { return std::nullopt; });
      Traffic t;
      t.node = n, t.kind = c.kind;
      const std::vector<Group>& groups = jobs_[s]->groups;
      if (c.group && c.group.index < groups.size())
        t.group = jobs_[s]->pool->strings.str(groups[c.group.index].axis) + ":" + std::to_string(groups[c.group.index].ordinal);
      walk_back(s, &t), walk_on(s, &t);
      budget -= std::min(budget, t.nodes.size());
      out.push_back(std::move(t));
    }
    return out;
  }

  static bool contains(const Values& all, const Values& part) { return std::includes(all.begin(), all.end(), part.begin(), part.end()); }

  void merges() {
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
        bool same_phase = node(1, t.node).phase == node(0, before[i].node).phase;
        std::tuple<bool, bool, size_t> rank = {!contains(t.users, before[i].users), !same_phase, t.sources.size()};
        if (best == kNone || rank < best_rank) best = j, best_rank = rank;
      }
      if (best != kNone) members[best].push_back(i);
    }
    for (size_t j = 0; j < after.size(); ++j)
      if (!members[j].empty()) merge(before, members[j], after[j]);
  }

  void merge(const std::vector<Traffic>& before, const std::vector<size_t>& members, const Traffic& after) {
    uint32_t id = next();
    std::vector<uint32_t> gone, made;
    Values users;
    for (size_t i : members) {
      for (uint32_t n : before[i].nodes)
        if (take(0, n, id)) gone.push_back(n);
      users.insert(before[i].users.begin(), before[i].users.end());
    }
    for (uint32_t n : after.nodes)
      if (take(1, n, id)) made.push_back(n);
    for (uint32_t x : users)
      if (x < side(0).node_count() && only_operands_changed(x)) take(0, x, id);
    for (ItemEdit& item : diff_.items)
      if (item.subject == "output" && item.kind == EditKind::changed && users.contains(kOutput | item.port) &&
          item.changes.size() == 1 && item.changes[0].aspect == Aspect::operand)
        item.explanation = id;
    bool is_backward = node(1, after.node).phase == Phase::backward || meta(1, after.node).collective.direction == BucketDirection::backward;
    std::string axis = after.group.substr(0, after.group.rfind(':'));
    std::string text = std::to_string(members.size()) + " " + after.kind + " on @" + axis +
                       (members.size() == 1 ? " remade in a bucket" : " merged into one") + (is_backward ? " (backward)" : " (forward)") + ": " +
                       plural(gone.size(), "node") + " became " + std::to_string(made.size());
    diff_.explanations.push_back({ExplanationKind::merged, std::move(text), blocks(0, gone), gone.size(), made.size(),
                                  {{"merged", members.size()}}});
  }

  bool only_operands_changed(uint32_t x) const {
    if (edit_of_[0][x] == kNone) return false;
    const NodeEdit& e = diff_.edits[edit_of_[0][x]];
    return e.kind() == EditKind::changed &&
           std::all_of(e.changes.begin(), e.changes.end(), [](const Change& c) { return c.aspect == Aspect::operand; });
  }

  // --- copies ---

  // s = 1: nodes of B that compute again what another node has; s = 0: nodes of A that did and are gone.
  void copies(int s, const NodeCopies& copies, ExplanationKind kind) {
    std::vector<uint32_t> nodes;
    std::set<uint32_t> originals;
    for (uint32_t n = 0; n < side(s).node_count(); ++n) {
      uint32_t root = is_open(s, n) ? copies.original(n) : kNone;
      if (root == kNone) continue;
      nodes.push_back(n), originals.insert(root);
    }
    if (nodes.empty()) return;
    (s == 1 ? recomputed_ : deduplicated_) = next();
    for (uint32_t n : nodes) take(s, n, next());
    std::string text = s == 1 ? plural(nodes.size(), "node") + " recompute " + plural(originals.size(), "node")
                              : plural(nodes.size(), "common subexpression") + " merged into " + plural(originals.size(), "node");
    size_t before = s == 1 ? originals.size() : nodes.size(), after = s == 1 ? nodes.size() : originals.size();
    diff_.explanations.push_back({kind, std::move(text), blocks(s, nodes), before, after,
                                  {{"copies", nodes.size()}, {"originals", originals.size()}}});
  }

  // --- nodes that only pass an argument on ---

  // "12 detach, 30 view": by number, most first.
  std::string op_counts(int s, const std::vector<uint32_t>& nodes) const {
    std::map<std::string, size_t> counts;
    for (uint32_t n : nodes) {
      std::string name(graph(s).op_name(side(s).nodes[n]));
      size_t begin = name.find('.') + 1;
      ++counts[name.substr(begin, name.find('.', begin) - begin)];
    }
    std::vector<std::pair<std::string, size_t>> list(counts.begin(), counts.end());
    std::stable_sort(list.begin(), list.end(), [](const auto& p, const auto& q) { return p.second > q.second; });
    std::string out;
    for (const auto& [name, count] : list) out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + name;
    return out;
  }

  void passed_on(int s) {
    std::vector<uint32_t> nodes;
    for (uint32_t n = 0; n < side(s).node_count(); ++n)
      if (is_free(s, n) && is_open(s, n) && passes_on(side(s), diff_.tensors[s], n)) nodes.push_back(n);
    if (nodes.empty()) return;
    passed_on_ = next();
    for (uint32_t n : nodes) take(s, n, next());
    std::string text = plural(nodes.size(), "node") + (s == 0 ? " gone that only passed their argument on" : " new that only pass their argument on");
    diff_.explanations.push_back({ExplanationKind::passed_on, text + " (" + op_counts(s, nodes) + ")", blocks(s, nodes), s == 0 ? nodes.size() : 0,
                                  s == 1 ? nodes.size() : 0, {{"nodes", nodes.size()}}});
  }

  // --- what follows from all these ---

  // Whether operand v of A is w of B but for copies, for nodes that pass on, and for writes that are results now; `cause` is the
  // explanation that says so, when there is one.
  bool same_operand(uint32_t v, uint32_t w, uint32_t* cause) const {
    uint32_t now = diff_.match.values[0][v], then = diff_.match.values[1][w];
    if (now == w) return true;
    auto told = [&](int s, uint32_t value) {
      uint32_t m = side(s).maker[value];
      return m == kNone || !is_free(s, m) || edit_of_[s][m] == kNone ? kNone : diff_.edits[edit_of_[s][m]].explanation;
    };
    *cause = told(1, w) != kNone ? told(1, w) : told(0, v);
    if (now != kNone && of_[1]->same(now, w)) {
      if (*cause == kNone) *cause = recomputed_;
      return true;
    }
    if (then != kNone && of_[0]->same(v, then)) {
      if (*cause == kNone) *cause = deduplicated_;
      return true;
    }
    if (passed_on_ != kNone && same_tensor(v, w)) {
      if (*cause == kNone) *cause = passed_on_;
      return true;
    }
    uint32_t writer = then == kNone ? kNone : side(0).maker[then];       // A reads what was written into v, B takes the result
    if (writer == kNone || !writes_.contains(writer) || !of_[0]->same(v, side(0).operands(writer)[0])) return false;
    *cause = diff_.edits[edit_of_[0][writer]].explanation;
    return *cause != kNone;
  }

  // Whether the first values that are the same tensors are partners.
  bool same_tensor(uint32_t v, uint32_t w) const {
    uint32_t p = diff_.match.values[1][diff_.tensors[1][w]], q = diff_.match.values[0][diff_.tensors[0][v]];
    return (p != kNone && diff_.tensors[0][p] == diff_.tensors[0][v]) || (q != kNone && diff_.tensors[1][q] == diff_.tensors[1][w]);
  }

  bool same_operands(uint32_t x, uint32_t* cause) const {
    std::span<const uint32_t> p = side(0).operands(x), q = side(1).operands(diff_.match.nodes[0][x]);
    bool same = p.size() == q.size();
    for (size_t i = 0; same && i < p.size(); ++i) {
      uint32_t why = kNone;
      same = same_operand(p[i], q[i], &why);
      if (why != kNone) *cause = why;
    }
    return same;
  }

  // Partners whose only change is that they take a copy instead of the original, what was passed on instead of what passed it
  // on, or the other way round.
  void follow_operands() {
    size_t relocated = 0;
    for (uint32_t x = 0; x < side(0).node_count(); ++x) {
      if (is_free(0, x) || !is_open(0, x)) continue;
      bool moves = was_put_off(x);
      if (!moves && !only_operands_changed(x)) continue;
      uint32_t cause = moves && !only_operands_changed(x) ? recomputed_ : kNone;
      if (!same_operands(x, &cause) || cause == kNone || !take(0, x, cause)) continue;
      if (moves) ++relocated;
      else ++diff_.explanations[cause].facts["followers"];
    }
    if (recomputed_ == kNone) return;
    diff_.explanations[recomputed_].facts["relocated"] = relocated;
    if (relocated) diff_.explanations[recomputed_].text += "; " + std::to_string(relocated) + " more, used only there, moved to the backward";
  }

  void follow_outputs() {
    for (ItemEdit& item : diff_.items) {
      if (item.subject != "output" || item.kind != EditKind::changed || item.explanation != kNone || item.changes.size() != 1 ||
          item.changes[0].aspect != Aspect::operand)
        continue;
      ValueId v = graph(0).outputs()[item.port].value, w = graph(1).outputs()[diff_.match.outputs[0][item.port]].value;
      uint32_t cause = kNone;
      if (v && w && same_operand(side(0).value_of[v.index], side(1).value_of[w.index], &cause)) item.explanation = cause;
    }
  }

  // A node of the forward that is computed in the backward now, and differs in nothing that this does not bring with it.
  bool was_put_off(uint32_t x) const {
    const NodeEdit& e = diff_.edits[edit_of_[0][x]];
    if (e.kind() != EditKind::changed || node(0, x).phase != Phase::forward || node(1, e.b).phase != Phase::backward) return false;
    return std::all_of(e.changes.begin(), e.changes.end(), [](const Change& c) {
      return c.aspect == Aspect::operand || c.aspect == Aspect::order || c.aspect == Aspect::name || c.aspect == Aspect::meta;
    });
  }

  // Partners that only lost the link to a forward node which an explanation took away (what the producer's number for the link
  // was then stays among the free keys).
  void follow_links() {
    for (NodeEdit& e : diff_.edits) {
      if (e.kind() != EditKind::changed || e.explanation != kNone) continue;
      bool only_links = std::all_of(e.changes.begin(), e.changes.end(),
                                    [](const Change& c) { return c.what == "of" || c.what == "extra"; });
      NodeId forward = node(0, e.a).forward;
      if (!only_links || !forward) continue;
      uint32_t f = side(0).position_of[forward.index];
      if (is_free(0, f) && edit_of_[0][f] != kNone) e.explanation = diff_.edits[edit_of_[0][f]].explanation;
    }
  }

  // --- dead code ---

  void dead() {
    std::vector<uint8_t> is_dead(side(0).node_count());
    std::vector<uint32_t> nodes;
    size_t asserts = 0;
    for (uint32_t x = static_cast<uint32_t>(is_dead.size()); x-- > 0;) {
      if (!is_free(0, x) || !is_open(0, x) || !info(0, x) || !(info(0, x)->has(kPure) || info(0, x)->has(kAssert))) continue;
      bool unused = true;
      for (uint32_t v = side(0).first_result[x]; v < side(0).first_result[x + 1]; ++v)
        for (const MatchUse& use : side(0).uses(v)) unused = unused && !use.is_output && (is_dead[use.user] || passes_on_another(use.user, v));
      if (unused) is_dead[x] = 1, nodes.push_back(x), asserts += info(0, x)->has(kAssert);
    }
    if (nodes.empty()) return;
    for (uint32_t x : nodes) take(0, x, next());
    std::string text = plural(nodes.size(), "dead node") + " gone";
    if (asserts) text += ", " + plural(asserts, "assertion") + " and what only they used among them";
    diff_.explanations.push_back({ExplanationKind::dead, std::move(text), blocks(0, nodes), nodes.size(), 0,
                                  {{"removed", nodes.size()}, {"assertions", asserts}}});
  }

  // A node that is gone and passed on another tensor than v: the transpose of v, a transpose itself.
  bool passes_on_another(uint32_t n, uint32_t v) const {
    return is_free(0, n) && passes_on(side(0), diff_.tensors[0], n) && diff_.tensors[0][side(0).first_result[n]] != diff_.tensors[0][v];
  }

  // --- in-place forms ---

  // "aten.add_.Tensor" -> "aten.add.Tensor"; empty when the op is no in-place form.
  static std::string functional_name(std::string_view op) {
    size_t dot = op.rfind('.');
    if (dot == std::string_view::npos || dot == 0 || op[dot - 1] != '_' || op.substr(0, dot).ends_with("__")) return {};
    return std::string(op.substr(0, dot - 1)) + std::string(op.substr(dot));
  }

  // Ops that are one op to who reads their result.
  static bool is_respelled(std::string_view before, std::string_view after) {
    static constexpr std::string_view kReshapes[] = {"aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.view",
                                                     "aten._unsafe_view", "aten.reshape"};
    auto is_reshape = [](std::string_view op) { return std::find(std::begin(kReshapes), std::end(kReshapes), op) != std::end(kReshapes); };
    return is_reshape(before) && is_reshape(after);
  }

  // Another op, and nothing else that is not explained by now.
  void other_forms() {
    std::vector<uint32_t> to_functional, to_in_place, respelled;
    for (const NodeEdit& e : diff_.edits) {
      if (e.kind() != EditKind::changed || e.explanation != kNone || e.changes[0].aspect != Aspect::op) continue;
      bool rest = std::all_of(e.changes.begin() + 1, e.changes.end(), [](const Change& c) { return c.aspect == Aspect::operand; });
      uint32_t cause = kNone;
      if (!rest || (e.changes.size() > 1 && !same_operands(e.a, &cause))) continue;
      if (functional_name(e.changes[0].before) == e.changes[0].after && !side(0).operands(e.a).empty()) to_functional.push_back(e.a);
      if (functional_name(e.changes[0].after) == e.changes[0].before) to_in_place.push_back(e.a);
      if (is_respelled(e.changes[0].before, e.changes[0].after)) respelled.push_back(e.a);
    }
    writes_.insert(to_functional.begin(), to_functional.end());
    form(to_functional, ExplanationKind::in_place, plural(to_functional.size(), "in-place write") + " made functional");
    form(to_in_place, ExplanationKind::in_place, plural(to_in_place.size(), "node") + (to_in_place.size() == 1 ? " now writes in place" : " now write in place"));
    form(respelled, ExplanationKind::respelled, plural(respelled.size(), "reshape") + " under another name (" + op_counts(0, respelled) + ")");
  }

  void form(const std::vector<uint32_t>& nodes, ExplanationKind kind, std::string text) {
    if (nodes.empty()) return;
    for (uint32_t x : nodes) take(0, x, next());
    diff_.explanations.push_back({kind, std::move(text), blocks(0, nodes), nodes.size(), nodes.size(), {{"nodes", nodes.size()}}});
  }

  // --- the same tag on many nodes ---

  void tags() {
    tags([](const Change& c) { return c.what + ": " + c.before + " -> " + c.after; });
    tags([](const Change& c) {                // "binds: - -> binds [u3]": each has its own
      if (c.before != "-" && c.after != "-") return c.what + ": other values";
      return c.what + (c.before == "-" ? ": - -> one of its own" : ": one of its own -> -");
    });
  }

  template <class Text>
  void tags(const Text& text_of) {
    constexpr size_t kMany = 4;
    std::map<std::string, std::vector<uint32_t>> by_change;
    std::vector<std::string> order;
    for (uint32_t e = 0; e < diff_.edits.size(); ++e) {
      const NodeEdit& edit = diff_.edits[e];
      bool is_tag = edit.explanation == kNone && edit.kind() == EditKind::changed &&
                    std::all_of(edit.changes.begin(), edit.changes.end(), [](const Change& c) { return c.aspect == Aspect::meta; });
      if (!is_tag) continue;
      std::string key;
      for (const Change& c : edit.changes)
        if (c.what != "of") key += (key.empty() ? "" : "; ") + text_of(c);
      if (key.empty()) continue;
      auto [at, is_new] = by_change.try_emplace(key);
      if (is_new) order.push_back(key);
      at->second.push_back(e);
    }
    for (const std::string& key : order) {
      const std::vector<uint32_t>& edits = by_change[key];
      if (edits.size() < kMany) continue;
      std::vector<uint32_t> nodes;
      for (uint32_t e : edits) nodes.push_back(diff_.edits[e].b), diff_.edits[e].explanation = next();
      diff_.explanations.push_back({ExplanationKind::tagged, plural(nodes.size(), "node") + ": " + key, blocks(1, nodes), nodes.size(),
                                    nodes.size(), {{"nodes", nodes.size()}}});
    }
  }

  static constexpr size_t kMaxWalk = 4096;
  static constexpr uint32_t kOutput = 0x80000000u;    // a user that is an output, not a node
  const Job* jobs_[2];
  const ProgramDiff& program_;
  GraphDiff& diff_;
  std::vector<uint32_t> edit_of_[2];
  const NodeCopies* of_[2] = {nullptr, nullptr};      // value numbers of both sides
  std::set<uint32_t> writes_;                         // nodes of A that wrote in place and do not in B
  uint32_t recomputed_ = kNone, deduplicated_ = kNone, passed_on_ = kNone;
};

}  // namespace

void explain_edits(const Job& a, const Job& b, const ProgramDiff& program, GraphDiff* diff) {
  Explainer(a, b, program, diff).run();
}

}  // namespace sg
