// Names of modules, taken apart: "encoder.layers.3.attention" has four components, and is in layer 3 of the stack
// "encoder.layers". What is chunked, bucketed, recomputed or printed as one is told by these functions, so that a name
// means the same everywhere; patterns that a user writes are in module_pattern.h, the layers of a graph in
// libpasses/layers.h.
//
// Owns nothing: views are into the name that was given, which the pool of a job keeps. A name of a parameter is one of
// a module with a component more.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sg {

struct ModulePart {
  std::string_view name;  // "3"
  std::string_view path;  // "encoder.layers.3": the name up to here
};
// Outermost first; none of "".
std::vector<ModulePart> parts_of_module(std::string_view module);

// The module that one lies in: "encoder" of "encoder.layers"; "" of "encoder".
std::string_view parent_module(std::string_view module);

// Whether it is `outer` or lies inside of it. All lie in "".
bool is_in_module(std::string_view module, std::string_view outer);

// The innermost module that both lie in, "" at last.
std::string_view common_module(std::string_view a, std::string_view b);

// The first number of a name, and what it parts.
struct NumberedModule {
  std::string_view stack;   // "encoder.layers", whose children have numbers; "" also for an nn.Sequential by itself
  int32_t number = -1;      // 3; -1 = the name has no number, and all else here is empty
  std::string_view layer;   // "encoder.layers.3"
  std::string_view inside;  // "attention": what follows
};
NumberedModule numbered_module(std::string_view module);

// All numbers as `*`, as in "layers.*.experts.*.w1": the same for modules that differ in numbers only.
std::string pattern_of_module(std::string_view module);

}  // namespace sg
