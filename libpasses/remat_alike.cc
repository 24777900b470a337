#include "libpasses/remat_alike.h"

#include <map>
#include <tuple>

namespace sg {
namespace {

// Op, module, and how many such calls stood before.
using Call = std::tuple<std::string_view, uint32_t, size_t>;

// By position.
std::vector<Call> calls_of(const RematModel& model) {
  std::map<std::pair<std::string_view, uint32_t>, size_t> counts;
  std::vector<Call> out;
  for (uint32_t at = 0; at < model.size(); ++at) {
    const std::string_view op = model.graph().op_name(model.node(at));
    const uint32_t module = model.graph().node(model.node(at)).module.index;
    out.emplace_back(op, module, counts[{op, module}]++);
  }
  return out;
}

}  // namespace

RematDecision decision_alike(const RematModel& other, const RematDecision& decision, const RematModel& model,
                             const std::vector<uint8_t>& allowed) {
  const std::vector<Call> theirs = calls_of(other), ours = calls_of(model);
  std::map<Call, uint32_t> there;
  for (uint32_t at = 0; at < theirs.size(); ++at) there.emplace(theirs[at], at);
  RematDecision out{allowed, {}};
  for (uint32_t at = 0; at < ours.size(); ++at)
    if (const auto it = there.find(ours[at]); it != there.end())
      out.recompute[at] = out.recompute[at] && decision.recompute[it->second];
  return out;
}

}  // namespace sg
