#include "librun/comm_plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <string>

#include "librun/comm_local.h"

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

Error unusable(std::string_view name, std::string message, std::string hint) {
  return Error{ErrorKind::missing, "the communicator '" + std::string(name) + "' " + std::move(message), {}, std::move(hint)};
}

}  // namespace

Result<std::unique_ptr<Communicator>> load_communicator(std::string_view name, const Job& job) {
  for (char c : name)
    if (c < 'a' || c > 'z') return unusable(name, "does not exist", "known are local and mpi");
  std::string file = plugin_folder() + "/libsg_comm_" + std::string(name) + ".so";
  if (access(file.c_str(), R_OK) != 0)
    return unusable(name, "is not part of this build", "install its library (mpi: libopenmpi-dev) and build again, or use --comm local");
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return unusable(name, std::string("cannot be loaded: ") + dlerror(), "install its library, or use --comm local");
  auto abi = reinterpret_cast<const char* (*)()>(dlsym(library, "sg_comm_abi"));
  auto make = reinterpret_cast<Communicator* (*)(const Job&, Error&)>(dlsym(library, "sg_comm_make"));
  if (!abi || !make || std::string_view(abi()) != SG_COMM_ABI) return unusable(name, "is of another build", "build and install all of it anew");
  Error error;
  std::unique_ptr<Communicator> comm(make(job, error));
  if (!comm) return error;
  return comm;
}

Result<std::vector<std::unique_ptr<Communicator>>> make_communicators(std::string_view name, const Job& job) {
  if (name == "local") return make_local_communicators(job);
  SG_ASSIGN(std::unique_ptr<Communicator> one, load_communicator(name, job));
  std::vector<std::unique_ptr<Communicator>> out;
  out.push_back(std::move(one));
  return out;
}

}  // namespace sg
