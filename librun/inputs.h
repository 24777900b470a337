// Graph inputs of one rank: from safetensors files (--inputs), the rest made up by --init.
//
// Names    A tensor of a file goes to the graph input of that name, else to the one with that FQN. A name that is
//          neither, an input named twice, a missing input (all are named), a wrong dtype or shape: errors.
//          Unused inputs may be missing, and opaque ones have no value.
// Constants  that no file gives: taken from the graph itself if it holds them, else found by digest (constant_files.h).
// Sizes    --bind and the shapes of the file give the symbolic sizes, the capture the remaining ones; sizes that
//          contradict each other, their range or a guard of the graph are errors.
// Copies   None if the graph's strides are the contiguous ones of the file: tensors point into a private mapping of
//          the file, and writing to one changes that rank's memory, never the file.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libgraph/expr/assume.h"
#include "libgraph/expr/input_sizes.h"
#include "libgraph/job.h"
#include "libgraph/safetensors.h"
#include "libgraph/scalar.h"
#include "librun/tensor.h"

namespace sg {

// Memory that lives as long as its owner, aligned to 64 bytes, not initialised.
class TensorMemory {
 public:
  Result<std::byte*> take(int64_t bytes);  // `missing` when there is not enough
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
  int64_t bytes_ = 0;
};

// The values of one rank, and the memory that holds them. Tensors stay valid when it is moved.
struct InputSet {
  std::vector<Tensor> tensors;  // by graph input; none: opaque, a scalar, or not there and not used
  std::vector<Scalar> scalars;  // by graph input; those that are numbers
  SymbolValues symbols;         // the sizes of the inputs
  std::vector<size_t> ones;     // inputs that nobody gave: the tangent of the loss, which is 1
  TensorMemory memory;
  std::vector<TensorFile> files;
};

// Makes up the values that no file gives (initialize.h).
class InputMaker {
 public:
  virtual ~InputMaker() = default;
  virtual bool can_make(size_t input) const = 0;                // a tensor input; false = it must be given
  virtual void set_sizes(const SymbolValues& /*sizes*/) {}      // of this run; before the first `make`
  virtual Status make(size_t input, const Tensor& tensor) = 0;  // REQUIRES: can_make(input)
};

struct InputSource {
  std::vector<std::string> files;         // of this rank; a name may stand in one of them only
  std::string constants;                  // a file or folder for constants by their digests; empty = none is looked for
  InputMaker* maker = nullptr;            // for what the files do not hold; null = they hold everything,
  bool may_miss = false;                  // unless this is set: what is missing is left out
  bool is_of_all_ranks = false;           // the one file, which names no rank
  bool may_spare = false;                 // tensors that the graph has no input for are passed over
  std::span<const SizeBinding> bindings;  // --bind
};

Result<InputSet> load_inputs(const Job& job, uint32_t rank, const InputSource& source);

// "`tokens` (%arg3_1)", "%arg3_1": an input as messages name it.
std::string input_title(const Graph& graph, const Input& input);

}  // namespace sg
