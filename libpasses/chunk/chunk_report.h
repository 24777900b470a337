// What --explain says of the plans of a job: for each region, what is cut, and what leaves it. Internal to sg-chunk.
#pragma once

#include <string>

#include "libgraph/base/json.h"
#include "libgraph/job.h"
#include "libpasses/chunk/chunk_plan.h"

namespace sg {

class ChunkReport {
 public:
  // many_graphs: ranks have graphs of their own, so each region is said with its graph.
  ChunkReport(int64_t chunks, bool many_graphs);

  void add(const Program& program, const ChunkPlan& plan);  // before the plan is applied
  std::string take_text() { return std::move(text_); }
  std::string take_json();

 private:
  void add_region(const Graph& graph, const ChunkPlan& plan, uint32_t r);
  void add_result(const Graph& graph, ValueId v, const AxisState& s);

  const int64_t chunks_;
  const bool many_graphs_;
  std::string text_;
  JsonWriter json_;
};

}  // namespace sg
