#include "libgraph/diff/diff_text.h"

#include <algorithm>
#include <map>

#include "libgraph/base/human.h"
#include "libgraph/base/utf8.h"
#include "libgraph/modules/module_ranges.h"

namespace sg {
namespace {

std::string ranks_of(const DiffReport& r) {
  if (r.ranks.empty()) return "every rank";
  std::string list = with_layers("*", std::set<uint64_t>(r.ranks.begin(), r.ranks.end()));
  return r.ranks.size() == 1 ? "rank " + list : "ranks " + list;
}

class Painter {
 public:
  explicit Painter(bool color) : color_(color) {}
  std::string operator()(const char* code, const std::string& text) const {
    return color_ ? "\x1b[" + std::string(code) + "m" + text + "\x1b[0m" : text;
  }
  std::string line(const DiffLine& l) const {
    std::string text = std::string(1, l.mark == '.' ? ' ' : l.mark) + (l.mark == '.' ? "     # " : "   ") + l.text;
    switch (l.mark) {
      case '-': return (*this)("31", text);
      case '+': return (*this)("32", text);
      case '>': return (*this)("36", text);
      case '.': return (*this)("2", text);
      default: return text;
    }
  }

 private:
  bool color_;
};

std::string hunk_title(const Hunk& h) {
  std::string out = "@@ " + h.phase + " " + (h.where.empty() ? "-" : h.where);
  if (!h.source.empty()) out += " at " + one_line(h.source);
  if (h.layers > 1) out += ": the same in " + std::to_string(h.layers) + (h.is_of_source ? " places" : " layers");
  return out + " @@";
}

void put_notes(const std::vector<Note>& notes, const Painter& paint, std::string* out) {
  size_t width = 0;
  for (const Note& n : notes) width = std::max(width, n.kind.size());
  for (const Note& n : notes) {
    *out += "  " + paint("36", n.kind) + std::string(width - n.kind.size() + 2, ' ') + n.text;
    if (!n.where.empty()) *out += "  [" + n.where + "]";
    *out += "\n";
  }
}

std::string signed_number(double v, CostRow::Unit unit) {
  return (v < 0 ? "-" : "+") + print_cost_number(v < 0 ? -v : v, unit);
}

std::string padded(const std::string& s, size_t width, bool right) {
  std::string fill(s.size() < width ? width - s.size() : 0, ' ');
  return right ? fill + s : s + fill;
}

// `of_all`: the ranks run different programs. Memory and time are of the rank that needs most.
void put_costs(const std::vector<CostRow>& rows, bool of_all, std::string* out) {
  if (rows.empty()) return;
  std::vector<std::array<std::string, 4>> cells = {{of_all ? "of all ranks" : "", "before", "after", "delta"}};
  for (const CostRow& r : rows)
    cells.push_back({r.what, print_cost_number(r.before, r.unit), print_cost_number(r.after, r.unit),
                     signed_number(r.after - r.before, r.unit)});
  std::array<size_t, 4> width{};
  for (const auto& row : cells)
    for (size_t i = 0; i < 4; ++i) width[i] = std::max(width[i], row[i].size());
  for (const auto& row : cells) {
    *out += " ";
    for (size_t i = 0; i < 4; ++i) *out += " " + padded(row[i], width[i], i > 0) + (i < 3 ? " " : "");
    *out += "\n";
  }
}

void put_header(const DiffTextOptions& options, const Painter& paint, std::string* out) {
  *out += paint("1", "--- " + options.name_a) + "\n" + paint("1", "+++ " + options.name_b) + "\n";
}

using PutHunk = void (*)(const Hunk&, const Painter&, const DiffTextOptions&, std::string*);

void put_hunk(const Hunk& h, const Painter& paint, const DiffTextOptions&, std::string* out) {
  *out += "\n" + paint("36", hunk_title(h)) + "\n";
  for (const DiffLine& l : h.lines) *out += paint.line(l) + "\n";
}

// Rows of at most `width` characters; what exceeds kMaxRows is cut.
std::vector<std::string> wrap(const std::string& s, size_t width) {
  constexpr size_t kMaxRows = 12;
  std::vector<std::string> rows;
  std::string row;
  size_t used = 0;
  for (size_t i = 0; i < s.size();) {
    size_t n = std::max<size_t>(1, utf8_length(std::string_view(s).substr(i)));
    if (used == width) {
      if (rows.size() + 1 == kMaxRows) {
        row.back() = '~';
        break;
      }
      rows.push_back(std::move(row));
      row = "  ", used = 2;  // a continuation row
    }
    row.append(s, i, n);
    i += n, ++used;
  }
  rows.push_back(row + std::string(width - used, ' '));
  return rows;
}

void put_hunk_side_by_side(const Hunk& h, const Painter& paint, const DiffTextOptions& options, std::string* out) {
  size_t width = std::max<size_t>(20, (options.columns - 3) / 2);
  auto row = [&](const std::string& left, const char* mark, const std::string& right, bool l, bool r) {
    std::vector<std::string> a = wrap(left, width), b = wrap(right, width);
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      std::string p = i < a.size() ? a[i] : std::string(width, ' '), q = i < b.size() ? b[i] : "";
      q.erase(q.find_last_not_of(' ') + 1);
      std::string line =
          (l ? paint("31", p) : p) + " " + (i == 0 ? mark : " ") + " " + (r && !q.empty() ? paint("32", q) : q);
      line.erase(line.find_last_not_of(' ') + 1);
      *out += line + "\n";
    }
  };
  *out += "\n" + paint("36", hunk_title(h)) + "\n";
  for (size_t i = 0; i < h.lines.size(); ++i) {
    const DiffLine& l = h.lines[i];
    bool changed = l.mark == '-' && i + 1 < h.lines.size() && h.lines[i + 1].mark == '+';
    if (changed) row(l.text, "|", h.lines[i + 1].text, true, true), ++i;
    else if (l.mark == '-') row(l.text, "<", "", true, false);
    else if (l.mark == '+') row("", ">", l.text, false, true);
    else if (l.mark == '.') row("", " ", "  # " + l.text, false, false);
    else row(l.mark == '>' ? "" : l.text, l.mark == '>' ? ">" : " ", l.text, false, false);
  }
}

std::string print_with(const JobDiff& diff, const DiffTextOptions& options, PutHunk put) {
  if (diff.is_same()) return {};
  Painter paint(options.color);
  std::string out;
  put_header(options, paint, &out);
  put_notes(job_notes(diff), paint, &out);
  for (const DiffReport& r : report_diff(diff, options.hunks)) {
    out += paint("1", ranks_of(r) + ": " + r.title) + "\n";
    put_notes(r.notes, paint, &out);
    for (const Hunk& h : r.hunks) put(h, paint, options, &out);
  }
  if (!options.costs.empty()) out += "\n";
  put_costs(options.costs, diff.a->programs.size() > 1 || diff.b->programs.size() > 1, &out);
  return out;
}

std::string block_of(const GraphDiff& g, const NodeEdit& e) {
  bool in_b = e.b != MatchSide::kNone;
  const Graph& graph = in_b ? *g.b : *g.a;
  StrId module = graph.node(in_b ? g.side_b.nodes[e.b] : g.side_a.nodes[e.a]).module;
  std::vector<std::string_view> names;
  if (module) names.push_back(graph.pool().strings[module]);
  std::string block = blocks_of(names);
  return block.empty() ? "-" : one_line(block);
}

std::string counts_text(const DiffCounts& n) {
  std::string out;
  auto part = [&](size_t count, const char* what) {
    if (count) out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  };
  part(n.changed, "changed"), part(n.renamed, "renamed"), part(n.moved, "moved"), part(n.added, "added"),
      part(n.removed, "removed");
  return out;
}

// What an edited item is called; what has no name, as a guard, is told whole.
std::string name_of_item(const ItemEdit& item) {
  if (item.subject != "group" && item.subject != "mesh" && item.subject != "symbol") return one_line(item.name);
  std::string_view line = item.name.empty() && !item.changes.empty() ? item.changes[0].after : item.name;
  if (line.starts_with(item.subject + " ")) line.remove_prefix(item.subject.size() + 1);
  return one_line(line.substr(0, line.find(' ')));
}

// The name of an input, or of the value that an output gives: in B, in A where it is gone.
std::string name_of_port(const GraphDiff& g, const ItemEdit& item) {
  const bool is_input = item.subject == "input";
  uint32_t port = item.port;
  if (item.kind == EditKind::changed) port = (is_input ? g.match.inputs : g.match.outputs)[0][port];
  const Graph& graph = item.kind == EditKind::removed ? *g.a : *g.b;
  const ValueId value = is_input ? graph.inputs()[port].value : graph.outputs()[port].value;
  return value ? "%" + one_line(graph.name(value)) : "none";
}

std::string name_line(const ItemEdit& item, const std::string& name) {
  return item.subject + " " + std::string(edit_name(item.kind)) + (name.empty() ? "" : " " + name) + "\n";
}

}  // namespace

