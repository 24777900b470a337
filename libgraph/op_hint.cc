#include "libgraph/op_hint.h"

#include <algorithm>
#include <array>

#include "libgraph/base/nearest.h"
#include "libgraph/op.h"

namespace sg {
namespace {

// How models call what the dispatcher has in aten. No library of operators has such a name.
constexpr std::array<std::string_view, 6> kPythonNames = {"torch", "F", "nn", "functional", "Tensor", "at"};

std::string overloads_of(std::string_view packet) {
  std::string out;
  for (const OpInfo& op : all_ops())
    if (op.name.starts_with(packet) && op.name.substr(packet.size()).starts_with('.'))
      out += (out.empty() ? "" : ", ") + std::string(op.name);
  return out;
}

}  // namespace

std::string hint_for_unknown_op(std::string_view name) {
  const std::string_view packet = name.ends_with(".default") ? name.substr(0, name.size() - 8) : name;
  if (const std::string overloads = overloads_of(packet); !overloads.empty()) return "its overloads are " + overloads;
  if (std::ranges::find(kPythonNames, packet.substr(0, packet.find('.'))) != kPythonNames.end()) {
    const std::string ours = "aten." + std::string(packet.substr(packet.rfind('.') + 1));
    if (find_op(ours + ".default") != nullptr) return "did you mean `" + ours + "`?";
    if (const std::string overloads = overloads_of(ours); !overloads.empty())
      return "did you mean one of " + overloads + "?";
  }
  Nearest nearest(name);
  for (const OpInfo& op : all_ops()) nearest.offer(op.name);
  return nearest.hint();
}

}  // namespace sg
