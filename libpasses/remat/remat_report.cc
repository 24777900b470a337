#include "libpasses/remat/remat_report.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/base/joined.h"
#include "libgraph/plan/liveness.h"
#include "libpasses/remat/remat_tags.h"

namespace sg {
namespace {

constexpr size_t kMostHeld = 6, kMostAtPeak = 20;

std::string named(const RematModel& model, uint32_t at) {
  return "%" + std::string(model.graph().label(model.node(at)));
}

std::string why_held(const RematModel& model, const RematBound& bound, const RematBound::Held& held) {
  using Why = RematBound::Held::Why;
  switch (held.why) {
    case Why::taken: return named(model, bound.at) + " reads it";
    case Why::made: return named(model, bound.at) + " makes it";
    case Why::output: return "an output";
    case Why::later: return "needed later";
    case Why::barred: return std::string(remat_bar_text(model.bar(held.maker)));
    case Why::kept: return "kept by the policy or --save";
  }
  return "";
}

// The first node after the forward that needs it.
std::string asker(const RematModel& model, uint32_t at) {
  const uint32_t later = model.first_later_use(at);
  return later == RematModel::kNone ? std::string() : ", and " + named(model, later) + " needs it";
}

std::string why_stays(const RematModel& model, const RematDecided& decided, uint32_t at) {
  if (model.is_output(at)) return "it is an output";
  if (model.bar(at) != RematBar::none) return std::string(remat_bar_text(model.bar(at))) + asker(model, at);
  if (decided.border[at]) return "it is what a later layer begins with" + asker(model, at);
  if (at >= decided.head) return "it belongs to the head" + asker(model, at);
  if (!decided.open[at]) return "the policy or --save keeps it" + asker(model, at);
  if (decided.decision.recompute[at]) return "the forward still needs it, or what recomputes others";
  const std::string why = decided.has_target ? "recomputing it costs more than recomputing others"
                                             : "without it, its layer needs more at once";
  return why + asker(model, at);
}

}  // namespace

std::string held_text(const RematModel& model, const RematBound& bound) {
  std::string out = "alive at once at the lower bound, " + named(model, bound.at) + ":";
  for (const RematBound::Held& held : first_of(bound.held, kMostHeld))
    out += "\n  " + named(model, held.maker) + "  " + human_bytes(static_cast<double>(held.bytes)) + ", " +
           why_held(model, bound, held);
  int64_t rest = 0;
  for (size_t i = kMostHeld; i < bound.held.size(); ++i) rest += bound.held[i].bytes;
  if (bound.held.size() > kMostHeld)
    out += "\n  " + std::to_string(bound.held.size() - kMostHeld) + " more  " + human_bytes(static_cast<double>(rest));
  return out;
}

std::vector<std::string> explain_copies(const RematModel& model, const RematOutcome& outcome) {
  std::vector<std::string> out;
  for (const auto& [node, before] : outcome.stale)
    out.push_back(named(model, node) + " is kept: what it reads is written before " + named(model, before));
  for (const RematCopy& copy : outcome.copies)
    out.push_back(named(model, copy.node) + " is recomputed before " + named(model, copy.before));
  return out;
}

std::vector<std::string> explain_peak(const RematModel& model, const RematDecided& decided, const Program& program,
                                      const SizeValues& sizes) {
  const Liveness live = compute_liveness(program, program.graph, sizes);
  std::vector<std::string> out;
  for (uint32_t i : live.live_at_peak) {
    const LiveStorage& storage = live.storages[i];
    if (program.graph.node(storage.def).phase != Phase::forward || out.size() == kMostAtPeak) continue;
    const uint32_t at = model.position(storage.def);
    if (model.first_later_use(at) == RematModel::kNone) continue;
    out.push_back(named(model, at) + " stays through the peak with " + human_bytes(static_cast<double>(storage.bytes)) +
                  ": " + why_stays(model, decided, at));
  }
  return out;
}

}  // namespace sg
