#include "libpasses/agreement.h"

#include <compare>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/group_name.h"
#include "libgraph/op.h"
#include "libgraph/verify/verify.h"

namespace sg {
namespace {

// Which call of the original job a launch stands for: its group and its number within that group, or its bucket.
struct Origin {
  enum class Kind : uint8_t { call, bucket, made } kind = Kind::made;
  GroupId group;
  uint32_t number = 0;
  auto operator<=>(const Origin&) const = default;
};

// Calls fn(node, group) for each launch of the main graph, in order.
template <class Fn>
void for_each_launch(const Graph& graph, const Fn& fn) {
  for (NodeId n : graph.nodes()) {
    const OpInfo* op = graph.op_info(n);
    if (op == nullptr || !op->has(kCollective) || op->has(kWait)) continue;
    for (const Arg& arg : graph.node(n).args)
      if (arg.is(ArgKind::group)) fn(n, arg.as_group());
  }
}

using Calls = std::unordered_map<std::string_view, Origin>;  // by label

Calls calls_of(const Graph& graph) {
  Calls out;
  std::map<GroupId, uint32_t> made;
  for_each_launch(graph, [&](NodeId n, GroupId group) {
    out.emplace(graph.label(n), Origin{Origin::Kind::call, group, made[group]++});
  });
  return out;
}

Origin origin_of(const Graph& graph, NodeId n, const Calls& calls) {
  const NodeMeta& meta = graph.meta(n);
  if (const auto known = calls.find(graph.label(n)); known != calls.end()) return known->second;
  if (meta.copy.of)
    if (const auto known = calls.find(graph.pool().strings[meta.copy.of]); known != calls.end()) return known->second;
  if (meta.collective.bucket < 0) return {};
  return {Origin::Kind::bucket, {}, static_cast<uint32_t>(meta.collective.bucket)};
}

using Launches = std::map<GroupId, std::vector<Origin>>;

Launches launches_of(const Graph& before, const Graph& after) {
  const Calls calls = calls_of(before);
  Launches out;
  for_each_launch(after, [&](NodeId n, GroupId group) { out[group].push_back(origin_of(after, n, calls)); });
  return out;
}

}  // namespace

GroupId group_out_of_order(const Job& before, const Job& after) {
  std::map<const Program*, Launches> launches;
  for (size_t i = 0; i < after.programs.size(); ++i)
    launches[after.programs[i].get()] = launches_of(before.programs[i]->graph, after.programs[i]->graph);
  for (uint32_t g = 0; g < after.groups.size(); ++g)
    for (const GroupPart& members : after.groups[g].parts) {
      const Program* first = nullptr;
      for (uint32_t rank : members.ranks) {
        const Program* program = after.program_of(rank);
        if (program == nullptr || program == first) continue;
        if (first == nullptr) first = program;
        else if (launches[program][GroupId(g)] != launches[first][GroupId(g)]) return GroupId(g);
      }
    }
  return {};
}

std::string disagreement(const Job& before, Job* after, size_t threads) {
  if (after->programs.size() == 1) return {};
  if (const GroupId group = group_out_of_order(before, *after))
    return "those of @" + group_name(*after, group) + " would come in different orders";
  for (auto& program : after->programs)
    for (NodeId n : program->graph.nodes())
      if (const NodeId forward = program->graph.node(n).forward; forward && !program->graph.alive(forward))
        program->graph.set_forward(n, {});
  Diagnostics findings(1);
  verify(*after, {.types = false, .threads = threads}, &findings);
  return findings.has_errors() ? findings.as_error(ErrorKind::internal).message : std::string();
}

}  // namespace sg
