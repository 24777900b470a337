// What runs ranks outside this process: MPI, GPUs, NCCL. Libraries are opened by name; nothing is linked with them.
#include <dlfcn.h>

#include <optional>

#include "libgraph/base/human.h"
#include "librun/backend_plugin.h"
#include "librun/comm/comm_plugin.h"
#include "librun/cuda/version_text.h"
#include "librun/plugin.h"
#include "tools/doctor/findings.h"

namespace sg::doctor {
namespace {

// The problem with a plugin; none if it loads.
std::optional<Finding> trouble_with(const char* kind, const char* name, const char* abi) {
  Result<Plugin> plugin = Plugin::load(kind, name, abi, std::string("the plugin '") + name + "'", "");
  if (plugin.ok()) return {};
  const std::string& text = plugin.error().message;
  const bool is_absent = text.find("is not part of this build") != text.npos;
  return Finding{name, is_absent ? State::absent : State::broken, text, {}, {}};
}

// Driver functions are looked up by hand: these five do not justify its header.
struct Driver {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  template <class Function>
  Function* find(const char* name) const {
    return library ? reinterpret_cast<Function*>(dlsym(library, name)) : nullptr;
  }
};

struct Devices {
  std::string trouble;  // empty = there is at least one
  std::string version;
  std::vector<std::string> names;
};

Devices find_devices() {
  Devices out;
  const Driver driver;
  if (!driver.library) return {"there is no driver (libcuda.so.1)", {}, {}};
  auto* init = driver.find<int(unsigned)>("cuInit");
  auto* version = driver.find<int(int*)>("cuDriverGetVersion");
  auto* count = driver.find<int(int*)>("cuDeviceGetCount");
  auto* name = driver.find<int(char*, int, int)>("cuDeviceGetName");
  if (!init || !version || !count || !name) return {"libcuda.so.1 is not a CUDA driver", {}, {}};
  if (int code = init(0); code != 0)
    return {"the driver does not start (CUDA error " + std::to_string(code) + ")", {}, {}};
  int number = 0, devices = 0;
  if (version(&number) == 0) out.version = cuda::version_text(number);
  if (count(&devices) != 0 || devices == 0) out.trouble = "the driver sees no GPU";
  for (int i = 0; i < devices; ++i) {
    char text[256] = "?";
    name(text, sizeof text, i);
    out.names.push_back(one_line(text));
  }
  return out;
}

// librun/cuda/lt.h has the same names.
bool has_cublas() {
  for (const char* file : {"libcublasLt.so.13", "libcublasLt.so.12"})
    if (dlopen(file, RTLD_NOW | RTLD_LOCAL)) return true;
  return false;
}

std::string listed(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  for (const std::string& name : names)
    if (name != names[0]) return plural(names.size(), "GPU") + ", the first " + names[0];
  return std::to_string(names.size()) + " x " + names[0];
}

}  // namespace

Finding look_at_mpi() {
  if (std::optional<Finding> trouble = trouble_with("comm", "mpi", SG_COMM_ABI)) {
    trouble->remedy = "install MPI (Debian: libopenmpi-dev) and build again, or install the package stepgraph-mpi";
    return *trouble;
  }
  const Said mpirun = ask("mpirun --version", 20);
  if (mpirun.code != 0)
    return {"mpi", State::absent, "the plugin loads, but there is no mpirun", "install it (Debian: openmpi-bin)", {}};
  return {"mpi", State::ok, "sg-run --comm mpi, " + mpirun.first_line, {}, {{"mpirun", mpirun.first_line}}};
}

Finding look_at_cuda() {
  Devices devices = find_devices();
  std::optional<Finding> plugin = trouble_with("backend", "cuda", SG_BACKEND_ABI);
  Finding out{"cuda", State::ok, {}, {}, {}};
  if (!devices.version.empty()) out.facts.emplace_back("driver", devices.version);
  for (const std::string& name : devices.names) out.facts.emplace_back("device", name);
  if (plugin) {
    out.state = plugin->state;
    out.text = plugin->text + (devices.trouble.empty() ? "; the machine has " + listed(devices.names) : "");
    out.remedy = devices.trouble.empty() ? "run `make cuda` where the CUDA toolkit is installed" : "";
  } else if (!devices.trouble.empty()) {
    out.state = State::absent;
    out.text = "the plugin loads, but " + devices.trouble;
  } else if (!has_cublas()) {
    out.state = State::absent;
    out.text = listed(devices.names) + ", but there is no libcublasLt.so.13";
    out.remedy = "cuBLAS of CUDA 13 on the library path";
  } else {
    out.text = "sg-run --backend cuda, driver for CUDA " + devices.version + ", " + listed(devices.names);
  }
  return out;
}

Finding look_at_nccl() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  auto* version = library ? reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion")) : nullptr;
  int number = 0;
  if (!version || version(&number) != 0)
    return {"nccl", State::absent, "there is no libnccl.so.2", "NCCL 2.18 or newer on the library path", {}};
  const std::string text =
      std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
  if (number < 21800)
    return {"nccl", State::absent, "NCCL " + text + " is too old", "NCCL 2.18 or newer", {{"version", text}}};
  return {"nccl", State::ok, "NCCL " + text + ", for sg-run --comm nccl", {}, {{"version", text}}};
}

}  // namespace sg::doctor
