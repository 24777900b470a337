#include "librun/rank_run.h"

#include "libgraph/base/human.h"
#include "librun/check/replay.h"
#include "librun/cpu/fill.h"
#include "librun/execute/memory_ranges.h"
#include "librun/execute/unsupported.h"

namespace sg {

RankRun::RankRun(const Job& job, uint32_t rank, const RankOptions& options, Communicator* comm)
    : program_(*job.program_of(rank)),
      rank_(rank),
      options_(options),
      comm_(comm),
      team_(options.threads),
      pool_(options.memory_limit),
      bindings_(program_),
      wide_bindings_(program_) {
  bool f64 = options.numerics == Numerics::f64;
  kernels_ = {&team_,    &scratch_,        f64 ? Numerics::fast : options.numerics, &program_, rank,
              job.world, options.sum_order};
  state_ = {&job,
            &program_,
            rank,
            options.seed,
            0,
            &bindings_,
            &pool_,
            &kernels_,
            comm,
            nullptr,
            !f64 && options.use_arena,
            options.guards_flight,
            options.runs_once};
  graph_ = std::make_unique<GraphRun>(&state_, program_.graph);
  if (!f64) return;
  wide_kernels_ = {&team_, &scratch_, Numerics::f64, &program_, rank, job.world};
  wide_state_ = {&job,
                 &program_,
                 rank,
                 options.seed,
                 0,
                 &wide_bindings_,
                 &pool_,
                 &wide_kernels_,
                 comm,
                 nullptr,
                 false,
                 options.guards_flight,
                 options.runs_once};
  wide_ = std::make_unique<GraphRun>(&wide_state_, program_.graph);
}

RankRun::~RankRun() = default;

void RankRun::set_observer(Observer* observer) { (wide_ ? wide_state_ : state_).observer = observer; }

// --- with a backend ---

Status RankRun::make_backend() {
  uint32_t local_rank = 0;
  if (comm_)
    for (uint32_t rank : comm_->ranks_of_machine()) local_rank += rank < rank_;
  SG_ASSIGN(backend_, options_.backends->make(local_rank));
  if (comm_) {
    SG_ASSIGN(device_comm_, backend_->communicator(*comm_));
    state_.comm = device_comm_.get();
  }
  pool_.use_source(&backend_->memory());
  state_.backend = backend_.get();
  state_.kernels = &backend_kernels_.emplace(kernels_, backend_.get());
  return ok_status();
}

// The caller's tensors have device copies with the same strides.
Status RankRun::bind_on_device(std::span<const Tensor> tensors, std::span<const Scalar> scalars) {
  const AliasAnalysis& alias = graph_->alias();
  std::vector<bool> written(alias.storages().size() + 1);  // by class
  for (NodeId n : graph().nodes())
    for (StorageId s : alias.writes(n)) written[alias.storage(s).alias_class] = true;
  inputs_.clear();
  inputs_.resize(tensors.size());
  std::vector<Tensor> twins(tensors.begin(), tensors.end());
  for (size_t i = 0; i < twins.size(); ++i) {
    if (twins[i].is_none()) continue;
    OnDevice& input = inputs_[i];
    const ValueId value = graph().inputs()[i].value;
    input.tensor = tensors[i];
    const auto offset = bindings_.value(graph().type(value).offset);
    const int64_t first = tensors[i].elements() == 0 ? 0 : offset.value_or(0);
    const int64_t before = first * dtype_bytes(tensors[i].dtype);
    input.host = tensors[i].data - before;
    SG_ASSIGN(input.memory, Arena::reserve(before + extent_bytes(tensors[i]), &backend_->memory()));
    twins[i].data = input.memory.data() + before;
    input.written = written[alias.storage(alias.storage_of(value)).alias_class];
  }
  SG_TRY(upload_inputs());
  return graph_->bind_inputs(twins, scalars);
}

Status RankRun::upload_inputs() {
  for (OnDevice& input : inputs_) {
    if (!input.device_is_old || input.tensor.is_none()) continue;
    SG_TRY(backend_->upload(input.memory.data(), input.host, input.memory.bytes()));
    input.device_is_old = false;
  }
  return ok_status();
}

void RankRun::input_changed(size_t input) {
  if (backend_) inputs_[input].device_is_old = true;
}

Status RankRun::stored_changed(std::span<const size_t> inputs) {
  if (!backend_) return ok_status();
  for (size_t i : inputs) inputs_[i].host_is_old = true;
  forget_results();  // which may be views of inputs
  return settle();
}

// Waits for the step; bad data becomes an error of the node that found it.
Status RankRun::settle() {
  SG_ASSIGN(std::optional<DeviceFault> fault, backend_->settle());
  if (!fault) return ok_status();
  const GraphRun* run = graph_->find_nested(fault->place);
  Error error{ErrorKind::cannot_apply, fault->message};
  return run ? run->at_node(std::move(error), NodeId(static_cast<uint32_t>(fault->place))) : error;
}

// Discards results copied to the host: the device now has different ones.
void RankRun::forget_results() { results_.assign(graph_->values().tensors.size(), Tensor()); }

// The caller's tensor, updated from the device.
Tensor RankRun::bring_input(ValueId v) const {
  OnDevice& input = inputs_[graph().value(v).index];
  if (input.host_is_old) brought_ = backend_->download(input.host, input.memory.data(), input.memory.bytes());
  if (!brought_.ok()) return {};
  input.host_is_old = false;
  return input.tensor;
}

Tensor RankRun::bring(ValueId v) const {
  if (v.index >= results_.size() || !brought_.ok()) return {};
  if (is_input(v)) return bring_input(v);
  Tensor& t = results_[v.index];
  const Tensor& there = graph_->values().tensors[v.index];
  if (!t.is_none() || there.is_none()) return t;
  const int64_t bytes = extent_bytes(there);
  result_memory_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(bytes)));
  brought_ = backend_->download(result_memory_.back().get(), there.data, bytes);
  if (!brought_.ok()) return {};
  t = there;
  t.data = result_memory_.back().get();
  return t;
}

