#include "libgraph/diff/diff_hunks.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "libgraph/base/human.h"
#include "libgraph/diff/diff_names.h"
#include "libgraph/diff/diff_nodes.h"
#include "libgraph/modules/module_ranges.h"
#include "libgraph/names.h"
#include "libgraph/story/source_text.h"

namespace sg {
namespace {

constexpr size_t kFewFolded = 8;  // up to here, nodes with only a new name, place or source line are shown one by one

// The kinds of changes that come from capturing a step again, or from other nodes that went: names, source lines,
// places. 0 = the edit has other unexplained changes.
enum : unsigned { kName = 1, kLoc = 2, kOrder = 4, kMasks = 8 };

unsigned quiet_mask(const NodeEdit& e) {
  if (e.kind() != EditKind::changed) return 0;
  unsigned out = 0;
  for (const Difference& c : e.changes) {
    if (c.told) continue;
    const unsigned bit = c.aspect == Aspect::name    ? kName
                         : c.aspect == Aspect::loc   ? kLoc
                         : c.aspect == Aspect::order ? kOrder
                                                     : 0u;
    if (bit == 0) return 0;
    out |= bit;
  }
  return out;
}

Note folded_note(unsigned mask, size_t count) {
  constexpr std::string_view kEnd = " (--full shows them)";
  if (mask == kOrder)
    return {"moved", plural(count, "node") + " moved, and did not change but as told" + std::string(kEnd), ""};
  std::string what;
  for (auto [bit, word] : {std::pair(kName, "name"), std::pair(kLoc, "source line"), std::pair(kOrder, "place")})
    if (mask & bit) what += (what.empty() ? "" : " and ") + std::string(word);
  return {mask == kName ? "renamed" : "changed", plural(count, "node") + " changed only in " + what + std::string(kEnd),
          ""};
}

bool has(const NodeEdit& e, Aspect aspect) {
  return std::any_of(e.changes.begin(), e.changes.end(), [&](const Difference& c) { return c.aspect == aspect; });
}

// What stands for another thing may be called the same on both sides: "value: another %z".
std::string sides(const Difference& c) {
  return c.before == c.after ? "another " + c.after : c.before + " -> " + c.after;
}

Note item_note(const ItemEdit& item) {
  std::string kind = item.subject + " " + std::string(edit_name(item.kind)), changes;
  for (const Difference& c : item.changes)
    changes += (changes.empty() ? "" : "; ") + (c.what == item.subject ? "" : c.what + ": ") + sides(c);
  return {std::move(kind), one_line(item.name + (item.name.empty() || changes.empty() ? "" : "  ") + changes), ""};
}

// Unless `full`, long lists are cut and plain renames only counted.
std::vector<Note> item_notes(const std::vector<ItemEdit>& items, bool full) {
  constexpr size_t kMany = 12, kShown = 6;
  auto is_rename = [](const ItemEdit& i) { return i.changes.size() == 1 && i.changes[0].aspect == Aspect::name; };
  std::map<std::string, size_t> renames, counts, shown;
  std::vector<const ItemEdit*> list;
  for (const ItemEdit& i : items)
    if (full || i.explanation == MatchSide::kNone) list.push_back(&i), renames[i.subject] += is_rename(i);
  auto folds = [&](const ItemEdit& i) { return !full && is_rename(i) && renames[i.subject] > kFewFolded; };
  std::set<std::string> said;
  auto key = [](const ItemEdit& i) { return i.subject + " " + std::string(edit_name(i.kind)); };
  for (const ItemEdit* i : list) counts[key(*i)] += !folds(*i);
  std::vector<Note> out;
  for (const ItemEdit* i : list) {
    size_t count = counts[key(*i)], cut = !full && count > kMany ? kShown : count;
    if (folds(*i)) {
      if (said.insert(i->subject).second)
        out.push_back(
            {"renamed", plural(renames[i->subject], i->subject) + " changed only in name (--full shows them)", ""});
    } else if (size_t& n = shown[key(*i)]; ++n <= cut) {
      out.push_back(item_note(*i));
    } else if (n == cut + 1) {
      out.push_back({key(*i), std::to_string(count - cut) + " more (--full shows them)", ""});
    }
  }
  return out;
}

// An explanation's text without its bucket number, and that number.
constexpr std::string_view kBucket = " bucket #";
std::pair<std::string, std::string> without_bucket(const Explanation& e) {
  auto bucket = e.facts.find("bucket");
  std::string number = bucket == e.facts.end() ? "" : std::to_string(bucket->second), name = " bucket " + number + " ",
              text = e.text;
  if (size_t at = text.find(name); !number.empty() && at != std::string::npos)
    text.replace(at, name.size() - 1, kBucket);
  return {std::move(text), std::move(number)};
}

class GraphReporter {
 public:
  GraphReporter(const GraphDiff& diff, const HunkOptions& options, DiffPrinters* print, DiffReport* out)
      : diff_(diff), options_(options), print_(*print), out_(*out) {}

