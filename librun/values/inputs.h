// Graph inputs of one rank: from safetensors files (--inputs), the others made up by --init.
//
// Names    A tensor of a file goes to the graph input of that name, else to the one with that FQN. Errors: a name that
//          is neither, an input given twice, missing inputs (all are named), a wrong dtype or shape. Unused inputs may
//          be missing, and opaque ones have no value. A step's own file ({step}) replaces values of one for all steps.
// Constants  that no file gives: taken from the graph itself if it holds them, else found by digest (constant_files.h).
// Sizes    --bind and the shapes of the file give the symbolic sizes, the capture the remaining ones; sizes that
//          contradict each other, their range or a guard of the graph are errors.
// Copies   None if the graph's strides are the file's (contiguous): tensors then point into a private mapping of the
//          file, and writing to one changes that rank's memory, never the file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "libgraph/data/safetensors.h"
#include "libgraph/expr/assume.h"
#include "libgraph/expr/size_binding.h"
#include "libgraph/job.h"
#include "libgraph/scalar.h"
#include "librun/tensor.h"
#include "librun/tensor_memory.h"

namespace sg {

// The input values of one rank, and the memory that holds them. Tensors stay valid when the set is moved.
struct InputSet {
  std::vector<Tensor> tensors;  // by graph input; none: opaque, a scalar, or absent and unused
  std::vector<Scalar> scalars;  // by graph input: those that are numbers
  SymbolValues symbols;         // the sizes of the inputs
  std::vector<size_t> ones;     // inputs not given: the tangent of the loss, which is 1
  std::vector<size_t> kept;     // inputs that each step should be given, and that no file of the step has
  TensorMemory memory;
  std::vector<TensorFile> files;
};

// Makes up the values that no file gives (initialize.h).
class InputMaker {
 public:
  virtual ~InputMaker() = default;
  virtual bool can_make(size_t input) const = 0;                // tensor inputs; false = it must be given
  virtual void set_sizes(const SymbolValues& /*sizes*/) {}      // of this run; called before the first `make`
  virtual Status make(size_t input, const Tensor& tensor) = 0;  // REQUIRES: can_make(input)
};

struct InputSource {
  std::vector<std::string> files;         // of this rank; a tensor name may occur in only one of them,
  size_t of_state = SIZE_MAX;             // but those from here on are what another run left, and take precedence;
  size_t of_step = SIZE_MAX;              // those from here on are of one step, and take precedence over both
  std::string constants;                  // a file or folder for constants by digest; empty = no search
  InputMaker* maker = nullptr;            // for what the files lack; null = they hold everything,
  bool may_miss = false;                  // unless this is set: missing inputs are left out
  bool is_of_all_ranks = false;           // the single file serves all ranks and names none
  bool may_spare = false;                 // file tensors without a graph input are ignored
  std::span<const SizeBinding> bindings;  // --bind
};

// What the patterns of --inputs name, those with {step} being of the step, and that of --state (may be empty).
void set_files(const std::vector<std::string>& patterns, const std::string& state, uint32_t rank, uint64_t step,
               InputSource* source);

Result<InputSet> load_inputs(const Job& job, uint32_t rank, const InputSource& source);

// "`tokens` (%arg3_1)", "%arg3_1": an input's name in messages.
std::string input_title(const Graph& graph, const Input& input);

}  // namespace sg
