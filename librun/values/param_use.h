// How each argument of an op is used, to generate values for it: the table for input_use.h.
//
// To add an op: a row in param_use.cc, if its arguments hold indices or masks, are a factor of a product, or are passed
// on unchanged.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sg {

// What an argument is to its op; those with a counterpart in UseKind (input_use.h) mean the same there.
enum class ParamRole : uint8_t {
  value,       // passed on unchanged
  index,       // whole numbers below the size of an axis
  index_list,  // one index tensor for each axis
  product,
  convolution,
  table,
  scaled,
  added,
  variance,
  divisor,
  positive,
  classes,  // labels below the number of classes
  starts,   // ascending offsets of parts
};

struct ParamUse {
  std::string_view op, param;  // the op without its overload
  ParamRole role;
  int axis = 0;  // product: the axis summed over, counted from the end if negative
};

// The rows of one parameter, which are adjacent in the table.
std::span<const ParamUse> uses_of_param(std::string_view op, std::string_view param);

// Whether the (first) result holds the elements of this argument, apart from views declared by the schema.
bool carries_elements(std::string_view op, std::string_view param);

}  // namespace sg
