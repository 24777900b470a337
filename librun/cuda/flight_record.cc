#include "librun/cuda/flight_record.h"

#include <chrono>

namespace sg::cuda {
namespace {

constexpr size_t kRemembered = 3;  // flights listed in a report: finished, and open

}  // namespace

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string Flight::text() const {
  return std::string(collective_name(kind)) + " %" + label + " of group " + group + " (number " +
         std::to_string(number) + ")";
}

FlightRecord::~FlightRecord() {
  for (auto& [number, flight] : flights_) drop(flight);
}

Flight FlightRecord::next(const CollectiveCall& call, const std::string& group) {
  Flight out;
  out.number = ++launched_;
  out.kind = call.kind;
  out.label = std::string(call.label);
  out.group = group;
  out.place = device_.place();
  return out;
}

Status FlightRecord::started(Flight flight, CUstream stream) {
  SG_CU(device_.driver(), cuEventCreate(&flight.done, CU_EVENT_DISABLE_TIMING));
  SG_CU(device_.driver(), cuEventRecord(flight.done, stream));
  flight.since_s = now_s();
  flights_.emplace(flight.number, std::move(flight));
  return ok_status();
}

Status FlightRecord::wait(uint64_t number) {
  auto it = flights_.find(number);
  if (it == flights_.end()) return ok_status();
  SG_CU(device_.driver(), cuStreamWaitEvent(device_.stream(), it->second.done, 0));
  it->second.waited = true;
  collect();
  return ok_status();
}

std::vector<uint64_t> FlightRecord::open() const {
  std::vector<uint64_t> out;
  for (const auto& [number, flight] : flights_) out.push_back(number);
  return out;
}

const Flight* FlightRecord::overdue(double seconds) const {
  for (const auto& [number, flight] : flights_)
    if (!has_ended(flight)) return now_s() - flight.since_s < seconds ? nullptr : &flight;
  return nullptr;
}

std::string FlightRecord::text() const {
  std::string out = "its last collectives:";
  for (const std::string& text : ended_) out += " " + text + " ended;";
  size_t open = 0;
  for (const auto& [number, flight] : flights_) {
    if (has_ended(flight)) out += " " + flight.text() + " ended;";
    else if (open++ < kRemembered) out += " " + flight.text() + " is open;";
  }
  if (open > kRemembered) out += " " + std::to_string(open - kRemembered) + " more are open;";
  out.pop_back();
  return out;
}

bool FlightRecord::has_ended(const Flight& flight) const {
  return device_.driver().cuEventQuery(flight.done) == CUDA_SUCCESS;
}

void FlightRecord::collect() {
  for (auto it = flights_.begin(); it != flights_.end();) {
    if (!it->second.waited || !has_ended(it->second)) {
      ++it;
      continue;
    }
    ended_.push_back(it->second.text());
    if (ended_.size() > kRemembered) ended_.pop_front();
    drop(it->second);
    it = flights_.erase(it);
  }
}

void FlightRecord::drop(Flight& flight) {
  if (flight.done) device_.driver().cuEventDestroy_v2(flight.done);
  for (std::byte* memory : flight.staging) device_.memory().give(memory);
  flight.staging.clear();
  flight.done = nullptr;
}

}  // namespace sg::cuda