std::string print_diff(const JobDiff& diff, const DiffTextOptions& options) {
  return print_with(diff, options, put_hunk);
}

std::string print_diff_side_by_side(const JobDiff& diff, const DiffTextOptions& options) {
  return print_with(diff, options, put_hunk_side_by_side);
}

std::string print_diff_stat(const JobDiff& diff, const DiffTextOptions& options) {
  std::string out;
  if (diff.is_same()) return out;
  put_notes(job_notes(diff), Painter(false), &out);
  for (const ProgramDiff& p : diff.programs) {
    if (p.is_same()) continue;
    std::vector<std::string> order;
    std::map<std::string, GraphDiff> by_block;
    for (const GraphDiff& g : p.graphs)
      for (const NodeEdit& e : g.edits) {
        std::string block = block_of(g, e);
        auto [at, is_new] = by_block.try_emplace(block);
        if (is_new) order.push_back(block);
        at->second.edits.push_back(e);
      }
    DiffReport name;
    name.ranks = p.ranks;
    size_t width = 0;
    for (const std::string& block : order) width = std::max(width, block.size());
    for (const std::string& block : order)
      out += " " + padded(block, width, false) + " | " + counts_text(count_edits(by_block[block])) + "\n";
    DiffCounts sum = count_edits(p);
    out += " " + ranks_of(name) + ": " + std::to_string(sum.same) + " same" +
           (counts_text(sum).empty() ? "" : ", " + counts_text(sum));
    if (sum.items) out += "; " + plural(sum.items, "change") + " of inputs, outputs, symbols and guards";
    out += "\n";
  }
  put_costs(options.costs, diff.a->programs.size() > 1 || diff.b->programs.size() > 1, &out);
  return out;
}

