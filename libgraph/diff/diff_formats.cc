// The formats that CI systems read: one finding per line of the text report.
#include <algorithm>
#include <set>

#include "libgraph/base/json.h"
#include "libgraph/diff/diff_text.h"

namespace sg {
namespace {

struct Finding {
  std::string rule, message;  // "recomputed", "241 nodes recompute 120 nodes [layers.{0..2}]"
  TextPlace place;            // in A's text
};

std::string hunk_message(const Hunk& h) {
  std::string out = h.phase + " " + (h.where.empty() ? "-" : h.where);
  if (!h.source.empty()) out += " at " + h.source;
  out += ":";
  auto part = [&](size_t n, const char* what) {
    if (n) out += (out.back() == ':' ? " " : ", ") + std::to_string(n) + " " + what;
  };
  part(h.changed, "changed"), part(h.renamed, "renamed"), part(h.moved, "moved"), part(h.added, "added"),
      part(h.removed, "removed");
  if (h.layers > 1) out += ", in each of " + std::to_string(h.layers) + (h.is_of_source ? " places" : " layers");
  constexpr size_t kNames = 8;
  std::vector<std::string> names;  // one that is removed and one that is added may have the same
  for (const std::string& name : h.names)
    if (names.size() <= kNames && std::ranges::find(names, name) == names.end()) names.push_back(name);
  for (size_t i = 0; i < std::min(names.size(), kNames); ++i) out += (i ? ", " : ": ") + names[i];
  if (names.size() > kNames) out += ", ...";
  for (size_t i = 0; i < h.details.size(); ++i) out += (i ? "; " : " (") + (i < kDetails ? h.details[i] : "...");
  return out + (h.details.empty() ? "" : ")");
}

std::vector<Finding> findings(const JobDiff& diff, const DiffTextOptions& options) {
  std::vector<Finding> out;
  std::vector<size_t> placed;       // findings that have a place in A,
  std::vector<std::string> places;  // and where
  auto add_notes = [&](const std::vector<Note>& notes, const std::string& prefix) {
    for (const Note& n : notes) {
      std::string rule = n.kind;
      for (char& c : rule) c = c == ' ' ? '-' : c;
      out.push_back({rule, prefix + n.kind + ": " + n.text + (n.where.empty() ? "" : " [" + n.where + "]"), {}});
    }
  };
  add_notes(job_notes(diff), "");
  std::vector<DiffReport> reports = report_diff(diff, options.hunks);
  for (const DiffReport& r : reports) {
    std::string prefix;
    if (reports.size() > 1 || (diff.programs.size() > 1 && !r.ranks.empty())) {
      prefix = r.ranks.size() == 1 ? "rank" : "ranks";
      for (uint32_t rank : r.ranks) prefix += " " + std::to_string(rank);
      prefix += ": ";
    }
    add_notes(r.notes, prefix);
    for (const Hunk& h : r.hunks) {
      placed.push_back(out.size()), places.push_back(h.place_a);
      out.push_back({"edit", prefix + hunk_message(h), {}});
    }
  }
  std::vector<TextPlace> found;
  if (options.find_places) found = options.find_places(places);
  for (size_t i = 0; i < found.size(); ++i) out[placed[i]].place = std::move(found[i]);
  for (Finding& f : out)
    if (f.place.line == 0) f.place = {options.name_a, options.uri_a, 0};
  return out;
}

std::string xml(std::string_view s) {
  std::string out;
  for (char c : s) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '"') out += "&quot;";
    else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') out += '?';
    else out += c;
  }
  return out;
}

// Escapes the text of a workflow command, which ends at the end of the line.
std::string github_text(std::string_view s) {
  std::string out;
  for (char c : s) {
    if (c == '%') out += "%25";
    else if (c == '\n') out += "%0A";
    else if (c == '\r') out += "%0D";
    else out += c;
  }
  return out;
}

// Escapes a property of a workflow command, which ends at a comma.
std::string github_property(std::string_view s) {
  std::string out;
  for (char c : github_text(s)) {
    if (c == ':') out += "%3A";
    else if (c == ',') out += "%2C";
    else out += c;
  }
  return out;
}

void put_sarif_tool(const std::vector<Finding>& list, JsonWriter* json) {
  std::set<std::string> rules;
  for (const Finding& f : list) rules.insert(f.rule);
  json->key("tool").begin_object().key("driver").begin_object().member("name", "sg-diff");
  json->key("rules").begin_array();
  for (const std::string& rule : rules) json->begin_object().member("id", rule).end_object();
  json->end_array();
  json->end_object().end_object();
}

void put_sarif_result(const Finding& f, JsonWriter* json) {
  json->begin_object().member("ruleId", f.rule).member("level", "error");
  json->key("message").begin_object().member("text", f.message).end_object();
  json->key("locations").begin_array().begin_object().key("physicalLocation").begin_object();
  json->key("artifactLocation").begin_object().member("uri", f.place.uri).end_object();
  if (f.place.line) json->key("region").begin_object().member("startLine", f.place.line).end_object();
  json->end_object().end_object().end_array();
  json->end_object();
}

}  // namespace

std::string diff_github(const JobDiff& diff, const DiffTextOptions& options) {
  std::string out;
  for (const Finding& f : findings(diff, options))
    out += "::error file=" + github_property(f.place.file) +
           (f.place.line ? ",line=" + std::to_string(f.place.line) : "") +
           ",title=" + github_property("sg-diff " + f.rule) + "::" + github_text(f.message) + "\n";
  return out;
}

std::string diff_junit(const JobDiff& diff, const DiffTextOptions& options) {
  std::vector<Finding> list = findings(diff, options);
  std::string name = xml(options.name_a + " against " + options.name_b);
  size_t tests = std::max<size_t>(1, list.size());
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"sg-diff\" tests=\"" +
                    std::to_string(tests) + "\" failures=\"" + std::to_string(list.size()) + "\" errors=\"0\">\n";
  if (list.empty()) out += "    <testcase classname=\"sg-diff\" name=\"" + name + "\"/>\n";
  for (size_t i = 0; i < list.size(); ++i)
    out += "    <testcase classname=\"" + name + "\" name=\"" + xml(list[i].rule) + " " + std::to_string(i + 1) +
           "\">\n      <failure type=\"" + xml(list[i].rule) + "\" message=\"" + xml(list[i].message) +
           "\"/>\n    </testcase>\n";
  return out + "  </testsuite>\n</testsuites>\n";
}

std::string diff_sarif(const JobDiff& diff, const DiffTextOptions& options) {
  std::vector<Finding> list = findings(diff, options);
  JsonWriter json;
  json.begin_object().member("$schema", "https://json.schemastore.org/sarif-2.1.0.json").member("version", "2.1.0");
  json.key("runs").begin_array().begin_object();
  put_sarif_tool(list, &json);
  json.key("results").begin_array();
  for (const Finding& f : list) put_sarif_result(f, &json);
  json.end_array();
  json.end_object().end_array().end_object();
  return json.take();
}

}  // namespace sg
