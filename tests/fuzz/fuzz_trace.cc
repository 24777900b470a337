// Any bytes give a TORCH_TRACE log or an error: no crash, hang or leak. A first byte `!` followed by a letter selects
// the compilation "0/0" or "1/0".
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "libgraph/import/trace_log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  sg::TraceOptions options;
  if (bytes.size() >= 2 && bytes[0] == '!') {
    options.compile = bytes[1] == 'a' ? "0/0" : "1/0";
    bytes.remove_prefix(2);
  }
  const std::string name = "trace_rank_0_x.log";
  auto log = sg::read_trace_log(name, bytes);
  if (!log.ok()) return 0;
  std::vector<sg::TraceLog> logs{std::move(*log)};
  sg::describe_trace(logs);
  sg::trace_json(logs);
  sg::Diagnostics notes;
  auto job = sg::import_trace(logs, options, &notes);
  if (job.ok() && job->programs.empty()) std::abort();
  return 0;
}