  void run() {
    for (Note& note : item_notes(diff_.items, options_.full)) add_note(std::move(note));
    explanations();
    fold_quiet();
    find_predecessors();
    std::vector<Hunk> hunks;
    std::vector<const NodeEdit*> run;
    for (const NodeEdit& e : diff_.edits) {
      if (!is_shown(e)) continue;
      if (!run.empty() && !together(*run.back(), e)) hunks.push_back(hunk(run, place(e))), run.clear();
      run.push_back(&e);
    }
    if (!run.empty()) hunks.push_back(hunk(run, MatchSide::kNone));
    group(std::move(hunks));
  }

 private:
  void add_note(Note note) {
    if (!diff_.name.empty()) note.text = "nested " + one_line(diff_.name) + ": " + note.text;
    out_.notes.push_back(std::move(note));
  }

  void fold_quiet() {
    std::array<size_t, kMasks> counts{};
    for (const NodeEdit& e : diff_.edits)
      if (e.explanation == MatchSide::kNone) ++counts[quiet_mask(e)];
    for (unsigned mask = 1; mask < kMasks; ++mask) {
      folds_[mask] = !options_.full && counts[mask] > kFewFolded;
      if (folds_[mask]) add_note(folded_note(mask, counts[mask]));
    }
  }

  // The same text about several blocks is one line; bucket numbers may differ.
  void explanations() {
    struct Key {
      ExplanationKind kind;
      std::string text, pattern;
      std::string buckets;  // "2, 3"; empty = names no bucket
    };
    std::vector<Key> keys;
    std::vector<std::set<uint64_t>> layers;
    std::vector<size_t> counts;
    for (const Explanation& e : diff_.explanations) {
      LayerName name = layer_name(e.where);
      size_t i = 0;
      bool mergeable = name.layer && e.where.find(',') == std::string::npos;
      auto [text, bucket] = without_bucket(e);
      while (i < keys.size() &&
             !(mergeable && keys[i].kind == e.kind && keys[i].text == text && keys[i].pattern == name.pattern))
        ++i;
      if (i == keys.size())
        keys.push_back({e.kind, text, mergeable ? name.pattern : e.where, ""}), layers.emplace_back(),
            counts.push_back(0);
      if (mergeable) layers[i].insert(*name.layer);
      if (!bucket.empty()) keys[i].buckets += (keys[i].buckets.empty() ? "" : ", ") + bucket;
      ++counts[i];
    }
    for (size_t i = 0; i < keys.size(); ++i)
      if (size_t at = keys[i].text.find(kBucket); !keys[i].buckets.empty() && at != std::string::npos)
        keys[i].text.replace(at, kBucket.size(), (counts[i] > 1 ? " buckets " : " bucket ") + keys[i].buckets);
    for (size_t i = 0; i < keys.size(); ++i)
      add_note({std::string(explanation_name(keys[i].kind)),
                (counts[i] > 1 ? std::to_string(counts[i]) + " x " : "") + one_line(keys[i].text),
                one_line(with_layers(keys[i].pattern, layers[i]))});
  }

  bool is_shown(const NodeEdit& e) const {
    if (options_.full) return true;
    return e.explanation == MatchSide::kNone && !folds_[quiet_mask(e)];
  }

  // --- places ---

  const Node& node_of(const NodeEdit& e) const {
    return e.b != MatchSide::kNone ? diff_.b->node(diff_.side_b.nodes[e.b]) : diff_.a->node(diff_.side_a.nodes[e.a]);
  }
  std::string_view module_of(const NodeEdit& e) const {
    const Pool& pool = e.b != MatchSide::kNone ? diff_.b->pool() : diff_.a->pool();
    return node_of(e).module ? pool.strings[node_of(e).module] : std::string_view();
  }

  // "model.py:31 forward", for the first edit; empty if unknown.
  std::string source_of(const NodeEdit& e) const {
    const Pool& pool = e.b != MatchSide::kNone ? diff_.b->pool() : diff_.a->pool();
    SourceId id = node_of(e).source;
    if (!id) return {};
    const StrId function = pool.sources[id].function;
    return short_source_text(pool, id) + (function ? " " + std::string(pool.strings[function]) : "");
  }

