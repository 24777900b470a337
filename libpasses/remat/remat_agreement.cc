#include "libpasses/remat/remat_agreement.h"

#include <algorithm>

#include "libgraph/op.h"
#include "libpasses/agreement.h"
#include "libpasses/remat/remat_apply.h"

namespace sg {
namespace {

bool is_launch(const RematModel& model, uint32_t at) {
  const OpInfo* op = model.graph().op_info(model.node(at));
  return op != nullptr && op->has(kCollective) && !op->has(kWait);
}

bool touches_launches(const RematPlaced& placed) {
  const auto copies = [&](const RematCopy& copy) { return is_launch(*placed.model, copy.node); };
  const auto drops = [&](uint32_t at) { return is_launch(*placed.model, at); };
  return std::ranges::any_of(placed.outcome->copies, copies) || std::ranges::any_of(placed.outcome->gone, drops);
}

}  // namespace

std::optional<RematParting> find_parting(const Job& job, std::span<const RematPlaced> placed, size_t threads) {
  if (placed.size() == 1 || std::ranges::none_of(placed, touches_launches)) return std::nullopt;
  Job trial = job;
  for (size_t i = 0; i < placed.size(); ++i)
    apply_remat(*placed[i].model, *placed[i].outcome, &trial.programs[i]->graph);
  if (const GroupId group = group_out_of_order(job, trial))
    return RematParting{group, "its ranks would launch them in different orders"};
  std::string why = disagreement(job, &trial, threads);
  if (why.empty()) return std::nullopt;
  return RematParting{{}, std::move(why)};
}

}  // namespace sg
