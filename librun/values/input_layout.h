// Where an input's elements lie: in the graph's shape and strides, whatever gives their values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "librun/values/input_load.h"

namespace sg {

struct InputLayout {
  Tensor tensor;       // without memory
  int64_t offset = 0;  // elements of its storage before it
  int64_t bytes = 0;   // from the beginning of the storage to the last element

  bool is_plain() const { return tensor.is_contiguous() && offset == 0; }
};

Result<InputLayout> layout_of(const InputLoad& load, size_t i);
// Its tensor in memory that `load->out` keeps, not initialised.
Result<Tensor> with_memory(InputLoad* load, size_t i, const InputLayout& layout);
// Copies elements that are contiguous. An error if strides put elements that differ in one place, so that some would be
// lost.
Status spread(const InputLoad& load, size_t i, const void* elements, const Tensor& to);

}  // namespace sg
