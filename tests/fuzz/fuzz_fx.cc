// Any bytes give an FX graph text or an error: no crash, hang or leak. A NUL byte separates the texts of several ranks;
// a first byte `*` asks for one text that stands for all ranks.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "libgraph/import/fx_import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  sg::ImportOptions options;
  if (bytes.substr(0, 1) == "*") {
    options.spmd = true;
    bytes.remove_prefix(1);
  }
  std::vector<sg::CaptureFile> files;
  for (size_t end = 0; end != std::string_view::npos && files.size() < 8; bytes.remove_prefix(end + 1)) {
    end = bytes.find('\0');
    files.push_back({"rank", std::string(bytes.substr(0, end))});
    if (end == std::string_view::npos) break;
  }
  sg::Diagnostics notes;
  auto job = sg::import_fx(std::move(files), options, &notes);
  if (job.ok() && job->programs.empty()) std::abort();
  return 0;
}
