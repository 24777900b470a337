// --optimizer (optimizer_options.h): updates parameters from their gradients after each step, as in torch.optim.
//
// Arithmetic  in f32, element by element (work/update.h): the same bits for any number of threads, and on a device. f64
//             parameters are updated in f64.
// State       (moments, and an f32 copy of parameters that are narrower than f32, so that small updates are not lost)
//             is kept here, outside the graph, in memory of the device that computes. Updates read and write the run's
//             own memory of the parameters, never a file. It can be handed to a further run (values/run_state.h).
// Complex     elements are treated as pairs of real numbers, as in PyTorch (view_as_real).
// Aliases     A gradient may be a view of parameters: all gradients keep the values that the step left, until used.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "librun/execute/memory.h"
#include "librun/optimizer/optimizer_options.h"
#include "librun/tensor_memory.h"
#include "librun/values/outputs.h"
#include "librun/values/run_state.h"

namespace sg {

class Backend;
class ThreadTeam;

class Optimizer {
 public:
  // Finds the gradients of the graph's parameters. An error if there are none, or one has another shape than its
  // parameter.
  static Result<Optimizer> make(const Graph& graph, const OptimizerOptions& options);

  // After a step: parameters and gradients through `values`. Parameters without a gradient stay as they are.
  Status update(const RunValues& values, ThreadTeam* team = nullptr);
  // The same in two halves. Between them the caller may overwrite buffers at `carried_to` with the step's results;
  // gradients stored there are saved first. With a backend `values` are in its memory, and are not waited for; it must
  // outlive the optimizer.
  Status begin(const RunValues& values, std::span<const Tensor> carried_to, ThreadTeam& team, Backend* backend);
  Status end(ThreadTeam& team, Backend* backend);

  // Goes on from what another run left, of which the first update reads the moments. False: that has none of this kind.
  bool go_on_from(LeftState left);
  // What a further run goes on from, in host memory that this object owns until the next call.
  Result<RunState> state(Backend* backend);

  size_t parameter_count() const { return parameters_.size(); }
  std::vector<size_t> inputs() const;  // graph inputs that it updates
  int64_t state_bytes() const;

 private:
  struct Parameter {
    size_t input;
    ValueId gradient;
    Tensor value, slope;         // in this step
    std::byte* state = nullptr;  // allocated by the first update: [moments][elements], then the master copy
    bool has_master = false;
  };
  Optimizer(const Graph& graph, const OptimizerOptions& options) : graph_(&graph), options_(options) {}
  std::span<const std::string_view> moment_names() const;
  int64_t moments() const { return static_cast<int64_t>(moment_names().size()); }
  std::vector<KeptTensor> state_of(const Parameter& parameter) const;
  Status read_state(const Parameter& parameter, Backend* backend);
  void begin_update(const RunValues& values);
  std::vector<Parameter*> aliased(std::span<const Tensor> carried_to);
  Status keep_aliased(std::span<const Tensor> carried_to, ThreadTeam& team, Backend* backend);
  void see_pairs();
  Status take_state(Backend* backend, Parameter* parameter);
  template <class Fn>
  void with_rule(const Parameter& parameter, const Fn& fn) const;

  const Graph* graph_;
  OptimizerOptions options_;
  std::vector<Parameter> parameters_;
  TensorMemory memory_, kept_;  // kept: copies of gradients that would be overwritten
  TensorMemory downloaded_;
  std::vector<Arena> device_memory_;
  std::optional<LeftState> left_;  // until its moments are read
  bool has_state_ = false;
  uint64_t steps_ = 0;
  double beta1_power_ = 1, beta2_power_ = 1;
};

}  // namespace sg
