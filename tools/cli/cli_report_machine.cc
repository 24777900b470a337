// Machine-readable messages: JSON, SARIF 2.1.0 and GitHub workflow commands.
#include <set>

#include "libgraph/base/chars.h"
#include "libgraph/base/json.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_report.h"

namespace sg::cli {
namespace {

std::string_view level(Severity severity) {
  return severity == Severity::error ? "error" : severity == Severity::warning ? "warning" : "note";
}

// Escapes text for a workflow command; in a property also `:` and `,`.
std::string escape_github(std::string_view s, bool property) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (char c : s) {
    if (c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','))) {
      out += {'%', kHex[(c >> 4) & 15], kHex[c & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

void optional_string(JsonWriter& json, std::string_view key, std::string_view value) {
  if (!value.empty()) json.member(key, value);
}

void write_place(JsonWriter& json, const Location& where) {
  optional_string(json, "file", where.file);
  if (where.line != 0) json.member("line", where.line);
  if (where.column != 0) json.member("column", where.column);
  if (where.offset) json.member("offset_bytes", *where.offset);
  optional_string(json, "path", where.path);
}

void write_sarif_region(JsonWriter& json, const Location& where) {
  json.key("physicalLocation").begin_object();
  json.key("artifactLocation").begin_object().member("uri", uri_of(where.file)).end_object();
  if (where.line != 0) {
    json.key("region").begin_object().member("startLine", where.line);
    if (where.column != 0) json.member("startColumn", where.column);
    json.end_object();
  } else if (where.offset) {
    json.key("region").begin_object().member("byteOffset", *where.offset).end_object();
  }
  json.end_object();
}

// Whether a place is in a file: neither on the command line (`--set a=1`) nor in a stream (`<stdin>`).
bool is_in_file(const Location& where) {
  return !where.file.empty() && !where.file.starts_with("--") && !where.file.starts_with('<');
}

// The message, with its place if readers of annotations could not find it otherwise.
std::string with_place(const Diagnostic& d) {
  return is_in_file(d.where) || d.where.file.empty() ? d.message : d.where.file + ": " + d.message;
}

void write_sarif_result(JsonWriter& json, const Diagnostic& d) {
  json.begin_object().member("ruleId", d.rule.empty() ? "general" : d.rule);
  json.member("level", level(d.severity));
  std::string text = d.hint.empty() ? with_place(d) : with_place(d) + "; " + d.hint;
  json.key("message").begin_object().member("text", text).end_object();
  json.key("locations").begin_array();
  if (is_in_file(d.where) || !d.where.path.empty()) {
    json.begin_object();
    if (is_in_file(d.where)) write_sarif_region(json, d.where);
    if (!d.where.path.empty()) {
      json.key("logicalLocations").begin_array().begin_object();
      json.member("fullyQualifiedName", d.where.path).end_object().end_array();
    }
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace

std::string uri_of(std::string_view s) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (char c : s) {
    bool plain = is_word(c) || std::string_view("-.~/").find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      out += {'%', kHex[(static_cast<unsigned char>(c) >> 4)], kHex[c & 15]};
    }
  }
  return out;
}

std::string as_github(const Diagnostic& d) {
  std::string out = "::" + std::string(d.severity == Severity::note ? "notice" : level(d.severity)) + " ";
  std::string properties;
  auto property = [&](std::string_view name, std::string_view value) {
    if (value.empty()) return;
    properties += (properties.empty() ? "" : ",") + std::string(name) + "=" + escape_github(value, true);
  };
  if (is_in_file(d.where)) {
    property("file", d.where.file);
    if (d.where.line != 0) property("line", std::to_string(d.where.line));
    if (d.where.column != 0) property("col", std::to_string(d.where.column));
  }
  property("title", d.rule);
  std::string text = (d.where.path.empty() ? "" : d.where.path + ": ") + with_place(d);
  if (!d.hint.empty()) text += "\n" + d.hint;
  return out + properties + "::" + escape_github(text, false) + "\n";
}

std::string as_json(const std::string& tool, const std::vector<Diagnostic>& list, size_t hidden) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-diagnostics").member("version", 1).member("tool", tool);
  json.key("diagnostics").begin_array();
  for (const Diagnostic& d : list) {
    json.begin_object().member("severity", level(d.severity));
    optional_string(json, "rule", d.rule);
    json.member("message", d.message);
    write_place(json, d.where);
    optional_string(json, "hint", d.hint);
    optional_string(json, "source_line", d.source_line);
    json.end_object();
  }
  return json.end_array().member("hidden", hidden).end_object().take();
}

std::string as_sarif(const std::string& tool, const std::vector<Diagnostic>& list) {
  std::set<std::string> rules;
  for (const Diagnostic& d : list) rules.insert(d.rule.empty() ? "general" : d.rule);
  JsonWriter json;
  json.begin_object().member("$schema", "https://json.schemastore.org/sarif-2.1.0.json");
  json.member("version", "2.1.0").key("runs").begin_array().begin_object();
  json.key("tool").begin_object().key("driver").begin_object();
  json.member("name", tool).member("version", kVersion).key("rules").begin_array();
  for (const std::string& rule : rules) json.begin_object().member("id", rule).end_object();
  json.end_array().end_object().end_object().key("results").begin_array();
  for (const Diagnostic& d : list) write_sarif_result(json, d);
  return json.end_array().end_object().end_array().end_object().take();
}

}  // namespace sg::cli
