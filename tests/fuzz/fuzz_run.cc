// Any graph that the verifier accepts runs or fails with an error: no crash, no hang, no access beyond a tensor. Inputs
// are texts of graphs, mutated by edits of the graph (tests/support/random_edit.h), not of bytes.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "libgraph/text/text.h"
#include "tests/support/hostile_run.h"
#include "tests/support/random_edit.h"

namespace {

sg::Result<sg::Job> parse(const uint8_t* data, size_t size) {
  sg::Diagnostics diagnostics;
  return sg::parse_text({reinterpret_cast<const char*>(data), size}, "fuzz", &diagnostics);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (bool use_arena : {false, true}) {
    auto job = parse(data, size);
    if (!job.ok()) return -1;
    sg::test::HostileReport report = sg::test::run_hostile(*job, size, use_arena);
    if (report.own_fault) std::fprintf(stderr, "our own fault: %s\n", report.message.c_str()), std::abort();
    if (report.outcome != sg::test::HostileOutcome::ran) return 0;
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  auto job = parse(data, size);
  if (!job.ok()) return 0;
  sg::test::Rng rng(seed);
  for (uint64_t edits = 1 + rng.below(3); edits > 0; --edits) sg::test::edit_job(*job, rng);
  std::string text = sg::print_text(*job);
  if (text.size() > max_size) return size;
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
