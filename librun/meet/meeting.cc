#include "librun/meet/meeting.h"

#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <thread>

#include "librun/comm.h"
#include "librun/meet/announce.h"

namespace sg::meet {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::string_view kProtocol = "stepgraph meeting 1";
constexpr size_t kLongestHello = 4096;
constexpr size_t kMostStrangers = 1024;            // callers that have not said who they are
constexpr auto kStrangerPatience = 10s;            // for their first word
constexpr auto kAnswerPatience = 5s;               // of a caller, for rank 0's
constexpr auto kCallPatience = 3s;                 // for a connection
constexpr auto kFirstWord = 5s, kWordEvery = 30s;  // about who is missing
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
    return Error{ErrorKind::missing, "the system gives no random numbers"};
  std::string out;
  for (unsigned char b : bytes) out += "0123456789abcdef"[b >> 4], out += "0123456789abcdef"[b & 15];
  return out;
}

// How long the ranks have been waiting, and when somebody should be told.
class Patience {
 public:
  explicit Patience(const MeetingOptions& options) : options_(options) {}
  bool is_over() const { return options_.timeout_s > 0 && seconds() > options_.timeout_s; }
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
  static std::optional<Hello> read(const Message& m) {
    BodyReader in(m.body);
    Hello h;
    h.protocol = in.text(), h.token = in.text(), h.rank = in.number(), h.world = in.number(), h.machine = in.text();
    return m.kind == MessageKind::hello && in.at_end() ? std::optional(h) : std::nullopt;
  }
};

// --- rank 0 ---

class Host {
 public:
  Host(const MeetingPlace& place, const MeetingOptions& options)
      : place_(place), options_(options), patience_(options), machines_(options.world) {}

  Result<Meeting> meet() {
    SG_TRY(open());
    for (uint32_t r = 1; r < options_.world; ++r) lines_.emplace_back(Socket(), kLongestHello);
    Status all = wait_for_all();
    withdraw(place_);
    BodyWriter machines;
    for (const std::string& m : machines_) machines.text(m);
    tell_all(all.ok() ? MessageKind::welcome : MessageKind::refusal, all.ok() ? machines.take() : all.error().message);
    if (!all.ok()) return std::move(all.error());
    return Meeting{std::move(lines_), std::move(machines_), {}};
  }

 private:
  struct Stranger {
    Line line;
    Clock::time_point since;
  };

  Status open() {
    const bool is_known = place_.kind == MeetingPlace::Kind::address;
    SG_ASSIGN(listening_, listen_on(is_known ? place_.port : uint16_t{0}));
    machines_[0] = machine_name();
    if (is_known) return ok_status();
    SG_ASSIGN(token_, new_token());
    return announce(place_, {own_addresses(), port_of(listening_), token_});
  }

  Status wait_for_all() {
    while (missing_ > 0) {
      SG_TRY(wait());
      while (auto socket = accept_call(listening_))
        if (strangers_.size() < kMostStrangers)
          strangers_.push_back({Line(std::move(*socket), kLongestHello), Clock::now()});
      SG_TRY(hear_strangers());
      SG_TRY(look_after_ranks());
    }
    return ok_status();
  }

  // A welcome is long where the ranks are many; what does not go at once is sent by who has the lines then.
  void tell_all(MessageKind kind, const std::string& body) {
    std::vector<Message> came;
    for (Line& line : lines_)
      if (line.is_open()) line.post(kind, body), line.advance(&came);
  }

  Status wait() {
    std::vector<uint32_t> absent;
    for (uint32_t r = 1; r < options_.world; ++r)
      if (machines_[r].empty()) absent.push_back(r);
    if (patience_.is_over())
      return Error{ErrorKind::rank_failed,
                   ranks_text(absent) + " did not come to " + place_.text() + " within " + patience_.text()};
    patience_.say("rank 0 waits at " + place_.text() + " for " + ranks_text(absent));
    std::vector<pollfd> fds = {{listening_.fd(), POLLIN, 0}};
    for (const Stranger& s : strangers_) fds.push_back({s.line.socket().fd(), POLLIN, 0});
    poll(fds.data(), fds.size(), static_cast<int>(std::chrono::milliseconds(kTick).count()));
    return ok_status();
  }

  Status hear_strangers() {
    for (Stranger& s : strangers_) {
      std::vector<Message> came;
      const bool is_there = s.line.advance(&came);
      if (!came.empty()) SG_TRY(take(std::move(s.line), came[0]));
      else if (!is_there || Clock::now() - s.since > kStrangerPatience) s.line = Line(Socket(), 0);
    }
    std::erase_if(strangers_, [](const Stranger& s) { return !s.line.is_open(); });
    return ok_status();
  }

