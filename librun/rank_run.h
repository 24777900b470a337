// RankRun: one rank of a job, from bound inputs to the results of its steps.
//
//     RankRun run(job, rank, options, comm);
//     SG_TRY(run.bindings().bind_shape(...));       // sizes of the inputs
//     SG_TRY(run.prepare(&unsupported));            // refuses what cannot run, before anything does
//     SG_TRY(run.bind_inputs(tensors, scalars));
//     SG_TRY(run.run_step(0));
//     run.tensor(v), run.number(v)                  // outputs, and inputs that were written in place
//
// With Numerics::f64 the step runs twice, node by node: as recorded, and in double. Integers and booleans of the second
// run are copied from the first, so that rounding cannot route a token elsewhere; results come from the second. Such a
// job has no views of bits: bit_casts.h.
#pragma once

#include <memory>
#include <vector>

#include "librun/execute/graph_run.h"
#include "librun/rank_options.h"

namespace sg {

class RankRun {
 public:
  RankRun(const Job& job, uint32_t rank, const RankOptions& options, Communicator* comm);
  ~RankRun();

  uint32_t rank() const { return rank_; }
  const Program& program() const { return program_; }
  const Graph& graph() const { return program_.graph; }
  Bindings& bindings() { return bindings_; }
  ThreadTeam& team() { return team_; }

  // REQUIRES: the input symbols are bound.
  Status prepare(std::vector<Unsupported>* unsupported);
  // Fails if the memory limit is exceeded, then reserves the arena. REQUIRES: prepared
  Status reserve();

  // By input position; tensors have the graph's strides and the recorded dtype. The memory remains the caller's and
  // must not move; inputs that the graph writes are updated, with a backend only when `tensor` is called for them.
  Status bind_inputs(std::span<const Tensor> tensors, std::span<const Scalar> scalars);
  Status run_step(uint64_t step);
  // Copies the step's outputs of kind `buffer` to their buffers, for the next step.
  void carry_buffers();
  std::vector<Tensor> carried_to() const;  // the destinations

  // Tells that the caller has changed its tensor of an input, for the next step; the CPU does not need this. REQUIRES
  // with a backend: `tensor` was called for it since the last step, so that what the step wrote has arrived.
  void input_changed(size_t input);

  // Valid after a step until the next. With a backend: only outputs and inputs, copied to the host on request, inputs
  // into the caller's tensors; none on failure, which `brought` then reports.
  Tensor tensor(ValueId v) const;
  Status brought() const { return brought_; }
  // The same value where the run stores it: in memory of the backend, if there is one.
  Tensor stored(ValueId v) const { return result_graph().values().tensors[v.index]; }
  Backend* backend() const { return backend_.get(); }  // null = the CPU
  // Tells that the caller has changed inputs there: waits for it, and `tensor` then returns the new values.
  Status stored_changed(std::span<const size_t> inputs);
  Scalar number(ValueId v) const { return result_graph().values().scalars[v.index]; }

  void set_observer(Observer* observer);
  const GraphRun& main_graph() const { return *graph_; }
  int64_t arena_bytes() const { return graph_->arena_bytes(); }
  int64_t host_bytes() const { return graph_->host_bytes(); }  // arena for copies on the host
  int64_t pool_bytes() const { return pool_.most_in_use(); }   // the most in use at once

 private:
  // A buffer update after a step.
  struct Carried {
    Tensor from, to;
    size_t input;
  };
  std::vector<Carried> carried(const GraphRun& run) const;

  const GraphRun& result_graph() const { return wide_ ? *wide_ : *graph_; }
  Status run_both();
  Status make_backend();
  Status bind_on_device(std::span<const Tensor> tensors, std::span<const Scalar> scalars);
  Status upload_inputs();
  Status settle();
  void forget_results();
  bool is_input(ValueId v) const { return graph().value(v).def.is_none(); }
  Tensor bring_input(ValueId v) const;
  Tensor bring(ValueId v) const;

  const Program& program_;
  uint32_t rank_;
  RankOptions options_;
  Communicator* comm_;
  std::unique_ptr<Backend> backend_;  // declared before the objects with memory of it
  std::unique_ptr<Communicator> device_comm_;
  std::optional<BackendContext> backend_kernels_;
  ThreadTeam team_;
  Scratch scratch_;
  BlockPool pool_;
  Bindings bindings_;
  KernelContext kernels_;
  RankState state_;
  std::unique_ptr<GraphRun> graph_;

  // With a backend: the device copies of the caller's inputs, and results copied back, by value. An input is
  // transferred only if one side is outdated.
  struct OnDevice {
    std::byte* host = nullptr;  // beginning of its storage
    Tensor tensor;              // the caller's; none = not given
    Arena memory;
    bool written = false;  // by the graph
    bool device_is_old = true, host_is_old = false;
  };
  mutable std::vector<OnDevice> inputs_;  // by position
  mutable std::vector<Tensor> results_;
  mutable std::vector<std::unique_ptr<std::byte[]>> result_memory_;
  mutable Status brought_ = ok_status();

  // Numerics::f64 only
  Bindings wide_bindings_;
  KernelContext wide_kernels_;
  RankState wide_state_;
  std::unique_ptr<GraphRun> wide_;
  std::vector<std::unique_ptr<std::byte[]>> wide_inputs_;
};

}  // namespace sg
