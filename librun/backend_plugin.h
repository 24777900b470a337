// Backends that are plugins (plugin.h): `libsg_backend_NAME.so` exports sg_backend_abi, and
//     sg::BackendMaker* sg_backend_make(const sg::BackendOptions&, sg::Error&);   // null = the error says why
#pragma once

#include <memory>
#include <string_view>

#include "librun/backend.h"

// Raised when backend.h or what it includes changes.
#define SG_BACKEND_ABI "sg-backend 4 " __VERSION__

namespace sg {

struct BackendOptions {
  const Job* job = nullptr;
  bool nccl = false;           // ranks talk over NCCL; else through the memory of the host
  bool deterministic = false;  // over NCCL: reductions in group-rank order, by our own sums
  double timeout_s = 600;      // of a collective; 0 = never
};

// Errors (missing): there is no such plugin, it is of another build, or what it needs of the machine is not there.
Result<std::unique_ptr<BackendMaker>> load_backend(std::string_view name, const BackendOptions& options);

}  // namespace sg
