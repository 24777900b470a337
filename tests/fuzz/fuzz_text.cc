// Any bytes as text give errors that have a place, or a job whose printed text parses to the same text again.

#include <cstdint>
#include <cstdlib>

#include "libgraph/text/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sg::Diagnostics diagnostics;
  auto job = sg::parse_text({reinterpret_cast<const char*>(data), size}, "fuzz", &diagnostics);
  if (!job.ok()) {
    for (const sg::Diagnostic& d : diagnostics.list())
      if (d.where.line == 0 || d.where.column == 0) std::abort();
    return 0;
  }
  std::string printed = sg::print_text(*job);
  sg::Diagnostics none;
  auto again = sg::parse_text(printed, "printed", &none);
  if (!again.ok() || sg::print_text(*again) != printed) std::abort();
  return 0;
}
