// Chunks without metadata: after a new split, nodes that do to each piece what one node did to the whole.
//
// Pieces    The results of a new split are pieces 0, 1, ... of one value. A node that takes piece i, or what was made
//           of it, and no other piece, belongs to chunk i. Nodes that take several pieces join them.
// Alike     Nodes of different chunks are copies of one node if they have the same op, literals that differ only in
//           sizes, and operands that are alike: the k-th of chunk 0, the k-th of chunk 1, and so on.
// Regions   Nodes of one phase that pass pieces to each other.
#include <algorithm>
#include <array>

#include "libgraph/base/disjoint_sets.h"
#include "libgraph/base/human.h"
#include "libgraph/diff/diff_explain.h"
#include "libgraph/modules/module_path.h"

namespace sg {
namespace {

bool is_split(std::string_view op) {
  static constexpr std::string_view kOps[] = {"aten.split.Tensor",          "aten.split_with_sizes.default",
                                              "aten.chunk.default",         "aten.unbind.int",
                                              "aten.tensor_split.sections", "aten.split.sizes"};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

// The literals without numbers in lists, which are sizes.
void add_loosely(const Pool& pool, const Arg& arg, bool in_list, MatchWords* texts, std::vector<uint32_t>* words) {
  bool is_size = arg.is(ArgKind::expr) || (in_list && arg.is(ArgKind::integer)) || arg.is(ArgKind::value);
  words->push_back(is_size ? MatchSide::kNone : static_cast<uint32_t>(arg.kind()));
  if (arg.is(ArgKind::boolean) || arg.is(ArgKind::integer)) {
    if (!is_size)
      words->push_back(static_cast<uint32_t>(arg.as_int())),
          words->push_back(static_cast<uint32_t>(arg.as_int() >> 32));
  } else if (arg.is(ArgKind::dtype)) {
    words->push_back(static_cast<uint32_t>(arg.as_dtype()));
  } else if (arg.is_text()) {
    words->push_back(texts->text(pool.strings[arg.as_text()]));
  }
  if (arg.has_items())
    for (const Arg& item : arg.items()) add_loosely(pool, item, true, texts, words);
}

class Splits {
 public:
  explicit Splits(ExplainState* state) : state_(*state), b_(state->side(1)) {}

  void run() {
    if (!any_split()) return;
    spread();
    take_in();
    pair_up();
    if (copies_.empty()) return;
    gather();
    tell();
  }

 private:
  struct Copies {                          // the copies of one node of A
    std::vector<uint32_t> nodes;           // of B, one per chunk
    uint32_t original = MatchSide::kNone;  // of A; kNone = A has no such node
  };

  bool is_new(uint32_t y) const { return state_.is_free(1, y) && state_.is_open(1, y); }
  bool is_new_split(uint32_t y) const {
    bool splits = is_new(y) && b_.result_count(y) > 1 && is_split(state_.graph(1).op_name(b_.nodes[y]));
    return splits && state_.of[1]->original(y) == MatchSide::kNone;  // not a recomputed split
  }
  bool any_split() const {
    for (uint32_t y = 0; y < state_.count(1); ++y)
      if (is_new_split(y)) return true;
    return false;
  }

  // --- chunks: which node belongs to which, and which nodes are alike ---

  void spread() {
    chunk_of_value_.assign(b_.value_count(), MatchSide::kNone), chunk_.assign(state_.count(1), MatchSide::kNone),
        like_.assign(b_.value_count(), 0);
    home_.assign(b_.value_count(), MatchSide::kNone), class_.assign(state_.count(1), 0),
        joined_ = DisjointSets<uint32_t>(state_.count(1));
    is_join_.assign(state_.count(1), 0), is_split_.assign(state_.count(1), 0),
        is_own_memory_.assign(b_.value_count(), 0);
    for (uint32_t v = 0; v < b_.input_count(); ++v)
      like_[v] = classes_.intern(std::array<uint32_t, 2>{MatchSide::kNone, v});
    for (uint32_t y = 0; y < state_.count(1); ++y) visit(y);
  }

  void visit(uint32_t y) {
    join_operands(y);
    bool split = chunk_[y] == MatchSide::kNone && !is_join_[y] && is_new_split(y);
    is_split_[y] = split;
    class_[y] = classify(y, split);
    bool in_place = state_.info(1, y) && state_.info(1, y)->writes() && !b_.operands(y).empty();
    uint32_t written = in_place ? b_.operands(y)[0] : MatchSide::kNone;
    bool shared =
        in_place && !is_own_memory_[written];  // a buffer: each chunk's write builds on that of the previous chunk
    for (uint32_t v = b_.first_result[y]; v < b_.first_result[y + 1]; ++v) {
      uint32_t r = split ? 0 : v - b_.first_result[y];
      like_[v] =
          in_place ? like_[written] : classes_.intern(std::array<uint32_t, 3>{class_[y], r, MatchSide::kNone - 1});
      chunk_of_value_[v] = split ? v - b_.first_result[y] : shared ? MatchSide::kNone : chunk_[y];
      home_[v] = chunk_of_value_[v] == MatchSide::kNone ? MatchSide::kNone : y;
      is_own_memory_[v] = in_place ? is_own_memory_[written] : 1;
    }
  }

  // Assigns y's chunk if it takes pieces of only one, and joins the regions of their makers.
  void join_operands(uint32_t y) {
    for (uint32_t v : b_.operands(y)) {
      uint32_t c = chunk_of_value_[v];
      if (c == MatchSide::kNone) continue;
      if (chunk_[y] == MatchSide::kNone) chunk_[y] = c;
      is_join_[y] |= chunk_[y] != c;
    }
    if (is_join_[y]) chunk_[y] = MatchSide::kNone;
    if (chunk_[y] == MatchSide::kNone) return;
    for (uint32_t v : b_.operands(y))
      if (home_[v] != MatchSide::kNone) joined_.join(y, home_[v]);
  }

  uint32_t classify(uint32_t y, bool split) {
    const Node& node = state_.node(1, y);
    words_ = {b_.op[y], split};
    for (const Arg& arg : node.args) add_loosely(state_.graph(1).pool(), arg, false, &texts_, &words_);
    words_.push_back(MatchSide::kNone);
    for (uint32_t v : b_.operands(y)) words_.push_back(like_[v]);
    return classes_.intern(words_);
  }

  // Nodes that take no piece but are used by one chunk only, such as zeros to be filled.
  void take_in() {
    for (uint32_t y = state_.count(1); y-- > 0;) {
      if (chunk_[y] != MatchSide::kNone || is_join_[y] || is_split_[y]) continue;
      uint32_t chunk = MatchSide::kNone, user = MatchSide::kNone;
      bool one = true;
      for (uint32_t v = b_.first_result[y]; v < b_.first_result[y + 1]; ++v)
        for (const MatchUse& use : b_.uses(v)) {
          one = one && !use.is_output && chunk_[use.user] != MatchSide::kNone &&
                (chunk == MatchSide::kNone || chunk == chunk_[use.user]);
          if (one) chunk = chunk_[use.user], user = use.user;
        }
      if (one && chunk != MatchSide::kNone) candidates_.push_back({y, chunk, user});
    }
    // Only if several chunks have such a node: being used by a single chunk is no sign of chunking.
    std::map<uint32_t, std::set<uint32_t>> chunks;
    for (const auto& [y, chunk, user] : candidates_) chunks[class_[y]].insert(chunk);
    for (const auto& [y, chunk, user] : candidates_)
      if (chunks[class_[y]].size() > 1) chunk_[y] = chunk, joined_.join(y, user);
  }

  // --- copies ---

  void pair_up() {
    // nodes by region and class, then by chunk
    std::map<std::pair<uint32_t, uint32_t>, std::map<uint32_t, std::vector<uint32_t>>> by_class;
    for (uint32_t y = 0; y < state_.count(1); ++y)
      if (chunk_[y] != MatchSide::kNone) by_class[{joined_.first_of(y), class_[y]}][chunk_[y]].push_back(y);
    for (auto& [key, chunks] : by_class) {
      if (chunks.size() < 2) continue;
      size_t count = chunks.begin()->second.size(), most = count;
      for (const auto& [chunk, nodes] : chunks)
        count = std::min(count, nodes.size()), most = std::max(most, nodes.size());
      if (most > count)  // unused nodes go last and are left over
        for (auto& [chunk, nodes] : chunks)
          std::stable_partition(nodes.begin(), nodes.end(), [&](uint32_t y) { return is_used(y); });
      for (size_t k = 0; k < count; ++k) add_copies(chunks, k);
    }
    std::sort(copies_.begin(), copies_.end(), [](const Copies& p, const Copies& q) { return p.nodes[0] < q.nodes[0]; });
  }

  bool is_used(uint32_t y) const { return b_.use_begin[b_.first_result[y]] != b_.use_begin[b_.first_result[y + 1]]; }

  void add_copies(const std::map<uint32_t, std::vector<uint32_t>>& chunks, size_t k) {
    Copies copies;
    size_t partners = 0;
    for (const auto& [chunk, nodes] : chunks) {
      copies.nodes.push_back(nodes[k]);
      if (uint32_t x = state_.partner(1, nodes[k]); x != MatchSide::kNone) copies.original = x, ++partners;
    }
    if (partners <= 1) copies_.push_back(std::move(copies));  // with several partners, A has several nodes too
  }

  // --- regions ---

  struct Region {
    size_t chunks = 0, originals = 0, copies = 0;
    std::vector<uint32_t> body, boundary, modules_of;  // of B
  };

  std::pair<uint32_t, Phase> region_of(uint32_t y) { return {joined_.first_of(y), state_.node(1, y).phase}; }

  void gather() {
    is_body_.assign(state_.count(1), 0);
    for (const Copies& c : copies_) {
      Region& region = regions_[region_of(c.nodes[0])];
      region.chunks = std::max(region.chunks, c.nodes.size());
      region.originals += c.original != MatchSide::kNone,
          region.copies += c.original != MatchSide::kNone ? c.nodes.size() : 0;
      for (uint32_t y : c.nodes) {
        is_body_[y] = 1;
        (c.original != MatchSide::kNone ? region.body : region.boundary).push_back(y);
        if (c.original != MatchSide::kNone) region.modules_of.push_back(y);
      }
    }
    for (uint32_t y = state_.count(1); y-- > 0;)
      if (is_new(y) && !is_body_[y] && chunk_[y] == MatchSide::kNone) add_boundary(y);
  }

  // New nodes that split, that join, or that only such nodes use (sizes of the pieces).
  void add_boundary(uint32_t y) {
    uint32_t beside = MatchSide::kNone;
    if (is_join_[y]) {
      for (uint32_t v : b_.operands(y))
        if (home_[v] != MatchSide::kNone) beside = home_[v];
    } else {
      bool only_there = true;
      for (uint32_t v = b_.first_result[y]; v < b_.first_result[y + 1]; ++v)
        for (const MatchUse& use : b_.uses(v)) {
          only_there = only_there && !use.is_output && (is_body_[use.user] || is_boundary_.contains(use.user));
          if (only_there && beside == MatchSide::kNone) beside = is_body_[use.user] ? use.user : is_boundary_[use.user];
        }
      if (!only_there) return;
    }
    if (beside == MatchSide::kNone) return;
    auto at = regions_.find({joined_.first_of(beside), state_.node(1, y).phase});
    if (at == regions_.end()) at = regions_.find(region_of(beside));
    if (at == regions_.end()) return;
    is_boundary_[y] = beside;
    at->second.boundary.push_back(y);
  }

  // --- reporting ---

  // Whether the node's changes are only those that chunking entails.
  bool only_cut(uint32_t x) const {
    const NodeEdit* edit = state_.edit(0, x);
    if (edit == nullptr) return true;
    for (const Difference& c : edit->changes) {
      if (c.aspect == Aspect::op) return false;
      if (c.aspect == Aspect::attribute && !same_literals(x)) return false;
      if (c.aspect == Aspect::type && !same_kind_of_types(state_, x)) return false;
    }
    return true;
  }

  bool same_literals(uint32_t x) const {
    MatchWords texts;
    std::vector<uint32_t> words[2];
    for (int s = 0; s < 2; ++s)
      for (const Arg& arg : state_.node(s, s == 0 ? x : state_.partner(0, x)).args)
        add_loosely(state_.graph(s).pool(), arg, false, &texts, &words[s]);
    return words[0] == words[1];
  }

  void tell() {
    for (const auto& [key, region] : regions_) {
      if (region.originals == 0) continue;
      uint32_t id = state_.next();
      for (const std::vector<uint32_t>* list : {&region.body, &region.boundary})
        for (uint32_t y : *list)
          if (state_.is_free(1, y) || only_cut(state_.partner(1, y))) state_.take(1, y, id);
      std::string part = key.second == Phase::backward ? " (backward)" : " (forward)";
      state_.add(ExplanationKind::chunked,
                 "split into " + plural(region.chunks, "chunk") + part + ": " + plural(region.originals, "node") +
                     " became " + std::to_string(region.copies) +
                     (region.boundary.empty() ? "" : ", " + plural(region.boundary.size(), "boundary node")),
                 module_of_all(region.modules_of), region.originals, region.copies + region.boundary.size(),
                 {{"chunks", region.chunks},
                  {"originals", region.originals},
                  {"copies", region.copies},
                  {"boundary", region.boundary.size()}});
    }
  }

  // "layers.1.moe": the common parent of all modules; if there is none, the blocks.
  std::string module_of_all(const std::vector<uint32_t>& nodes) const {
    std::string_view common = state_.module(1, nodes[0]);
    for (uint32_t n : nodes) common = common_module(common, state_.module(1, n));
    return common.empty() ? state_.blocks(1, nodes) : std::string(common);
  }

  struct Candidate {
    uint32_t node, chunk, user;
  };
  ExplainState& state_;
  const MatchSide& b_;
  std::vector<uint32_t> chunk_of_value_, like_, home_;  // by value; home: the maker, if it belongs to a chunk
  std::vector<uint8_t> is_own_memory_;                  // by value: made in the graph, not an input
  std::vector<uint32_t> chunk_, class_;                 // by position
  DisjointSets<uint32_t> joined_;                       // positions, into regions
  std::vector<uint8_t> is_join_, is_split_, is_body_;
  std::vector<Candidate> candidates_;
  std::vector<Copies> copies_;
  std::map<std::pair<uint32_t, Phase>, Region> regions_;
  std::map<uint32_t, uint32_t> is_boundary_;  // -> a node of its region
  SequenceTable classes_;
  MatchWords texts_;
  std::vector<uint32_t> words_;
};

}  // namespace

void explain_chunks_by_structure(ExplainState* state) { Splits(state).run(); }

}  // namespace sg
