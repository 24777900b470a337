#include "libpasses/remat/remat_alike.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "libgraph/operands.h"

namespace sg {
namespace {

// Identifies a call by op, module, and the number of such calls before it.
using Call = std::tuple<std::string_view, uint32_t, size_t>;

// The calls, by position.
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

bool has_equal_nodes(const RematModel& a, const RematModel& b) {
  if (a.size() != b.size()) return false;
  for (uint32_t at = 0; at < a.size(); ++at) {
    const Node &x = a.graph().node(a.node(at)), &y = b.graph().node(b.node(at));
    if (x.op != y.op || x.phase != y.phase || x.result_count != y.result_count || a.bar(at) != b.bar(at)) return false;
    for (uint32_t i = 0; i < x.result_count; ++i)
      if (a.graph().value(x.result(i)).type != b.graph().value(y.result(i)).type) return false;
  }
  return true;
}

bool has_equal_operands(const RematModel& a, const RematModel& b) {
  using Operand = std::tuple<bool, uint32_t, uint32_t>;  // a result of the node at a position, or an input
  const auto operands_of = [](const RematModel& model, uint32_t at) {
    std::vector<Operand> out;
    for_operands(model.graph(), model.node(at), [&](ValueId v) {
      const Value& value = model.graph().value(v);
      out.emplace_back(value.def.is_none(), value.def ? model.position(value.def) : 0, value.index);
    });
    return out;
  };
  for (uint32_t at = 0; at < a.size(); ++at)
    if (operands_of(a, at) != operands_of(b, at)) return false;
  return true;
}

RematDecision decision_alike(const RematModel& other, const RematDecision& decision, const RematModel& model,
                             const std::vector<uint8_t>& allowed) {
  const std::vector<Call> theirs = calls_of(other), ours = calls_of(model);
  std::map<Call, uint32_t> there;
  for (uint32_t at = 0; at < theirs.size(); ++at) there.emplace(theirs[at], at);
  RematDecision out{allowed, {}};
  std::unordered_map<uint32_t, uint32_t> here;  // position in the other program -> position here
  for (uint32_t at = 0; at < ours.size(); ++at) {
    const auto it = there.find(ours[at]);
    if (it == there.end()) continue;
    here.emplace(it->second, at);
    out.recompute[at] = out.recompute[at] && decision.recompute[it->second];
  }
  for (const RematCopy& copy : decision.renew) {
    const auto node = here.find(copy.node), before = here.find(copy.before);
    if (node != here.end() && before != here.end()) out.renew.push_back({node->second, before->second});
  }
  std::ranges::stable_sort(out.renew, {}, &RematCopy::before);
  return out;
}

}  // namespace sg
