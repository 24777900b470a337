// Plugins: shared objects loaded by name at run time, so that the program does not depend on the libraries they need.
//
// A plugin `libsg_KIND_NAME.so` is in lib/stepgraph next to the bin folder of the program. It exports `sg_KIND_abi`,
// which returns the ABI text of its build: plugin and program share C++ types, so they must come from one build.
#pragma once

#include <string>
#include <string_view>

#include "libgraph/base/result.h"

namespace sg {

class Plugin {
 public:
  // `title`: "the communicator 'mpi'", for errors; `remedy`: what to do if there is none. A loaded plugin is never
  // unloaded.
  static Result<Plugin> load(std::string_view kind, std::string_view name, std::string_view abi, std::string title,
                             std::string remedy);

  template <class Function>
  Function* find(const char* symbol) const {
    return reinterpret_cast<Function*>(find_symbol(symbol));
  }

 private:
  void* find_symbol(const char* symbol) const;
  void* library_ = nullptr;
};

}  // namespace sg
