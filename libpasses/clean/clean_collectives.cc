// Removes collectives: chains whose result is unused, and duplicate unshards of one parameter. Ranks must launch the
// same collectives in the same order, so a collective is removed only if it can be on every rank of the job.
#include <map>
#include <set>

#include "libgraph/edit/rewrite.h"
#include "libpasses/clean/clean_parts.h"
#include "libpasses/value_numbers.h"

namespace sg::clean_parts {
namespace {

// The k-th launch of a program on a group family.
struct LaunchId {
  uint32_t group = 0, ordinal = 0;
  friend auto operator<=>(const LaunchId&, const LaunchId&) = default;
};

struct Launch {
  NodeId launch, wait;     // wait: none = nothing waits
  NodeId twin, twin_wait;  // an earlier equal chain; none = the result is not used
};

// The only user of a one-result launch, if it is a wait.
NodeId only_wait(const Graph& graph, NodeId launch) {
  if (graph.node(launch).result_count != 1) return {};
  const NodeId user = graph.only_user(graph.node(launch).result(0));
  const OpInfo* op = user ? graph.op_info(user) : nullptr;
  return op != nullptr && op->has(kWait) && graph.node(user).result_count == 1 ? user : NodeId();
}

class Candidates {
 public:
  Candidates(const Program& program, const Graph& graph)
      : graph_(graph),
        alias_(program, graph),
        schedule_(graph, alias_),
        numbers_(graph, alias_, ValueNumbers::Launches::functions) {}

  std::map<LaunchId, Launch> find() const {
    std::map<LaunchId, Launch> out;
    std::map<uint32_t, uint32_t> count;
    for (NodeId n : graph_.nodes()) {
      const OpInfo* op = graph_.op_info(n);
      if (op == nullptr || !op->has(kCollective)) continue;
      const auto groups = alias_.groups(n);
      if (groups.size() != 1) continue;
      const LaunchId id{groups[0].index, count[groups[0].index]++};
      if (op->writes()) continue;
      if (std::optional<Launch> launch = candidate(n)) out.emplace(id, *launch);
    }
    return out;
  }

 private:
  std::optional<Launch> candidate(NodeId n) const {
    Launch out{n, only_wait(graph_, n), {}, {}};
    if (!graph_.has_used_result(n) || (out.wait && !graph_.has_used_result(out.wait))) return out;
    out.twin = numbers_.leader(n);
    if (out.twin == n || !out.wait || graph_.meta(n).copy.kind != CopyKind::none) return std::nullopt;
    if (graph_.op_name(n).find("all_gather") == std::string_view::npos || is_deliberate_copy(graph_, out.twin))
      return std::nullopt;
    out.twin_wait = only_wait(graph_, out.twin);
    const bool fits = out.twin_wait && graph_.before(out.twin_wait, out.wait) &&
                      is_private_behind(graph_, alias_, schedule_, out.wait) &&
                      is_private_behind(graph_, alias_, schedule_, out.twin_wait);
    return fits ? std::optional(out) : std::nullopt;
  }

  const Graph& graph_;
  AliasAnalysis alias_;
  Schedule schedule_;
  ValueNumbers numbers_;
};

void apply(Graph* graph, const Launch& launch, Tally* tally) {
  if (launch.twin) {
    tally->add(Kind::unshard, *graph, launch.launch,
               "gathers what %" + std::string(graph->label(launch.twin)) + " has gathered");
    replace_results(graph, launch.wait, launch.twin_wait);
  } else {
    tally->add(Kind::dead, *graph, launch.launch, "no rank uses what it brings");
  }
  if (launch.wait) graph->erase(launch.wait);
  graph->erase(launch.launch);
}

bool holds_all_ranks(const Job& job) {
  if (job.is_spmd()) return true;
  std::set<uint32_t> ranks;
  for (const auto& program : job.programs) ranks.insert(program->ranks.begin(), program->ranks.end());
  return ranks.size() == job.world;
}

}  // namespace

size_t remove_collectives(Job* job, Tally* tally) {
  if (!holds_all_ranks(*job)) return 0;
  std::vector<std::map<LaunchId, Launch>> found;
  for (const auto& program : job->programs) found.push_back(Candidates(*program, program->graph).find());
  size_t removed = 0;
  for (const auto& [id, first] : found[0]) {
    bool everywhere = true;
    for (const auto& list : found) {
      auto it = list.find(id);
      everywhere &= it != list.end() && it->second.twin.is_none() == first.twin.is_none();
    }
    if (!everywhere) continue;
    for (size_t i = 0; i < found.size(); ++i) {
      const Launch& launch = found[i].at(id);
      // The twin itself may have been removed in this sweep; the next round finds what is left.
      if (launch.twin && !job->programs[i]->graph.alive(launch.twin_wait)) return removed;
      apply(&job->programs[i]->graph, launch, tally);
    }
    ++removed;
  }
  return removed;
}

}  // namespace sg::clean_parts
