#include "libgraph/import/trace_log.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>

#include "libgraph/base/chars.h"

namespace sg {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

// Keys that locate a log line; the remaining key is the event.
constexpr std::string_view kEnvelope[] = {
    "rank",   "frame_id",  "frame_compile_id", "attempt", "compiled_autograd_id", "stack", "has_payload", "process",
    "thread", "timestamp", "pathname",         "lineno"};

std::optional<uint32_t> number(const object& o, std::string_view key) {
  int64_t value = 0;
  if (o[key].get(value) || value < 0 || value > UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(value);
}

// "..._rank_3_xyz.log" and "rank3/trace.log" belong to rank 3, "frank3/trace.log" to none: the last such word counts.
std::optional<uint32_t> rank_of_name(std::string_view path) {
  constexpr std::string_view kWord = "rank";
  auto is_alpha = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (size_t at = path.rfind(kWord); at != path.npos; at = at == 0 ? path.npos : path.rfind(kWord, at - 1)) {
    if (at > 0 && (is_alpha(path[at - 1]) || is_digit(path[at - 1]))) continue;
    std::string_view digits = path.substr(at + kWord.size());
    if (digits.starts_with('_')) digits.remove_prefix(1);
    uint32_t rank = 0;
    const char* const end = digits.data() + digits.size();
    const auto [behind, problem] = std::from_chars(digits.data(), end, rank);
    if (problem == std::errc() && (behind == end || !is_alpha(*behind))) return rank;
  }
  return std::nullopt;
}

class LogReader {
 public:
  LogReader(const std::string& name, std::string_view bytes) : name_(name), bytes_(bytes), rank_(rank_of_name(name)) {}

  Result<TraceLog> read() {
    while (at_ < bytes_.size()) {
      size_t begin = at_, end = std::min(bytes_.find('\n', at_), bytes_.size());
      at_ = end + 1;
      std::string_view line = bytes_.substr(begin, end - begin);
      if (line.size() < 6 || std::string_view("VIWEC").find(line[0]) == std::string_view::npos) continue;
      if (!std::all_of(line.begin() + 1, line.begin() + 5, is_digit)) continue;
      size_t json = line.find("] {");
      if (json == std::string_view::npos) continue;
      SG_TRY(event(begin + json + 2, end));
    }
    return std::move(out_);
  }

 private:
  Status event(size_t begin, size_t end) {
    element root;
    object fields;
    std::string_view json = bytes_.substr(begin, end - begin);
    const bool is_broken = parser_.parse(simdjson::padded_string(json)).get(root) || root.get(fields);
    if (is_broken && end == bytes_.size()) return out_.cut_file = name_, ok_status();
    if (is_broken)
      return FxText::of(name_, bytes_).error(begin, "the line's JSON is broken", "the log is cut or damaged");
    ++out_.events;
    read_size(fields);
    element payload;
    if (fields["has_payload"].get(payload)) return ok_status();
    TraceArtefact artefact;
    artefact.text = FxText::of(name_, bytes_);
    artefact.text.begin = std::min(at_, bytes_.size());
    while (at_ < bytes_.size() && bytes_[at_] == '\t') at_ = std::min(bytes_.find('\n', at_), bytes_.size() - 1) + 1;
    artefact.text.end = std::min(std::max(at_, artefact.text.begin), bytes_.size());
    read_place(fields, &artefact);
    artefact.name = event_name(fields);
    out_.artefacts.push_back(std::move(artefact));
    return ok_status();
  }

  // Reads rank, compilation and attempt.
  template <typename Record>
  void read_place(const object& fields, Record* out) const {
    out->rank = number(fields, "rank");
    if (!out->rank) out->rank = rank_;
    out->attempt = number(fields, "attempt").value_or(0);
    auto frame = number(fields, "frame_id"), compile = number(fields, "frame_compile_id"),
         autograd = number(fields, "compiled_autograd_id");
    if (autograd) out->compile = "!" + std::to_string(*autograd) + (frame ? "/" : "");
    if (frame) out->compile += std::to_string(*frame) + "/" + std::to_string(compile.value_or(0));
  }

  void read_size(const object& fields) {
    TraceSize found;
    auto text = [](const object& o, std::string_view key) {
      std::string_view value;
      return o[key].get(value) ? std::string() : std::string(value);
    };
    object event;
    if (!fields["create_symbol"].get(event))
      found.size = {false, text(event, "symbol"), text(event, "val"), text(event, "vr"), text(event, "source")};
    else if (!fields["guard_added"].get(event) || !fields["guard_added_fast"].get(event))
      found.size = {true, text(event, "expr"), {}, {}, {}};
    else if (!fields["describe_source"].get(event)) found.size.source = text(event, "source");
    if (found.size.text.empty() && found.size.source.empty()) return;
    read_place(fields, &found);
    out_.sizes.push_back(std::move(found));
  }

  // The event's name; an artefact's name is inside: {"artifact": {"name": "before_post_grad_graph"}}
  static std::string event_name(const object& fields) {
    for (auto field : fields) {
      if (std::find(std::begin(kEnvelope), std::end(kEnvelope), field.key) != std::end(kEnvelope)) continue;
      std::string name(field.key);
      std::string_view inner;
      if (!field.value["name"].get(inner)) name += " " + std::string(inner);
      return name;
    }
    return "nameless";
  }

  const std::string& name_;
  std::string_view bytes_;
  std::optional<uint32_t> rank_;
  size_t at_ = 0;
  simdjson::dom::parser parser_;
  TraceLog out_;
};

// "-_0_0_0" is 0/0, attempt 0; "1_0_0_2" is 0/0 within compiled autograd 1, attempt 2.
bool read_folder_name(std::string_view folder, TraceArtefact* out) {
  std::vector<std::string_view> parts;
  while (true) {
    size_t bar = folder.find('_');
    parts.push_back(folder.substr(0, bar));
    if (bar == std::string_view::npos) break;
    folder.remove_prefix(bar + 1);
  }
  if (parts.size() != 4) return false;
  for (size_t i = 0; i < 4; ++i)
    if (parts[i] != "-" && (parts[i].empty() || !std::all_of(parts[i].begin(), parts[i].end(), is_digit))) return false;
  if (parts[0] != "-" && parts[0] != "") out->compile = "!" + std::string(parts[0]) + "/";
  out->compile += std::string(parts[1]) + "/" + std::string(parts[2]);
  std::from_chars(parts[3].data(), parts[3].data() + parts[3].size(), out->attempt);
  return true;
}

// "aot_joint_graph_5.txt": aot_joint_graph
std::string_view artefact_of_file(std::string_view file) {
  if (!file.ends_with(".txt")) return {};
  file.remove_suffix(4);
  size_t bar = file.rfind('_');
  bool is_numbered = bar != std::string_view::npos && bar + 1 < file.size() &&
                     std::all_of(file.begin() + static_cast<std::ptrdiff_t>(bar) + 1, file.end(), is_digit);
  return is_numbered ? file.substr(0, bar) : file;
}

}  // namespace

Result<TraceLog> read_trace_log(const std::string& name, std::string_view bytes) {
  return LogReader(name, bytes).read();
}

bool is_trace_graph_file(std::string_view path) {
  size_t slash = path.rfind('/');
  std::string_view name = artefact_of_file(path.substr(slash == std::string_view::npos ? 0 : slash + 1));
  return name.ends_with("_graph");
}

Result<TraceLog> read_trace_folder(const std::vector<TraceFile>& files) {
  TraceLog out;
  for (const TraceFile& file : files) {
    TraceArtefact artefact;
    size_t slash = file.path.rfind('/');
    std::string_view folder =
        slash == std::string::npos ? std::string_view() : std::string_view(file.path).substr(0, slash);
    size_t inner = folder.rfind('/');
    artefact.rank = rank_of_name(folder);
    if (!artefact.rank) artefact.rank = rank_of_name(file.name);
    if (!read_folder_name(inner == std::string_view::npos ? folder : folder.substr(inner + 1), &artefact)) continue;
    artefact.name = artefact_of_file(std::string_view(file.path).substr(slash + 1));
    if (artefact.name.empty()) continue;
    artefact.text = FxText::of(file.name, file.bytes);
    out.artefacts.push_back(std::move(artefact));
  }
  out.events = out.artefacts.size();
  return out;
}

}  // namespace sg
