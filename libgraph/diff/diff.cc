#include "libgraph/diff/diff.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "libgraph/base/joined.h"
#include "libgraph/base/nearest.h"
#include "libgraph/diff/diff_program.h"

namespace sg {
namespace {

constexpr std::string_view kAspects[] = {"name", "order", "op", "attribute", "operand", "type", "meta", "loc"};
constexpr std::string_view kIgnorable[] = {"name", "meta", "order", "loc"};
constexpr std::string_view kKinds[] = {"changed", "added", "removed"};
constexpr std::string_view kExplanations[] = {"recomputed", "merged",    "chunked",     "deduplicated", "dead",
                                              "in_place",   "tagged",    "substituted", "passed_on",    "respelled",
                                              "regrouped",  "offloaded", "module",      "resized"};

std::string text_of(const Job& job, StrId s) { return s ? job.pool->strings.str(s) : std::string("-"); }

class HeaderDiffer {
 public:
  HeaderDiffer(const Job& a, const Job& b, const DiffOptions& options, std::vector<ItemEdit>* out)
      : a_(a), b_(b), options_(options), print_a_(a), print_b_(b), out_(*out) {}

  void run() {
    if (a_.world != b_.world)
      changed("world", "ranks", std::to_string(a_.world), std::to_string(b_.world), Aspect::attribute);
    groups();
    if (options_.ignore_meta) return;
    lists("mesh", lines(a_.meshes, print_a_), lines(b_.meshes, print_b_));
    if (text_of(a_, a_.title) != text_of(b_, b_.title))
      changed("title", "title", text_of(a_, a_.title), text_of(b_, b_.title), Aspect::meta);
    if (a_.note != b_.note) changed("note", "note", a_.note, b_.note, Aspect::meta);
    lists("producer", entries(a_, a_.producer), entries(b_, b_.producer));
    lists("extra", entries(a_, a_.extra), entries(b_, b_.extra));
  }

 private:
  void changed(const char* subject, const char* what, std::string before, std::string after, Aspect aspect) {
    out_.push_back({subject, "", EditKind::changed, {{aspect, what, std::move(before), std::move(after)}}});
  }

  static std::vector<std::string> entries(const Job& job, const std::vector<KeyValue>& list) {
    std::vector<std::string> out;
    for (const KeyValue& kv : list) out.push_back(text_of(job, kv.key) + " " + text_of(job, kv.json));
    return out;
  }

  static std::vector<std::string> lines(const std::vector<Mesh>& meshes, text::TextPrinter& print) {
    std::vector<std::string> out;
    for (const Mesh& m : meshes) out.push_back(print.mesh_alone(m));
    return out;
  }

  void lists(const char* subject, const std::vector<std::string>& a, const std::vector<std::string>& b) {
    const std::unordered_set<std::string_view> in_a(a.begin(), a.end()), in_b(b.begin(), b.end());
    for (const std::string& line : a)
      if (!in_b.contains(line)) out_.push_back({subject, line, EditKind::removed, {}});
    for (const std::string& line : b)
      if (!in_a.contains(line)) out_.push_back({subject, line, EditKind::added, {}});
  }

  // A group's line, with or without the producers' names.
  std::string line(text::TextPrinter& print, Group group) const {
    if (options_.ignore_name) {
      group.axis = StrId(), group.ordinal = 0;
      for (GroupPart& part : group.parts) part.aliases.clear();
    }
    return print.group_alone(group);
  }

  void groups() {
    std::vector<GroupId> partner = match_groups_of(a_, b_, options_.ignore_name);
    std::vector<bool> taken(b_.groups.size());
    for (size_t i = 0; i < partner.size(); ++i) {
      if (!partner[i]) {
        out_.push_back({"group", print_a_.group_alone(a_.groups[i]), EditKind::removed, {}});
        continue;
      }
      taken[partner[i].index] = true;
      std::string before = line(print_a_, a_.groups[i]), after = line(print_b_, b_.groups[partner[i].index]);
      if (before != after)
        out_.push_back({"group", "", EditKind::changed, {{Aspect::attribute, "group", before, after}}});
    }
    for (size_t j = 0; j < taken.size(); ++j)
      if (!taken[j]) out_.push_back({"group", print_b_.group_alone(b_.groups[j]), EditKind::added, {}});
  }

  const Job& a_;
  const Job& b_;
  const DiffOptions& options_;
  text::TextPrinter print_a_, print_b_;
  std::vector<ItemEdit>& out_;
};

// Which program of A is compared with which of B, and on which ranks; empty = on all ranks.
struct Meeting {
  const Program* a;
  const Program* b;
  std::vector<uint32_t> ranks;
};

// All ranks that some program lists, ascending.
std::vector<uint32_t> listed_ranks(const Job& a, const Job& b) {
  std::set<uint32_t> out;
  for (const Job* job : {&a, &b})
    for (const auto& program : job->programs) out.insert(program->ranks.begin(), program->ranks.end());
  return {out.begin(), out.end()};
}

// The program of each rank, for those who ask about all of them.
class ProgramOfRank {
 public:
  explicit ProgramOfRank(const Job& job) {
    for (const auto& program : job.programs) {
      if (program->ranks.empty() && every_ == nullptr) every_ = program.get();
      for (uint32_t rank : program->ranks)
        if (rank < job.world) of_.emplace(rank, program.get());
    }
    world_ = job.world;
  }
  const Program* operator()(uint32_t rank) const {
    auto found = of_.find(rank);
    if (found != of_.end()) return found->second;
    return rank < world_ ? every_ : nullptr;
  }