  // Who does not speak as a rank of this run does is no rank of it, and is hung up on.
  Status take(Line line, const Message& first) {
    const std::optional<Hello> h = Hello::read(first);
    if (!h || h->token != token_) return ok_status();
    std::string why;
    if (h->protocol != kProtocol) why = "rank " + std::to_string(h->rank) + " is of another build than rank 0";
    else if (h->world != options_.world || h->rank >= h->world)
      why = "a process came as rank " + std::to_string(h->rank) + " of " + std::to_string(h->world) +
            ", rank 0 is of " + std::to_string(options_.world);
    else if (h->rank == 0 || !machines_[h->rank].empty())
      why = "two processes say that they are rank " + std::to_string(h->rank);
    line.post(why.empty() ? MessageKind::seen : MessageKind::refusal, why);
    std::vector<Message> nothing;
    line.advance(&nothing);
    if (!why.empty()) return Error{ErrorKind::cannot_apply, why + " (" + place_.text() + ")"};
    machines_[h->rank] = h->machine;
    lines_[h->rank - 1] = std::move(line);
    --missing_;
    return ok_status();
  }

  Status look_after_ranks() {
    for (uint32_t r = 1; r < options_.world; ++r) {
      std::vector<Message> came;
      if (machines_[r].empty() || lines_[r - 1].advance(&came)) continue;
      return Error{ErrorKind::rank_failed, "rank " + std::to_string(r) + " left before all ranks were there"};
    }
    return ok_status();
  }

  const MeetingPlace& place_;
  const MeetingOptions& options_;
  Patience patience_;
  Socket listening_;
  std::string token_;
  std::vector<Stranger> strangers_;
  std::vector<Line> lines_;
  std::vector<std::string> machines_;  // by rank; empty = it has not come
  uint32_t missing_ = options_.world - 1;
};

// --- the others ---

class Guest {
 public:
  Guest(const MeetingPlace& place, const MeetingOptions& options)
      : place_(place), options_(options), patience_(options) {}

  Result<Meeting> meet() {
    std::optional<Line> line;
    for (auto pause = 20ms; !line; pause = std::min(2 * pause, std::chrono::milliseconds(kTick) * 5)) {
      SG_ASSIGN(line, find_host());
      if (line) break;
      if (patience_.is_over())
        return Error{ErrorKind::rank_failed, "rank " + std::to_string(options_.rank) + " finds no rank 0 at " +
                                                 place_.text() + " within " + patience_.text()};
      patience_.say("rank " + std::to_string(options_.rank) + " looks for rank 0 at " + place_.text());
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
      SG_ASSIGN(at, read_announcement(place_));
    }
    if (!at) return std::optional<Line>();
    for (const std::string& address : at->addresses) {
      SG_ASSIGN(std::optional<Socket> socket, call(address, at->port, kCallPatience));
      if (!socket) continue;
      SG_ASSIGN(std::optional<Line> line, introduce(Line(std::move(*socket), kLongestHello), at->token));
      if (line) return line;
    }
    return std::optional<Line>();
  }

  // None: it is not our rank 0 that listens there.
  Result<std::optional<Line>> introduce(Line line, const std::string& token) {
    line.post(MessageKind::hello,
              Hello{std::string(kProtocol), token, machine_name(), options_.rank, options_.world}.body());
    const Clock::time_point until = Clock::now() + kAnswerPatience;
    while (came_.empty() && line.advance(&came_) && Clock::now() < until) wait_readable(line.socket(), kTick);
    if (came_.empty()) return std::optional<Line>();
    const Message first = std::move(came_.front());
    came_.erase(came_.begin());
    if (first.kind == MessageKind::refusal) return Error{ErrorKind::cannot_apply, first.body};
    if (first.kind != MessageKind::seen) return std::optional<Line>();
    return std::optional<Line>(std::move(line));
  }

  // Rank 0 says when it has waited for long enough.
  Result<Meeting> wait_for_all(Line line) {
    line.allow(kLongestHello * options_.world);
    while (came_.empty() && line.advance(&came_)) wait_readable(line.socket(), kTick);
    if (came_.empty() || came_[0].kind != MessageKind::welcome)
      return Error{ErrorKind::rank_failed,
                   came_.empty() ? "rank 0 left before all ranks were there" : std::move(came_[0].body)};
    BodyReader in(came_[0].body);
    Meeting out;
    for (uint32_t r = 0; r < options_.world; ++r) out.machines.push_back(in.text());
    if (!in.at_end()) return Error{ErrorKind::internal, "rank 0 told no list of machines"};
    out.lines.push_back(std::move(line));
    out.early.assign(came_.begin() + 1, came_.end());
    return out;
  }

  const MeetingPlace& place_;
  const MeetingOptions& options_;
  Patience patience_;
  std::vector<Message> came_;  // and not looked at
};

}  // namespace

Result<Meeting> meet_ranks(const MeetingPlace& place, const MeetingOptions& options) {
  return options.rank == 0 ? Host(place, options).meet() : Guest(place, options).meet();
}

}  // namespace sg::meet
