// Maps the path of a finding ("graph mask of rank 0 1, node %x", "graph rank *, guard 3", "group 1") to a line of a
// text.
#include "tools/cli/cli_place.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace sg::cli {
namespace {

constexpr size_t kMaxPlaced = 1000;  // findings that are located; nobody reads more
constexpr std::string_view kBlank = " \t\r";

struct Place {
  std::string_view kind;         // "node", "input", "guard", "group"...; empty = the graph itself
  std::string_view label;        // for nodes
  size_t index = 0;              // for anything else
  bool in_graph = false;         // false: a line of the header
  std::string_view nested;       // the nested graph; empty = the rank's main graph
  std::optional<uint32_t> rank;  // the first rank of the graph; none = every rank
};

std::optional<uint32_t> leading_number(std::string_view s) {
  uint32_t n = 0;
  auto [end, problem] = std::from_chars(s.data(), s.data() + s.size(), n);
  return problem == std::errc() ? std::optional(n) : std::nullopt;
}

bool take_prefix(std::string_view* s, std::string_view prefix) {
  if (!s->starts_with(prefix)) return false;
  s->remove_prefix(prefix.size());
  return true;
}

bool parse_item(std::string_view item, Place* out) {
  out->kind = item.substr(0, item.find(' '));
  item.remove_prefix(std::min(item.size(), out->kind.size() + 1));
  if (out->kind == "node") return take_prefix(&item, "%") && (out->label = item, true);
  std::optional<uint32_t> index = leading_number(item);
  out->index = index.value_or(0);
  return index.has_value();
}

// The inverse of place_of (job.h) and of what the verifier appends to it.
std::optional<Place> parse_place(std::string_view path) {
  Place out;
  if (!take_prefix(&path, "graph ")) return parse_item(path, &out) ? std::optional(out) : std::nullopt;
  out.in_graph = true;
  size_t item = path.rfind(", node %");
  for (std::string_view kind : {", input ", ", output ", ", guard ", ", symbol "})
    if (item == std::string_view::npos) item = path.rfind(kind);
  if (item != std::string_view::npos && !parse_item(path.substr(item + 2), &out)) return std::nullopt;
  std::string_view graph = path.substr(0, item);
  size_t of = graph.rfind(" of rank ");
  if (of != std::string_view::npos) out.nested = graph.substr(0, of), graph.remove_prefix(of + 4);
  if (!take_prefix(&graph, "rank ")) return std::nullopt;
  out.rank = leading_number(graph);
  return out;
}

// --- lines ---

std::string_view first_word(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  return line.substr(0, line.find_first_of(" \t\r\n#"));
}

// The kind of a line, in terms of findings.
std::string_view item_kind(std::string_view word) {
  for (std::string_view k : {"input", "param", "buffer", "state", "tangent", "constant", "opaque"})
    if (word == k) return "input";
  for (std::string_view k : {"output", "loss", "grad", "update", "none"})
    if (word == k) return "output";
  for (std::string_view k : {"symbol", "guard", "group", "mesh", "from"})
    if (word == k) return k;
  return {};
}

// The name after the `%` at `at`, bare or quoted; empty if it contains escapes.
std::string_view name_at(std::string_view line, size_t at) {
  std::string_view rest = line.substr(at + 1);
  if (!rest.starts_with('"')) return rest.substr(0, rest.find_first_of(" ,=:\t#"));
  size_t end = rest.find('"', 1);
  std::string_view quoted = rest.substr(1, end == std::string_view::npos ? end : end - 1);
  return quoted.find('\\') == std::string_view::npos ? quoted : std::string_view();
}

// The index behind the name, with its quotes, after the `%` at `at`.
size_t end_of_name(std::string_view line, size_t at) {
  if (++at < line.size() && line[at] == '"') {
    for (++at; at < line.size() && line[at] != '"'; ++at) at += line[at] == '\\';
    return at + 1;
  }
  return std::min(line.find_first_of(" ,=:\t\r#", at), line.size());
}

std::string_view label_word(std::string_view line) {
  size_t at = line.rfind(" label ");
  if (at == std::string_view::npos) return {};
  std::string_view word = line.substr(at + 7);
  if (word.starts_with('"')) return word.substr(1, word.find('"', 1) - 1);
  return word.substr(0, word.find_first_of(kBlank));
}

struct Head {
  std::string_view nested;
  std::vector<std::pair<uint32_t, uint32_t>> runs;  // ranges of ranks; empty = every rank
  bool holds(const Place& place) const {
    if (place.nested != nested) return false;
    if (runs.empty() || !place.rank) return true;
    return std::any_of(runs.begin(), runs.end(),
                       [&](auto run) { return run.first <= *place.rank && *place.rank <= run.second; });
  }
};

// Parses `graph rank 0 2..5 nested "mask"`.
Head parse_head(std::string_view line) {
  Head out;
  std::string_view before;
  while (!line.empty()) {
    std::string_view word = first_word(line);
    if (word.empty()) break;
    line.remove_prefix(static_cast<size_t>(word.data() - line.data()) + word.size());
    size_t dots = word.find("..");
    std::optional<uint32_t> first = leading_number(word);
    if (before == "nested") {
      out.nested = word.starts_with('"') ? word.substr(1, word.find('"', 1) - 1) : word;
      break;
    }
    if (first && before != "graph")
      out.runs.emplace_back(
          *first, dots == std::string_view::npos ? *first : leading_number(word.substr(dots + 2)).value_or(*first));
    before = word;
  }
  return out;
}

// One walk over one text. Findings wait in tables, keyed by what they refer to in the current graph.
class Walk {
 public:
  explicit Walk(const SourceText& source) : source_(source) {}