Tensor RankRun::tensor(ValueId v) const { return backend_ ? bring(v) : stored(v); }

Status RankRun::prepare(std::vector<Unsupported>* unsupported) {
  if (options_.backends) SG_TRY(make_backend());
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
    return Error{ErrorKind::negative,
                 "rank " + std::to_string(rank_) + " needs " + human_bytes(double(arena_bytes())) +
                     " beyond its inputs; the limit is " + human_bytes(double(*options_.memory_limit)),
                 {},
                 "sg-run --plan shows what is alive at the peak"};
  if (options_.memory_limit) pool_.set_limit(*options_.memory_limit - arena_bytes());
  return graph_->reserve();
}

Status RankRun::bind_inputs(std::span<const Tensor> tensors, std::span<const Scalar> scalars) {
  if (backend_) return bind_on_device(tensors, scalars);
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
  if (backend_) {
    backend_->begin_step(step);
    SG_TRY(upload_inputs());
    SG_TRY(graph_->run());
    for (OnDevice& input : inputs_) input.host_is_old |= input.written;
    forget_results();
    result_memory_.clear();
    return settle();
  }
  return wide_ ? run_both() : graph_->run();
}

std::vector<RankRun::Carried> RankRun::carried(const GraphRun& run) const {
  std::vector<Carried> out;
  for (const Output& output : run.graph().outputs()) {
    if (output.kind != OutputKind::buffer || output.value.is_none() || output.of.is_none()) continue;
    const Tensor from = run.values().tensors[output.value.index], to = run.values().tensors[output.of.index];
    const bool fits = !from.is_none() && !to.is_none() && same_shape(from, to) && from.dtype == to.dtype;
    if (fits && !same_view(from, to)) out.push_back({from, to, graph().value(output.of).index});
  }
  return out;
}

std::vector<Tensor> RankRun::carried_to() const {
  std::vector<Tensor> out;
  for (const GraphRun* run : {graph_.get(), wide_.get()})
    if (run)
      for (const Carried& c : carried(*run)) out.push_back(c.to);
  return out;
}

void RankRun::carry_buffers() {
  auto copy = [&](const Tensor& to, const Tensor& from) {
    if (backend_) backend_->copy(to, from);
    else cpu::copy(team_, to, from);
  };
  for (const GraphRun* run : {graph_.get(), wide_.get()}) {
    if (!run) continue;
    std::vector<Carried> all = carried(*run);
    std::vector<Tensor> targets;
    for (const Carried& c : all) targets.push_back(c.to);
    const MemoryRanges written(targets);
    std::vector<std::unique_ptr<std::byte[]>> kept;
    for (Carried& c : all) {  // one copy may overwrite the source of another
      if (!written.touch(c.from)) continue;
      const Tensor from = c.from;
      if (backend_) c.from = backend_->scratch(from.dtype, from.sizes());
      else {
        kept.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(from.bytes())));
        c.from = make_tensor(kept.back().get(), from.dtype, from.sizes());
      }
      copy(c.from, from);
    }
    for (const Carried& c : all) {
      copy(c.to, c.from);
      if (backend_) inputs_[c.input].host_is_old = true;
    }
    if (backend_ && !all.empty()) forget_results();
  }
}

// Both graphs have the same steps: neither uses an arena, and they differ only in element types.
Status RankRun::run_both() {
  graph_->finish();
  wide_->finish();
  for (size_t i = 0; i < graph_->step_count(); ++i) {
    SG_TRY(graph_->run_step(i));
    wide_bindings_.copy_from(bindings_);
    SG_TRY(replay_step(*graph_, *wide_, i));
    graph_->free_after(i);
    wide_->free_after(i);
  }
  return ok_status();
}

}  // namespace sg
