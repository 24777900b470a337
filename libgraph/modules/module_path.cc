#include "libgraph/modules/module_path.h"

#include <algorithm>

namespace sg {
namespace {

// -1 = not a number: a component of one to nine digits is one.
int32_t number_of_component(std::string_view component) {
  if (component.empty() || component.size() > 9) return -1;
  int32_t out = 0;
  for (char c : component) {
    if (c < '0' || c > '9') return -1;
    out = out * 10 + (c - '0');
  }
  return out;
}

}  // namespace

std::vector<ModulePart> parts_of_module(std::string_view module) {
  std::vector<ModulePart> out;
  for (size_t begin = 0; !module.empty() && begin <= module.size();) {
    const size_t dot = std::min(module.find('.', begin), module.size());
    out.push_back({module.substr(begin, dot - begin), module.substr(0, dot)});
    begin = dot + 1;
  }
  return out;
}

std::string_view parent_module(std::string_view module) {
  const size_t dot = module.rfind('.');
  return module.substr(0, dot == module.npos ? 0 : dot);
}

bool is_in_module(std::string_view module, std::string_view outer) {
  return outer.empty() || (module.starts_with(outer) && (module.size() == outer.size() || module[outer.size()] == '.'));
}

std::string_view common_module(std::string_view a, std::string_view b) {
  while (!is_in_module(b, a)) a = parent_module(a);
  return a;
}

NumberedModule numbered_module(std::string_view module) {
  for (const ModulePart& part : parts_of_module(module)) {
    const int32_t number = number_of_component(part.name);
    if (number >= 0)
      return {parent_module(part.path), number, part.path,
              module.substr(std::min(part.path.size() + 1, module.size()))};
  }
  return {};
}

std::string pattern_of_module(std::string_view module) {
  std::string out;
  for (const ModulePart& part : parts_of_module(module)) {
    if (part.path.size() > part.name.size()) out += '.';
    out += number_of_component(part.name) >= 0 ? "*" : part.name;
  }
  return out;
}

}  // namespace sg
