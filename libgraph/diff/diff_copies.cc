#include "libgraph/diff/diff_copies.h"

#include <algorithm>
#include <array>

#include "libgraph/op.h"

namespace sg {

bool goes_through_host(const MatchSide& side, uint32_t n) {
  constexpr std::string_view kMoves[] = {"sg.offload", "sg.reload", "ao.offload.default", "ao.reload.default"};
  auto moves = [&](uint32_t m) {
    return std::find(std::begin(kMoves), std::end(kMoves), side.graph->op_name(side.nodes[m])) != std::end(kMoves);
  };
  if (side.operands(n).empty()) return false;
  if (moves(n)) return true;
  const OpInfo* info = side.graph->op_info(side.nodes[n]);
  uint32_t m = side.maker[side.operands(n)[0]];
  return info != nullptr && info->has(kWait) && m != MatchSide::kNone && moves(m);
}

NodeCopies::NodeCopies(const GraphDiff& diff, int side)
    : side_(side == 0 ? diff.side_a : diff.side_b), original_(side_.node_count(), MatchSide::kNone) {
  auto is_free = [&](uint32_t n) { return diff.match.nodes[side][n] == MatchSide::kNone; };
  for (uint32_t v = 0; v < side_.input_count(); ++v)
    number_.push_back(results_.intern(std::array<uint32_t, 2>{MatchSide::kNone, v}));
  std::vector<uint32_t> numbers, first;  // by position; by number: the first node with a partner
  for (uint32_t n = 0; n < side_.node_count(); ++n) {
    uint32_t said = is_free(n) ? by_metadata(n) : MatchSide::kNone;
    bool is_said = said != MatchSide::kNone && side_.result_count(said) == side_.result_count(n);
    numbers.push_back(is_said ? numbers[said] : number(n));
    for (uint32_t r = 0; r < side_.result_count(n); ++r) {
      uint32_t v = static_cast<uint32_t>(number_.size()),
               tensor = diff.tensors[side].empty() ? v : diff.tensors[side][v];
      bool is_moved = r == 0 && is_free(n) && goes_through_host(side_, n);
      if (is_moved) tensor = side_.operands(n)[0];
      number_.push_back(tensor != v ? number_[tensor] : results_.intern(std::array<uint32_t, 2>{numbers[n], r}));
    }
    if (first.size() < nodes_.size()) first.resize(nodes_.size(), MatchSide::kNone);
    if (!is_free(n) && first[numbers[n]] == MatchSide::kNone) first[numbers[n]] = n;
  }
  for (uint32_t n = 0; n < side_.node_count(); ++n)
    if (is_free(n)) original_[n] = first[numbers[n]];
}

uint32_t NodeCopies::original_value(uint32_t v) const {
  uint32_t m = side_.maker[v], o = m == MatchSide::kNone ? MatchSide::kNone : original_[m];
  return o == MatchSide::kNone ? v : side_.first_result[o] + (v - side_.first_result[m]);
}

uint32_t NodeCopies::by_metadata(uint32_t n) const {
  const CopyOf& copy = side_.graph->meta(side_.nodes[n]).copy;
  if (copy.kind != CopyKind::remat || !copy.of) return MatchSide::kNone;
  NodeId of = side_.graph->find_node(side_.graph->pool().strings[copy.of]);
  return of && side_.position_of[of.index] < n ? side_.position_of[of.index] : MatchSide::kNone;
}

uint32_t NodeCopies::number(uint32_t n) {
  std::vector<uint32_t> words = {side_.key[n]};
  for (uint32_t v : side_.operands(n)) words.push_back(number_[v]);
  if (side_.commutative[n]) std::sort(words.begin() + 1, words.end());
  if (side_.operands(n).empty()) words.push_back(side_.place[n] / 4);
  if (side_.blank[n])  // what the key leaves out can be compared within one side
    for (const Arg& arg : side_.graph->node(side_.nodes[n]).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::expr)) words.push_back(a.as_expr().index);
        if (a.is(ArgKind::graph)) words.push_back(a.as_graph().index);
      });
  return nodes_.intern(words);
}

}  // namespace sg
