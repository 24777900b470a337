// MatchSide: one graph in numbers that mean the same in both graphs of a comparison.
//
// Nodes are their positions in the schedule; values are numbered, inputs first, then results in schedule order. `op`
// and `key` are equal on both sides exactly when the ops, or the ops with all their literals, are: MatchWords hands the
// numbers out and compares in full. Expressions with symbols and nested graphs are left blank in a key: what they
// correspond to is not known yet.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/base/flat_map.h"
#include "libgraph/job.h"

namespace sg {

// Sequences of numbers, each with a number of its own, in order of first appearance.
class SequenceTable {
 public:
  static constexpr uint32_t kNone = FlatIndex::kNone;
  uint32_t intern(std::span<const uint32_t> words);
  uint32_t find(std::span<const uint32_t> words) const;
  size_t size() const { return begin_.size() - 1; }

 private:
  bool equals(uint32_t id, std::span<const uint32_t> words) const;
  std::vector<uint32_t> words_;
  std::vector<size_t> begin_{0};
  FlatIndex index_;
};

// What both sides share. Texts must outlive it: they lie in the pools of the two jobs.
struct MatchWords {
  FlatTextMap<uint32_t> texts;
  SequenceTable keys;
  uint32_t text(std::string_view s) { return *texts.try_emplace(s, static_cast<uint32_t>(texts.size())).first; }
};

struct MatchUse {
  uint32_t user;  // position; or an output, when is_output
  uint32_t slot;  // place among the user's operands
  bool is_output = false;
};

struct MatchSide {
  static constexpr uint32_t kNone = 0xFFFFFFFFu;

  const Job* job = nullptr;
  const Program* program = nullptr;
  const Graph* graph = nullptr;

  std::vector<NodeId> nodes;            // by position
  std::vector<uint32_t> position_of;    // by NodeId
  std::vector<uint32_t> op, key;        // by position
  std::vector<uint32_t> place;          // by position: phase and module; breaks ties only
  std::vector<uint8_t> commutative;     // by position: the two operands may change places
  std::vector<uint8_t> blank;           // by position: the key leaves something out
  std::vector<uint32_t> first_result;   // by position, and one more: a value number
  std::vector<uint32_t> operand_begin;  // by position, and one more
  std::vector<uint32_t> operand_list;   // value numbers
  std::vector<uint32_t> value_of;       // by ValueId: value number
  std::vector<uint32_t> maker;          // by value number: a position; kNone = an input
  std::vector<uint32_t> use_begin;      // by value number, and one more
  std::vector<MatchUse> use_list;       // of each value: nodes in schedule order, then outputs

  size_t node_count() const { return nodes.size(); }
  size_t input_count() const { return graph->inputs().size(); }
  size_t value_count() const { return maker.size(); }
  std::span<const uint32_t> operands(uint32_t n) const {
    return {operand_list.data() + operand_begin[n], operand_begin[n + 1] - operand_begin[n]};
  }
  std::span<const MatchUse> uses(uint32_t value) const {
    return {use_list.data() + use_begin[value], use_begin[value + 1] - use_begin[value]};
  }
  uint32_t result_count(uint32_t n) const { return first_result[n + 1] - first_result[n]; }
};

// Symbols that are numbers on the other side. Sizes that follow from them are literals then, and so is every scalar
// whose number is known, whoever computes it: such a value is no operand.
using SymbolNumbers = std::unordered_map<StrId, int64_t, IdHash>;

// The number that an expression, or a scalar of this type, is under `numbers`; none = it is not known, or no scalar.
std::optional<int64_t> number_of(const Pool& pool, Expr e, const SymbolNumbers& numbers);
std::optional<int64_t> number_of(const Pool& pool, TypeId type, const SymbolNumbers& numbers);

// REQUIRES: a graph that the verifier has passed. `numbers`: null = every scalar is an operand.
MatchSide make_match_side(const Job& job, const Program& program, const Graph& graph, MatchWords* words,
                          const SymbolNumbers* numbers = nullptr);

}  // namespace sg
