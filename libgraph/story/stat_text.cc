#include "libgraph/story/stat_text.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/story/ranks_text.h"

namespace sg {
namespace {

constexpr size_t kNameWidth = 52;

void print_row(std::string* out, const std::string& name, std::initializer_list<std::string> cells,
               size_t width = kNameWidth) {
  *out += "  " + left_cell(name, width);
  for (const std::string& cell : cells) *out += right_cell(cell, 12);
  *out += "\n";
}

void print_sum(std::string* out, const std::string& name, const CostSum& sum, size_t width) {
  print_row(out, name, {std::to_string(sum.nodes), human_flops(sum.flops), human_bytes(sum.bytes)}, width);
}

void print_table(std::string* out, const std::string& title, const std::map<std::string, CostSum>& sums, size_t rows) {
  std::vector<std::pair<std::string, CostSum>> order(sums.begin(), sums.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second.flops != b.second.flops ? a.second.flops > b.second.flops : a.second.bytes > b.second.bytes;
  });
  size_t width = kNameWidth;
  for (size_t i = 0; i < std::min(rows, order.size()); ++i) width = std::max(width, order[i].first.size() + 1);
  print_row(out, title, {"nodes", "flops", "moved"}, width);
  CostSum rest;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto& [name, sum] = order[i];
    if (i < rows) {
      print_sum(out, name.empty() ? "-" : name, sum, width);
      continue;
    }
    rest.nodes += sum.nodes;
    rest.flops += sum.flops;
    rest.bytes += sum.bytes;
  }
  if (order.size() > rows) print_sum(out, "(" + std::to_string(order.size() - rows) + " more)", rest, width);
}

void print_counts(std::string* out, const ProgramStats& s) {
  *out += plural(s.nodes, "node") + ", " + plural(s.inputs, "input") + ", " + plural(s.outputs, "output");
  if (!s.nested.empty()) *out += ", " + plural(s.nested.size(), "nested graph");
  if (s.random_ops != 0) *out += ", " + plural(s.random_ops, "random node");
  if (s.symbols != 0) *out += ", " + plural(s.symbols, "symbol");
  *out += "\n";
}

void print_memory(std::string* out, const ProgramStats& s) {
  *out += "  " + plural(s.parameters, "parameter") + ", " + human_count(s.parameter_elements) + " elements, " +
          human_bytes(static_cast<double>(s.memory.parameters_bytes)) + "; all inputs " +
          human_bytes(static_cast<double>(s.memory.inputs_bytes)) + "\n";
  *out += "  memory beyond the inputs: " + human_bytes(static_cast<double>(s.memory.peak_bytes)) + " planned, " +
          human_bytes(static_cast<double>(s.memory.lower_bound_bytes)) + " live at once";
  if (!s.memory.peak_node.empty()) *out += ", first at %" + s.memory.peak_node;
  *out += "\n";
  if (s.memory.host_bytes > 0)
    *out += "  memory on the host: " + human_bytes(static_cast<double>(s.memory.host_bytes)) + " planned\n";
  if (s.memory.allocation) *out += print_allocation(*s.memory.allocation);
}

void print_collectives(std::string* out, const std::vector<CollectiveSum>& list) {
  for (const CollectiveSum& c : list)
    *out += "  " + c.kind + " @" + c.group + ": " + std::to_string(c.count) + ", " + human_bytes(c.bytes) +
            " handed in, " + human_bytes(c.wire_bytes) + " sent\n";
}

void print_assumed(std::string* out, const ProgramStats& s) {
  constexpr size_t kShown = 8;
  if (s.assumed.empty()) return;
  *out += "  sizes: ";
  for (size_t i = 0; i < std::min(kShown, s.assumed.size()); ++i)
    *out += (i ? ", " : "") + s.assumed[i].first + " = " + std::to_string(s.assumed[i].second);
  if (s.assumed.size() > kShown) *out += " and " + std::to_string(s.assumed.size() - kShown) + " more";
  *out += " (assumed; --assume)\n";
}

void print_unknown(std::string* out, const ProgramStats& s) {
  if (s.incomplete != 0)
    *out += "  " + plural(s.incomplete, "node") +
            " of unknown cost: a size without a number (--assume), or an unknown op\n";
  if (!s.unbounded.empty())
    *out +=
        "  " + plural(s.unbounded.size(), "symbol") + " without an upper bound, the first is " + s.unbounded[0] + "\n";
  for (const auto& [op, count] : s.opaque_ops) *out += "  unknown op " + op + ": " + plural(count, "node") + "\n";
}

}  // namespace

StatTable stat_table_named(std::string_view name) {
  return name == "phase" ? StatTable::phase : name == "op" ? StatTable::op : StatTable::module;
}

std::string print_stats(const Stats& stats, StatTable table, size_t rows) {
  std::string out = stats.title.empty() ? "" : one_line(stats.title) + "\n";
  for (const ProgramStats& s : stats.programs) {
    out += ranks_text(s.ranks, stats.world) + ": ";
    print_counts(&out, s);
    print_assumed(&out, s);
    out += "  " + human_flops(s.total.flops) + ", " + human_bytes(s.total.bytes) + " moved\n";
    print_memory(&out, s);
    print_collectives(&out, s.collectives);
    print_unknown(&out, s);
    if (table == StatTable::phase) print_table(&out, "by phase", s.by_phase, rows);
    if (table == StatTable::module) print_table(&out, "by module", s.by_module, rows);
    if (table == StatTable::op) print_table(&out, "by op", s.by_op, rows);
  }
  return out;
}

}  // namespace sg
