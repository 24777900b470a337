#include "librun/rank_run.h"

#include "librun/cpu/fill.h"
#include "librun/replay.h"

namespace sg {

RankRun::RankRun(const Job& job, uint32_t rank, const RankOptions& options, Communicator* comm)
    : program_(*job.program_of(rank)), rank_(rank), options_(options), team_(options.threads),
      pool_(options.memory_limit), bindings_(program_), wide_bindings_(program_) {
  bool f64 = options.numerics == Numerics::f64;
  kernels_ = {&team_, &scratch_, f64 ? Numerics::fast : options.numerics, &program_, rank, job.world};
  state_ = {&job, &program_, rank, options.seed, 0, &bindings_, &pool_, &kernels_, comm, nullptr,
            !f64 && options.use_arena, options.guards_flight};
  graph_ = std::make_unique<GraphRun>(&state_, program_.graph);
  if (!f64) return;
  wide_kernels_ = {&team_, &scratch_, Numerics::f64, &program_, rank, job.world};
  wide_state_ = {&job, &program_, rank, options.seed, 0, &wide_bindings_, &pool_, &wide_kernels_, comm, nullptr,
                 false, options.guards_flight};
  wide_ = std::make_unique<GraphRun>(&wide_state_, program_.graph);
}

RankRun::~RankRun() = default;

void RankRun::set_observer(Observer* observer) { (wide_ ? wide_state_ : state_).observer = observer; }

Status RankRun::prepare(std::vector<Unsupported>* unsupported) {
  SG_TRY(graph_->build(unsupported));
  if (!wide_) return ok_status();
  wide_bindings_.copy_from(bindings_);
  std::vector<Unsupported> of_wide;
  SG_TRY(wide_->build(&of_wide));
  if (unsupported->empty()) *unsupported = std::move(of_wide);
  return ok_status();
}

Status RankRun::reserve() {
  if (options_.memory_limit && arena_bytes() > *options_.memory_limit)
    return Error{ErrorKind::negative, "rank " + std::to_string(rank_) + " needs " + std::to_string(arena_bytes()) +
                 " bytes beyond its inputs, the limit is " + std::to_string(*options_.memory_limit), {}, "sg-run --plan shows what is alive at the peak"};
  if (options_.memory_limit) pool_.set_limit(*options_.memory_limit - arena_bytes());
  return graph_->reserve();
}

Status RankRun::bind_inputs(std::span<const Tensor> tensors, std::span<const Scalar> scalars) {
  SG_TRY(graph_->bind_inputs(tensors, scalars));
  if (!wide_) return ok_status();
  std::vector<Tensor> wide(tensors.begin(), tensors.end());
  wide_inputs_.clear();
  for (Tensor& t : wide) {
    if (t.is_none()) continue;
    Tensor narrow = t;
    t.dtype = stored_dtype(t.dtype, Numerics::f64);
    auto bytes = static_cast<size_t>(extent_bytes(t));
    wide_inputs_.push_back(std::make_unique<std::byte[]>(bytes));
    t.data = wide_inputs_.back().get();
    cpu::copy(team_, t, narrow);
  }
  return wide_->bind_inputs(wide, scalars);
}

Status RankRun::run_step(uint64_t step) {
  state_.step = wide_state_.step = step;
  bindings_.forget_data();
  wide_bindings_.forget_data();
  return wide_ ? run_both() : graph_->run();
}

void RankRun::carry_buffers() {
  for (GraphRun* run : {graph_.get(), wide_.get()}) {
    if (!run) continue;
    for (const Output& output : run->graph().outputs()) {
      if (output.kind != OutputKind::buffer || output.value.is_none() || output.of.is_none()) continue;
      const Tensor &from = run->values().tensors[output.value.index], &to = run->values().tensors[output.of.index];
      bool fits = !from.is_none() && !to.is_none() && same_shape(from, to) && from.dtype == to.dtype;
      if (fits && from.data != to.data) cpu::copy(team_, to, from);
    }
  }
}

// Both graphs have the same steps: neither has an arena, and they differ in element types alone.
Status RankRun::run_both() {
  graph_->finish();
  wide_->finish();
  for (size_t i = 0; i < graph_->step_count(); ++i) {
    SG_TRY(graph_->run_step(i, false));
    wide_bindings_.copy_from(bindings_);
    SG_TRY(replay_step(*graph_, *wide_, i));
    graph_->free_after(i);
    wide_->free_after(i);
  }
  return ok_status();
}

}  // namespace sg
