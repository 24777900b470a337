// What a run leaves to the next one (--dump-state, --state) beside the values of inputs, in the same file:
//
//   metadata  "step"                 the number of the next step
//             "optimizer"            the kind that --optimizer names, "adamw"; absent without one
//             "optimizer.updates"    how often it has updated
//   tensors   "optimizer.exp_avg.w"  what it keeps of the input %w; the FQN is in the metadata, as that of an input
//
// Such a file also serves as --inputs, where all of this is passed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libgraph/data/safetensors.h"
#include "libgraph/graph.h"
#include "librun/tensor.h"

namespace sg {

// Of one input, as the optimizer calls it: "exp_avg". Contiguous.
struct KeptTensor {
  size_t input;
  std::string_view name;
  Tensor value;
};

struct RunState {
  uint64_t step = 0;
  std::string optimizer;  // empty = none
  uint64_t updates = 0;
  std::vector<KeptTensor> kept;
};

// Adds it to a file of the graph's inputs.
void add_run_state(const Graph& graph, const RunState& state, std::vector<TensorToWrite>* tensors,
                   WriteOptions* options);

// Whether a tensor of the file is what an optimizer keeps, and no input.
bool is_kept_by_optimizer(const TensorFile& file, std::string_view tensor);

// A file that was left so; one without these entries is of step 0, and has nothing of an optimizer.
class LeftState {
 public:
  static Result<LeftState> open(const std::string& path);

  const std::string& path() const { return file_.name(); }
  uint64_t step() const { return step_; }
  const std::string& optimizer() const { return optimizer_; }
  uint64_t updates() const { return updates_; }
  bool has(std::string_view kept) const;  // of any input
  // What it holds of an input, by FQN or else by name; null = nothing.
  const StoredTensor* find(const Graph& graph, size_t input, std::string_view kept) const;

 private:
  explicit LeftState(TensorFile file) : file_(std::move(file)) {}

  TensorFile file_;
  uint64_t step_ = 0, updates_ = 0;
  std::string optimizer_;
  // By "exp_avg.NAME" and by "exp_avg.FQN" (null: of several inputs).
  std::map<std::string, const StoredTensor*, std::less<>> by_name_, by_fqn_;
};

}  // namespace sg
