#include "libpasses/chunk/chunk_ranks.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "libgraph/group_name.h"
#include "libgraph/op.h"
#include "libpasses/chunk/chunk_refusals.h"
#include "libpasses/chunk/chunk_regions.h"

namespace sg {
namespace {

struct ChunkedCall {
  uint32_t number = 0;  // among the calls of its group
  NodeId node;
  uint32_t region = 0;
};

using ChunkedCalls = std::map<GroupId, std::vector<ChunkedCall>>;

ChunkedCalls chunked_calls(const Graph& graph, const ChunkPlan& plan) {
  ChunkedCalls out;
  std::map<GroupId, uint32_t> launched;
  auto body = plan.body.begin();
  for (NodeId n : graph.nodes()) {
    const bool in_chunks = body != plan.body.end() && body->node == n;
    if (launches_collective(graph, n))
      for (const Arg& arg : graph.node(n).args) {
        if (!arg.is(ArgKind::group)) continue;
        const uint32_t number = launched[arg.as_group()]++;
        if (in_chunks) out[arg.as_group()].push_back({number, n, body->region});
      }
    if (in_chunks) ++body;
  }
  return out;
}

// A call that runs in chunks, and what another rank would do instead.
struct PartedCall {
  size_t program = 0;
  ChunkedCall call;
  uint32_t other_rank = 0;
  std::string_view why;
};

class RanksAgree {
 public:
  RanksAgree(const Job& job, const std::vector<ChunkPlan>& plans) : job_(job), plans_(plans) {
    for (size_t p = 0; p < plans.size(); ++p) calls_.push_back(chunked_calls(job.programs[p]->graph, plans[p]));
  }

  // The first that they disagree about, with its group.
  std::optional<std::pair<GroupId, PartedCall>> find() const {
    for (uint32_t g = 0; g < job_.groups.size(); ++g)
      for (const GroupPart& part : job_.groups[g].parts)
        if (auto parted = find_in(GroupId(g), part)) return std::pair(GroupId(g), *parted);
    return std::nullopt;
  }

 private:
  std::optional<PartedCall> find_in(GroupId group, const GroupPart& part) const {
    std::optional<uint32_t> first;
    for (uint32_t rank : part.ranks) {
      if (job_.program_of(rank) == nullptr) continue;
      if (!first) first = rank;
      else if (auto parted = compare(group, *first, rank)) return parted;
    }
    return std::nullopt;
  }

  std::optional<PartedCall> compare(GroupId group, uint32_t here, uint32_t there) const {
    const size_t p = program_at(here), q = program_at(there);
    if (p == q) return std::nullopt;
    const std::vector<ChunkedCall>&a = calls_of(p, group), &b = calls_of(q, group);
    for (size_t i = 0; i < a.size() || i < b.size(); ++i) {
      if (i == b.size() || (i < a.size() && a[i].number < b[i].number))
        return PartedCall{p, a[i], there, kLaunchedOnce};
      if (i == a.size() || b[i].number < a[i].number) return PartedCall{q, b[i], here, kLaunchedOnce};
      if (!are_cut_alike(p, a[i].node, q, b[i].node)) return PartedCall{q, b[i], here, kCutOtherwise};
    }
    return std::nullopt;
  }

  size_t program_at(uint32_t rank) const {
    const Program* program = job_.program_of(rank);
    return size_t(std::ranges::find(job_.programs, program, &std::unique_ptr<Program>::get) - job_.programs.begin());
  }

  const std::vector<ChunkedCall>& calls_of(size_t program, GroupId group) const {
    static const std::vector<ChunkedCall> kNone;
    const auto at = calls_[program].find(group);
    return at == calls_[program].end() ? kNone : at->second;
  }

