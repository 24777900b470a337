#include "librun/meet/hub.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "libgraph/base/output_file.h"

namespace sg::meet {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr size_t kLongestMessage = size_t{1} << 32;
constexpr auto kPulse = 250ms;          // between two heartbeats
constexpr uint32_t kMostAtPulse = 256;  // ranks; with more, heartbeats are sent a quarter as often
constexpr auto kFarewell = 5s;          // for unsent messages, and for the others to leave
constexpr auto kEndWait = 300ms;        // for the others to learn that they are being ended

std::string failure_body(const Error& e, uint32_t speaker) {
  const std::string where = print_location(e.where);
  return BodyWriter()
      .number(static_cast<uint64_t>(e.kind))
      .text(where.empty() ? e.message : where + ": " + e.message)
      .text(e.hint)
      .number(speaker)
      .take();
}

}  // namespace

Hub::Hub(uint32_t rank, Meeting meeting)
    : rank_(rank),
      hearts_(meeting.machines.size()),
      lines_(std::move(meeting.lines)),
      has_left_(lines_.size()),
      is_lost_(lines_.size()),
      texts_(rank == 0 ? meeting.machines.size() : 0) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0)
    bell_ = {Socket(ends[0]), Socket(ends[1])};
  for (Line& line : lines_) line.allow(kLongestMessage);
  for (const Message& m : meeting.early) hear(0, m);
  thread_ = std::thread([this] { carry(); });
}

Hub::~Hub() {
  {
    std::lock_guard lock(mutex_);
    leaves_ = true;
    post(MessageKind::bye, {});
  }
  wake();
  thread_.join();
}

Result<std::vector<std::string>> Hub::exchange(std::string text) {
  std::unique_lock lock(mutex_);
  if (rank_ == 0) {
    texts_[0].push_back(std::move(text));
    complete_exchange();
  } else {
    post(MessageKind::text, text);
  }
  wake();
  changed_.wait(lock, [&] { return failure_ || !exchanged_.empty() || missing(); });
  if (!failure_ && exchanged_.empty()) {
    set_failure(
        {ErrorKind::rank_failed, "rank " + std::to_string(*missing()) + " has ended, and the others wait for it"},
        std::min(rank_, 1u));
    wake();
  }
  if (failure_) return *failure_;
  Texts out = std::move(exchanged_.front());
  exchanged_.pop_front();
  return out;
}

void Hub::fail(Error error) {
  std::lock_guard lock(mutex_);
  if (failure_) return;
  if (rank_ == 0) {
    set_failure(std::move(error), 0);
  } else {
    failure_ = std::move(error);  // rank 0 decides which rank reports
    post(MessageKind::failure, failure_body(*failure_, rank_));
    changed_.notify_all();
  }
  wake();
}

std::optional<Error> Hub::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<uint32_t> Hub::wait_for_speaker(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return speaker_ || (rank_ != 0 && !lines_[0].is_open()); });
  if (!speaker_ && rank_ == 1 && !lines_[0].is_open()) speaker_ = rank_;
  return speaker_;
}

void Hub::end_all(int exit_code) {
  {
    std::lock_guard lock(mutex_);
    post(MessageKind::end, BodyWriter().number(static_cast<uint64_t>(exit_code)).take());
  }
  wake();
  std::this_thread::sleep_for(kEndWait);
}

// --- the thread ---

void Hub::carry() {
  const auto pulse = world() > kMostAtPulse ? 4 * kPulse : kPulse;
  Clock::time_point next = Clock::now();
  std::optional<Clock::time_point> until;
  for (;;) {
    std::vector<pollfd> fds = {{bell_[0].fd(), POLLIN, 0}};
    {
      std::lock_guard lock(mutex_);
      if (Clock::now() >= next) post_hearts(), next = Clock::now() + pulse;
      look_at_lines();
      if (leaves_ && !until) until = Clock::now() + kFarewell;
      if (until && (may_leave() || Clock::now() > *until)) return;
      for (const Line& line : lines_)
        fds.push_back({line.socket().fd(), static_cast<short>(line.has_unsent() ? POLLIN | POLLOUT : POLLIN), 0});
    }
    poll(fds.data(), fds.size(), static_cast<int>(std::chrono::milliseconds(pulse).count()));
    char rings[64];
    while (::read(bell_[0].fd(), rings, sizeof rings) == sizeof rings) {
    }
  }
}

void Hub::wake() {
  const char ring = 0;
  // A full bell is already ringing.
  [[maybe_unused]] const ssize_t n = ::write(bell_[1].fd(), &ring, 1);
}

void Hub::look_at_lines() {
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (is_lost_[i]) continue;
    std::vector<Message> came;
    is_lost_[i] = !lines_[i].advance(&came);
    for (const Message& m : came) hear(rank_of(i), m);
    if (is_lost_[i]) lost(rank_of(i));
  }
}

bool Hub::may_leave() const {
  for (size_t i = 0; i < lines_.size(); ++i)
    if (lines_[i].is_open() && (lines_[i].has_unsent() || (rank_ == 0 && !has_left_[i]))) return false;
  return true;
}

