#include "librun/meet/meeting.h"

#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <thread>

#include "libgraph/base/hex.h"
#include "librun/comm/comm.h"
#include "librun/meet/announce.h"

namespace sg::meet {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::string_view kFamily = "stepgraph meeting ", kProtocol = "stepgraph meeting 1";
constexpr size_t kLongestHello = 4096;
constexpr size_t kMostStrangers = 1024;            // callers that have not identified themselves yet
constexpr auto kStrangerPatience = 10s;            // for their first message
constexpr auto kAnswerPatience = 5s;               // for rank 0's answer to a call
constexpr auto kCallPatience = 3s;                 // for a connection
constexpr auto kFirstWord = 5s, kWordEvery = 30s;  // between reports of who is missing
constexpr auto kComeBack = 10s;                    // for a rank that was there and disconnected
constexpr double kGrace_s = 5;                     // additional time for rank 0, which knows who is missing
constexpr auto kTick = 100ms;

std::string machine_name() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::string(host) + " " + boot;
}

Result<std::string> new_token() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return Error{ErrorKind::missing, "cannot get random numbers from the system"};
  return hex(bytes);
}

// How long the ranks have been waiting, and when the user should be told.
class Patience {
 public:
  explicit Patience(const MeetingOptions& options) : options_(options) {}
  bool is_over(double grace_s = 0) const { return options_.timeout_s > 0 && seconds() > options_.timeout_s + grace_s; }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - since_).count(); }
  std::string text() const { return std::to_string(static_cast<int>(seconds())) + " s"; }
  void say(const std::string& line) {
    if (!options_.say || Clock::now() < next_word_) return;
    options_.say(line);
    next_word_ = Clock::now() + kWordEvery;
  }

 private:
  const MeetingOptions& options_;
  Clock::time_point since_ = Clock::now(), next_word_ = since_ + kFirstWord;
};

struct Hello {
  std::string protocol, token, machine;
  uint64_t rank = 0, world = 0;

  std::string body() const {
    return BodyWriter().text(protocol).text(token).number(rank).number(world).text(machine).take();
  }
  // Of another version's hello only the version is read. None: not a hello of ours.
  static std::optional<Hello> read(const Message& m) {
    BodyReader in(m.body);
    Hello h;
    h.protocol = in.text();
    if (m.kind != MessageKind::hello || !h.protocol.starts_with(kFamily)) return std::nullopt;
    if (h.protocol != kProtocol) return h;
    h.token = in.text(), h.rank = in.number(), h.world = in.number(), h.machine = in.text();
    return in.at_end() && !h.machine.empty() ? std::optional(h) : std::nullopt;
  }
};

std::string refusal_body(const Error& why) {
  return BodyWriter().number(static_cast<uint64_t>(why.kind)).text(why.message).take();
}

Error refusal_of(const Message& m) {
  BodyReader in(m.body);
  const bool is_misfit = in.number() == static_cast<uint64_t>(ErrorKind::cannot_apply);
  return {is_misfit ? ErrorKind::cannot_apply : ErrorKind::rank_failed, in.text()};
}

// --- rank 0 ---

class Host {
 public:
  Host(const MeetingPlace& place, const MeetingOptions& options)
      : place_(place), options_(options), patience_(options), seats_(options.world) {}

  Result<Meeting> meet() {
    SG_TRY(open());
    Status all = wait_for_all();
    if (place_.kind != MeetingPlace::Kind::address) withdraw(place_, announcement_);
    if (!all.ok()) return refuse_all(std::move(all.error()));
    Meeting out;
    BodyWriter machines;
    for (Seat& seat : seats_) machines.text(seat.machine), out.machines.push_back(seat.machine);
    const auto body = std::make_shared<const std::string>(machines.take());
    // The owner of the lines sends it, and receives what comes back.
    for (uint32_t r = 1; r < options_.world; ++r) {
      seats_[r].line.post(MessageKind::welcome, body);
      out.lines.push_back(std::move(seats_[r].line));
    }
    return out;
  }

 private:
  struct Stranger {
    Line line;
    Clock::time_point since;
  };
  struct Seat {
    std::string machine;  // empty = the rank has not arrived
    Line line = Line(Socket(), 0);
    std::optional<Clock::time_point> left;
  };

