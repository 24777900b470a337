// Which argument of which op means what to the one who has to make it up: the table behind input_use.h.
//
// To add an op: a row in param_use.cc, where its arguments hold indices or masks, are a side of a product, or are
// handed on as they are.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sg {

enum class ParamRole : uint8_t {
  value,
  index,
  index_list,
  product,
  convolution,
  table,
  scaled,
  added,
  variance,
  divisor,
  positive,
  classes,
  starts,  // ascending: where parts of what is looked for begin
};

struct ParamUse {
  std::string_view op, param;  // the op without its overload
  ParamRole role;
  int axis = 0;  // product: the axis summed over, from the end when negative
};

// The rows of one parameter, neighbours in the table.
std::span<const ParamUse> uses_of_param(std::string_view op, std::string_view param);

// Whether the (first) result holds the elements of this argument, beside what the schema says about views.
bool carries_elements(std::string_view op, std::string_view param);

}  // namespace sg
