#include "librun/plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace sg {
namespace {

// ".../bin/sg-run" -> ".../lib/stepgraph"
std::string plugin_folder() {
  char path[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  std::string program(path, length > 0 ? static_cast<size_t>(length) : 0);
  for (int up = 0; up < 2; ++up) program.resize(std::min(program.rfind('/'), program.size()));
  return program + "/lib/stepgraph";
}

}  // namespace

Result<Plugin> Plugin::load(std::string_view kind, std::string_view name, std::string_view abi, std::string title,
                            std::string remedy) {
  auto unusable = [&](std::string message, std::string hint) {
    return Error{ErrorKind::missing, title + " " + std::move(message), {}, std::move(hint)};
  };
  for (char c : name)
    if (c < 'a' || c > 'z') return unusable("does not exist", remedy);
  const std::string start = "sg_" + std::string(kind) + "_";
  const std::string file = plugin_folder() + "/lib" + start + std::string(name) + ".so";
  if (access(file.c_str(), R_OK) != 0) return unusable("is not part of this build", remedy);
  Plugin out;
  out.library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!out.library_) return unusable(std::string("cannot be loaded: ") + dlerror(), remedy);
  auto* abi_of_build = out.find<const char*()>((start + "abi").c_str());
  if (!abi_of_build || abi != abi_of_build())
    return unusable("comes from a different build", "rebuild and reinstall all of it");
  return out;
}

void* Plugin::find_symbol(const char* symbol) const { return dlsym(library_, symbol); }

}  // namespace sg