void Hub::hear(uint32_t from, const Message& m) {
  BodyReader in(m.body);
  switch (m.kind) {
    case MessageKind::text:
      if (rank_ != 0) break;
      texts_[from].push_back(m.body);
      return complete_exchange();
    case MessageKind::texts: {
      Texts texts;
      for (uint32_t r = 0; r < world(); ++r) texts.push_back(in.text());
      exchanged_.push_back(std::move(texts));
      return changed_.notify_all();
    }
    case MessageKind::heart: return read_hearts(in, from, 1);
    case MessageKind::hearts: return read_hearts(in, 0, world());
    case MessageKind::failure: {
      Error error{error_kind_of(in.number()), in.text(), {}, in.text()};
      const auto speaker = static_cast<uint32_t>(in.number());
      if (rank_ == 0) return set_failure(std::move(error), from);
      if (speaker != rank_ || !failure_) failure_ = std::move(error);  // rank 0 knows which failure was first
      speaker_ = speaker;                                              // its own it has with its place
      return changed_.notify_all();
    }
    case MessageKind::end: {
      if (rank_ == 0) post(m.kind, m.body), look_at_lines();
      remove_pending_outputs();
      std::_Exit(static_cast<int>(in.number()));
    }
    case MessageKind::bye: return left(from);
    default: return;
  }
}

// A rank that has left is no longer watched; if rank 0 leaves, neither are the ranks whose state only it relayed.
void Hub::left(uint32_t from) {
  has_left_[rank_ == 0 ? from - 1 : 0] = true;
  for (uint32_t r = 0; r < world(); ++r)
    if (r == from || (rank_ != 0 && r != rank_)) hearts_[r].alive.store(0, std::memory_order_relaxed);
  changed_.notify_all();
}

void Hub::lost(uint32_t from) {
  changed_.notify_all();
  if (has_left_[rank_ == 0 ? from - 1 : 0] || leaves_ || failure_) return;
  Error error{ErrorKind::rank_failed,
              "rank " + std::to_string(from) + " ended without reporting an error",
              {},
              "see its own output, or its launcher's"};
  if (rank_ == 0) set_failure(std::move(error), 0);
  else failure_ = std::move(error);
}

void Hub::post(MessageKind kind, std::string body) {
  const auto shared = std::make_shared<const std::string>(std::move(body));
  for (Line& line : lines_)
    if (line.is_open()) line.post(kind, shared);
}

void Hub::post_hearts() {
  hearts_[rank_].alive.fetch_add(1, std::memory_order_relaxed);
  BodyWriter out;
  for (uint32_t r = 0; r < world(); ++r) {
    if (rank_ != 0 && r != rank_) continue;
    const Heartbeat& h = hearts_[r];
    out.number(h.beats.load(std::memory_order_acquire)).number(h.place.load(std::memory_order_relaxed));
    out.number(h.state.load(std::memory_order_relaxed)).number(h.alive.load(std::memory_order_relaxed));
  }
  post(rank_ == 0 ? MessageKind::hearts : MessageKind::heart, out.take());
}

void Hub::read_hearts(BodyReader in, uint32_t first, uint32_t count) {
  for (uint32_t r = first; r < first + count; ++r) {
    const uint64_t beats = in.number(), place = in.number(), state = in.number(), alive = in.number();
    if (!in.ok() || r == rank_) continue;
    Heartbeat& h = hearts_[r];
    h.place.store(place, std::memory_order_relaxed);
    h.state.store(static_cast<uint32_t>(state), std::memory_order_relaxed);
    h.alive.store(static_cast<uint32_t>(alive), std::memory_order_relaxed);
    h.beats.store(beats, std::memory_order_release);
  }
}

// Rank 0: completes exchanges for which every rank has sent its text.
void Hub::complete_exchange() {
  while (std::ranges::none_of(texts_, &std::deque<std::string>::empty)) {
    Texts texts;
    BodyWriter body;
    for (std::deque<std::string>& of_rank : texts_) {
      body.text(of_rank.front());
      texts.push_back(std::move(of_rank.front()));
      of_rank.pop_front();
    }
    post(MessageKind::texts, body.take());
    exchanged_.push_back(std::move(texts));
  }
  changed_.notify_all();
}

// A rank that left before the current exchange, which it can no longer join. Ranks other than 0 only know about rank 0.
std::optional<uint32_t> Hub::missing() const {
  if (rank_ != 0) return has_left_[0] ? std::optional(0u) : std::nullopt;
  for (uint32_t r = 1; r < world(); ++r)
    if (has_left_[r - 1] && texts_[r].empty()) return r;
  return std::nullopt;
}

void Hub::set_failure(Error error, uint32_t speaker) {
  if (failure_) return;
  failure_ = std::move(error);
  speaker_ = speaker;
  if (rank_ == 0) post(MessageKind::failure, failure_body(*failure_, speaker));
  changed_.notify_all();
}

}  // namespace sg::meet
