#include "librun/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "librun/cuda/version_text.h"

namespace sg::cuda {
namespace {

constexpr int kOldestDriver = 13000;  // supports code and libraries of CUDA 13
constexpr const char* kDriverRemedy =
    "a machine with an NVIDIA GPU and its driver (nvidia-smi shows both), or --backend cpu";

// Servers of H100 and H200 often keep an older driver, for which NVIDIA has a package beside it.
constexpr const char* kNewerDriverRemedy =
    "NVIDIA's driver 580 or newer; or, for GPUs of data centers, the package cuda-compat-13-0 beside an older driver, "
    "with its folder /usr/local/cuda-13.0/compat first on LD_LIBRARY_PATH; or --backend cpu";

Error missing(std::string message, const char* remedy = kDriverRemedy) {
  return Error{ErrorKind::missing, std::move(message), {}, remedy};
}

// Why the last dlopen of this file has failed; empty: there is no such file. What it needs in turn may be absent.
std::string unless_absent(const std::string& file) {
  const char* said = dlerror();
  const std::string why = said ? said : "";
  return why.starts_with(file + ": cannot open shared object file: No such file") ? "" : why;
}

Result<Driver> start(bool all_at_once) {
  constexpr const char* kFile = "libcuda.so.1";
  void* library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const std::string why = unless_absent(kFile);
    return missing(why.empty() ? "the backend 'cuda' finds no driver (libcuda.so.1)"
                               : "the backend 'cuda' cannot load the driver: " + why);
  }
  Driver driver;
#define SG_FIND(name)                                                       \
  driver.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (!driver.name) return missing("the driver (libcuda.so.1) is too old: it has no " #name, kNewerDriverRemedy);
  SG_CUDA_FUNCTIONS(SG_FIND)
#undef SG_FIND
  // cuInit reads it.
  if (all_at_once) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  if (CUresult code = driver.cuInit(0); code != CUDA_SUCCESS) {
    Error error = check(driver, code, "cuInit").error();
    return missing("the driver does not start: " + error.message);
  }
  SG_CU(driver, cuDriverGetVersion(&driver.version));
  if (driver.version < kOldestDriver)
    return missing(
        "the driver is for CUDA " + version_text(driver.version) + ", " + version_text(kOldestDriver) + " is needed",
        kNewerDriverRemedy);
  int devices = 0;
  SG_CU(driver, cuDeviceGetCount(&devices));
  if (devices == 0) return missing("the driver sees no GPU");
  return driver;
}

}  // namespace

Result<const Driver*> load_driver(bool all_at_once) {
  static const Result<Driver> driver = start(all_at_once);
  if (!driver.ok()) return driver.error();
  return &*driver;
}

Status check(const Driver& driver, CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return ok_status();
  const char *name = nullptr, *text = nullptr;
  driver.cuGetErrorName(code, &name);
  driver.cuGetErrorString(code, &text);
  const std::string call(what, std::strcspn(what, "("));
  return Error{ErrorKind::missing,
               call + " failed with " + (name ? name : "error " + std::to_string(code)) +
                   (text ? std::string(": ") + text : std::string()),
               {},
               {}};
}

Result<void*> open_library(std::initializer_list<const char*> files, const char* remedy) {
  Error error{ErrorKind::missing, "the backend 'cuda' finds no " + std::string(*files.begin()), {}, remedy};
  bool is_broken = false;
  for (const char* file : files) {
    if (void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL)) return library;
    const std::string why = unless_absent(file);
    if (why.empty() || is_broken) continue;
    error.message = "the backend 'cuda' cannot load " + why;
    is_broken = true;
  }
  return error;
}

}  // namespace sg::cuda
