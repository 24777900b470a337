// Copies between the device and the host's memory that run beside the kernels: one stream for each direction.
//
// A copy begins once the kernels that were asked for before it are done, and kernels asked for after `end` come after
// it. In between, who asked for it leaves both sides alone, as the plan of a transfer does (libgraph/transfer.h).
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
  ~CopyStreams();  // waits for what is under way

  Result<uint64_t> begin(std::byte* to, const std::byte* from, int64_t bytes, bool to_host);
  Status end(uint64_t number);              // of a copy that could not begin: nothing
  uint64_t begun() const { return last_; }  // the number of the last one, whether it could begin or not

 private:
  Status make_event(CUevent* event);

  Device& device_;
  std::array<CUstream, 2> streams_{};  // to the device, to the host; made at their first copy
  std::vector<CUevent> spare_;
  std::map<uint64_t, CUevent> under_way_;  // when it is done
  uint64_t last_ = 0;
};

}  // namespace sg::cuda
