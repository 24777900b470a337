#include "librun/comm/watchdog.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "libgraph/story/source_text.h"

namespace sg {
namespace {

constexpr double kInterval = 0.2;    // between two checks
constexpr double kLate = 1.5;        // a later check means the watcher itself did not run
constexpr double kSurelyDead = 1;    // without a sign of life for so long, the process is why the rank is stuck
constexpr double kSpeakFirst = 0.6;  // how long other processes leave the report to the one that should report

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

std::optional<BlockedIn> blocked_in(uint32_t rank, std::span<Communicator* const> own) {
  for (Communicator* c : own)
    if (c->rank() == rank) return c->blocked_in();
  return std::nullopt;
}

double clock_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

std::string node_text(const Job& job, uint32_t rank, uint64_t place) {
  const Program* program = job.program_of(rank);
  auto nested = static_cast<uint32_t>(place >> 32);
  NodeId n(static_cast<uint32_t>(place));
  if (!program || nested > program->nested.size()) return "";
  const Graph& graph = nested == 0 ? program->graph : program->nested[nested - 1]->graph;
  if (!graph.alive(n)) return "";
  std::string out = "%" + std::string(graph.label(n));
  const std::string source = source_of(graph, n);
  return source.empty() ? out : out + " (" + source + ")";
}

Watchdog::Watchdog(std::vector<WatchedRank> ranks, double timeout_s)
    : ranks_(std::move(ranks)), seen_(ranks_.size()), timeout_s_(timeout_s) {}

void Watchdog::update(double now_s) {
  bool is_first = !looked_s_;
  double lost = is_first ? 0 : now_s - *looked_s_ > kLate ? now_s - *looked_s_ : 0;
  looked_s_ = now_s;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Seen& seen = seen_[i];
    seen.moved_s += lost;
    seen.alive_s += lost;
    uint64_t beats = ranks_[i].heart->beats.load(std::memory_order_acquire);
    uint32_t alive = ranks_[i].heart->alive.load(std::memory_order_relaxed);
    if (is_first || beats != seen.beats) seen.moved_s = now_s;
    if (is_first || alive != seen.alive) seen.alive_s = now_s;
    seen.beats = beats;
    seen.alive = alive;
  }
}

uint32_t Watchdog::reporter_other_than(uint32_t rank) const {
  uint32_t best = rank;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    bool runs = *looked_s_ - seen_[i].alive_s <= timeout_s_ / 2 || seen_[i].alive == 0;
    if (runs && ranks_[i].rank != rank && (best == rank || ranks_[i].rank < best)) best = ranks_[i].rank;
  }
  return best;
}

std::optional<Stuck> Watchdog::look(double now_s) {
  update(now_s);
  std::optional<Stuck> worst;
  bool some_compute = false;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Heartbeat& heart = *ranks_[i].heart;
    const Seen& seen = seen_[i];
    uint32_t state = heart.state.load(std::memory_order_relaxed);
    double still = now_s - seen.moved_s, dead = seen.alive ? now_s - seen.alive_s : 0;
    Stuck found{ranks_[i].rank, Stuck::How::node, heart.place.load(std::memory_order_relaxed), still, 0};
    if (dead > timeout_s_) {
      found.how = Stuck::How::stopped, found.seconds = dead;
    } else if (state == Heartbeat::idle) {
      continue;
    } else if (still <= timeout_s_) {
      some_compute |= state == Heartbeat::running;
      continue;
    } else if (state == Heartbeat::waiting) {
      found.how = Stuck::How::wait;
    }
    if (dead > kSurelyDead) found.how = Stuck::How::stopped, found.seconds = dead;
    if (!worst || found.how < worst->how || (found.how == worst->how && found.seconds > worst->seconds)) worst = found;
  }
  if (!worst || (worst->how == Stuck::How::wait && some_compute)) return std::nullopt;
  worst->reporter = worst->how == Stuck::How::stopped ? reporter_other_than(worst->rank) : worst->rank;
  return worst;
}

Error stuck_error(const Job& job, const Stuck& stuck, std::span<Communicator* const> own) {
  Error error{ErrorKind::rank_failed, "rank " + std::to_string(stuck.rank), {}, {}};
  std::string node = node_text(job, stuck.rank, stuck.place), at = node.empty() ? "" : " at " + node;
  std::optional<BlockedIn> blocked = stuck.how == Stuck::How::stopped ? std::nullopt : blocked_in(stuck.rank, own);
  if (stuck.how == Stuck::How::stopped) {
    error.message += " has not run for " + seconds_text(stuck.seconds) + at;
    error.hint = "its process is stopped, or the machine is out of memory";
  } else if (blocked) {
    error.message += " has been waiting for " + seconds_text(stuck.seconds) + " in " +
                     std::string(collective_name(blocked->kind)) + " %" + blocked->label + " of group " +
                     blocked->group + at;
    if (!blocked->missing.empty()) error.message += ": " + ranks_text(blocked->missing) + " did not come";
    error.hint = "if it is only slow, raise --timeout";
  } else {
    error.message += (stuck.how == Stuck::How::wait ? " has been waiting for " : " has been stuck for ") +
                     seconds_text(stuck.seconds) + at;
    error.hint = "if it is only slow, raise --timeout";
  }
  return error;
}

WatchdogThread::WatchdogThread(const Job& job, std::vector<Communicator*> own, double timeout_s,
                               std::function<void(Error)> on_stuck)
    : job_(job), own_(std::move(own)), on_stuck_(std::move(on_stuck)), watchdog_(own_[0]->in_sight(), timeout_s) {
  show_life();  // immediately: a rank may be stopped before the first check
  thread_ = std::thread([this] { watch(); });
}

WatchdogThread::~WatchdogThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (Communicator* c : own_) c->heartbeat().alive.store(0, std::memory_order_relaxed);
}

void WatchdogThread::show_life() {
  for (Communicator* c : own_) c->heartbeat().alive.fetch_add(1, std::memory_order_relaxed);
}

bool WatchdogThread::pause(double seconds) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return stop_; });
}

bool WatchdogThread::is_own(uint32_t rank) const {
  return std::any_of(own_.begin(), own_.end(), [&](Communicator* c) { return c->rank() == rank; });
}

void WatchdogThread::watch() {
  while (pause(kInterval)) {
    show_life();
    std::optional<Stuck> stuck = watchdog_.look(clock_s());
    if (!stuck) continue;
    // All processes see the same; the one that knows most reports.
    if (!is_own(stuck->reporter)) {
      if (!pause(kSpeakFirst)) return;
      stuck = watchdog_.look(clock_s());
      if (!stuck) continue;
    }
    on_stuck_(stuck_error(job_, *stuck, own_));
    return;
  }
}

}  // namespace sg