  // By position in A: the partner of the last unmoved node before it that has one; kNone = there is none.
  void find_predecessors() {
    predecessor_.assign(diff_.side_a.node_count(), MatchSide::kNone);
    uint32_t last = MatchSide::kNone;
    for (uint32_t x = 0; x < predecessor_.size(); ++x) {
      predecessor_[x] = last;
      if (diff_.match.nodes[0][x] != MatchSide::kNone && !diff_.match.moved[x]) last = diff_.match.nodes[0][x];
    }
  }
  uint32_t place(const NodeEdit& e) const {  // in B; for a removed node, after its predecessor's
    if (e.b != MatchSide::kNone) return e.b;
    return predecessor_[e.a] == MatchSide::kNone ? 0 : predecessor_[e.a] + 1;
  }

  // The node in A, or the last node before its place; the graph where there is none.
  std::string place_in_a(const NodeEdit& e) const {
    uint32_t x = e.a;
    for (uint32_t y = place(e); x == MatchSide::kNone && y-- > 0;) x = diff_.match.nodes[1][y];
    return place_of(*diff_.side_a.program, *diff_.a, x == MatchSide::kNone ? NodeId() : diff_.side_a.nodes[x]);
  }

  bool together(const NodeEdit& d, const NodeEdit& e) const {
    return node_of(d).phase == node_of(e).phase && module_of(d) == module_of(e) &&
           place(e) <= place(d) + 2 * options_.context + 1;
  }

  // --- lines ---

  std::string line_a(uint32_t x) const {
    return print_.a.node_alone(*diff_.side_a.program, *diff_.a, diff_.side_a.nodes[x]);
  }
  std::string line_b(uint32_t y) const {
    return print_.b.node_alone(*diff_.side_b.program, *diff_.b, diff_.side_b.nodes[y]);
  }

  void lines_of(const NodeEdit& e, Hunk* out) const {
    ++out->edits;
    out->names.push_back("%" + one_line(e.b != MatchSide::kNone ? diff_.b->label(diff_.side_b.nodes[e.b])
                                                                : diff_.a->label(diff_.side_a.nodes[e.a])));
    if (e.kind() == EditKind::added) return ++out->added, out->lines.push_back({'+', line_b(e.b)});
    if (e.kind() == EditKind::removed) return ++out->removed, out->lines.push_back({'-', line_a(e.a)});
    bool moved = has(e, Aspect::order), renamed = has(e, Aspect::name);
    out->moved += moved, out->renamed += renamed;
    std::vector<Difference> rest;
    std::copy_if(e.changes.begin(), e.changes.end(), std::back_inserter(rest),
                 [](const Difference& c) { return c.aspect != Aspect::name && c.aspect != Aspect::order; });
    out->changed += !rest.empty();
    std::string before = line_a(e.a), after = line_b(e.b);
    if (before == after && rest.empty()) {
      out->lines.push_back({'>', after});
    } else {
      if (before != after) out->lines.push_back({'-', before});
      out->lines.push_back({'+', after});
    }
    for (const Difference& c : rest)
      if (out->details.size() <= kDetails)
        out->details.push_back(out->names.back() + " " + one_line(c.what + ": " + sides(c)));
    for (const Difference& c : rest)  // what the lines themselves do not show
      if (before == after || c.aspect == Aspect::loc || c.what == "module" || c.what == "phase")
        out->lines.push_back({'.', one_line(c.what + ": " + sides(c))});
    for (const Difference& c : e.changes)
      if (c.aspect == Aspect::order && c.before != c.after)
        out->lines.push_back({'.', one_line("moved: was " + c.before + ", is " + c.after)});
  }

  void context(uint32_t begin, uint32_t end, Hunk* out) const {
    for (uint32_t y = begin; y < end; ++y) out->lines.push_back({' ', line_b(y)});
  }

  // `next`: where the next hunk's edits begin; its lines are not shown as context of this one.
  Hunk hunk(const std::vector<const NodeEdit*>& run, uint32_t next) const {
    Hunk out;
    out.phase = std::string(name_of(node_of(*run[0]).phase));
    out.where = std::string(module_of(*run[0]));
    out.source = source_of(*run[0]);
    if (out.where.empty()) out.where = std::exchange(out.source, {}), out.is_of_source = !out.where.empty();
    out.place_a = place_in_a(*run[0]);
    uint32_t width = static_cast<uint32_t>(options_.context), at = place(*run[0]);
    uint32_t shown = at - std::min(at, width);
    out.first = shown, out.lead = at - shown;
    for (const NodeEdit* e : run) {
      if (place(*e) > shown) context(shown, place(*e), &out);
      lines_of(*e, &out);
      shown = std::max(shown, e->b != MatchSide::kNone ? e->b + 1 : place(*e));
    }
    out.end = std::min({static_cast<uint32_t>(diff_.side_b.node_count()), shown + width, std::max(shown, next)});
    context(shown, out.end, &out);
    if (!diff_.name.empty()) out.where = "nested " + diff_.name + (out.where.empty() ? "" : " ") + out.where;
    return out;
  }

