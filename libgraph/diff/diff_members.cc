#include "libgraph/diff/diff_members.h"

#include <algorithm>

#include "libgraph/op.h"

namespace sg {
namespace {

class Members {
 public:
  explicit Members(GraphDiff* diff) : diff_(*diff), a_(diff->side_a), b_(diff->side_b) {}

  void run() {
    bool any = false;
    for (uint32_t x = 0; x < a_.node_count(); ++x) {
      uint32_t y = diff_.match.nodes[0][x];
      if (y == MatchSide::kNone || !is_collective(x) || !is_bucket_and_member(x, y)) continue;
      any = true;
      unpair_around(x, y);
    }
    if (any) diff_.match.moved = moved_nodes(diff_.match.nodes[0]);
  }

 private:
  bool is_collective(uint32_t x) const {
    const OpInfo* info = a_.graph->op_info(a_.nodes[x]);
    return info != nullptr && info->has(kCollective) && !a_.operands(x).empty();
  }

  static uint32_t source(const MatchSide& side, uint32_t n) {
    return side.operands(n).empty() ? MatchSide::kNone : side.maker[side.operands(n)[0]];
  }

  // Whether only one of them takes a packed buffer (or they pack different numbers of values), and their results differ
  // in size.
  bool is_bucket_and_member(uint32_t x, uint32_t y) const {
    auto packed = [](const MatchSide& side, uint32_t maker) {
      return maker == MatchSide::kNone ? 1 : std::max<size_t>(1, side.operands(maker).size());
    };
    return packed(a_, source(a_, x)) != packed(b_, source(b_, y)) && !same_sizes(x, y);
  }

  bool same_sizes(uint32_t x, uint32_t y) const {
    if (a_.result_count(x) != b_.result_count(y) || a_.result_count(x) == 0) return false;
    const Type &t = a_.graph->type(a_.graph->node(a_.nodes[x]).first_result),
               &u = b_.graph->type(b_.graph->node(b_.nodes[y]).first_result);
    auto size = [](const MatchSide& side, Expr e) { return side.graph->pool().exprs.constant_value(e); };
    return std::equal(t.shape.begin(), t.shape.end(), u.shape.begin(), u.shape.end(),
                      [&](Expr e, Expr f) { return size(a_, e) == size(b_, f); });
  }

  void unpair_around(uint32_t x, uint32_t y) {
    for (int s = 0; s < 2; ++s) {
      uint32_t from = s == 0 ? source(a_, x) : source(b_, y),
               other = from == MatchSide::kNone ? MatchSide::kNone : diff_.match.nodes[s][from];
      uint32_t p = s == 0 ? from : other, q = s == 0 ? other : from;
      if (other != MatchSide::kNone && a_.op[p] != b_.op[q]) unpair(p, q);
    }
    unpair(x, y);
    unpair_users(x, y);
  }

  // Unpairs the users too, as long as their sizes differ: they take apart different collectives.
  void unpair_users(uint32_t x, uint32_t y) {
    std::vector<std::pair<uint32_t, uint32_t>> work = {{x, y}};
    while (!work.empty()) {
      auto [m, n] = work.back();
      work.pop_back();
      for (uint32_t v = b_.first_result[n]; v < b_.first_result[n + 1]; ++v)
        for (const MatchUse& use : b_.uses(v)) {
          uint32_t user = use.is_output ? MatchSide::kNone : diff_.match.nodes[1][use.user];
          if (user == MatchSide::kNone || source(a_, user) != m || same_sizes(user, use.user)) continue;
          unpair(user, use.user);
          work.push_back({user, use.user});
        }
    }
  }

  void unpair(uint32_t x, uint32_t y) {
    diff_.match.nodes[0][x] = diff_.match.nodes[1][y] = MatchSide::kNone;
    for (uint32_t v = a_.first_result[x]; v < a_.first_result[x + 1]; ++v) diff_.match.values[0][v] = MatchSide::kNone;
    for (uint32_t w = b_.first_result[y]; w < b_.first_result[y + 1]; ++w) diff_.match.values[1][w] = MatchSide::kNone;
  }

  GraphDiff& diff_;
  const MatchSide &a_, &b_;
};

}  // namespace

void unpair_members(GraphDiff* diff) { Members(diff).run(); }

}  // namespace sg
