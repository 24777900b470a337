// ChunkPlanner: makes a ChunkPlan. Internal to plan_chunks.
//
// chunk_plan.cc  walks the program: where regions begin, which nodes belong to them, which values are used whole
// chunk_body.cc  one node of a region, by its axis rule
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libpasses/axis/axis_rules.h"
#include "libpasses/chunk/chunk_plan.h"
#include "libpasses/chunk/chunk_refusals.h"

namespace sg {

class ChunkPlanner {
 public:
  // `region_of`: by node. `together`: rows that are cut at multiples.
  ChunkPlanner(const Program& program, const ChunkOptions& options, const std::vector<ChunkRegion>& regions,
               const std::vector<uint32_t>& region_of, const std::vector<RowsTogether>& together, bool best_effort);

  // The region that could not be chunked, if any. `nodes`: by region; `from_data`: by value.
  std::optional<RefusedRegion> run(const std::vector<std::vector<NodeId>>& nodes, const std::vector<bool>& from_data);
  ChunkPlan take() { return std::move(plan_); }

 private:
  struct Operands {
    bool along = false, partial = false, size = false;
  };

  const AxisState& state(ValueId v) const { return plan_.world.state_now(v); }

  // walking: chunk_plan.cc
  void find_equal_values();
  Status start_region(uint32_t r, const std::vector<NodeId>& nodes, const std::vector<bool>& from_data);
  uint32_t rows_domain(Expr size);
  std::optional<RefusedRegion> visit(NodeId n);
  uint32_t region_at(NodeId n) const;
  bool may_lie_between(NodeId n) const;
  bool leads_back(NodeId n) const;
  uint32_t region_between(NodeId n) const;
  void seed(NodeId n, uint32_t r);
  std::optional<RefusedRegion> use_operands(NodeId n);
  std::optional<RefusedRegion> use_whole(ValueId v, const std::string& user);
  void note_result(ValueId v);
  void mark_constant(NodeId n);
  void freeze_constants(NodeId n);
  std::optional<RefusedRegion> find_untouched_region() const;

  // one node of a body: chunk_body.cc
  std::optional<RefusedRegion> visit_body(NodeId n, uint32_t r);
  std::optional<RefusedRegion> visit_with_sums(NodeId n, uint32_t r, const AxisRow* row, Operands has, Error refusal);
  std::optional<Along> filled_through_views(NodeId n);
  Operands operands_of(NodeId n) const;
  bool repeats_earlier(AxisCall* call, const AxisRow* row, uint32_t r) const;
  Status run_rule(AxisCall& call, const AxisRow* row, const Operands& has) const;
  Status tampered(AxisCall& call, Status done) const;
  bool sums_before(NodeId n) const;
  RefusedRegion refused(const AxisCall& call, const AxisRow* row, uint32_t r, const Error& why) const;
  void accept(AxisCall& call, uint32_t r);
  void make_in_chunks(ValueId v, const AxisState& s, uint32_t r);
  void add_body(BodyNode body);

  const Program& program_;
  const Graph& graph_;
  const ChunkOptions& options_;
  const std::vector<uint32_t>& region_of_;
  const std::vector<RowsTogether>& together_;
  const ChunkRefusals why_not_;
  const std::vector<bool> received_;  // by value
  ChunkPlan plan_;
  std::vector<NodeId> fills_;    // with chunked operands; whole unless wanted in chunks
  std::vector<ValueId> seeded_;  // operands of the current node
  std::vector<std::vector<std::pair<std::vector<Expr>, Along>>> results_;  // by region: results that are concatenated
};

}  // namespace sg
