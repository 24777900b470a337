// DeviceClock: when a device did what it was given, for profiles. Marks lie in its streams; at what time it came to
// them is known when it has settled.
//
// Marks     are numbered in the order in which the host sets them: what is between two marks of the stream of nodes was
//           asked for between the two. Marks that are recorded would have no time: nothing is recorded meanwhile.
// Off       before the first `restart`: then a mark is 0, and nothing is kept.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/result.h"

namespace sg {

class DeviceClock {
 public:
  // What a stream did between two marks: transfers between the host and the device, and collectives, which have streams
  // of their own where the device itself talks to others.
  struct Span {
    enum class Kind : uint8_t { upload, download, collective };
    Kind kind = Kind::upload;
    int64_t bytes = 0;
    uint64_t begin = 0, end = 0;
  };

  virtual ~DeviceClock() = default;
  // Forgets marks and spans; the next marks count from here.
  virtual Status restart() = 0;
  // In the stream of nodes, behind what it was given so far.
  virtual uint64_t mark() = 0;
  virtual const std::vector<Span>& spans() const = 0;  // since the restart
  // Microseconds since the restart, by mark. REQUIRES: the device has settled
  virtual Result<std::vector<double>> times() = 0;
};

}  // namespace sg
