#include <map>

#include "librun/comm/comm_forward.h"
#include "librun/comm/comm_inject.h"
#include "librun/random.h"

namespace sg {
namespace {

constexpr double kLongestHoldS = 1e-3;   // before a launch
constexpr double kLongestDelayS = 3e-3;  // from launch to the end of its wait

// FNV-1a hash of a text: the same on every machine.
uint64_t number_of(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001B3u;
  return hash;
}

class ChaosCommunicator final : public ForwardingCommunicator {
 public:
  ChaosCommunicator(std::unique_ptr<Communicator> inner, uint64_t seed)
      : ForwardingCommunicator(std::move(inner)), seed_(seed) {}

  Result<Ticket> launch(const CollectiveCall& call) override {
    Delays delays = delays_of(call.group);
    SG_TRY(sleep_until(Clock::now() + seconds(delays.hold_s)));
    SG_ASSIGN(Ticket ticket, inner_->launch(call));
    if (ticket.id != 0) ends_[ticket.id] = Clock::now() + seconds(delays.end_s);
    return ticket;
  }

  Status wait(Ticket ticket) override {
    SG_TRY(inner_->wait(ticket));
    auto found = ends_.find(ticket.id);
    if (found == ends_.end()) return ok_status();
    Clock::time_point end = found->second;
    ends_.erase(found);
    return sleep_until(end);
  }

  Status drain() override {
    while (!ends_.empty()) SG_TRY(wait(Ticket{ends_.begin()->first}));
    return inner_->drain();
  }

 private:
  struct Delays {
    double hold_s = 0, end_s = 0;
  };
  static Clock::duration seconds(double s) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  }

  // One wait in four is not delayed; short delays are more frequent than long ones.
  Delays delays_of(GroupId g) {
    uint64_t number = launched_[g.index]++;
    RandomKey key(seed_ ^ number_of(inner_->group(g).digest), number, 0, inner_->rank());
    work::Words words = key.block(0);
    auto share = [](uint32_t word) { return static_cast<double>(word) * 0x1p-32; };
    Delays out;
    if (words[0] % 8 == 0) out.hold_s = kLongestHoldS * share(words[1]);
    if (words[2] % 4 != 0) out.end_s = kLongestDelayS * share(words[3]) * share(words[3]);
    return out;
  }

  uint64_t seed_;
  std::map<uint32_t, uint64_t> launched_;       // by GroupId
  std::map<uint64_t, Clock::time_point> ends_;  // by ticket, until waited for
};

}  // namespace

std::unique_ptr<Communicator> with_chaos(std::unique_ptr<Communicator> inner, uint64_t seed) {
  return std::make_unique<ChaosCommunicator>(std::move(inner), seed);
}

}  // namespace sg
