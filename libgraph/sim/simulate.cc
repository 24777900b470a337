#include "libgraph/sim/simulate.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "libgraph/programs_by_rank.h"
#include "libgraph/sim/rank.h"

namespace sg {
namespace {

// A program's part in a communicator: the place of the group among those that it launches on.
struct Peer {
  size_t program;
  std::optional<size_t> place;  // none: it never launches there
};

struct Communicator {
  std::vector<Peer> peers;  // the programs of its ranks
  std::vector<Peer> seats;  // those whose time it decides: their first rank is in it
  size_t calls = 0;         // that are settled
  size_t arrived = 0;       // so many peers, from the front, have reached the call after these
};

// Ranks go on until they wait for what is not settled; then calls that all peers have reached are settled, by group; so
// on in turns. Only who has something new is looked at: thousands of ranks may wait for each other one by one.
class Simulator {
 public:
  Simulator(const Job& job, const std::vector<SymbolValues>& values, const SimOptions& options)
      : job_(job), options_(options), is_active_(job.programs.size(), 0) {
    for (size_t p = 0; p < job.programs.size(); ++p)
      ranks_.push_back(std::make_unique<SimRank>(job_, *job_.programs[p], values[p], options_));
    seat_programs();
  }

  Result<Simulation> run() {
    for (size_t p = 0; p < ranks_.size(); ++p) activate(p);
    do {
      while (!active_.empty()) {
        advance_active();
        settle_fresh();
      }
    } while (settle_outsiders());
    Simulation out;
    out.world = options_.ranks != 0 && has_group_of_all(job_) ? options_.ranks : job_.world;
    for (auto& rank : ranks_) {
      if (!rank->done()) return rank->stuck();
      out.programs.push_back(rank->take());
      if (out.programs.back().makespan_us > out.programs[out.slowest].makespan_us)
        out.slowest = out.programs.size() - 1;
    }
    return out;
  }

 private:
  void seat_programs() {
    const ProgramsByRank by_rank(job_);
    std::vector<std::vector<uint8_t>> is_seated;  // by program and place
    for (size_t p = 0; p < job_.programs.size(); ++p) {
      communicators_of_.emplace_back(ranks_[p]->groups().size());
      is_seated.emplace_back(ranks_[p]->groups().size(), 0);
    }
    for (uint32_t g = 0; g < job_.groups.size(); ++g)
      for (const GroupPart& part : job_.groups[g].parts) {
        std::set<size_t> peers;
        for (uint32_t r : part.ranks)
          if (const auto p = by_rank.of(r)) peers.insert(*p);
        const std::unordered_set<uint32_t> members(part.ranks.begin(), part.ranks.end());
        Communicator& made = communicators_.emplace_back();
        for (size_t p : peers) add_peer(&made, p, g, members.contains(first_rank(p)), &is_seated);
      }
    const auto undeclared = static_cast<uint32_t>(job_.groups.size());  // there every program is alone
    for (size_t p = 0; p < job_.programs.size(); ++p) {
      if (ranks_[p]->place_of_group(undeclared))
        add_peer(&communicators_.emplace_back(), p, undeclared, true, &is_seated);
      for (size_t place = 0; place < is_seated[p].size(); ++place)
        if (!is_seated[p][place]) outsiders_.push_back({p, place});
    }
  }

  void add_peer(Communicator* to, size_t p, uint32_t g, bool seated, std::vector<std::vector<uint8_t>>* is_seated) {
    const Peer peer{p, ranks_[p]->place_of_group(g)};
    to->peers.push_back(peer);
    if (!peer.place) return;
    communicators_of_[p][*peer.place].push_back(communicators_.size() - 1);
    if (!seated) return;
    to->seats.push_back(peer);
    (*is_seated)[p][*peer.place] = 1;
  }

  uint32_t first_rank(size_t p) const { return job_.programs[p]->ranks.empty() ? 0 : job_.programs[p]->ranks[0]; }

  void activate(size_t p) {
    if (std::exchange(is_active_[p], 1) == 0) active_.push_back(p);
  }

  void look_at_communicators_of(size_t p, size_t place) {
    fresh_.insert(communicators_of_[p][place].begin(), communicators_of_[p][place].end());
  }

