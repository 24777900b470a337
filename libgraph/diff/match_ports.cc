#include "libgraph/diff/match_ports.h"

#include <algorithm>

namespace sg {
namespace {

constexpr uint32_t kApart = 0x80000000u;  // marks a port without a partner: different from every port of the other side

// Matched ports get the number of A's port, others a number that is unique to their side.
uint32_t colour_of_port(int s, uint32_t port, uint32_t partner) {
  if (partner != MatchSide::kNone) return s == 0 ? port : partner;
  return kApart | static_cast<uint32_t>(s) << 30 | port;
}

void add_sorted(std::vector<uint64_t>* pairs, std::vector<uint32_t>* words) {
  std::sort(pairs->begin(), pairs->end());
  words->push_back(static_cast<uint32_t>(pairs->size()));
  for (uint64_t p : *pairs)
    words->push_back(static_cast<uint32_t>(p >> 32)), words->push_back(static_cast<uint32_t>(p));
  pairs->clear();
}

// The uses of a value, encoded as words.
void add_uses(const MatchState& state, int s, const std::vector<uint32_t>& classes, uint32_t value,
              std::vector<uint64_t>* pairs, std::vector<uint32_t>* words) {
  constexpr uint64_t kOutput = 0x7FFFFFFFu;
  const MatchSide& side = state.side(s);
  for (const MatchUse& use : side.uses(value)) {
    uint64_t who = use.is_output ? colour_of_port(s, use.user, state.output_partner(s, use.user)) : classes[use.user];
    bool any_slot = !use.is_output && side.commutative[use.user];
    pairs->push_back(who << 32 | (use.is_output ? kOutput : any_slot ? 0 : use.slot));
  }
  add_sorted(pairs, words);
}

// A type, without its symbols.
void add_type(const Pool& pool, TypeId type, MatchWords* texts, std::vector<uint32_t>* words) {
  const Type& t = pool.types[type];
  words->push_back(static_cast<uint32_t>(t.kind) << 16 | static_cast<uint32_t>(t.dtype));
  words->push_back(t.text ? texts->text(pool.strings[t.text]) : MatchSide::kNone);
  words->push_back(static_cast<uint32_t>(t.shape.size()));
  for (Expr e : t.shape) {
    std::optional<int64_t> n = pool.exprs.constant_value(e);
    words->push_back(n ? static_cast<uint32_t>(*n) : MatchSide::kNone),
        words->push_back(n ? static_cast<uint32_t>(*n >> 32) : 0);
  }
}

// Pairs unmatched ports of equal class, in order, if both sides have the same number of them.
template <class ClassOf, class IsFree, class Pair>
void pair_classes(const size_t (&count)[2], const ClassOf& class_of, const IsFree& is_free, const Pair& pair) {
  SequenceTable table;
  std::vector<std::vector<uint32_t>> members[2];
  std::vector<uint32_t> words;
  for (int s = 0; s < 2; ++s)
    for (uint32_t i = 0; i < count[s]; ++i) {
      words.clear();
      if (!is_free(s, i) || !class_of(s, i, &words)) continue;
      uint32_t c = table.intern(words);
      for (auto& list : members) list.resize(table.size());
      members[s][c].push_back(i);
    }
  for (size_t c = 0; c < table.size(); ++c)
    if (members[0][c].size() == members[1][c].size())
      for (size_t i = 0; i < members[0][c].size(); ++i) pair(members[0][c][i], members[1][c][i]);
}

// Pairs the remaining ports of equal class in order, as far as both sides have any.
template <class ClassOf, class IsFree, class Pair>
void pair_in_order(const size_t (&count)[2], const ClassOf& class_of, const IsFree& is_free, const Pair& pair) {
  SequenceTable table;
  std::vector<std::vector<uint32_t>> waiting;
  std::vector<uint32_t> words;
  for (uint32_t i = static_cast<uint32_t>(count[0]); i-- > 0;) {
    words.clear();
    if (!is_free(0, i) || !class_of(0, i, &words)) continue;
    uint32_t c = table.intern(words);
    waiting.resize(table.size());
    waiting[c].push_back(i);
  }
  for (uint32_t j = 0; j < count[1]; ++j) {
    words.clear();
    if (!is_free(1, j) || !class_of(1, j, &words)) continue;
    uint32_t c = table.find(words);
    if (c == MatchSide::kNone || waiting[c].empty()) continue;
    uint32_t i = waiting[c].back();
    waiting[c].pop_back();
    pair(i, j);
  }
}

// Pairs outputs between two matched neighbours in the list, if both sides have the same number there.
template <class MayPair>
void pair_between(const size_t (&count)[2], const MayPair& may_pair, MatchState* state) {
  uint32_t i = 0, j = 0;
  for (uint32_t end_i = 0; end_i <= count[0]; ++end_i) {
    uint32_t end_j = end_i < count[0] ? state->output_partner(0, end_i) : static_cast<uint32_t>(count[1]);
    if (end_j == MatchSide::kNone || end_j < j) continue;
    bool is_even = end_i - i == end_j - j;
    for (uint32_t k = i; k < end_i; ++k)
      is_even = is_even && state->output_partner(0, k) == MatchSide::kNone &&
                state->output_partner(1, j + k - i) == MatchSide::kNone;
    for (uint32_t k = i; is_even && k < end_i; ++k)
      if (may_pair(k, j + k - i)) state->pair_outputs(k, j + k - i);
    i = end_i + 1, j = end_j + 1;
  }
}

class PortMatcher {
 public:
  PortMatcher(MatchState* state, MatchWords* words) : state_(*state), texts_(*words) {}

