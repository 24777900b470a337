#include "libgraph/sim/simulate.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <set>

#include "libgraph/sim/rank.h"

namespace sg {
namespace {

class Simulator {
 public:
  Simulator(const Job& job, const std::vector<SymbolValues>& values, const SimOptions& options)
      : job_(job), options_(options) {
    for (size_t p = 0; p < job.programs.size(); ++p)
      ranks_.push_back(std::make_unique<SimRank>(job_, *job_.programs[p], values[p], options_));
    seat_programs();
  }

  Result<Simulation> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& rank : ranks_) moved |= rank->advance();
      for (uint32_t g = 0; g <= job_.groups.size(); ++g) moved |= settle(g);
      if (!moved) moved = settle_outsiders();
    }
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
  using Programs = std::vector<size_t>;

  // A program that stands for ranks of a group, and all that have the same communicator.
  struct Seat {
    size_t program;
    const Programs* peers;
  };

  void seat_programs() {
    Programs program_of(job_.world, 0);
    for (size_t p = 0; p < job_.programs.size(); ++p) {
      alone_.push_back({p});
      for (uint32_t r : job_.programs[p]->ranks) program_of[r] = p;
    }
    seats_.resize(job_.groups.size() + 1);
    for (size_t g = 0; g < job_.groups.size(); ++g)
      for (const GroupPart& part : job_.groups[g].parts) {
        std::set<size_t> peers;
        for (uint32_t r : part.ranks) peers.insert(program_of[r]);
        communicators_.emplace_back(peers.begin(), peers.end());
        for (size_t p : peers)
          if (job_.groups[g].part_of(first_rank(p)) == &part) seats_[g].push_back({p, &communicators_.back()});
      }
    for (size_t p = 0; p < job_.programs.size(); ++p) seats_.back().push_back({p, &alone_[p]});
  }

  uint32_t first_rank(size_t p) const { return job_.programs[p]->ranks.empty() ? 0 : job_.programs[p]->ranks[0]; }

  // Sets begin and end of the calls that all ranks of a group have reached.
  bool settle(uint32_t g) {
    bool any = false;
    for (bool moved = true; moved;) {
      moved = false;
      for (const Seat& seat : seats_[g]) moved |= settle_next(seat.program, *seat.peers, g);
      any |= moved;
    }
    return any;
  }

  // What a program launches on a group that it is not in concerns nobody else.
  bool settle_outsiders() {
    bool any = false;
    for (uint32_t g = 0; g < job_.groups.size(); ++g)
      for (size_t p = 0; p < ranks_.size(); ++p)
        if (ranks_[p]->settled(g) < ranks_[p]->launched(g) &&
            std::ranges::find(seats_[g], p, &Seat::program) == seats_[g].end())
          any |= settle_next(p, alone_[p], g);
    return any;
  }

  bool settle_next(size_t p, const Programs& peers, uint32_t g) {
    size_t k = ranks_[p]->settled(g);
    double begin = 0, length = 0;
    if (k >= ranks_[p]->launched(g)) return false;
    for (size_t q : peers) {
      SimRank& peer = *ranks_[q];
      if (peer.launched(g) <= k || peer.settled(g) < k) return false;
      const SimLaunch& launch = peer.launch(g, k);
      begin = std::max({begin, launch.ready_us, k == 0 ? 0 : peer.launch(g, k - 1).end_us});
      length = std::max(length, launch.us);
    }
    ranks_[p]->settle(g, begin, begin + length);
    return true;
  }

  const Job& job_;
  const SimOptions& options_;
  std::vector<std::unique_ptr<SimRank>> ranks_;
  std::deque<Programs> communicators_;
  std::deque<Programs> alone_;            // by program: itself
  std::vector<std::vector<Seat>> seats_;  // by group; the last one: undeclared groups
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