  void advance_active() {
    for (size_t p : std::exchange(active_, {})) {
      is_active_[p] = 0;
      ranks_[p]->advance();
      for (size_t place : ranks_[p]->take_fresh()) look_at_communicators_of(p, place);
    }
  }

  // Group by group, as communicators are numbered: what a rank adds up does not depend on who was looked at when.
  void settle_fresh() {
    while (!fresh_.empty()) {
      Communicator& at = communicators_[*fresh_.begin()];
      fresh_.erase(fresh_.begin());
      while (settle_next(&at)) {
      }
    }
  }

  // Whether all peers have launched the next call and are done with the one before.
  bool all_arrived(Communicator* at) const {
    for (; at->arrived < at->peers.size(); ++at->arrived) {
      const Peer& peer = at->peers[at->arrived];
      if (!peer.place || ranks_[peer.program]->launched(*peer.place) <= at->calls) return false;
      if (ranks_[peer.program]->settled(*peer.place) < at->calls) return false;
    }
    return true;
  }

  // Sets begin and end of a communicator's next call, once all have reached it.
  bool settle_next(Communicator* at) {
    if (at->seats.empty() || !all_arrived(at)) return false;
    const size_t k = at->calls++;
    at->arrived = 0;
    double begin = 0, length = 0;
    for (const Peer& peer : at->peers) {
      const SimRank& rank = *ranks_[peer.program];
      const SimLaunch& launch = rank.launch(*peer.place, k);
      begin = std::max({begin, launch.ready_us, k == 0 ? 0 : rank.launch(*peer.place, k - 1).end_us});
      length = std::max(length, launch.us);
    }
    for (const Peer& seat : at->seats) settle(seat.program, *seat.place, begin, begin + length);
    return true;
  }

  void settle(size_t p, size_t place, double begin, double end) {
    ranks_[p]->settle(place, begin, end);
    activate(p);
    if (communicators_of_[p][place].size() > 1) look_at_communicators_of(p, place);
  }

  // What a program launches on a group that its first rank is not in concerns nobody else.
  bool settle_outsiders() {
    for (const auto& [p, place] : outsiders_) {
      const SimRank& rank = *ranks_[p];
      const size_t k = rank.settled(place);
      if (k >= rank.launched(place)) continue;
      const SimLaunch& launch = rank.launch(place, k);
      const double begin = std::max(launch.ready_us, k == 0 ? 0 : rank.launch(place, k - 1).end_us);
      settle(p, place, begin, begin + launch.us);
      look_at_communicators_of(p, place);
    }
    return !active_.empty();
  }

  const Job& job_;
  const SimOptions& options_;
  std::vector<std::unique_ptr<SimRank>> ranks_;
  std::deque<Communicator> communicators_;                          // by group
  std::vector<std::vector<std::vector<size_t>>> communicators_of_;  // by program and place: those it is a peer in
  std::vector<std::pair<size_t, size_t>> outsiders_;                // program and place, without a seat
  std::vector<size_t> active_;                                      // programs that may go on
  std::vector<uint8_t> is_active_;
  std::set<size_t> fresh_;  // communicators that may settle a call
};

}  // namespace

double ProgramTimeline::exposed_total_us() const {
  double total = 0;
  for (const auto& [kind, us] : exposed_us) total += us;
  return total;
}

bool has_group_of_all(const Job& job) {
  return std::ranges::any_of(job.groups, [&](const Group& group) {
    return std::ranges::any_of(group.parts, [&](const GroupPart& part) { return part.ranks.size() == job.world; });
  });
}

Result<Simulation> simulate(const Job& job, const std::vector<SymbolValues>& values, const SimOptions& options) {
  return Simulator(job, values, options).run();
}

std::vector<uint32_t> critical_path(const ProgramTimeline& timeline) {
  std::vector<uint32_t> path;
  uint32_t at = SimEvent::kNoCause;
  for (uint32_t i = 0; i < timeline.events.size(); ++i)
    if (at == SimEvent::kNoCause || timeline.events[i].end_us > timeline.events[at].end_us) at = i;
  for (; at != SimEvent::kNoCause; at = timeline.events[at].cause) path.push_back(at);
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace sg
