#include "libgraph/import/import_tally.h"
#include "libgraph/base/human.h"

#include <algorithm>

namespace sg {
namespace {

constexpr size_t kMaxNotes = 20;

std::string times(uint64_t count) { return count == 1 ? "once" : std::to_string(count) + " times"; }

}  // namespace

std::vector<KeyValue> Extras::take(Pool* pool) {
  std::stable_sort(list_.begin(), list_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<KeyValue> out;
  for (const auto& [key, json] : list_) {
    KeyValue kv{pool->str(key), pool->str(json)};
    if (!out.empty() && out.back().key == kv.key) out.back() = kv;
    else out.push_back(kv);
  }
  list_.clear();
  return out;
}

void ImportTally::count(Counts* counts, std::string key, Located at) {
  auto [it, is_new] = counts->try_emplace(std::move(key));
  if (is_new && counts->size() <= kMaxNotes) it->second.first = at.where();  // computing a location scans the text
  ++it->second.count;
}

void ImportTally::unknown_key(std::string_view owner, std::string_view key, Located at) {
  count(&unknown_keys_, "`" + std::string(key) + "` in " + std::string(owner), at);
}
void ImportTally::kept_raw(std::string_view what, Located at) { count(&kept_raw_, std::string(what), at); }
void ImportTally::own_rank_literal(std::string_view op, Located at) { count(&own_rank_, std::string(op), at); }
void ImportTally::unknown_op(std::string_view op, Located at) {
  if (unknown_ops_.empty()) first_unknown_op_ = at.where();
  auto it = unknown_ops_.find(op);
  if (it == unknown_ops_.end()) it = unknown_ops_.try_emplace(std::string(op)).first;
  ++it->second.count;
}
void ImportTally::taken_apart(std::string_view op) { ++taken_apart_.try_emplace(std::string(op)).first->second.count; }
void ImportTally::kept_whole(std::string_view op, const std::string& reason, Located at) {
  unknown_op(op, at);
  count(&kept_whole_, reason, at);
}
void ImportTally::type_conflict(Located at) {
  if (type_conflicts_.count++ == 0) type_conflicts_.first = at.where();
}

// "aten.a.default (2), aten.b.default (1) and 3 more"
std::string ImportTally::listing(const Counts& counts, uint64_t* total) {
  std::string names;
  size_t said = 0;
  for (const auto& [op, c] : counts) {
    *total += c.count;
    if (said++ < kMaxNotes) names += (names.empty() ? "" : ", ") + op + " (" + std::to_string(c.count) + ")";
  }
  return said > kMaxNotes ? names + " and " + std::to_string(said - kMaxNotes) + " more" : names;
}

void ImportTally::report_unknown_ops(Diagnostics* notes) const {
  uint64_t nodes = 0;
  std::string names = listing(unknown_ops_, &nodes);
  const bool any_of_pytorch =
      std::ranges::any_of(unknown_ops_, [](const auto& u) { return u.first.starts_with("aten."); });
  notes->warning(
      "unknown-op",
      plural(unknown_ops_.size(), "operator") + " unknown to the op table, on " + plural(nodes, "node") + ": " + names,
      first_unknown_op_,
      std::string("passes leave such nodes alone, and sg-run refuses them") +
          (any_of_pytorch ? "; an exported program has fewer of PyTorch's own after run_decompositions()" : ""));
}

void ImportTally::report(uint32_t spmd_rank, Diagnostics* notes) const {
  auto each = [&](const Counts& counts, const auto& say) {
    size_t said = 0;
    for (const auto& [key, c] : counts)
      if (said++ < kMaxNotes) notes->note(say(key, c), c.first);
    if (counts.size() > kMaxNotes) notes->note("and " + std::to_string(counts.size() - kMaxNotes) + " more like these");
  };
  each(unknown_keys_, [](const std::string& key, const Count& c) {
    return "unknown key " + key + ", " + times(c.count) + ": it travels as a free key";
  });
  each(kept_raw_, [](const std::string& key, const Count& c) {
    return "`" + key + "` says what has no field of its own, " + times(c.count) + ": it travels as a free key";
  });
  if (uint64_t calls = 0; !taken_apart_.empty()) {
    const std::string names = listing(taken_apart_, &calls);
    notes->note("composite operators taken apart, in " + std::to_string(calls) + (calls == 1 ? " call: " : " calls: ") +
                names);
  }
  each(kept_whole_,
       [](const std::string& reason, const Count& c) { return reason + ", " + times(c.count) + ": it stays whole"; });
  if (!unknown_ops_.empty()) report_unknown_ops(notes);
  if (type_conflicts_.count != 0)
    notes->warning("getitem-type",
                   "the type of a getitem is not that of the result it takes, " + times(type_conflicts_.count) +
                       ": the result's is kept",
                   type_conflicts_.first);
  if (spmd_rank != kNoRank)
    for (const auto& [op, c] : own_rank_)
      notes->warning("own-rank",
                     op + " carries its own rank as a number, " + times(c.count) + ": that of rank " +
                         std::to_string(spmd_rank) + " stands for all",
                     c.first, "import every rank ('rank{r}/step.json') to keep each rank's own");
}

}  // namespace sg