  // Merges hunks that are equal up to the layer and names; outside modules, hunks at one source line.
  void group(std::vector<Hunk> hunks) {
    struct Group {
      Hunk first;
      std::string pattern;
      std::set<uint64_t> layers;
      size_t places = 1;  // at one source line
    };
    std::vector<Group> groups;
    std::map<std::string, size_t> known;
    uint32_t shown_until = 0;  // context shown by the previous hunk is not repeated
    for (Hunk& h : hunks) {
      LayerName name = layer_name(h.where);
      std::string key = h.phase + "\n" + name.pattern + "\n";
      for (const DiffLine& line : h.lines)
        if (line.mark != ' ') key += line.mark + without_names(line.text) + "\n";
      const bool folds = name.layer || h.is_of_source;
      auto at = folds ? known.find(key) : known.end();
      bool joins = at != known.end() && (h.is_of_source || !groups[at->second].layers.contains(*name.layer));
      if (joins) {
        Group& group = groups[at->second];
        if (h.is_of_source) ++group.places;
        else group.layers.insert(*name.layer);
        group.first.edits += h.edits;
        continue;
      }
      if (folds) known[key] = groups.size();
      const uint32_t again = std::min(h.lead, h.first < shown_until ? shown_until - h.first : 0);
      h.lines.erase(h.lines.begin(), h.lines.begin() + again);
      shown_until = std::max(shown_until, h.end);
      groups.push_back({std::move(h), name.pattern, {}, 1});
      if (name.layer && !groups.back().first.is_of_source) groups.back().layers.insert(*name.layer);
    }
    for (Group& g : groups) {
      g.first.where = one_line(g.first.is_of_source ? g.first.where : with_layers(g.pattern, g.layers));
      g.first.layers = std::max(g.places, g.layers.size());
      out_.hunks.push_back(std::move(g.first));
    }
  }

  const GraphDiff& diff_;
  const HunkOptions& options_;
  DiffPrinters& print_;
  DiffReport& out_;
  std::array<bool, kMasks> folds_{};  // indexed by quiet_mask
  std::vector<uint32_t> predecessor_;
};

std::string title_of(const ProgramDiff& program) {
  DiffCounts n = count_edits(program);
  std::string out = plural(program.a->graph.node_count(), "node");
  if (program.a->graph.node_count() != program.b->graph.node_count())
    out = std::to_string(program.a->graph.node_count()) + " -> " + plural(program.b->graph.node_count(), "node");
  out += ": " + std::to_string(n.same) + " same";
  auto part = [&](size_t count, const char* what) {
    if (count) out += ", " + std::to_string(count) + " " + what;
  };
  part(n.changed, "changed"), part(n.renamed, "renamed"), part(n.moved, "moved"), part(n.added, "added"),
      part(n.removed, "removed");
  part(n.explained, "of them explained");
  return out;
}

// Everything in a report but the ranks, without names: programs with equal keys share one report.
std::string body_key(const DiffReport& r) {
  std::string out = r.title + "\n";
  for (const Note& n : r.notes) out += n.kind + "\t" + without_names(n.text) + "\t" + n.where + "\n";
  for (const Hunk& h : r.hunks) {
    out += h.phase + " " + h.where + "\n";
    for (const DiffLine& line : h.lines)
      if (line.mark != ' ') out += line.mark + without_names(line.text) + "\n";
  }
  return out;
}

}  // namespace

std::vector<Note> job_notes(const JobDiff& diff) { return item_notes(diff.items, true); }

std::vector<DiffReport> report_diff(const JobDiff& diff, const HunkOptions& options) {
  std::vector<DiffReport> out;
  std::map<std::string, size_t> known;
  DiffPrinters print(*diff.a, *diff.b);
  for (const ProgramDiff& program : diff.programs) {
    if (program.is_same()) continue;
    DiffReport report;
    report.ranks = program.ranks;
    report.title = title_of(program);
    report.notes = item_notes(program.items, options.full);
    for (const GraphDiff& g : program.graphs) GraphReporter(g, options, &print, &report).run();
    auto [at, is_new] = known.emplace(body_key(report), out.size());
    if (is_new) {
      out.push_back(std::move(report));
    } else {
      std::vector<uint32_t>& ranks = out[at->second].ranks;
      ranks.insert(ranks.end(), program.ranks.begin(), program.ranks.end());
      ++out[at->second].programs;
    }
  }
  return out;
}

}  // namespace sg
