#include "libpasses/remat/remat_ease.h"

#include <algorithm>

#include "libpasses/remat/remat_alike.h"
#include "libpasses/remat/remat_choose.h"

namespace sg {
namespace {

constexpr size_t kEaseWork = 2000000;  // node visits of the model

// Ascending. Every node of the model's graph has one.
std::vector<uint32_t> positions_of(const RematModel& model, const std::vector<NodeId>& nodes) {
  std::vector<uint32_t> out;
  for (NodeId n : nodes) out.push_back(model.position(n));
  std::ranges::sort(out);
  return out;
}

RematDecision eased(RematModel* model, std::vector<uint8_t> allowed, size_t threads) {
  RematDecision decision{allowed, {}};
  RematChooser chooser(model, {.allowed = std::move(allowed), .crossing = {}, .work = kEaseWork, .threads = threads});
  return chooser.ease(std::move(decision));
}

// The decision of an earlier program, if the nodes are equal or the first decides for all.
std::optional<RematDecision> given_by_others(const RematEase& with, const RematPart& part,
                                             const std::vector<uint32_t>& unshards) {
  for (const RematPart& other : with.decided)
    if (has_equal_nodes(*other.model, *part.model)) return other.decision;
  if (!with.alike || with.decided.empty()) return std::nullopt;
  std::vector<uint8_t> allowed = part.allowed;
  for (uint32_t at : unshards) allowed[at] = 1;
  return decision_alike(*with.decided[0].model, with.decided[0].decision, *part.model, allowed);
}

// Keeps the head's parameters gathered unless that costs more than a hundredth of the peak. The search's results vary
// slightly, so the result with parameters gathered again also serves as a candidate for those that stay.
RematDecision weigh_unshards(const RematRule& rule, RematModel* model, size_t threads, RematDecision best) {
  std::vector<uint8_t> allowed = rule.recompute;
  for (uint32_t at : rule.unshards) allowed[at] = 1;
  RematDecision again = eased(model, std::move(allowed), threads), kept = again;
  for (uint32_t at : rule.unshards) kept.recompute[at] = 0, again.recompute[at] = 1;
  const auto peak = [&](const RematDecision& decision) { return model->weigh(decision).peak_bytes; };
  if (peak(kept) < peak(best)) best = std::move(kept);
  const int64_t now = peak(best);
  return now - peak(again) >= now / kWorthwhile ? again : best;
}

}  // namespace

RematDecision decision_by(const RematRule& rule, RematModel* model, size_t threads) {
  if (!rule.eases) return {rule.recompute, {}};
  RematDecision decision = eased(model, rule.recompute, threads);
  return rule.unshards.empty() ? decision : weigh_unshards(rule, model, threads, std::move(decision));
}

void ease(const RematEase& with, const std::vector<NodeId>& unshards, Graph* graph, RematPart* part) {
  const std::vector<uint32_t> places = positions_of(*part->model, unshards);
  std::optional<RematDecision> given = given_by_others(with, *part, places);
  part->decision =
      given ? std::move(*given) : decision_by({part->allowed, places, true}, part->model.get(), with.threads);
  if (places.empty() || !part->decision.recompute[places[0]]) return;
  for (uint32_t at : places) part->allowed[at] = 1;
  for (NodeId n : unshards) {
    NodeMeta meta = graph->meta(n);
    meta.recompute = Recompute::prefer_recompute;
    graph->set_meta(n, std::move(meta));
  }
}

}  // namespace sg
