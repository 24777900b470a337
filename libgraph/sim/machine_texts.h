// The built-in machines as texts: libgraph/sim/machines/NAME.yaml, put into the library by cmake/embed_machines.cmake.
#pragma once

#include <span>
#include <string_view>

namespace sg {

struct MachineText {
  std::string_view name, text;
};
std::span<const MachineText> machine_texts();  // by name

}  // namespace sg
