// Copies between device and host memory that run beside the kernels: one stream per direction.
//
// A copy begins after the kernels requested before it, and kernels requested after `end` wait for it. In between, the
// caller must not touch either side; transfers in a plan comply with this (libgraph/facts/transfer.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "librun/cuda/device.h"

namespace sg::cuda {

class CopyStreams {
 public:
  explicit CopyStreams(Device& device) : device_(device) {}
  ~CopyStreams();  // waits for unfinished copies

  Result<uint64_t> begin(std::byte* to, const std::byte* from, int64_t bytes, bool to_host);
  Status end(uint64_t number);              // no effect for a copy that could not begin
  uint64_t begun() const { return last_; }  // number of the last copy, whether or not it could begin

 private:
  Status make_event(CUevent* event);

  Device& device_;
  std::array<CUstream, 2> streams_{};  // to the device, to the host; created by the first copy
  std::vector<CUevent> spare_;
  std::map<uint64_t, CUevent> under_way_;  // signals completion
  uint64_t last_ = 0;
};

}  // namespace sg::cuda
