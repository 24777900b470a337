#include "librun/cuda/copy_streams.h"

namespace sg::cuda {

CopyStreams::~CopyStreams() {
  const Driver& driver = device_.driver();
  for (CUstream stream : streams_)
    if (stream) driver.cuStreamSynchronize(stream), driver.cuStreamDestroy_v2(stream);
  for (auto& [number, event] : under_way_) driver.cuEventDestroy_v2(event);
  for (CUevent event : spare_) driver.cuEventDestroy_v2(event);
}

Status CopyStreams::make_event(CUevent* event) {
  if (spare_.empty()) {
    SG_CU(device_.driver(), cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    return ok_status();
  }
  *event = spare_.back();
  spare_.pop_back();
  return ok_status();
}

Result<uint64_t> CopyStreams::begin(std::byte* to, const std::byte* from, int64_t bytes, bool to_host) {
  const Driver& driver = device_.driver();
  const uint64_t number = ++last_;
  CUstream& stream = streams_[to_host];
  if (!stream) SG_CU(driver, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  SG_TRY(make_event(&event));
  under_way_.emplace(number, event);
  SG_CU(driver, cuEventRecord(event, device_.stream()));
  SG_CU(driver, cuStreamWaitEvent(stream, event, 0));
  const uint64_t begin = device_.clock().mark_in(stream);
  SG_CU(driver, cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from),
                              static_cast<size_t>(bytes), stream));
  using Kind = DeviceClock::Span::Kind;
  device_.clock().add({to_host ? Kind::download : Kind::upload, bytes, begin, device_.clock().mark_in(stream)});
  SG_CU(driver, cuEventRecord(event, stream));
  return number;
}

Status CopyStreams::end(uint64_t number) {
  auto it = under_way_.find(number);
  if (it == under_way_.end()) return ok_status();
  SG_CU(device_.driver(), cuStreamWaitEvent(device_.stream(), it->second, 0));
  spare_.push_back(it->second);
  under_way_.erase(it);
  return ok_status();
}

}  // namespace sg::cuda
