#include "libgraph/import/source_kind.h"

#include <algorithm>

#include "libgraph/base/chars.h"

namespace sg {
namespace {

constexpr size_t kHead = 1 << 16;  // the kind of a source shows within this many bytes
constexpr std::string_view kKindNames[] = {"capture", "pt2", "fx", "torch-trace", "unknown"};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// A line of TORCH_TRACE: a level letter, month and day, ..., "file.py:LINE] {json}".
bool looks_like_torch_trace(std::string_view head) {
  std::string_view line = head.substr(0, head.find('\n'));
  bool starts = line.size() > 5 && std::string_view("VIWE").find(line[0]) != std::string_view::npos &&
                std::all_of(line.begin() + 1, line.begin() + 5, is_digit);
  return starts && contains(line, "] {");
}

// What FX prints: a forward, or a graph of placeholders.
bool looks_like_fx(std::string_view head) {
  return contains(head, "def forward(") || (contains(head, "graph(") && contains(head, "placeholder[target="));
}

}  // namespace

std::string_view source_kind_name(SourceKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

std::optional<SourceKind> source_kind_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kKindNames); ++i)
    if (kKindNames[i] == name) return static_cast<SourceKind>(i);
  return std::nullopt;
}

SourceKind source_kind_of(std::string_view bytes) {
  std::string_view head = bytes.substr(0, kHead);
  if (head.starts_with("\x1f\x8b")) return SourceKind::capture;  // unpacked and checked by the importer
  if (head.starts_with("PK\x03\x04")) return SourceKind::pt2;
  size_t first = head.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && head[first] == '{') return SourceKind::capture;  // checked by the importer
  if (looks_like_torch_trace(head)) return SourceKind::torch_trace;
  return looks_like_fx(head) ? SourceKind::fx : SourceKind::unknown;
}

bool is_trace_log_name(std::string_view name) {
  return name.starts_with("dedicated_log_torch_trace_") && name.ends_with(".log");
}

SourceKind source_kind_of_folder(std::span<const std::string> entries) {
  auto has = [&](std::string_view name) { return std::find(entries.begin(), entries.end(), name) != entries.end(); };
  // Written by tlparse: a table of the compilations, and a folder for each. Named by TORCH_TRACE: logs.
  return has("compile_directory.json") || has("failures_and_restarts.html") ||
                 std::any_of(entries.begin(), entries.end(), is_trace_log_name)
             ? SourceKind::torch_trace
             : SourceKind::unknown;
}

}  // namespace sg