  Status open() {
    allow_many_sockets();
    const bool is_known = place_.kind == MeetingPlace::Kind::address;
    SG_ASSIGN(listening_, listen_on(is_known ? place_.port : uint16_t{0}));
    seats_[0].machine = machine_name();
    if (is_known) return ok_status();
    SG_ASSIGN(const std::string token, new_token());
    announcement_ = {own_addresses(), port_of(listening_), token};
    return announce(place_, announcement_);
  }

  std::vector<uint32_t> absent() const {
    std::vector<uint32_t> out;
    for (uint32_t r = 0; r < options_.world; ++r)
      if (seats_[r].machine.empty() || seats_[r].left) out.push_back(r);
    return out;
  }

  Status wait_for_all() {
    for (std::vector<uint32_t> missing = absent(); !missing.empty(); missing = absent()) {
      if (patience_.is_over())
        return Error{ErrorKind::rank_failed,
                     ranks_text(missing) + " did not come to " + place_.text() + " within " + patience_.text()};
      patience_.say("rank 0 waits at " + place_.text() + " for " + ranks_text(missing));
      wait_a_tick();
      SG_TRY(accept_strangers());
      hear_strangers();
      SG_TRY(look_after_ranks());
    }
    return ok_status();
  }

  void wait_a_tick() {
    std::vector<pollfd> fds = {{listening_.fd(), POLLIN, 0}};
    for (const Stranger& s : strangers_) fds.push_back({s.line.socket().fd(), POLLIN, 0});
    poll(fds.data(), fds.size(), static_cast<int>(std::chrono::milliseconds(kTick).count()));
  }

  Status accept_strangers() {
    for (;;) {
      SG_ASSIGN(std::optional<Socket> socket, accept_call(listening_));
      if (!socket) return ok_status();
      if (strangers_.size() < kMostStrangers)
        strangers_.push_back({Line(std::move(*socket), kLongestHello), Clock::now()});
    }
  }

  // A caller that disconnected because rank 0 was slow will call again; callers that are silent for long, or send
  // invalid messages, are disconnected.
  void hear_strangers() {
    for (Stranger& s : strangers_) {
      std::vector<Message> came;
      const bool is_there = s.line.advance(&came);
      if (is_there && came.empty() && Clock::now() - s.since < kStrangerPatience) continue;
      if (is_there && !came.empty()) take(std::move(s.line), came[0]);
      s.line = Line(Socket(), 0);
    }
    std::erase_if(strangers_, [](const Stranger& s) { return !s.line.is_open(); });
  }

  void take(Line line, const Message& first) {
    const std::optional<Hello> h = Hello::read(first);
    if (!h || (h->protocol == kProtocol && h->token != announcement_.token)) return;
    const std::string why = misfit(*h);
    line.post(why.empty() ? MessageKind::seen : MessageKind::refusal,
              why.empty() ? "" : refusal_body({ErrorKind::cannot_apply, why}));
    std::vector<Message> nothing;
    const bool is_there = line.advance(&nothing);
    if (!why.empty() && options_.say) options_.say("turned away: " + why);
    if (why.empty() && is_there) seats_[h->rank] = {h->machine, std::move(line), {}};
  }

  // Why a caller is not one of the missing ranks; empty = it is.
  std::string misfit(const Hello& h) {
    if (h.protocol != kProtocol) return "a process of another version of sg-run";
    const std::string who = "rank " + std::to_string(h.rank);
    if (h.world != options_.world || h.rank >= h.world)
      return "a process came as " + who + " of " + std::to_string(h.world) + ", rank 0 is of " +
             std::to_string(options_.world);
    std::vector<Message> nothing;
    const bool is_taken = h.rank == 0 || seats_[h.rank].line.advance(&nothing);
    return is_taken ? "two processes say that they are " + who : "";
  }

  // A rank that disconnects may call again, as it does if rank 0 was slow to answer.
  Status look_after_ranks() {
    for (uint32_t r = 1; r < options_.world; ++r) {
      Seat& seat = seats_[r];
      std::vector<Message> nothing;
      if (seat.machine.empty() || seat.line.advance(&nothing)) continue;
      if (!seat.left) seat.left = Clock::now();
      if (Clock::now() - *seat.left > kComeBack)
        return Error{ErrorKind::rank_failed, "rank " + std::to_string(r) + " left before all ranks were there"};
    }
    return ok_status();
  }

