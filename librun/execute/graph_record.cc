// GraphRun on a device: repeated launches are recorded, in the longest runs that nothing splits.
//
// The first run after inputs are bound creates what is created once (code, tables, choices of algorithms); the second
// shows for which steps the host takes part; the third is recorded, segment by segment, and from the fourth on segments
// are launched.
#include <algorithm>
#include <array>

#include "librun/execute/graph_run.h"

namespace sg {
namespace {

constexpr size_t kWarmRuns = 2;
constexpr size_t kLeastItems = 3;  // fewer launches do not justify a recording

}  // namespace

void GraphRun::list_items() {
  auto group = groups_.begin();
  for (size_t i = 0; i < steps_.size();) {
    Item item{i, 1, nullptr, false};
    if (group != groups_.end() && (*group)->first == i) item = {i, (*group)->count, (group++)->get(), false};
    items_.push_back(item);
    i += item.count;
  }
}

Status GraphRun::run_item(const Item& item) {
  if (item.group) return run_group(*item.group);
  SG_TRY(run_step(item.first));
  free_after(item.first);
  return ok_status();
}

Status GraphRun::run_item_watched(size_t i) {
  const uint64_t before = state_.backend->touches();
  SG_TRY(run_item(items_[i]));
  items_[i].touches_host = state_.backend->touches() != before;
  if (in_flight_ > 0) state_.comm->progress();
  return ok_status();
}

// Whether the host gets a number of this type. An omitted gradient (none) is not a number.
bool GraphRun::holds_number(const Type& type) const {
  if (type.kind == TypeKind::list)
    return std::ranges::any_of(type.elements, [&](TypeId t) { return holds_number(graph_.pool().types[t]); });
  return type.kind != TypeKind::tensor && type.kind != TypeKind::none;
}

bool GraphRun::has_number(NodeId n) const {
  for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
    const ValueId v = graph_.node(n).result(i);
    const bool is_known = graph_.type(v).has_value && static_[v.index];
    if (!is_known && holds_number(graph_.type(v))) return true;
  }
  return false;
}

Split GraphRun::split_of(const Item& item) const {
  for (size_t i = item.first; i < item.first + item.count; ++i) {
    const Step& step = steps_[i];
    if (is_of_copy(step)) return Split::copy;
    if (step.kind == StepKind::launch || step.kind == StepKind::wait) return Split::collective;
    if (step.kind == StepKind::call) return Split::body;
    if (step.kind == StepKind::host || has_number(step.node)) return Split::number;
    if (!step.is_static || step.gives_numbers || !step.frees.empty()) return Split::data;
  }
  return item.touches_host ? Split::host : Split::none;
}

Status GraphRun::record(const Segment& segment, size_t number) {
  SG_TRY(state_.backend->begin_recording());
  Status status = ok_status();
  for (size_t i = segment.first; i < segment.first + segment.count && status.ok(); ++i) status = run_item(items_[i]);
  auto program = state_.backend->end_recording();
  SG_TRY(std::move(status));
  if (!program.ok()) return program.error();
  recorded_[number] = std::move(program).value();
  return ok_status();
}

Status GraphRun::run_on_device() {
  if (items_.empty()) list_items();
  if (runs_ == kWarmRuns && !state_.observer && state_.backend->records()) {  // recorded work has no times
    std::vector<Split> splits;
    for (const Item& item : items_) splits.push_back(split_of(item));
    segments_ = plan_segments(splits, kLeastItems);
    recorded_.resize(segments_.size());
  }
  ++runs_;
  size_t next = 0;
  for (size_t i = 0; i < items_.size();) {
    if (next < segments_.size() && segments_[next].first == i) {
      if (!recorded_[next]) SG_TRY(record(segments_[next], next));
      begin_node(steps_[items_[i].first].node);
      SG_TRY(recorded_[next]->run());
      i += segments_[next++].count;
      continue;
    }
    SG_TRY(run_item_watched(i++));
  }
  return finish_launched();
}

std::vector<std::string> GraphRun::explain() const {
  std::vector<std::string> out;
  auto counted = [](size_t n, const std::string& what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); };
  if (!state_.backend) {
    size_t fused = 0;
    for (const auto& group : groups_) fused += group->count;
    if (fused == 0) return {counted(steps_.size(), "kernel") + ", none fused"};
    return {counted(steps_.size(), "kernel") + ", " + std::to_string(fused) + " of them fused into " +
            std::to_string(groups_.size()) + (groups_.size() == 1 ? " pass" : " passes") + " over memory"};
  }
  size_t kept = 0;
  for (const Segment& s : segments_) kept += s.count;
  out.push_back(counted(steps_.size(), "kernel"));
  if (!items_.empty()) out.back() += ", " + counted(items_.size(), "item") + " after fusing";
  if (shows_nodes()) out.back() += ", one by one, because they are observed: nothing is fused or recorded";
  else if (state_.observer) out.back() += "; nothing is recorded, as each is timed";
  else if (!state_.backend->records()) out.back() += "; nothing is recorded: SG_CUDA_RECORD says so";
  else if (runs_ <= kWarmRuns) out.back() += "; nothing is recorded before step " + std::to_string(kWarmRuns);
  else out.back() += "; " + std::to_string(kept) + " of them recorded as " + counted(segments_.size(), "segment");
  std::array<size_t, 7> splits{};
  std::array<std::string, 7> first;
  for (const Item& item : items_) {
    const auto why = static_cast<size_t>(split_of(item));
    if (splits[why]++ == 0) first[why] = std::string(graph_.label(steps_[item.first].node));
  }
  for (size_t why = 1; why < splits.size(); ++why)
    if (splits[why] > 0)
      out.push_back("split by " + std::string(split_text(static_cast<Split>(why))) + ": " +
                    counted(splits[why], "item") + ", first %" + first[why]);
  for (const std::string& line : state_.backend->explain()) out.push_back(line);
  for (const auto& [op, count] : on_host_) out.push_back("computed by the host: " + op + ", " + counted(count, "node"));
  return out;
}

}  // namespace sg
