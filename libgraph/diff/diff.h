// What changed from one job to another: edits, what they add up to, and what they cost.
//
// Match     libgraph/diff/match.h, once per pair of graphs: never by names of values. Symbols correspond where the
//           types of partners do; groups by axis and ordinal; nested graphs by the nodes that take them; ranks by
//           number.
// Same      When `is_same()`: equal but for what is ignored, provenance, the order in which symbols and guards are
//           declared, and the order of operands of commutative ops.
// Owner     A JobDiff refers to both jobs, which must outlive it and stay as they are.
// Cost      Near-linear. Stats (diff_cost.h) are extra.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"
#include "libgraph/diff/match.h"
#include "libgraph/job.h"

namespace sg {

enum class Aspect : uint8_t { name, order, op, attribute, operand, type, meta, loc };
std::string_view aspect_name(Aspect aspect);

struct DiffOptions {
  bool ignore_name = false;   // names of values, nodes, symbols, nested graphs, and of groups on their ranks
  bool ignore_meta = false;   // phase, module, forward links and all of NodeMeta; titles, notes, free keys
  bool ignore_order = false;  // where nodes stand in the schedule, inputs in their list
  bool ignore_loc = false;    // source lines, of guards and symbols too
};
// "name,meta": fails (usage) with the nearest word.
Result<DiffOptions> parse_ignore(std::string_view list);

// One thing that is no longer what it was: "argument dim", "0", "1".
struct Difference {
  Aspect aspect = Aspect::attribute;
  std::string what, before, after;
  bool told = false;  // of a node: an explanation says it, but not all of what changed
  friend bool operator==(const Difference&, const Difference&) = default;
};

enum class EditKind : uint8_t { changed, added, removed };  // renamed and moved are changes of aspects name and order
std::string_view edit_name(EditKind kind);

struct NodeEdit {
  static constexpr uint32_t kNone = MatchSide::kNone;
  uint32_t a = kNone, b = kNone;  // positions; none = added, removed
  std::vector<Difference> changes;
  uint32_t explanation = kNone;  // index into GraphDiff::explanations: told there
  EditKind kind() const { return a == kNone ? EditKind::added : b == kNone ? EditKind::removed : EditKind::changed; }
};

// An edit of something that is no node.
struct ItemEdit {
  // "input", "output", "symbol", "guard", "nested graph", "group", "mesh", "world", "title", "note", "producer",
  // "extra", "rank", "ranks"
  std::string subject;
  std::string name;  // "%x", "u4", "@ep"; the line itself for what is added or removed
  EditKind kind = EditKind::changed;
  std::vector<Difference> changes;
  uint32_t port = MatchSide::kNone;  // which input or output of A (of B, when added)
  uint32_t explanation = MatchSide::kNone;
};

enum class ExplanationKind : uint8_t {
  recomputed,
  merged,
  chunked,
  deduplicated,
  dead,
  in_place,
  tagged,
  substituted,  // symbols on one side that are numbers on the other
  passed_on,    // nodes that only pass an argument on, gone or new
  respelled,    // ops that do the same under another name
  regrouped,    // collectives over another group
  offloaded,    // values that wait in the host's memory, or no longer
  module,       // modules that only one side has
  resized,      // sizes that follow from inputs and groups of other sizes
};
std::string_view explanation_name(ExplanationKind kind);

// Edits that are one thing.
struct Explanation {
  ExplanationKind kind = ExplanationKind::recomputed;
  std::string text;                     // "12 all_gather merged into one ..."
  std::string where;                    // modules, as a pattern; may be empty
  size_t before = 0, after = 0;         // nodes of A and of B that it is about; of `recomputed`: originals and copies
  std::map<std::string, size_t> facts;  // {"copies":47}; what the text says, for programs
};

struct GraphDiff {
  const Graph* a = nullptr;  // null = only the other job has this graph
  const Graph* b = nullptr;
  std::string name;  // of the nested graph; empty = the main one
  MatchSide side_a, side_b;
  GraphMatch match;
  // [side], by value number: the earliest value that is the same tensor (diff_same.h); empty when every node has a
  // partner.
  std::vector<uint32_t> tensors[2];
  std::vector<ItemEdit> items;  // inputs and outputs
  std::vector<NodeEdit> edits;  // in B's schedule; what is removed behind what it stood behind in A
  std::vector<Explanation> explanations;
  size_t same = 0;  // pairs without a change
};

struct ProgramDiff {
  std::vector<uint32_t> ranks;  // that this is about; empty = all
  const Program* a = nullptr;
  const Program* b = nullptr;
  std::vector<ItemEdit> items;    // symbols, guards, nested graphs; explanations are those of the main graph
  std::vector<GraphDiff> graphs;  // the main graph first
  bool is_same() const;
};

struct DiffCounts {
  size_t same = 0, changed = 0, renamed = 0, moved = 0, added = 0, removed = 0, items = 0, explained = 0;
};

struct JobDiff {
  const Job* a = nullptr;
  const Job* b = nullptr;
  std::vector<ItemEdit> items;  // world, groups, meshes, ranks, title
  std::vector<ProgramDiff> programs;
  bool is_same() const;
};

JobDiff diff_jobs(const Job& a, const Job& b, const DiffOptions& options = {});

DiffCounts count_edits(const GraphDiff& diff);
DiffCounts count_edits(const ProgramDiff& diff);

}  // namespace sg