  void want(const Place& place, Diagnostic* d) { wanted_.emplace_back(place, d); }

  void run() {
    if (wanted_.empty()) return;
    for (auto& [place, d] : wanted_)
      if (!place.in_graph) items_[{place.kind, place.index}].push_back(d);
    std::string_view rest = source_.text;
    for (number_ = 1; !rest.empty(); ++number_) {
      line_ = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line_.size() + 1));
      line();
    }
  }

 private:
  void line() {
    std::string_view word = first_word(line_);
    if (word.empty()) return;
    if (word == "graph") return begin_graph(word);
    if (std::string_view kind = item_kind(word); !kind.empty()) {
      auto it = items_.find({kind, counts_[kind]++});
      if (it != items_.end()) place_all(it->second, column_of(word));
    } else if (word[0] == '%' && !nodes_.empty()) {
      node();
    }
  }

  void begin_graph(std::string_view word) {
    items_.clear(), nodes_.clear(), counts_.clear();
    Head head = parse_head(line_);
    for (auto& [place, d] : wanted_) {
      if (!place.in_graph || d->where.line != 0 || !head.holds(place)) continue;
      if (place.kind.empty()) place_at(d, column_of(word));
      else if (place.kind == "node") nodes_[place.label].push_back(d);
      else items_[{place.kind, place.index}].push_back(d);
    }
  }

  // The results, `%a, %b =`, and the label.
  void node() {
    const size_t first = line_.find('%');
    size_t at = first;
    while (at < line_.size() && line_[at] == '%') {
      place_node(name_at(line_, at), at);
      at = line_.find_first_not_of(kBlank, end_of_name(line_, at));
      if (at < line_.size() && line_[at] == ',') at = line_.find_first_not_of(kBlank, at + 1);
    }
    if (at < line_.size() && line_.find(" label ", at) != std::string_view::npos) place_node(label_word(line_), first);
  }

  void place_node(std::string_view name, size_t at) {
    auto it = name.empty() ? nodes_.end() : nodes_.find(name);
    if (it != nodes_.end()) place_all(it->second, static_cast<uint32_t>(at) + 1);
  }

  uint32_t column_of(std::string_view word) const { return static_cast<uint32_t>(word.data() - line_.data()) + 1; }
  void place_all(const std::vector<Diagnostic*>& list, uint32_t column) {
    for (Diagnostic* d : list) place_at(d, column);
  }
  void place_at(Diagnostic* d, uint32_t column) {
    if (d->where.line != 0) return;
    d->where.file = source_.file;
    d->where.line = number_;
    d->where.column = column;
    d->source_line = line_;
  }

  const SourceText& source_;
  std::vector<std::pair<Place, Diagnostic*>> wanted_;
  std::map<std::pair<std::string_view, size_t>, std::vector<Diagnostic*>> items_;
  std::unordered_map<std::string_view, std::vector<Diagnostic*>> nodes_;
  std::map<std::string_view, size_t> counts_;  // lines of each kind so far
  std::string_view line_;
  uint32_t number_ = 0;
};

// The text that contains a place's graph; header lines are in every text of a rank set, so the first is used.
size_t text_of(const std::vector<SourceText>& texts, const Place& place) {
  for (size_t i = 0; place.rank && i < texts.size(); ++i)
    if (texts[i].ranks.empty() || std::binary_search(texts[i].ranks.begin(), texts[i].ranks.end(), *place.rank))
      return i;
  return 0;
}

}  // namespace

void place_in_texts(const std::vector<SourceText>& texts, std::vector<Diagnostic>* findings) {
  if (texts.empty()) return;
  std::vector<Walk> walks(texts.begin(), texts.end());
  size_t placed = 0;
  std::vector<std::string> paths;  // must outlive the places, which point into them while `where` is overwritten
  paths.reserve(findings->size());
  for (Diagnostic& d : *findings) {
    if (d.where.line != 0 || ++placed > kMaxPlaced) continue;
    paths.push_back(d.where.path);
    if (std::optional<Place> place = parse_place(paths.back())) walks[text_of(texts, *place)].want(*place, &d);
  }
  for (Walk& walk : walks) walk.run();
}

}  // namespace sg::cli
