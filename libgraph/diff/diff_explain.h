// What the edits of a graph amount to, finder by finder; private to the diff.
//
// A finder puts an explanation over edits that nobody has explained: over whole edits (`take`), or over single changes
// of an edit (`tell`). An edit is explained when all its changes are told; it then counts under the first thing said
// about it that is no tag.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/diff/diff_copies.h"
#include "libgraph/op.h"

namespace sg {

class ExplainState {
 public:
  static constexpr uint32_t kNone = MatchSide::kNone;
  ExplainState(const Job& a, const Job& b, const ProgramDiff& program, GraphDiff* diff);

  GraphDiff& diff() { return diff_; }
  const GraphDiff& diff() const { return diff_; }
  const Job& job(int s) const { return *jobs_[s]; }
  const Program& program(int s) const { return s == 0 ? *program_.a : *program_.b; }
  const MatchSide& side(int s) const { return s == 0 ? diff_.side_a : diff_.side_b; }
  const Graph& graph(int s) const { return *side(s).graph; }
  uint32_t count(int s) const { return static_cast<uint32_t>(side(s).node_count()); }
  const Node& node(int s, uint32_t n) const { return graph(s).node(side(s).nodes[n]); }
  const NodeMeta& meta(int s, uint32_t n) const { return graph(s).meta(side(s).nodes[n]); }
  const OpInfo* info(int s, uint32_t n) const { return graph(s).op_info(side(s).nodes[n]); }
  bool has(int s, uint32_t n, Trait trait) const { return info(s, n) && info(s, n)->has(trait); }
  std::string_view module(int s, uint32_t n) const;
  std::string blocks(int s, const std::vector<uint32_t>& nodes) const;  // "layers.{0..2}, norm"
  std::string op_counts(int s,
                        const std::vector<uint32_t>& nodes) const;  // "12 detach, 30 view": by number, most first

  uint32_t partner(int s, uint32_t n) const { return diff_.match.nodes[s][n]; }
  bool is_free(int s, uint32_t n) const { return partner(s, n) == kNone; }  // has no partner
  bool passes_on(int s, uint32_t n) const;                                  // diff_same.h

  // The edit of a node; null = it has none.
  NodeEdit* edit(int s, uint32_t n) { return edit_of_[s][n] == kNone ? nullptr : &diff_.edits[edit_of_[s][n]]; }
  const NodeEdit* edit(int s, uint32_t n) const {
    return edit_of_[s][n] == kNone ? nullptr : &diff_.edits[edit_of_[s][n]];
  }
  bool is_open(int s, uint32_t n) const { return edit(s, n) && edit(s, n)->explanation == kNone; }
  // What explains a node without partner; kNone = nothing, or it has a partner.
  uint32_t cause(int s, uint32_t n) const { return !is_free(s, n) || !edit(s, n) ? kNone : edit(s, n)->explanation; }

  uint32_t next() const { return static_cast<uint32_t>(diff_.explanations.size()); }  // the number `add` gives out
  Explanation& add(ExplanationKind kind, std::string text, std::string where, size_t before, size_t after,
                   std::map<std::string, size_t> facts);
  bool take(int s, uint32_t n, uint32_t explanation);  // the whole edit; false when there is none, or it is explained

  // Changes of open edits between partners, x of A. `tell` returns how many it told.
  using ChangeTest = std::function<bool(const Difference&)>;
  size_t tell(uint32_t x, uint32_t explanation, const ChangeTest& test);
  bool has_untold(uint32_t x, const ChangeTest& test) const;
  std::vector<const Difference*> untold(uint32_t x) const;
  void settle();  // edits all of whose changes are told get their explanation

  // Found by one finder, needed by others; kNone = not found.
  uint32_t recomputed = kNone, deduplicated = kNone, passed_on = kNone, dead = kNone;
  const NodeCopies* of[2] = {nullptr, nullptr};  // value numbers of both sides
  std::set<uint32_t> made_functional;            // nodes of A that wrote in place and do not in B

  // Whether operand v of A is w of B but for copies, for nodes that pass on, and for writes that are results now;
  // `cause` is the explanation that says so, when there is one.
  bool same_operand(uint32_t v, uint32_t w, uint32_t* cause) const;
  bool same_operands(uint32_t x, uint32_t* cause) const;  // of x and its partner

  // Whether v of A and w of B are partners, or the first values that are the same tensors as they are.
  bool same_tensor(uint32_t v, uint32_t w) const;

 private:
  bool is_put_together(uint32_t v, uint32_t why) const;

  const Job* jobs_[2];
  const ProgramDiff& program_;
  GraphDiff& diff_;
  std::vector<uint32_t> edit_of_[2];
  std::vector<std::vector<uint32_t>> told_;  // by edit: by change; empty = nothing told yet
};

// Whether the types of x and of its partner differ in sizes and strides at most.
bool same_kind_of_types(const ExplainState& state, uint32_t x);

inline bool is_operand(const Difference& c) { return c.aspect == Aspect::operand; }

// By metadata. `users`: as for explain_merges, of what became calls of a body.
void explain_chunks(ExplainState* state, std::map<uint32_t, uint32_t>* users);
void explain_chunks_by_structure(ExplainState* state);
// Collectives merged into one. `users`: of A, who used what was merged, and the explanation; outputs from kMergedOutput
// on.
constexpr uint32_t kMergedOutput = 0x80000000u;
void explain_merges(ExplainState* state, std::map<uint32_t, uint32_t>* users);
void follow_merges(ExplainState* state,
                   const std::map<uint32_t, uint32_t>& users);  // once all nodes that went are explained
void explain_offloads(ExplainState* state);                     // values that wait in the host's memory, or no longer
void explain_modules(ExplainState* state);                      // modules that only one side has
void explain_dead(ExplainState* state);
void explain_passed_on(ExplainState* state, int s);
void explain_copies(ExplainState* state, int s);  // s = 1: recomputed, s = 0: deduplicated. REQUIRES: state->of
void explain_other_forms(ExplainState* state);    // in place or functional, reshapes under another name
void explain_views(ExplainState* state);          // views of one memory, taken in other steps
void explain_what_follows(ExplainState* state);   // operands, outputs, links and names that follow from all these
void explain_sizes(ExplainState* state);          // that follow from inputs and groups of other sizes
void explain_tags(ExplainState* state);

}  // namespace sg
