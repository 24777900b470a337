// Backends as plugins (plugin.h): `libsg_backend_NAME.so` exports sg_backend_abi, and
//     sg::BackendMaker* sg_backend_make(const sg::BackendOptions&, sg::Error&);   // null = the error says why
#pragma once

#include <memory>
#include <string_view>

#include "librun/backend.h"

// Incremented when backend.h or anything it includes changes.
#define SG_BACKEND_ABI "sg-backend 5 " __VERSION__

namespace sg {

struct BackendOptions {
  const Job* job = nullptr;
  bool nccl = false;           // ranks communicate over NCCL; else through host memory
  bool deterministic = false;  // over NCCL: reductions in group-rank order, summed by our own kernels
  double timeout_s = 600;      // of a collective; 0 = never
  // All code is loaded before the first step, which costs seconds: a rank that loads it later may wait for a collective
  // that others owe it, while it owes them another.
  bool loads_all_at_once = false;
};

// Errors (missing): no such plugin, a plugin of a different build, or missing hardware or libraries.
Result<std::unique_ptr<BackendMaker>> load_backend(std::string_view name, const BackendOptions& options);

}  // namespace sg
