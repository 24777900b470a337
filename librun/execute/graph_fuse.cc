// GraphRun: fuses consecutive pointwise nodes of one shape into one pass over memory. A single node is a group, too, so
// that its program is prepared once. On a device a group may include a reduction of its results and later chains over
// the same rows; and two calls may have a kernel that skips the intermediate value.
//
// Only static steps are fused, and only if PointwiseProgram accepts them: it knows addresses, so it sees where the plan
// reuses memory. Nothing else runs between the steps of a group, and each stands where the schedule has it, so memory
// matches the plan before and after the group. Bits do not change (pointwise.h).
#include <algorithm>

#include "libgraph/op.h"
#include "librun/cpu/pointwise.h"
#include "librun/execute/graph_run.h"

namespace sg {
namespace {

constexpr size_t kMostOnDevice = 24;  // calls in a device program: limited by registers
constexpr size_t kMostStages = 6;     // of a row kernel

}  // namespace

bool GraphRun::can_fuse(const Step& step) const {
  return step.kind == StepKind::kernel && step.is_static && cpu::PointwiseProgram::knows(graph_.op_name(step.node));
}

bool GraphRun::can_reduce(const Step& step) const {
  return step.kind == StepKind::kernel && step.is_static && !step.gives_numbers &&
         graph_.op_info(step.node)->has(kReduction);
}

// Whether anything but the nodes of steps [first, end) reads the value's memory: users, users of views without steps,
// outputs.
bool GraphRun::is_looked_at_outside(ValueId v, size_t first, size_t end) const {
  bool needed = false;
  graph_.for_each_use(v, [&](Use use) {
    needed |= use.user.is_none();
    if (needed) return;
    auto inside = std::find_if(steps_.begin() + static_cast<std::ptrdiff_t>(first),
                               steps_.begin() + static_cast<std::ptrdiff_t>(end),
                               [&](const Step& s) { return s.node == use.user; });
    if (inside != steps_.begin() + static_cast<std::ptrdiff_t>(end)) return;
    const Node& user = graph_.node(use.user);
    needed |= !is_plain_view(use.user);
    for (uint32_t r = 0; r < user.result_count && !needed; ++r)
      needed |= !static_[user.result(r).index] || is_looked_at_outside(user.result(r), first, end);
  });
  return needed;
}

bool GraphRun::is_needed_outside(ValueId v, size_t first, size_t end) const {
  StorageId s = alias_->storage_of(v);
  if (alias_->storage(s).owner != v) return true;  // a write in place serves later readers of that memory
  return is_looked_at_outside(v, first, end);
}

// On a device, where a group may look at the calls that come after it.
Status GraphRun::fuse() {
  for (Step& step : steps_)
    if (step.is_static && step.kind != StepKind::host)
      if (Status status = resolve(&step); !status.ok()) return at_node(std::move(status.error()), step.node);
  while (fused_ < steps_.size()) SG_TRY(fuse_from(fused_));
  return ok_status();
}

// Creates the group that begins at step `first`, if there is one.
Status GraphRun::fuse_from(size_t first) {
  size_t end = first, taken = 1;
  while (end < steps_.size() && end - first < cpu::PointwiseProgram::kMaxCalls && can_fuse(steps_[end])) ++end;
  for (size_t i = first; i < end; ++i)  // what their arguments are was known before the first step
    if (!steps_[i].resolved)
      if (Status status = resolve(&steps_[i]); !status.ok()) return at_node(std::move(status.error()), steps_[i].node);
  const size_t groups = groups_.size();
  if (end == first) {
    SG_ASSIGN(taken, fuse_pair(first));
  } else {
    SG_ASSIGN(taken, fuse_run(first, end));
  }
  fused_ = first + taken;
  if (!state_.backend && groups_.size() > groups) give_up_calls(first, fused_);
  return ok_status();
}

void GraphRun::give_up_calls(size_t first, size_t end) {
  for (size_t i = first; i < end; ++i) steps_[i].call.reset(), steps_[i].resolved = false;
}

// Creates the longest group that begins at step `first`; returns how many steps it covers.
Result<size_t> GraphRun::fuse_run(size_t first, size_t end) {
  // Which results are needed outside depends on where the group ends, so it is laid out twice: first to find its end,
  // then with the results that may stay in registers.
  size_t stop = first;
  if (state_.backend) end = std::min(end, first + kMostOnDevice);
  {
    cpu::PointwiseProgram trial;
    for (; stop < end; ++stop) {
      Result<bool> fits = trial.add(*steps_[stop].call);
      if (!fits.ok() || !*fits) break;
    }
  }
  if (stop == first) return size_t{1};
  if (state_.backend && stop < steps_.size() && can_reduce(steps_[stop])) {
    SG_ASSIGN(size_t taken, fuse_rows(first, stop));
    if (taken > 0) return taken;
  }
  SG_ASSIGN(std::unique_ptr<FusedGroup> group, lay_out(first, stop, stop));
  if (!group) return size_t{1};  // left as single steps
  if (state_.backend) {
    SG_ASSIGN(group->on_device, state_.backend->compile(*group->program));
    if (!group->on_device) return size_t{1};  // too long for one kernel: steps run separately
  }
  if (!state_.backend) group->program->close();
  groups_.push_back(std::move(group));
  return stop - first;
}

// Fuses step `first` and the next one if the backend has a kernel for both; returns how many steps it covers.
Result<size_t> GraphRun::fuse_pair(size_t first) {
  if (!state_.backend || first + 1 >= steps_.size()) return size_t{1};
  for (size_t i : {first, first + 1}) {
    const Step& step = steps_[i];
    if (step.kind != StepKind::kernel || !step.is_static || step.gives_numbers) return size_t{1};
  }
  const Node& node = graph_.node(steps_[first].node);
  if (node.result_count != 1 || is_needed_outside(node.result(0), first, first + 2)) return size_t{1};
  SG_ASSIGN(std::unique_ptr<DeviceProgram> made,
            state_.backend->compile_pair(*steps_[first].call, *steps_[first + 1].call));
  if (!made) return size_t{1};
  groups_.push_back(std::make_unique<FusedGroup>());
  FusedGroup& group = *groups_.back();
  group.first = first;
  group.count = 2;
  group.on_device = std::move(made);
  return group.count;
}

// The first step from `first` on whose call does not fit the preceding ones.
size_t GraphRun::end_of_chain(size_t first) const {
  cpu::PointwiseProgram trial;
  size_t stop = first;
  for (; stop < steps_.size() && stop - first < kMostOnDevice && can_fuse(steps_[stop]); ++stop) {
    Result<bool> fits = trial.add(*steps_[stop].call);
    if (!fits.ok() || !*fits) break;
  }
  return stop;
}

// Steps [first, stop) as a program that stores only results needed outside [first, end). Null: they cannot be one.
Result<std::unique_ptr<GraphRun::FusedGroup>> GraphRun::lay_out(size_t first, size_t stop, size_t end) {
  auto group = std::make_unique<FusedGroup>();
  group->program = std::make_unique<cpu::PointwiseProgram>();
  group->first = first;
  group->count = end - first;
  for (size_t i = first; i < stop; ++i) {
    const Node& node = graph_.node(steps_[i].node);
    bool stored = false;
    for (uint32_t r = 0; r < node.result_count; ++r) stored |= is_needed_outside(node.result(r), first, end);
    SG_ASSIGN(bool fits, group->program->add(*steps_[i].call, stored));
    if (!fits) return std::unique_ptr<FusedGroup>();
  }
  return group;
}

// Fuses steps [first, stop) and the following reduction, plus as many of the chains and reductions after it as the
// backend accepts; returns how many steps it covers, 0 = none.
Result<size_t> GraphRun::fuse_rows(size_t first, size_t stop) {
  std::vector<std::unique_ptr<FusedGroup>> parts;
  std::vector<RowStage> stages;
  while (stop > first && stages.size() < kMostStages) {
    const bool reduces = stop < steps_.size() && can_reduce(steps_[stop]);
    SG_ASSIGN(std::unique_ptr<FusedGroup> part, lay_out(first, stop, stop + reduces));
    if (!part) break;
    stages.push_back({part->program.get(), reduces ? steps_[stop].call.get() : nullptr});
    parts.push_back(std::move(part));
    first = stop + reduces;
    stop = end_of_chain(first);
  }
  for (; !stages.empty(); stages.pop_back(), parts.pop_back()) {
    SG_ASSIGN(std::unique_ptr<DeviceProgram> made, state_.backend->compile_rows(stages));
    if (!made) continue;
    FusedGroup& whole = *parts[0];
    for (size_t i = 1; i < parts.size(); ++i) whole.count += parts[i]->count;
    whole.on_device = std::move(made);
    groups_.push_back(std::move(parts[0]));
    return groups_.back()->count;
  }
  return size_t{0};
}

}  // namespace sg