  // From what is said of a port to where it stands. Outputs come twice: the inputs that gradients belong to are paired
  // in between.
  void run() {
    inputs_by_identity();
    outputs_by_meaning();
    inputs_by_use();
    inputs_by_type();
    inputs_by_kind();
    inputs_by_list();
    outputs_by_meaning();
  }

 private:
  void inputs_by_identity() {
    inputs(Pairing::whole_classes, [&](int s, uint32_t i, auto* words) { return add_identity(s, i, words); });
  }

  void outputs_by_meaning() {
    outputs([&](int s, uint32_t o, auto* words) { return add_output(s, o, words); });
  }

  void inputs_by_use() {
    std::array<std::vector<uint32_t>, 2> up = classes_up(state_);
    std::vector<uint64_t> pairs;
    inputs(Pairing::whole_classes, [&](int s, uint32_t i, auto* words) {
      words->push_back(static_cast<uint32_t>(input(s, i).kind));
      add_uses(state_, s, up[s], i, &pairs, words);
      return true;
    });
  }

  void inputs_by_type() {
    inputs(Pairing::in_order, [&](int s, uint32_t i, auto* words) {
      words->push_back(static_cast<uint32_t>(input(s, i).kind));
      add_type(state_.side(s).graph->pool(), state_.side(s).graph->value(input(s, i).value).type, &texts_, words);
      return true;
    });
  }

  // Of another type; not those whose names say that they are something else.
  void inputs_by_kind() {
    inputs(Pairing::in_order, [&](int s, uint32_t i, auto* words) {
      words->push_back(static_cast<uint32_t>(input(s, i).kind));
      return input(s, i).fqn.is_none() || input(s, i).kind == InputKind::user;
    });
  }

  const Input& input(int s, uint32_t i) const { return state_.side(s).graph->inputs()[i]; }

  uint32_t text(int s, StrId id) {
    return id ? texts_.text(state_.side(s).graph->pool().strings[id]) : MatchSide::kNone;
  }

  bool add_identity(int s, uint32_t i, std::vector<uint32_t>* words) {
    const Input& in = input(s, i);
    *words = {static_cast<uint32_t>(in.kind), text(s, in.fqn), text(s, in.of), text(s, in.attribute)};
    return in.fqn || in.of;
  }

  // If the lists agree up to the names and kinds of inputs (which a source may not know), the rest is paired by
  // position.
  void inputs_by_list() {
    size_t count = state_.side(0).input_count();
    if (count != state_.side(1).input_count()) return;
    const std::vector<uint32_t>* partner = state_.match().inputs;
    for (uint32_t i = 0; i < count; ++i)
      if (partner[0][i] != partner[1][i] || (partner[0][i] != MatchSide::kNone ? partner[0][i] != i : !alike(i)))
        return;
    for (uint32_t i = 0; i < count; ++i)
      if (partner[0][i] == MatchSide::kNone) state_.pair_inputs(i, i);
  }

  // Whether input i has the same type on both sides, up to symbols and the names of opaque types.
  bool alike(uint32_t i) {
    std::vector<uint32_t> words[2];
    for (int s = 0; s < 2; ++s) {
      const Graph& graph = *state_.side(s).graph;
      add_type(graph.pool(), graph.value(input(s, i).value).type, &texts_, &words[s]);
      if (graph.type(input(s, i).value).kind == TypeKind::opaque) words[s].resize(1);
    }
    return words[0] == words[1];
  }

  bool add_output(int s, uint32_t o, std::vector<uint32_t>* words) {
    const Output& out = state_.side(s).graph->outputs()[o];
    uint32_t of = MatchSide::kNone;
    if (out.of) {
      uint32_t v = state_.side(s).value_of[out.of.index], p = state_.value_partner(s, v);
      of = p == MatchSide::kNone ? kApart | static_cast<uint32_t>(s) << 30 | v : s == 0 ? v : p;
    }
    *words = {static_cast<uint32_t>(out.kind), of, text(s, out.of_name), text(s, out.attribute)};
    return true;
  }

  enum class Pairing : uint8_t { whole_classes, in_order };  // pair_classes, pair_in_order

  template <class ClassOf>
  void inputs(Pairing how, const ClassOf& class_of) {
    size_t count[2] = {state_.side(0).input_count(), state_.side(1).input_count()};
    auto is_free = [&](int s, uint32_t i) { return state_.match().inputs[s][i] == MatchSide::kNone; };
    auto pair = [&](uint32_t i, uint32_t j) { state_.pair_inputs(i, j); };
    if (how == Pairing::whole_classes) pair_classes(count, class_of, is_free, pair);
    else pair_in_order(count, class_of, is_free, pair);
  }

