// Jobs with fewer ranks.
#include <algorithm>

#include "libgraph/edit/shrink.h"

namespace sg {
namespace {

constexpr uint32_t kGone = UINT32_MAX;

// What ranks are called once [begin, end) are gone.
struct Renumbering {
  uint32_t begin, end;
  uint32_t operator()(uint32_t rank) const {
    if (rank < begin) return rank;
    return rank < end ? kGone : rank - (end - begin);
  }
  void apply(std::vector<uint32_t>* ranks) const {
    for (uint32_t& r : *ranks) r = (*this)(r);
    std::erase(*ranks, kGone);
  }
};

void renumber_group(Group* group, const Renumbering& now) {
  for (GroupPart& part : group->parts) {
    now.apply(&part.ranks);
    for (GroupPart::Alias& alias : part.aliases) alias.rank = now(alias.rank);
    std::erase_if(part.aliases, [](const GroupPart::Alias& alias) { return alias.rank == kGone; });
  }
  std::erase_if(group->parts, [](const GroupPart& part) { return part.ranks.empty(); });
  std::sort(group->parts.begin(), group->parts.end(),
            [](const GroupPart& a, const GroupPart& b) { return a.ranks[0] < b.ranks[0]; });
}

void renumber_programs(Job* job, const Renumbering& now) {
  if (job->is_spmd()) return;
  for (auto& program : job->programs) now.apply(&program->ranks);
  std::erase_if(job->programs, [](const auto& program) { return program->ranks.empty(); });
  std::sort(job->programs.begin(), job->programs.end(),
            [](const auto& a, const auto& b) { return a->ranks[0] < b->ranks[0]; });
  // As merged rank files are (merge.h): one program for all.
  if (job->programs.size() == 1 && job->programs[0]->ranks.size() == job->world) job->programs[0]->ranks.clear();
}

void forget_meshes(Job* job) {
  job->meshes.clear();
  job->for_each_graph([](Graph& graph) {
    for (size_t i = 0; i < graph.inputs().size(); ++i) graph.mutable_input(i).sharding = {};
    for (size_t i = 0; i < graph.outputs().size(); ++i) graph.mutable_output(i).sharding = {};
  });
}

// Every argument that is a group becomes what fn says of it.
template <class Fn>
void change_group_args(Graph* graph, const Fn& fn) {
  for (NodeId n : graph->nodes()) {
    std::vector<Arg> args = graph->node(n).args;
    bool changed = false;
    for (Arg& arg : args)
      arg.walk_mutable([&](Arg& a) {
        if (a.is(ArgKind::group)) a = Arg::group(fn(a.as_group())).set_key(a.key()), changed = true;
      });
    if (changed) graph->set_args(n, std::move(args));
  }
}

}  // namespace

Job without_ranks(const Job& job, uint32_t begin, uint32_t end) {
  Job out(job);
  const Renumbering now{begin, end};
  out.world -= end - begin;
  renumber_programs(&out, now);
  for (Group& group : out.groups) renumber_group(&group, now);
  drop_unused_groups(&out);
  forget_meshes(&out);
  return out;
}

void drop_unused_groups(Job* job) {
  std::vector<uint8_t> used(job->groups.size(), 0);
  job->for_each_graph([&](const Graph& graph) {
    for (NodeId n : graph.nodes())
      for (const Arg& arg : graph.node(n).args)
        arg.walk([&](const Arg& a) {
          if (a.is(ArgKind::group)) used[a.as_group().index] = 1;
        });
  });
  std::vector<GroupId> number(used.size());
  std::vector<Group> kept;
  for (size_t g = 0; g < used.size(); ++g) {
    if (!used[g]) continue;
    number[g] = GroupId(static_cast<uint32_t>(kept.size()));
    kept.push_back(std::move(job->groups[g]));
  }
  job->groups = std::move(kept);
  if (job->groups.size() == used.size()) return;
  job->for_each_graph([&](Graph& graph) { change_group_args(&graph, [&](GroupId old) { return number[old.index]; }); });
}

}  // namespace sg
