// sg-run: --backend and --comm, which of them go together, and what they load.
#pragma once

#include <memory>

#include "librun/backend_plugin.h"
#include "tools/cli/cli.h"

namespace sg::cli {

// What does not go together, before anything is loaded.
Status check_backend(const Args& args);

// Null for --backend cpu. `ranks_of_process`: how many ranks are threads of this process.
Result<std::unique_ptr<BackendMaker>> make_backends(const Args& args, const Job& job, size_t ranks_of_process);

}  // namespace sg::cli
