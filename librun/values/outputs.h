// The results of a run: the outputs of a graph and the inputs that it wrote, by the names used in value files.
//
//   out{i}            output i (position)
//   loss              the output of that kind; else a graph's only output
//   gradient:INPUT    the gradient of an input: its name or its FQN
//   mutated.INPUT     an input that is written in place
//
// Outputs without a value (null gradients) and opaque ones have no name.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/data/safetensors.h"
#include "libgraph/facts/alias.h"
#include "libgraph/scalar.h"
#include "librun/tensor.h"
#include "librun/values/run_state.h"

namespace sg {

struct InputSet;

// The values of one rank after a step (RankRun::tensor and number).
struct RunValues {
  std::function<Tensor(ValueId)> tensor;
  std::function<Scalar(ValueId)> number;  // for scalars
};

struct NamedValue {
  std::string name;   // "out3", "mutated.arg30_1"
  std::string title;  // name for people: "loss", "gradient of layers.0.wq.weight"
  ValueId value;
};

// All results of a graph: outputs first, then written inputs, both by position.
std::vector<NamedValue> named_values(const Graph& graph, const AliasAnalysis& alias);

// Finds a value by any of the names above. `unreadable` if the graph has no such value, with the nearest name as a
// hint.
Result<NamedValue> find_named_value(const Graph& graph, std::string_view name);

// Of a step with several losses or none: its losses, and what else it returns that is a number.
std::vector<NamedValue> numbers_of(const Graph& graph);

// --outputs: `out{i}` and `mutated.NAME`, contiguous; numbers as tensors without dimensions. The file gets its final
// name when it is committed.
Result<OutputFile> stage_outputs(const std::string& path, const Graph& graph, const AliasAnalysis& alias,
                                 const RunValues& values);

// --dump-inputs: each input that has a value, under the name by which --inputs reads it; its FQN is in the metadata, as
// captures write it.
Result<OutputFile> stage_inputs(const std::string& path, const Graph& graph, const InputSet& inputs);

// What a step hands to the next one: parameters, buffers, states of an optimizer, and other inputs that it writes.
// By position.
std::vector<size_t> state_inputs(const Graph& graph, const AliasAnalysis& alias);

// --dump-state: the values of these, as stage_inputs writes them, and what else the run leaves.
Result<OutputFile> stage_state(const std::string& path, const Graph& graph, const AliasAnalysis& alias,
                               const InputSet& inputs, const RunState& state);

}  // namespace sg