  bool are_cut_alike(size_t p, NodeId a, size_t q, NodeId b) const {
    const AxisState& here = plans_[p].world.states[job_.programs[p]->graph.node(a).result(0).index];
    const AxisState& there = plans_[q].world.states[job_.programs[q]->graph.node(b).result(0).index];
    if (here.kind != there.kind) return false;
    return here.kind != AxisKind::along || cut_of(plans_[p], here.along) == cut_of(plans_[q], there.along);
  }

  // Axis, runs, unit and entries. A size that is a symbol counts as any: it may bear another name on each rank, and of
  // items each rank has its own number.
  std::tuple<uint32_t, std::optional<int64_t>, std::optional<int64_t>, std::optional<int64_t>> cut_of(
      const ChunkPlan& plan, const Along& along) const {
    const AxisDomain& domain = plan.world.domains[along.domain];
    const auto number = [&](Expr e) { return job_.pool->exprs.constant_value(e); };
    return {along.axis, along.runs ? number(along.runs) : 1, number(along.unit),
            domain.is_rows ? number(domain.size) : std::nullopt};
  }

  static constexpr std::string_view kLaunchedOnce = "would launch it once, and not for each chunk: the step would hang";
  static constexpr std::string_view kCutOtherwise = "would cut it in another way, and their rows would not meet";

  const Job& job_;
  const std::vector<ChunkPlan>& plans_;
  std::vector<ChunkedCalls> calls_;  // by program
};

// A region of a program that must stay whole for the sake of other ranks.
struct PartedRegion {
  size_t program = 0;
  RefusedRegion refused;
};

std::optional<PartedRegion> find_parted_region(const Job& job, const std::vector<ChunkPlan>& plans, bool best_effort) {
  if (plans.size() == 1) return std::nullopt;
  const auto found = RanksAgree(job, plans).find();
  if (!found) return std::nullopt;
  const auto& [group, parted] = *found;
  const std::string why =
      "rank " + std::to_string(parted.other_rank) + " of @" + group_name(job, group) + " " + std::string(parted.why);
  const ChunkRefusals why_not(*job.programs[parted.program], best_effort);
  return PartedRegion{parted.program, {parted.call.region, why_not.at_node(parted.call.node, kRanksRule, why)}};
}

Status refuse_unless_named(const std::vector<ProgramRegions>& found, const ModulePattern& modules) {
  bool any = false, any_left = false;
  for (const ProgramRegions& of : found)
    for (const ChunkRegion& region : of.regions) any = true, any_left = any_left || region.refusal.empty();
  if (!any)
    return Error{ErrorKind::cannot_apply,
                 "--modules " + modules.text() + " names no module of the graph",
                 {},
                 "sg-stat --by module lists them"};
  if (!any_left)
    return Error{ErrorKind::cannot_apply,
                 "no module of " + modules.text() + " exchanges tokens between ranks",
                 {},
                 "--modules chunks modules without an all-to-all"};
  return ok_status();
}

}  // namespace

Result<std::vector<ChunkPlan>> plan_chunks_of_ranks(const Job& job, const ChunkOptions& options,
                                                    std::vector<Error>* refused) {
  SG_ASSIGN(const ModulePattern modules, ModulePattern::parse(options.modules));
  std::vector<ProgramRegions> found;
  for (const auto& program : job.programs) found.push_back(find_regions(*program, modules, options.only_exchanges));
  SG_TRY(refuse_unless_named(found, modules));
  std::vector<ChunkPlan> plans;
  for (size_t p = 0; p < found.size(); ++p) {
    SG_ASSIGN(ChunkPlan plan, plan_chunks(*job.programs[p], options, &found[p], refused));
    plans.push_back(std::move(plan));
  }
  while (auto parted = find_parted_region(job, plans, refused != nullptr)) {
    const size_t p = parted->program;
    if (refused == nullptr) return std::move(parted->refused.error);
    found[p].regions[parted->refused.region].refusal = parted->refused.error.message;
    refused->push_back(std::move(parted->refused.error));
    SG_ASSIGN(plans[p], plan_chunks(*job.programs[p], options, &found[p], refused));
  }
  return plans;
}

}  // namespace sg
