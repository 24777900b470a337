// The unfinished collectives of a rank, and the last finished ones, which are reported when a collective hangs.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "librun/comm/comm.h"
#include "librun/cuda/device.h"

namespace sg::cuda {

// Kept as long as its event is needed.
struct Flight {
  uint64_t number = 0;
  CollectiveKind kind = CollectiveKind::barrier;
  std::string label, group;
  CUevent done = nullptr;
  double since_s = 0;
  uint64_t place = 0;  // Heartbeat::place of its launch
  bool waited = false;
  std::vector<std::byte*> staging;  // device memory, released when the collective has finished

  std::string text() const;  // "all_reduce %sum of group @data (number 7)"
};

class FlightRecord {
 public:
  explicit FlightRecord(Device& device) : device_(device) {}
  ~FlightRecord();
  FlightRecord(const FlightRecord&) = delete;

  // Creates the next flight; `started` marks it as launched: it ends with everything that is on `stream` by then.
  Flight next(const CollectiveCall& call, const std::string& group);
  Status started(Flight flight, CUstream stream);

  // Makes the compute stream wait for it; no effect if the number is not open.
  Status wait(uint64_t number);
  std::vector<uint64_t> open() const;
  // The first that has been open for this long; null = none.
  const Flight* overdue(double seconds) const;
  // The last finished ones, and the open ones, oldest first.
  std::string text() const;

 private:
  bool has_ended(const Flight& flight) const;
  void collect();  // drops those that have finished and been waited for
  void drop(Flight& flight);

  Device& device_;
  uint64_t launched_ = 0;
  std::map<uint64_t, Flight> flights_;
  std::deque<std::string> ended_;
};

// Seconds of a monotonic clock.
double now_s();

}  // namespace sg::cuda
