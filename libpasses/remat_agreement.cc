#include "libpasses/remat_agreement.h"

#include <algorithm>
#include <map>
#include <vector>

#include "libpasses/agreement.h"
#include "libpasses/remat_apply.h"

namespace sg {
namespace {

// By group: which of a program's calls each launch is, or is a copy of.
using Launches = std::map<GroupId, std::vector<uint32_t>>;

class LaunchOrder {
 public:
  explicit LaunchOrder(const RematPlaced& placed)
      : model_(*placed.model), outcome_(*placed.outcome), group_(model_.size()), number_(model_.size()) {
    std::map<GroupId, uint32_t> made;
    for (uint32_t at = 0; at < model_.size(); ++at)
      if (const GroupId g = launched_on(at)) group_[at] = g, number_[at] = made[g]++;
  }

  bool has_copies() const {
    return std::ranges::any_of(outcome_.copies, [&](const RematCopy& copy) { return bool(group_[copy.node]); }) ||
           std::ranges::any_of(outcome_.gone, [&](uint32_t at) { return bool(group_[at]); });
  }

  Launches launches() const {
    Launches out;
    auto add = [&](uint32_t at) {
      if (group_[at]) out[group_[at]].push_back(number_[at]);
    };
    size_t copy = 0, gone = 0;
    for (uint32_t at = 0; at < model_.size(); ++at) {
      for (; copy < outcome_.copies.size() && outcome_.copies[copy].before == at; ++copy)
        add(outcome_.copies[copy].node);
      if (gone < outcome_.gone.size() && outcome_.gone[gone] == at) ++gone;
      else add(at);
    }
    return out;
  }

 private:
  GroupId launched_on(uint32_t at) const {
    const Graph& graph = model_.graph();
    const OpInfo* op = graph.op_info(model_.node(at));
    if (op == nullptr || !op->has(kCollective) || op->has(kWait)) return {};
    for (const Arg& arg : graph.node(model_.node(at)).args)
      if (arg.is(ArgKind::group)) return arg.as_group();
    return {};
  }

  const RematModel& model_;
  const RematOutcome& outcome_;
  std::vector<GroupId> group_;  // by position; none where nothing is launched
  std::vector<uint32_t> number_;
};

// The first group whose members would not launch the same.
GroupId group_that_parts(const Job& job, const std::map<const Program*, Launches>& of) {
  const auto on = [&](const Program* program, GroupId g) {
    const auto found = of.at(program).find(g);
    return found == of.at(program).end() ? std::vector<uint32_t>() : found->second;
  };
  for (uint32_t g = 0; g < job.groups.size(); ++g)
    for (const GroupPart& members : job.groups[g].parts) {
      const Program* first = nullptr;
      for (uint32_t rank : members.ranks) {
        const Program* program = job.program_of(rank);
        if (program == nullptr || program == first) continue;
        if (first == nullptr) first = program;
        else if (on(program, GroupId(g)) != on(first, GroupId(g))) return GroupId(g);
      }
    }
  return {};
}

}  // namespace

std::optional<RematParting> find_parting(const Job& job, std::span<const RematPlaced> placed, size_t threads) {
  if (placed.size() == 1) return std::nullopt;
  std::map<const Program*, Launches> launches;
  bool has_copies = false;
  for (size_t i = 0; i < placed.size(); ++i) {
    const LaunchOrder order(placed[i]);
    has_copies = has_copies || order.has_copies();
    launches[job.programs[i].get()] = order.launches();
  }
  if (!has_copies) return std::nullopt;
  if (const GroupId group = group_that_parts(job, launches))
    return RematParting{group, "its ranks would launch them in different orders"};
  Job trial = job;
  for (size_t i = 0; i < placed.size(); ++i)
    apply_remat(*placed[i].model, *placed[i].outcome, &trial.programs[i]->graph);
  std::string why = disagreement(&trial, threads);
  if (why.empty()) return std::nullopt;
  return RematParting{{}, std::move(why)};
}

}  // namespace sg
