// --optimizer: updates parameters from their gradients after each step, as in torch.optim.
//
//   sgd:lr=0.1,momentum=0.9,dampening=0,nesterov=1,wd=0.01      torch.optim.SGD
//   adamw:lr=1e-3,betas=0.9:0.999,eps=1e-8,wd=0.01              torch.optim.AdamW
// Every key may be omitted: it then has PyTorch's default. `betas=0.9,0.999` is accepted too.
//
// Arithmetic  in f32, element by element (work/update.h): the same bits whatever the threads, and on a device. f64
//             parameters are updated in f64.
// State       (moments, and an f32 copy of parameters that are narrower than f32, so that small updates are not lost)
//             is kept here, outside the graph, in memory of the device that computes. Updates read and write the run's
//             own memory of the parameters, never a file.
// Complex     elements are pairs of real ones, as PyTorch has it (view_as_real).
// Aliases     A gradient may be a view of parameters: all are what the step left when the first is updated.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "librun/inputs.h"
#include "librun/memory.h"
#include "librun/outputs.h"

namespace sg {

class Backend;
class ThreadTeam;

struct OptimizerOptions {
  enum class Kind : uint8_t { sgd, adamw };
  Kind kind = Kind::sgd;
  double lr = 1e-3;
  double weight_decay = 0;                        // adamw: 0.01 unless told otherwise
  double momentum = 0, dampening = 0;             // sgd
  bool nesterov = false;                          // sgd
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // adamw
};

Result<OptimizerOptions> parse_optimizer(std::string_view text);

class Optimizer {
 public:
  // Finds the gradients of the graph's parameters. An error when there are none, or one does not have its parameter's
  // shape.
  static Result<Optimizer> make(const Graph& graph, const OptimizerOptions& options);

  // After a step: parameters and gradients through `values`. Parameters without a gradient stay as they are.
  Status update(const RunValues& values, ThreadTeam* team = nullptr);
  // The same in two halves. Between them buffers may be given what the step left for them, at `carried_to`: gradients
  // that lie there are kept. With a backend `values` lie in its memory, and it is not waited for; it has to outlive
  // the optimizer.
  Status begin(const RunValues& values, std::span<const Tensor> carried_to, ThreadTeam& team, Backend* backend);
  Status end(ThreadTeam& team, Backend* backend);

  size_t parameter_count() const { return parameters_.size(); }
  std::vector<size_t> inputs() const;  // of the graph, that it updates
  int64_t state_bytes() const;

 private:
  struct Parameter {
    size_t input;
    ValueId gradient;
    Tensor value, slope;         // of this step
    std::byte* state = nullptr;  // taken at the first update: [moments][elements], then the master copy
    bool has_master = false;
  };
  Optimizer(const Graph& graph, const OptimizerOptions& options) : graph_(&graph), options_(options) {}
  int64_t moments() const;
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
  TensorMemory memory_, kept_;  // kept: gradients that would be written over
  std::vector<Arena> device_memory_;
  uint64_t steps_ = 0;
  double beta1_power_ = 1, beta2_power_ = 1;
};

}  // namespace sg