  Error refuse_all(Error why) {
    for (Seat& seat : seats_) {
      std::vector<Message> nothing;
      if (seat.line.is_open()) seat.line.post(MessageKind::refusal, refusal_body(why)), seat.line.advance(&nothing);
    }
    return why;
  }

  const MeetingPlace& place_;
  const MeetingOptions& options_;
  Patience patience_;
  Socket listening_;
  Announcement announcement_;
  std::vector<Stranger> strangers_;
  std::vector<Seat> seats_;  // by rank
};

// --- the others ---

class Guest {
 public:
  Guest(const MeetingPlace& place, const MeetingOptions& options)
      : place_(place), options_(options), patience_(options) {}

  Result<Meeting> meet() {
    const std::string self = "rank " + std::to_string(options_.rank);
    std::optional<Line> line;
    for (auto pause = 20ms; !line; pause = std::min(2 * pause, std::chrono::milliseconds(kTick) * 5)) {
      SG_ASSIGN(line, find_host());
      if (line) break;
      if (patience_.is_over())
        return Error{ErrorKind::rank_failed,
                     self + " finds no rank 0 at " + place_.text() + " within " + patience_.text() + ": " + why_};
      patience_.say(self + " looks for rank 0 at " + place_.text() + ": " + why_);
      std::this_thread::sleep_for(pause);
    }
    return wait_for_all(std::move(*line));
  }

 private:
  Result<std::optional<Line>> find_host() {
    std::optional<Announcement> at;
    if (place_.kind == MeetingPlace::Kind::address) {
      at = Announcement{{place_.host}, place_.port, ""};
    } else {
      SG_ASSIGN(at, read_announcement(place_, &why_));
    }
    if (!at) return std::optional<Line>();
    for (const std::string& address : at->addresses) {
      std::optional<Socket> socket = call(address, at->port, kCallPatience, &why_);
      if (!socket) continue;
      // The message after the answer may be long: the welcome names every rank's machine.
      SG_ASSIGN(std::optional<Line> line,
                introduce(Line(std::move(*socket), kLongestHello * options_.world), at->token));
      if (line) return line;
    }
    return std::optional<Line>();
  }

  // None: the listener is not our rank 0.
  Result<std::optional<Line>> introduce(Line line, const std::string& token) {
    came_.clear();
    line.post(MessageKind::hello,
              Hello{std::string(kProtocol), token, machine_name(), options_.rank, options_.world}.body());
    const Clock::time_point until = Clock::now() + kAnswerPatience;
    while (came_.empty() && line.advance(&came_) && Clock::now() < until) wait_readable(line.socket(), kTick);
    why_ = line.is_open() ? "the process listening there is not rank 0" : "the process listening there has hung up";
    if (came_.empty()) return std::optional<Line>();
    const Message first = std::move(came_.front());
    came_.erase(came_.begin());
    if (first.kind == MessageKind::refusal) return refusal_of(first);
    if (first.kind != MessageKind::seen) return std::optional<Line>();
    return std::optional<Line>(std::move(line));
  }

  // Rank 0 reports its own timeout; other ranks detect that rank 0 is stuck.
  Result<Meeting> wait_for_all(Line line) {
    while (came_.empty() && !patience_.is_over(kGrace_s) && line.advance(&came_)) wait_readable(line.socket(), kTick);
    if (came_.empty())
      return Error{ErrorKind::rank_failed,
                   line.is_open() ? "rank 0 has made no progress at " + place_.text() + " for " + patience_.text()
                                  : "rank 0 left before all ranks were there"};
    if (came_[0].kind == MessageKind::refusal) return refusal_of(came_[0]);
    BodyReader in(came_[0].body);
    Meeting out;
    for (uint32_t r = 0; r < options_.world; ++r) out.machines.push_back(in.text());
    if (came_[0].kind != MessageKind::welcome || !in.at_end())
      return Error{ErrorKind::internal, "rank 0 sent no list of machines"};
    out.lines.push_back(std::move(line));
    out.early.assign(came_.begin() + 1, came_.end());
    return out;
  }

  const MeetingPlace& place_;
  const MeetingOptions& options_;
  Patience patience_;
  std::string why_;            // why rank 0 was not found
  std::vector<Message> came_;  // received and not yet handled
};

}  // namespace

Result<Meeting> meet_ranks(const MeetingPlace& place, const MeetingOptions& options) {
  return options.rank == 0 ? Host(place, options).meet() : Guest(place, options).meet();
}

}  // namespace sg::meet
