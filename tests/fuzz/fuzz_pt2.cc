// Any bytes give an exported program or an error: no crash, hang or leak. JSON enters directly, below the zip and its
// checksums; bytes that begin as a zip go through the archive.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "libgraph/import/pt2.h"
#include "libgraph/verify/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  sg::Diagnostics notes;
  if (bytes.substr(0, 4) == "PK\x03\x04") {
    auto import = sg::import_pt2(bytes, "fuzz", {}, &notes);
    if (import.ok() && !sg::tensor_file_bytes(import->tensors).ok()) std::abort();
    return 0;
  }
  auto job = sg::import_exported_program(std::string(bytes), "fuzz", &notes);
  if (!job.ok()) return 0;
  sg::Diagnostics found;
  sg::verify(*job, {}, &found);
  return 0;
}
