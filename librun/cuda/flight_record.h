// The collectives of a rank that are on their way, and the last that have come to their end: what its last words name
// when one of them hangs.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "librun/comm.h"
#include "librun/cuda/device.h"

namespace sg::cuda {

// Kept for as long as its event is needed.
struct Flight {
  uint64_t number = 0;
  CollectiveKind kind = CollectiveKind::barrier;
  std::string label, group;
  CUevent done = nullptr;
  double since_s = 0;
  uint64_t place = 0;  // Heartbeat::place of its launch
  bool waited = false;
  std::vector<std::byte*> staging;  // memory of the device, given back when it has come to its end

  std::string text() const;  // "all_reduce %sum of group @data (number 7)"
};

class FlightRecord {
 public:
  explicit FlightRecord(Device& device) : device_(device) {}
  ~FlightRecord();
  FlightRecord(const FlightRecord&) = delete;

  // The next flight, which is not on its way before it is `started`: then its end is what `stream` has by now.
  Flight next(const CollectiveCall& call, const std::string& group);
  Status started(Flight flight, CUstream stream);

  // The compute stream waits for it; nothing for a number that is not open.
  Status wait(uint64_t number);
  std::vector<uint64_t> open() const;
  // The first that has been open for so long; null = none.
  const Flight* overdue(double seconds) const;
  // What has ended last, and what is open, the first of it first.
  std::string text() const;

 private:
  bool has_ended(const Flight& flight) const;
  void collect();  // those that have come to their end and been waited for
  void drop(Flight& flight);

  Device& device_;
  uint64_t launched_ = 0;
  std::map<uint64_t, Flight> flights_;
  std::deque<std::string> ended_;
};

// Of a clock that only goes forward.
double now_s();

}  // namespace sg::cuda
