// DeviceClock: when a device executed its work, for profiles. Marks are placed in its streams; their times are known
// once the device has settled.
//
// Marks     are numbered in the order in which the host sets them: work between two marks of the node stream was
//           requested between them. Recorded marks would have no time, so nothing is recorded while the clock runs.
// Off       before the first `restart`: a mark is then 0, and nothing is kept.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/base/result.h"

namespace sg {

class DeviceClock {
 public:
  // What a stream did between two marks: transfers between host and device, and collectives, which have streams of
  // their own if the device itself communicates.
  struct Span {
    enum class Kind : uint8_t { upload, download, collective };
    Kind kind = Kind::upload;
    int64_t bytes = 0;
    uint64_t begin = 0, end = 0;
  };

  virtual ~DeviceClock() = default;
  // Discards marks and spans; later marks count from here.
  virtual Status restart() = 0;
  // Sets a mark in the node stream, after everything requested so far.
  virtual uint64_t mark() = 0;
  virtual const std::vector<Span>& spans() const = 0;  // since the restart
  // Microseconds since the restart, by mark. REQUIRES: the device has settled
  virtual Result<std::vector<double>> times() = 0;
};

}  // namespace sg
