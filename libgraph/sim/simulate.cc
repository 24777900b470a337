#include "libgraph/sim/simulate.h"

#include <algorithm>
#include <memory>

#include "libgraph/sim/rank.h"

namespace sg {
namespace {

class Simulator {
 public:
  Simulator(const Job& job, const std::vector<SymbolValues>& values, const SimOptions& options)
      : job_(job), options_(options) {
    for (size_t p = 0; p < job.programs.size(); ++p) add_program(p, values[p]);
  }

  Result<Simulation> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& rank : ranks_) moved |= rank->advance();
      for (uint32_t g = 0; g <= job_.groups.size(); ++g) moved |= settle(g);  // the last index: undeclared groups
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
  void add_program(size_t p, const SymbolValues& values) {
    const Program& program = *job_.programs[p];
    ranks_.push_back(std::make_unique<SimRank>(job_, program, values, options_));
    peers_.emplace_back(job_.groups.size() + 1);
    peers_[p].back() = {p};
    for (size_t g = 0; g < job_.groups.size(); ++g) {
      const GroupPart* part = job_.groups[g].part_of(program.ranks.empty() ? 0 : program.ranks[0]);
      for (size_t q = 0; q < job_.programs.size(); ++q)
        if (q == p || (part && shares_rank(*job_.programs[q], *part))) peers_[p][g].push_back(q);
    }
  }

  static bool shares_rank(const Program& program, const GroupPart& part) {
    return program.ranks.empty() || std::any_of(part.ranks.begin(), part.ranks.end(), [&](uint32_t r) {
             return std::binary_search(program.ranks.begin(), program.ranks.end(), r);
           });
  }

  // Sets begin and end of the calls that all ranks of a group have reached.
  bool settle(uint32_t g) {
    bool any = false;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t p = 0; p < ranks_.size(); ++p) moved |= settle_next(p, g);
      any |= moved;
    }
    return any;
  }

  bool settle_next(size_t p, uint32_t g) {
    size_t k = ranks_[p]->settled(g);
    double begin = 0, length = 0;
    if (k >= ranks_[p]->launched(g)) return false;
    for (size_t q : peers_[p][g]) {
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
  std::vector<std::vector<std::vector<size_t>>> peers_;  // [program][group]: programs with the same communicator
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
