// libFuzzer entry of the binary form, below the seal: any bytes give an error, or a job that can be written and whose
// bytes read back as the same job.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "libgraph/binary/binary.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)sg::read_binary(bytes, "fuzz.sg").ok();
  sg::Result<sg::Job> job = sg::read_unsealed(bytes, "fuzz.sg");
  if (!job.ok()) {
    require(job.error().kind == sg::ErrorKind::unreadable && !job.error().message.empty());
    return 0;
  }
  sg::Result<std::string> written = sg::write_binary(*job);
  require(written.ok());
  sg::Result<sg::Job> again = sg::read_binary(*written, "written.sg");
  require(again.ok());
  sg::Result<std::string> rewritten = sg::write_binary(*again);
  require(rewritten.ok() && *rewritten == *written);
  return 0;
}