  template <class ClassOf>
  void outputs(const ClassOf& class_of) {
    size_t count[2] = {state_.match().outputs[0].size(), state_.match().outputs[1].size()};
    pair_classes(
        count, class_of, [&](int s, uint32_t o) { return state_.output_partner(s, o) == MatchSide::kNone; },
        [&](uint32_t i, uint32_t j) { state_.pair_outputs(i, j); });
  }

  MatchState& state_;
  MatchWords& texts_;
};

// Pairs outputs that have no partner yet.
class LeftOutputs {
 public:
  enum class Kinds : uint8_t { alike, any };

  explicit LeftOutputs(MatchState* state)
      : state_(*state), count_{state_.match().outputs[0].size(), state_.match().outputs[1].size()} {}

  // By the partners of their values.
  void pair_by_value(Kinds kinds) {
    pair([&](int s, uint32_t o, std::vector<uint32_t>* words) {
      if (!output(s, o).value) return false;
      uint32_t v = state_.side(s).value_of[output(s, o).value.index], p = state_.value_partner(s, v);
      *words = {kinds == Kinds::alike ? static_cast<uint32_t>(output(s, o).kind) : 0, s == 0 ? v : p};
      return p != MatchSide::kNone;
    });
  }

  // By position between matched outputs; only those that belong to no input.
  void pair_between_pairs() {
    pair_between(
        count_,
        [&](uint32_t i, uint32_t j) {
          return output(0, i).kind == output(1, j).kind && output(0, i).of.is_none() && output(1, j).of.is_none();
        },
        &state_);
  }

  // Outputs that belong to an input are left out.
  void pair_by_position() {
    pair([&](int s, uint32_t o, std::vector<uint32_t>* words) {
      *words = {static_cast<uint32_t>(output(s, o).kind)};
      return output(s, o).of.is_none() && !output(s, o).of_name;
    });
  }

 private:
  const Output& output(int s, uint32_t o) const { return state_.side(s).graph->outputs()[o]; }

  // Pairs outputs of equal class in order; `class_of` returns false for outputs without a class.
  template <class ClassOf>
  void pair(const ClassOf& class_of) {
    pair_in_order(
        count_, class_of, [&](int s, uint32_t o) { return state_.output_partner(s, o) == MatchSide::kNone; },
        [&](uint32_t i, uint32_t j) { state_.pair_outputs(i, j); });
  }

  MatchState& state_;
  size_t count_[2];
};

}  // namespace

std::array<std::vector<uint32_t>, 2> classes_up(const MatchState& state) {
  SequenceTable table;
  std::array<std::vector<uint32_t>, 2> out;
  std::vector<uint32_t> words;
  std::vector<uint64_t> pairs;
  for (int s = 0; s < 2; ++s) {
    const MatchSide& side = state.side(s);
    out[s].assign(side.node_count(), 0);
    for (uint32_t n = static_cast<uint32_t>(side.node_count()); n-- > 0;) {
      words = {side.key[n]};
      for (uint32_t v = side.first_result[n]; v < side.first_result[n + 1]; ++v)
        add_uses(state, s, out[s], v, &pairs, &words);
      out[s][n] = table.intern(words);
    }
  }
  return out;
}

std::array<std::vector<uint32_t>, 2> classes_down(const MatchState& state) {
  SequenceTable table;
  std::array<std::vector<uint32_t>, 2> out;
  std::vector<uint32_t> words;
  std::vector<uint64_t> operands;
  for (int s = 0; s < 2; ++s) {
    const MatchSide& side = state.side(s);
    out[s].assign(side.node_count(), 0);
    for (uint32_t n = 0; n < side.node_count(); ++n) {
      words = {side.key[n]};
      operands.clear();
      for (uint32_t v : side.operands(n)) {
        uint32_t m = side.maker[v];
        uint64_t which = m == MatchSide::kNone ? 0xFFFFFFFFu : v - side.first_result[m];
        operands.push_back(
            static_cast<uint64_t>(m == MatchSide::kNone ? colour_of_port(s, v, state.value_partner(s, v)) : out[s][m])
                << 32 |
            which);
      }
      if (side.commutative[n]) std::sort(operands.begin(), operands.end());
      for (uint64_t o : operands)
        words.push_back(static_cast<uint32_t>(o >> 32)), words.push_back(static_cast<uint32_t>(o));
      out[s][n] = table.intern(words);
    }
  }
  return out;
}

void match_ports(MatchState* state, MatchWords* words) { PortMatcher(state, words).run(); }

void match_outputs_by_values(MatchState* state) {
  LeftOutputs left(state);
  left.pair_by_value(LeftOutputs::Kinds::alike);
  // Kind and input may differ: the returned value decides.
  left.pair_by_value(LeftOutputs::Kinds::any);
  left.pair_between_pairs();
}

void match_outputs_by_position(MatchState* state) { LeftOutputs(state).pair_by_position(); }

}  // namespace sg
