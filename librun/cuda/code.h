// Machine code of generated kernels: from NVRTC, kept on disk.
//
// Cache   $XDG_CACHE_HOME/stepgraph/cuda (else ~/.cache/...), a file a kernel, named by a hash of all that its code
//         hangs on: text, headers, architecture, compiler. A file that does not hold what its head says is made anew.
//         SG_CUDA_CACHE=DIR puts it elsewhere, SG_CUDA_CACHE= (empty) keeps nothing.
// Without NVRTC (libnvrtc.so.13) chains are interpreted: slower, the same bits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/result.h"

namespace sg::cuda {

class CodeMaker {
 public:
  // Null = there is no NVRTC; `why` says what is missing.
  static const CodeMaker* find(std::string* why);

  // Code for an architecture: 90 = sm_90. Errors name what the compiler said.
  Result<std::string> compile(const std::string& text, int architecture) const;
  std::string version() const;  // "13.0"

 private:
  struct Functions;
  explicit CodeMaker(const Functions& functions) : nvrtc_(functions) {}
  static Result<const Functions*> load();
  const Functions& nvrtc_;
};

// The headers that generated text includes: made at build time of kernels/ and work/math.h.
struct CodeHeader {
  const char* name;
  const char* text;
};
const std::vector<CodeHeader>& code_headers();

}  // namespace sg::cuda