std::string print_diff_names(const JobDiff& diff) {
  std::string out;
  for (const ItemEdit& i : diff.items) out += name_line(i, name_of_item(i));
  for (const ProgramDiff& p : diff.programs) {
    DiffReport name;
    name.ranks = p.ranks;
    std::string prefix = diff.programs.size() > 1 ? ranks_of(name) + " " : "";
    for (const ItemEdit& i : p.items) out += prefix + name_line(i, name_of_item(i));
    for (const GraphDiff& g : p.graphs) {
      std::string at = prefix + (g.name.empty() ? "" : "nested " + one_line(g.name) + " ");
      for (const ItemEdit& i : g.items) out += at + name_line(i, name_of_port(g, i));
      for (const NodeEdit& e : g.edits) {
        std::string kind(edit_name(e.kind()));
        auto all = [&](Aspect aspect) {
          return std::all_of(e.changes.begin(), e.changes.end(),
                             [&](const Difference& c) { return c.aspect == aspect; });
        };
        if (e.kind() == EditKind::changed && all(Aspect::name)) kind = "renamed";
        if (e.kind() == EditKind::changed && all(Aspect::order)) kind = "moved";
        out += at + kind + " %" +
               one_line(e.b != MatchSide::kNone ? g.b->label(g.side_b.nodes[e.b]) : g.a->label(g.side_a.nodes[e.a])) +
               "\n";
      }
    }
  }
  return out;
}

}  // namespace sg
