// The clock of a CUDA device (librun/device_clock.h): marks are events with times, reused from step to step.
#pragma once

#include <vector>

#include "librun/cuda/driver.h"
#include "librun/device_clock.h"

namespace sg::cuda {

class Device;

class StreamClock : public DeviceClock {
 public:
  explicit StreamClock(Device& device) : device_(device) {}
  ~StreamClock() override;
  StreamClock(const StreamClock&) = delete;

  Status restart() override;
  uint64_t mark() override;
  const std::vector<Span>& spans() const override { return spans_; }
  Result<std::vector<double>> times() override;

  // A mark in any stream. Errors are noted (Device::note).
  uint64_t mark_in(CUstream stream);
  void add(const Span& span);

 private:
  Device& device_;
  bool is_on_ = false;
  std::vector<CUevent> events_;
  size_t used_ = 0;  // number in use since the restart
  std::vector<Span> spans_;
};

}  // namespace sg::cuda