 private:
  std::unordered_map<uint32_t, const Program*> of_;
  const Program* every_ = nullptr;  // that of all ranks
  uint32_t world_ = 0;
};

std::string listed_ranks(const std::vector<uint32_t>& ranks) { return ranks.empty() ? "*" : joined(ranks, ","); }

// If both sides have one program, these are compared, whatever ranks they belong to.
std::vector<Meeting> meetings(const Job& a, const Job& b, std::vector<ItemEdit>* items) {
  std::vector<Meeting> out;
  if (a.programs.size() == 1 && b.programs.size() == 1) {
    const Program& p = *a.programs[0];
    const Program& q = *b.programs[0];
    if (p.ranks != q.ranks)
      items->push_back({"ranks",
                        "",
                        EditKind::changed,
                        {{Aspect::attribute, "ranks", listed_ranks(p.ranks), listed_ranks(q.ranks)}}});
    return {{&p, &q, q.ranks}};
  }
  std::map<std::pair<const Program*, const Program*>, size_t> known;  // never iterated over
  const ProgramOfRank program_of_a(a), program_of_b(b);
  for (uint32_t rank : listed_ranks(a, b)) {
    const Program* p = program_of_a(rank);
    const Program* q = program_of_b(rank);
    if (p && q) {
      auto [at, is_new] = known.emplace(std::pair(p, q), out.size());
      if (is_new) out.push_back({p, q, {}});
      out[at->second].ranks.push_back(rank);
    } else if (p || q) {
      items->push_back({"rank", std::to_string(rank), p ? EditKind::removed : EditKind::added, {}});
    }
  }
  return out;
}

void add(DiffCounts* sum, const DiffCounts& more) {
  sum->same += more.same, sum->changed += more.changed, sum->renamed += more.renamed, sum->moved += more.moved;
  sum->added += more.added, sum->removed += more.removed, sum->items += more.items, sum->explained += more.explained;
}

}  // namespace

std::string_view aspect_name(Aspect aspect) { return kAspects[static_cast<size_t>(aspect)]; }
std::string_view edit_name(EditKind kind) { return kKinds[static_cast<size_t>(kind)]; }
std::string_view explanation_name(ExplanationKind kind) { return kExplanations[static_cast<size_t>(kind)]; }

Result<DiffOptions> parse_ignore(std::string_view list) {
  DiffOptions out;
  bool* fields[] = {&out.ignore_name, &out.ignore_meta, &out.ignore_order, &out.ignore_loc};
  while (!list.empty()) {
    size_t end = std::min(list.find(','), list.size());
    std::string_view word = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    size_t i = 0;
    while (i < std::size(kIgnorable) && kIgnorable[i] != word) ++i;
    if (i == std::size(kIgnorable))
      return Error{ErrorKind::usage,
                   "`--ignore` takes name, meta, order and loc, and not `" + std::string(word) + "`",
                   {},
                   nearest_hint(word, kIgnorable)};
    *fields[i] = true;
  }
  return out;
}

JobDiff diff_jobs(const Job& a, const Job& b, const DiffOptions& options) {
  JobDiff out;
  out.a = &a, out.b = &b;
  HeaderDiffer(a, b, options, &out.items).run();
  std::vector<Meeting> all = meetings(a, b, &out.items);
  out.programs.resize(all.size());
  // Not in parallel: describing types adds entries to the pool that all programs share.
  DiffPrinters print(a, b);
  const std::vector<GroupId> group_of_a = match_groups_of(a, b, options.ignore_name);
  for (size_t i = 0; i < all.size(); ++i) {
    out.programs[i] = diff_programs(a, *all[i].a, b, *all[i].b, options, group_of_a, &print);
    out.programs[i].ranks = all[i].ranks;
  }
  return out;
}

bool ProgramDiff::is_same() const {
  return items.empty() && std::all_of(graphs.begin(), graphs.end(),
                                      [](const GraphDiff& g) { return g.items.empty() && g.edits.empty(); });
}

bool JobDiff::is_same() const {
  return items.empty() &&
         std::all_of(programs.begin(), programs.end(), [](const ProgramDiff& p) { return p.is_same(); });
}

DiffCounts count_edits(const GraphDiff& diff) {
  DiffCounts out;
  out.same = diff.same, out.items = diff.items.size();
  for (const NodeEdit& e : diff.edits) {
    auto is = [](Aspect aspect) { return [aspect](const Difference& c) { return c.aspect == aspect; }; };
    out.added += e.kind() == EditKind::added, out.removed += e.kind() == EditKind::removed;
    out.renamed += std::any_of(e.changes.begin(), e.changes.end(), is(Aspect::name));
    out.moved += std::any_of(e.changes.begin(), e.changes.end(), is(Aspect::order));
    out.changed += std::any_of(e.changes.begin(), e.changes.end(), [](const Difference& c) {
      return c.aspect != Aspect::name && c.aspect != Aspect::order;
    });
    out.explained += e.explanation != NodeEdit::kNone;
  }
  return out;
}

DiffCounts count_edits(const ProgramDiff& diff) {
  DiffCounts out;
  out.items = diff.items.size();
  for (const GraphDiff& g : diff.graphs) add(&out, count_edits(g));
  return out;
}

}  // namespace sg
