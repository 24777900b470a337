#include "libgraph/diff/diff_same.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "libgraph/diff/diff_copies.h"
#include "libgraph/facts/alias.h"
#include "libgraph/op.h"

namespace sg {
namespace {

bool is_copying(std::string_view op) {
  static constexpr std::string_view kOps[] = {"aten.clone.default", "aten._to_copy.default", "aten.contiguous.default",
                                              "aten.lift_fresh_copy.default", "aten.reshape.default"};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

// One pass over the schedule. Keeps, per memory and type, the latest value that showed it.
class Finder {
 public:
  explicit Finder(const MatchSide& side)
      : side_(side),
        graph_(*side.graph),
        alias_(*side.program, graph_),
        hidden_(side.value_count()),
        written_(alias_.storages().size()) {
    for (NodeId n : side_.nodes)
      for (StorageId s : alias_.writes(n)) written_[s.index] = 1;
  }

  std::vector<uint32_t> run() {
    first_.resize(side_.value_count());
    for (uint32_t v = 0; v < side_.value_count(); ++v) first_[v] = v;
    for (uint32_t v = 0; v < side_.input_count(); ++v) note(v);
    for (uint32_t n = 0; n < side_.node_count(); ++n) visit(n);
    return std::move(first_);
  }

 private:
  ValueId id(uint32_t v) const {
    uint32_t m = side_.maker[v];
    return m == MatchSide::kNone ? graph_.inputs()[v].value
                                 : graph_.node(side_.nodes[m]).result(v - side_.first_result[m]);
  }
  TypeId type(uint32_t v) const { return graph_.value(id(v)).type; }
  static uint64_t key(StorageId s, TypeId t) { return static_cast<uint64_t>(s.index) << 32 | t.index; }
  bool is_tensor(uint32_t v) const { return graph_.type(id(v)).kind == TypeKind::tensor; }

  void note(uint32_t v) {
    StorageId s = alias_.storage_of(id(v));
    if (!s.is_none() && alias_.storage(s).certain && !hidden_[v] && is_tensor(v)) seen_[key(s, type(v))] = v;
  }

  void visit(uint32_t n) {
    std::span<const uint32_t> operands = side_.operands(n);
    const OpInfo* op = graph_.op_info(side_.nodes[n]);
    bool from_hidden = std::any_of(operands.begin(), operands.end(), [&](uint32_t v) { return hidden_[v]; });
    bool hidden = has_hidden_bits(graph_.op_name(side_.nodes[n])) || from_hidden;
    for (uint32_t v = side_.first_result[n]; v < side_.first_result[n + 1]; ++v)
      hidden_[v] = hidden && lies_in_an_operand(n, v);
    bool plain = op && op->has(kPure) && !op->has(kWait) && side_.result_count(n) == 1 && !operands.empty() &&
                 !hidden && is_tensor(side_.first_result[n]);
    if (plain && is_copying(op->name) && copies(n)) return;
    if (plain && (op->has(kView) || op->has(kMayAlias)) && views(n)) return;
    for (uint32_t v = side_.first_result[n]; v < side_.first_result[n + 1]; ++v) note(v);
  }

  // Only views have hidden (conjugate or negative) bits: a result computed or copied from them has none.
  bool lies_in_an_operand(uint32_t n, uint32_t v) const {
    std::span<const uint32_t> operands = side_.operands(n);
    return std::any_of(operands.begin(), operands.end(), [&](uint32_t w) { return alias_.may_alias(id(v), id(w)); });
  }

  bool views(uint32_t n) {
    uint32_t v = side_.first_result[n];
    StorageId s = alias_.storage_of(id(v));
    if (s.is_none() || !alias_.storage(s).certain) return false;
    auto at = seen_.find(key(s, type(v)));
    if (at == seen_.end()) return false;
    first_[v] = first_[at->second];
    return true;
  }

  bool copies(uint32_t n) {
    uint32_t v = side_.first_result[n], w = side_.operands(n)[0];
    StorageId to = alias_.storage_of(id(v)), from = alias_.storage_of(id(w));
    if (to.is_none() || from.is_none() || type(v) != type(w) || is_written(to) || is_written(from)) return false;
    first_[v] = first_[w];
    return true;
  }

  bool is_written(StorageId s) const {
    const Storage& storage = alias_.storage(s);
    if (storage.certain) return written_[s.index];
    std::span<const StorageId> members = alias_.class_members(storage.alias_class);
    return members.size() > 64 ||
           std::any_of(members.begin(), members.end(), [&](StorageId m) { return written_[m.index]; });
  }

  const MatchSide& side_;
  const Graph& graph_;
  AliasAnalysis alias_;
  std::vector<uint8_t> hidden_, written_;
  std::vector<uint32_t> first_;
  std::unordered_map<uint64_t, uint32_t> seen_;  // never iterated over
};

// A node's key and its operands in A's numbering, seen through pass-through nodes, and through copies if given. Empty
// if an operand has no partner, and for pass-through nodes and copies.
std::vector<uint32_t> signature(const GraphDiff& diff, int s, uint32_t n, const NodeCopies* copies) {
  const MatchSide& side = s == 0 ? diff.side_a : diff.side_b;
  std::vector<uint32_t> out = {side.key[n]};
  if (passes_on(side, diff.tensors[s], n) || (copies && copies->original(n) != MatchSide::kNone)) return {};
  for (uint32_t v : side.operands(n)) {
    uint32_t first = diff.tensors[s][v], partner = diff.match.values[s][first];
    if (copies && partner == MatchSide::kNone)
      first = diff.tensors[s][copies->original_value(first)], partner = diff.match.values[s][first];
    if (partner == MatchSide::kNone) return {};
    out.push_back(s == 0 ? first : diff.tensors[0][partner]);
  }
  if (out.size() == 1) return {};
  if (side.commutative[n]) std::sort(out.begin() + 1, out.end());
  return out;
}

// The memory that n is a view of, in A's numbering, and the view's type without its symbols; empty if n is no view.
std::vector<uint32_t> view_signature(const GraphDiff& diff, int s, uint32_t n) {
  const MatchSide& side = s == 0 ? diff.side_a : diff.side_b;
  if (side.result_count(n) != 1 || passes_on(side, diff.tensors[s], n)) return {};
  uint32_t root = view_root(side, n), first = root == MatchSide::kNone ? MatchSide::kNone : diff.tensors[s][root];
  uint32_t partner = first == MatchSide::kNone ? MatchSide::kNone : diff.match.values[s][first];
  if (partner == MatchSide::kNone) return {};
  const Type& t = side.graph->type(side.graph->node(side.nodes[n]).first_result);
  std::vector<uint32_t> out = {s == 0 ? first : diff.tensors[0][partner], static_cast<uint32_t>(t.dtype),
                               static_cast<uint32_t>(t.shape.size())};
  auto add = [&](Expr e) {
    std::optional<int64_t> number = e.is_none() ? 0 : side.graph->pool().exprs.constant_value(e);
    out.push_back(number ? static_cast<uint32_t>(*number) : MatchSide::kNone),
        out.push_back(number ? static_cast<uint32_t>(*number >> 32) : 0);
  };
  for (Expr e : t.shape) add(e);
  for (Expr e : t.stride) add(e);
  add(t.offset);
  return out;
}

// The users of n's results, seen through unmatched nodes that only pass them on; a bounded number, the nearest first.
std::vector<MatchUse> real_uses(const GraphDiff& diff, int s, uint32_t n) {
  constexpr size_t kMaxUses = 16, kMaxLooked = 64;
  const MatchSide& side = s == 0 ? diff.side_a : diff.side_b;
  std::vector<MatchUse> out;
  std::vector<uint32_t> work = {n};
  for (size_t i = 0, looked = 0; i < work.size(); ++i)
    for (uint32_t v = side.first_result[work[i]]; v < side.first_result[work[i] + 1]; ++v)
      for (const MatchUse& use : side.uses(v)) {
        if (out.size() >= kMaxUses || ++looked > kMaxLooked) return out;
        bool passes = !use.is_output && diff.match.nodes[s][use.user] == MatchSide::kNone &&
                      passes_on(side, diff.tensors[s], use.user);
        if (passes) work.push_back(use.user);
        else out.push_back(use);
      }
  return out;
}

// Whether a user of x is the partner of a user of y.
bool share_user(const GraphDiff& diff, const std::vector<MatchUse>& of_x, const std::vector<MatchUse>& of_y) {
  for (const MatchUse& use : of_y)
    for (const MatchUse& other : of_x) {
      const std::vector<uint32_t>& partner = use.is_output ? diff.match.outputs[1] : diff.match.nodes[1];
      if (use.is_output == other.is_output && partner[use.user] == other.user) return true;
    }
  return false;
}

void unmake_pair(uint32_t x, uint32_t y, GraphDiff* diff) {
  GraphMatch& match = diff->match;
  match.nodes[0][x] = match.nodes[1][y] = MatchSide::kNone;
  for (uint32_t v = diff->side_a.first_result[x]; v < diff->side_a.first_result[x + 1]; ++v)
    match.values[0][v] = MatchSide::kNone;
  for (uint32_t w = diff->side_b.first_result[y]; w < diff->side_b.first_result[y + 1]; ++w)
    match.values[1][w] = MatchSide::kNone;
}

void make_pair(uint32_t x, uint32_t y, GraphDiff* diff) {
  GraphMatch& match = diff->match;
  match.nodes[0][x] = y, match.nodes[1][y] = x;
  for (uint32_t r = 0; r < std::min(diff->side_a.result_count(x), diff->side_b.result_count(y)); ++r) {
    uint32_t v = diff->side_a.first_result[x] + r, w = diff->side_b.first_result[y] + r;
    match.values[0][v] = w, match.values[1][w] = v;
  }
}

size_t shared_operands(const GraphDiff& diff, uint32_t x, uint32_t y) {
  std::span<const uint32_t> p = diff.side_a.operands(x), q = diff.side_b.operands(y);
  size_t shared = 0;
  for (size_t i = 0; i < std::min(p.size(), q.size()); ++i) shared += diff.match.values[0][p[i]] == q[i];
  return shared;
}

// A pass-through node may have been paired, because of its users, in place of the node whose result it passes on. The
// pair then moves to that node, and the pass-through node counts as removed or added.
void prefer_first(GraphDiff* diff) {
  for (uint32_t x = 0; x < diff->side_a.node_count(); ++x) {
    uint32_t y = diff->match.nodes[0][x];
    if (y == MatchSide::kNone) continue;
    bool in_a = passes_on(diff->side_a, diff->tensors[0], x), in_b = passes_on(diff->side_b, diff->tensors[1], y);
    if (in_a == in_b) continue;
    const MatchSide& side = in_a ? diff->side_a : diff->side_b;
    int s = in_a ? 0 : 1;
    uint32_t first = side.maker[diff->tensors[s][side.first_result[in_a ? x : y]]];
    if (first == MatchSide::kNone || diff->match.nodes[s][first] != MatchSide::kNone) continue;
    uint32_t p = in_a ? first : x, q = in_a ? y : first;
    if (diff->side_a.key[p] != diff->side_b.key[q] ||
        shared_operands(*diff, p, q) < std::max<size_t>(1, shared_operands(*diff, x, y)))
      continue;
    unmake_pair(x, y, diff);
    make_pair(p, q, diff);
  }
}

// Unpairs a node that returns its operand's tensor from one that does not, if they share no operand.
void unpair_passing(GraphDiff* diff) {
  auto is_operand = [&](int s, uint32_t n) {
    const MatchSide& side = s == 0 ? diff->side_a : diff->side_b;
    const std::vector<uint32_t>& first = diff->tensors[s];
    return !side.operands(n).empty() && side.result_count(n) == 1 &&
           first[side.first_result[n]] == first[side.operands(n)[0]];
  };
  for (uint32_t x = 0; x < diff->side_a.node_count(); ++x) {
    uint32_t y = diff->match.nodes[0][x];
    if (y == MatchSide::kNone || is_operand(0, x) == is_operand(1, y)) continue;
    if (shared_operands(*diff, x, y) == 0) unmake_pair(x, y, diff);
  }
}

// Pairs unmatched nodes of equal signature. Of several candidates the first is taken, unless a common user singles one
// out.
template <class SignatureOf>
bool pair_alike(GraphDiff* diff, const SignatureOf& signature_of) {
  SequenceTable table;
  std::vector<std::vector<uint32_t>> waiting;
  bool found = false;
  for (uint32_t x = static_cast<uint32_t>(diff->side_a.node_count()); x-- > 0;) {
    if (diff->match.nodes[0][x] != MatchSide::kNone) continue;
    std::vector<uint32_t> words = signature_of(0, x);
    if (words.empty()) continue;
    uint32_t c = table.intern(words);
    waiting.resize(table.size());
    waiting[c].push_back(x);
  }
  for (uint32_t y = 0; y < diff->side_b.node_count(); ++y) {
    if (diff->match.nodes[1][y] != MatchSide::kNone) continue;
    std::vector<uint32_t> words = signature_of(1, y);
    uint32_t c = words.empty() ? MatchSide::kNone : table.find(words);
    if (c == MatchSide::kNone || waiting[c].empty()) continue;
    std::vector<uint32_t>& list = waiting[c];
    size_t begin = list.size() - std::min<size_t>(list.size(), 16), chosen = list.size() - 1;
    std::vector<MatchUse> uses = list.size() > 1 ? real_uses(*diff, 1, y) : std::vector<MatchUse>();
    for (size_t i = list.size(); !uses.empty() && i-- > begin;)
      if (share_user(*diff, real_uses(*diff, 0, list[i]), uses)) {
        chosen = i;
        break;
      }
    make_pair(list[chosen], y, diff);
    list.erase(list.begin() + static_cast<ptrdiff_t>(chosen));
    found = true;
  }
  return found;
}

}  // namespace

std::vector<uint32_t> same_tensors(const MatchSide& side) { return Finder(side).run(); }

uint32_t view_root(const MatchSide& side, uint32_t n) {
  auto is_view = [&](uint32_t m) {
    const OpInfo* op = side.graph->op_info(side.nodes[m]);
    return op != nullptr && op->has(kPure) && op->has(kView) && !op->has(kWait) && !side.operands(m).empty() &&
           !has_hidden_bits(side.graph->op_name(side.nodes[m]));
  };
  if (!is_view(n)) return MatchSide::kNone;
  uint32_t v = side.operands(n)[0];
  while (side.maker[v] != MatchSide::kNone && is_view(side.maker[v])) v = side.operands(side.maker[v])[0];
  bool hidden = side.maker[v] != MatchSide::kNone && has_hidden_bits(side.graph->op_name(side.nodes[side.maker[v]]));
  return hidden ? MatchSide::kNone : v;
}

void pair_through(GraphDiff* diff) {
  constexpr int kMaxRounds = 8;  // a chain of such nodes needs one round per link
  bool found = true;
  for (int round = 0; round < kMaxRounds && found; ++round) {
    prefer_first(diff);
    found = pair_alike(diff, [&](int s, uint32_t n) { return signature(*diff, s, n, nullptr); }) ||
            pair_alike(diff, [&](int s, uint32_t n) { return view_signature(*diff, s, n); });
    if (found) continue;
    NodeCopies copies[] = {NodeCopies(*diff, 0), NodeCopies(*diff, 1)};
    found = pair_alike(diff, [&](int s, uint32_t n) { return signature(*diff, s, n, &copies[s]); });
  }
  unpair_passing(diff);
  diff->match.moved = moved_nodes(diff->match.nodes[0]);
}

}  // namespace sg
