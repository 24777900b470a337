// Any bytes give a capture or an error: no crash, hang or leak. A NUL byte, which JSON cannot hold, separates the files
// of a rank set; a first byte `*` asks for one capture that stands for all ranks.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "libgraph/import/capture.h"
#include "libgraph/import/gzip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  sg::ImportOptions options;
  if (bytes.substr(0, 1) == "*") {
    options.spmd = true;
    bytes.remove_prefix(1);
  }
  std::vector<sg::CaptureFile> files;
  if (sg::is_gzip(bytes)) {
    files.push_back({"packed", std::string(bytes)});
  } else {
    for (size_t end = 0; end != std::string_view::npos && files.size() < 8; bytes.remove_prefix(end + 1)) {
      end = bytes.find('\0');
      files.push_back({"rank", std::string(bytes.substr(0, end))});
      if (end == std::string_view::npos) break;
    }
  }
  sg::Diagnostics notes;
  auto job = sg::import_captures(std::move(files), options, &notes);
  if (job.ok() && job->programs.empty()) std::abort();
  return 0;
}
