#include "librun/cuda/clock.h"

#include "librun/cuda/device.h"

namespace sg::cuda {

StreamClock::~StreamClock() {
  for (CUevent event : events_) device_.driver().cuEventDestroy_v2(event);
}

Status StreamClock::restart() {
  is_on_ = true;
  used_ = 0;
  spans_.clear();
  mark();
  return device_.noted();
}

uint64_t StreamClock::mark() { return mark_in(device_.stream()); }

uint64_t StreamClock::mark_in(CUstream stream) {
  if (!is_on_) return 0;
  const Driver& driver = device_.driver();
  if (used_ == events_.size()) {
    CUevent event = nullptr;
    device_.note(check(driver, driver.cuEventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate"));
    if (!event) return 0;
    events_.push_back(event);
  }
  device_.note(check(driver, driver.cuEventRecord(events_[used_], stream), "cuEventRecord"));
  return used_++;
}

void StreamClock::add(const Span& span) {
  if (is_on_) spans_.push_back(span);
}

Result<std::vector<double>> StreamClock::times() {
  SG_TRY(device_.noted());
  std::vector<double> out;
  for (size_t i = 0; i < used_; ++i) {
    float milliseconds = 0;
    SG_CU(device_.driver(), cuEventElapsedTime(&milliseconds, events_[0], events_[i]));
    out.push_back(1e3 * static_cast<double>(milliseconds));
  }
  return out;
}

}  // namespace sg::cuda
