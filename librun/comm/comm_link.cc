#include <algorithm>
#include <charconv>
#include <deque>
#include <map>

#include "libgraph/base/human.h"
#include "librun/comm/comm_forward.h"
#include "librun/comm/comm_inject.h"
#include "librun/comm/comm_match.h"

namespace sg {
namespace {

constexpr double kLongestLatencyS = 3600;

Error no_link(std::string_view text) {
  return Error{ErrorKind::usage,
               "--link takes a latency and a bandwidth, not `" + std::string(text) + "`",
               {},
               "such as 50us,2GiB/s"};
}

std::optional<double> parse_seconds(std::string_view text) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  double factor = unit == "us" ? 1e-6 : unit == "ms" ? 1e-3 : unit == "s" ? 1 : number == 0 && unit.empty() ? 1 : 0;
  if (error != std::errc() || factor == 0 || !(number >= 0) || !(number * factor <= kLongestLatencyS))
    return std::nullopt;
  return number * factor;
}

class LinkCommunicator final : public ForwardingCommunicator {
 public:
  LinkCommunicator(std::unique_ptr<Communicator> inner, const Link& link)
      : ForwardingCommunicator(std::move(inner)), link_(link) {}
  ~LinkCommunicator() override { inner_.reset(); }  // before the memory that its collectives use

  Result<Ticket> launch(const CollectiveCall& call) override {
    SG_ASSIGN(Ticket ticket, inner_->launch(call));
    const RankGroup& group = inner_->group(call.group);
    if (group.ranks.size() < 2) return ticket;
    Lane& lane = lanes_[call.group.index];
    Sent& sent = lane.open.emplace_back();
    sent.ticket = ticket;
    sent.takes_s =
        link_.latency_s + static_cast<double>(link_bytes(call, group.ranks.size(), group.position)) / link_.bytes_per_s;
    SG_TRY(tell_launch(call, group, &sent));
    lane_of_[ticket.id] = &lane;
    return ticket;
  }

  Status wait(Ticket ticket) override {
    SG_TRY(inner_->wait(ticket));
    auto found = lane_of_.find(ticket.id);
    if (found == lane_of_.end()) return ok_status();
    Lane& lane = *found->second;
    lane_of_.erase(found);
    SG_TRY(settle(lane, ticket.id));
    auto over = lane.over.find(ticket.id);
    Clock::time_point end = over->second;
    lane.over.erase(over);
    return sleep_until(end);
  }

  Status drain() override {
    while (!lane_of_.empty()) SG_TRY(wait(Ticket{lane_of_.begin()->first}));
    return inner_->drain();
  }

 private:
  // Launched, and the end not yet known.
  struct Sent {
    Ticket ticket, told;  // of the collective, and of the exchange of launch times
    double takes_s = 0;
    int64_t mine = 0;  // launch time of this rank, in nanoseconds
    std::vector<int64_t> all;
  };
  struct Lane {                                  // one group
    std::deque<Sent> open;                       // in launch order; addresses are stable
    std::map<uint64_t, Clock::time_point> over;  // by ticket: ends of those not waited for
    Clock::time_point free{};
  };

  // After each collective the members exchange their launch times, in the same order on all of them.
  Status tell_launch(const CollectiveCall& call, const RankGroup& group, Sent* sent) {
    sent->mine = std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
    sent->all.resize(group.ranks.size());
    CollectiveCall times;
    times.kind = CollectiveKind::all_gather;
    times.group = call.group;
    times.label = call.label;
    const int64_t one = 1, many = static_cast<int64_t>(sent->all.size());
    times.input = make_tensor(reinterpret_cast<std::byte*>(&sent->mine), DType::i64, std::span(&one, 1));
    times.output = make_tensor(reinterpret_cast<std::byte*>(sent->all.data()), DType::i64, std::span(&many, 1));
    SG_ASSIGN(sent->told, inner_->launch(times));
    return ok_status();
  }

  // Computes the ends of the group's collectives up to this one, all of which have been launched everywhere.
  Status settle(Lane& lane, uint64_t ticket) {
    while (!lane.over.contains(ticket)) {
      Sent& sent = lane.open.front();
      SG_TRY(inner_->wait(sent.told));
      Clock::time_point last{
          std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(std::ranges::max(sent.all)))};
      Clock::time_point begin = std::max(std::min(last, Clock::now()), lane.free);
      lane.free = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(sent.takes_s));
      lane.over[sent.ticket.id] = lane.free;
      lane.open.pop_front();
    }
    return ok_status();
  }

  Link link_;
  std::map<uint32_t, Lane> lanes_;     // by GroupId
  std::map<uint64_t, Lane*> lane_of_;  // by ticket, until waited for
};

}  // namespace

Result<Link> parse_link(std::string_view text) {
  size_t comma = text.find(',');
  if (comma == std::string_view::npos) return no_link(text);
  std::string_view rate = text.substr(comma + 1);
  if (rate.ends_with("/s")) rate.remove_suffix(2);
  std::optional<double> latency_s = parse_seconds(text.substr(0, comma));
  Result<int64_t> bytes = parse_bytes(rate);
  if (!latency_s || !bytes.ok() || *bytes <= 0) return no_link(text);
  return Link{*latency_s, static_cast<double>(*bytes)};
}

int64_t link_bytes(const CollectiveCall& call, size_t members, uint32_t position) {
  auto n = static_cast<int64_t>(members);
  int64_t in = call.input.is_none() ? 0 : call.input.bytes(), out = call.output.is_none() ? 0 : call.output.bytes();
  switch (call.kind) {
    case CollectiveKind::barrier: return 0;
    case CollectiveKind::all_gather: return (n - 1) * in;
    case CollectiveKind::reduce_scatter: return (n - 1) * out;
    case CollectiveKind::all_reduce: return 2 * (n - 1) * (in / n);
    case CollectiveKind::broadcast: return out;
    case CollectiveKind::gather: return position == call.root ? (n - 1) * in : in;
    case CollectiveKind::scatter: return position == call.root ? (n - 1) * out : out;
    case CollectiveKind::all_to_all: break;
  }
  int64_t sent = 0, received = 0;
  for (uint32_t p = 0; p < members; ++p) {
    if (p == position) continue;
    sent += sent_to(call, p, members);
    received += received_from(call, p, members);
  }
  DType dtype = call.output.is_none() ? call.input.dtype : call.output.dtype;
  return std::max(sent, received) * dtype_bytes(dtype);
}

std::unique_ptr<Communicator> with_link(std::unique_ptr<Communicator> inner, const Link& link) {
  return std::make_unique<LinkCommunicator>(std::move(inner), link);
}

}  // namespace sg
