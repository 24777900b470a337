// Columns of sg-view's JSON, and the table of texts that they share. Internal to libgraph/view.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/base/json.h"
#include "libgraph/diff/diff.h"
#include "libgraph/expr/sizes.h"
#include "libgraph/graph.h"
#include "libgraph/sim/simulate.h"
#include "libgraph/text/text_printer.h"

namespace sg {

// Texts in order of first appearance.
class ViewStrings {
 public:
  uint32_t index(std::string text);
  void write(JsonWriter* json) const;

 private:
  std::unordered_map<std::string, uint32_t> index_;
  std::vector<const std::string*> texts_;  // keys of index_: they stay where they are
};

// What all programs of a page share. A printer looks at its whole job once: nobody makes one for each program.
struct ViewTexts {
  ViewStrings strings;
  text::TextPrinter printer;
  std::optional<text::TextPrinter> printer_before;  // of the older job, where there is one

  ViewTexts(const Job& job, const Job* before) : printer(job) {
    if (before != nullptr) printer_before.emplace(*before);
  }
};

// One graph as the page numbers it: positions of nodes.
struct ViewGraph {
  const Job* job = nullptr;
  const Program* program = nullptr;
  const Graph* graph = nullptr;
  std::vector<NodeId> nodes;         // by position
  std::vector<int64_t> position_of;  // by NodeId
  ViewGraph(const Job& job, const Program& program, const Graph& graph);
  int64_t maker_of(ValueId v) const;  // a position, or -1 - input
};

// The time of each node: the end of its event, or the latest end before it. `view`: of the main graph.
std::vector<double> times_of(const ViewGraph& view, const ProgramTimeline& timeline);

// "key": [fn(0), fn(1), ...]
void write_column(JsonWriter* json, std::string_view key, size_t n, const std::function<int64_t(size_t)>& fn);

void write_nodes(JsonWriter* json, const ViewGraph& view, ViewTexts* texts);
void write_memory(JsonWriter* json, const ViewGraph& view, const SizeValues& values);
void write_times(JsonWriter* json, const Job& job, const std::vector<ViewGraph>& graphs,
                 const ProgramTimeline& timeline);
// What a program was in the older job: its peak, its time, and the course of its memory over that time.
void write_before(JsonWriter* json, const ViewGraph& view, const SizeValues& values, const ProgramTimeline& timeline);
void write_changes(JsonWriter* json, const ViewGraph& view, const GraphDiff& diff, ViewTexts* texts);

}  // namespace sg
