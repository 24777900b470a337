// TORCH_TRACE logs and tlparse folders as a source of sg-import (libgraph/import/trace_log.h).
#pragma once

#include "tools/import/import_sources.h"

namespace sg::cli {

Result<Imported> import_trace_files(const Args& args, Sources* sources, Diagnostics* notes);
Result<Listing> list_trace_files(const Args& args, Sources* sources, Diagnostics* notes);

}  // namespace sg::cli
