// Compiles generated kernels with NVRTC, and caches the code on disk.
//
// Cache   $XDG_CACHE_HOME/stepgraph/cuda (else ~/.cache/...), one file per kernel, named by a hash of everything that
//         its code depends on: text, headers, architecture, compiler. A file whose contents do not match its header is
//         rebuilt. SG_CUDA_CACHE=DIR moves the cache, SG_CUDA_CACHE= (empty) disables it.
// Without NVRTC (libnvrtc.so.13, else 12) chains are interpreted: slower, with the same bits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"

namespace sg::cuda {

class CodeMaker {
 public:
  // Null = NVRTC is not available; `why` says what is missing.
  static const CodeMaker* find(std::string* why);

  // Code for an architecture: 90 = sm_90. Errors contain the compiler's output.
  Result<std::string> compile(const std::string& text, int architecture) const;
  std::string version() const;  // "13.0"

 private:
  struct Functions;
  explicit CodeMaker(const Functions& functions) : nvrtc_(functions) {}
  static Result<const Functions*> load();
  const Functions& nvrtc_;
};

// The headers included by generated text: embedded at build time from kernels/ and work/math.h.
struct CodeHeader {
  const char* name;
  const char* text;
};
const std::vector<CodeHeader>& code_headers();

}  // namespace sg::cuda
