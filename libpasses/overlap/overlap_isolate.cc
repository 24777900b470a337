// Communicators of their own: what sg-overlap does before it orders anything.
#include <algorithm>
#include <map>
#include <set>

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/facts/collective_roles.h"
#include "libgraph/group_name.h"
#include "libgraph/op.h"
#include "libpasses/overlap/overlap_parts.h"

namespace sg {
namespace {

using namespace overlap_parts;

// What a group family carries; gathers: of parameters.
struct Traffic {
  size_t exchanges = 0, gathers = 0, others = 0;

  // Of two programs: the more of each, as what ranks do alike is one thing.
  void take_most(const Traffic& other) {
    exchanges = std::max(exchanges, other.exchanges);
    gathers = std::max(gathers, other.gathers);
    others = std::max(others, other.others);
  }
};

template <class Fn>
void for_graphs(Program& program, const Fn& fn) {
  fn(program.graph);
  for (auto& nested : program.nested) fn(nested->graph);
}

bool is_collective(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  return op != nullptr && op->has(kCollective);
}

std::set<NodeId> parameter_gathers(const Program& program) {
  std::set<NodeId> out;
  const CollectiveRoles roles(program, program.graph);
  for (const CollectiveChain& chain : roles.chains())
    if (chain.role == CollectiveRole::unshard) out.insert(chain.launch);
  return out;
}

class Isolator {
 public:
  Isolator(Job* job, bool gathers) : job_(*job) {
    for (auto& program : job_.programs) {
      gathers_.push_back(gathers ? parameter_gathers(*program) : std::set<NodeId>());
      std::map<uint32_t, Traffic> own;
      for_graphs(*program, [&](Graph& graph) {
        count(graph, &graph == &program->graph ? gathers_.back() : std::set<NodeId>(), &own);
      });
      for (const auto& [group, traffic] : own) traffic_[group].take_most(traffic);
    }
  }

  std::vector<GroupMove> run() {
    std::vector<GroupMove> moves;
    for (const auto& [group, traffic] : traffic_) {
      if (traffic.exchanges != 0 && traffic.gathers + traffic.others != 0)
        moves.push_back({GroupId(group), twin_of(group, 1), traffic.exchanges, false});
      if (traffic.gathers != 0 && traffic.others != 0)
        moves.push_back({GroupId(group), twin_of(group, 0), traffic.gathers, true});
    }
    for (const GroupMove& move : moves)
      for (size_t p = 0; p < job_.programs.size(); ++p)
        for_graphs(*job_.programs[p], [&](Graph& graph) {
          readdress(move, &graph, &graph == &job_.programs[p]->graph ? gathers_[p] : std::set<NodeId>());
        });
    return moves;
  }

 private:
  static std::vector<uint32_t> groups_of(const Graph& graph, NodeId n) {
    std::vector<uint32_t> out;
    for (const Arg& arg : graph.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::group)) out.push_back(a.as_group().index);
      });
    return out;
  }

  static void count(const Graph& graph, const std::set<NodeId>& gathers, std::map<uint32_t, Traffic>* out) {
    for (NodeId n : graph.nodes())
      for (uint32_t group : groups_of(graph, n)) {
        Traffic& t = (*out)[group];
        ++(is_exchange(graph, n) ? t.exchanges : is_collective(graph, n) && gathers.contains(n) ? t.gathers : t.others);
      }
  }

  // A new family of the same axis and ranks.
  GroupId twin_of(uint32_t group, int32_t more_priority) {
    Group twin = job_.groups[group];
    for (const Group& other : job_.groups)
      if (other.axis == twin.axis) twin.ordinal = std::max(twin.ordinal, other.ordinal + 1);
    twin.priority = std::min<int64_t>(int64_t{twin.priority} + more_priority, INT32_MAX);
    for (GroupPart& part : twin.parts) part.aliases.clear();
    job_.groups.push_back(std::move(twin));
    return GroupId(static_cast<uint32_t>(job_.groups.size() - 1));
  }

  static void readdress(const GroupMove& move, Graph* graph, const std::set<NodeId>& gathers) {
    for (NodeId n : graph->nodes()) {
      if (move.gathers ? !gathers.contains(n) : !is_exchange(*graph, n)) continue;
      std::vector<Arg> args = graph->node(n).args;
      for (Arg& arg : args)
        if (arg.is(ArgKind::group) && arg.as_group() == move.from) arg = Arg::group(move.to).set_key(arg.key());
      graph->set_args(n, std::move(args));
    }
  }

  Job& job_;
  std::vector<std::set<NodeId>> gathers_;  // by program: of parameters, to be moved
  std::map<uint32_t, Traffic> traffic_;    // by group: of the program that has most
};

std::string line_of(const Job& job, const GroupMove& move) {
  const int32_t priority = job.groups[move.to.index].priority;
  return plural(move.count, move.gathers ? "gather" : "exchange") + " of @" + group_name(job, move.from) + " now on @" +
         group_name(job, move.to) + (priority == 0 ? std::string() : ", priority " + std::to_string(priority));
}

}  // namespace

Isolation overlap_parts::isolate_traffic(Job* job, const IsolateOptions& options) {
  Isolation out;
  for (auto& program : job->programs)
    out.roles += store_roles(&program->graph, CollectiveRoles(*program, program->graph));
  out.moves = Isolator(job, options.gathers).run();
  for (const GroupMove& move : out.moves) out.summary += (out.summary.empty() ? "" : "; ") + line_of(*job, move);
  return out;
}

Result<Change> isolate(Job* job, const IsolateOptions& options, PassContext& context) {
  const Isolation done = isolate_traffic(job, options);
  Change change;
  change.changed = done.roles + done.moves.size() > 0;
  change.summary = done.summary;
  if (done.moves.empty())
    change.summary =
        options.gathers
            ? "nothing to isolate: neither exchanges nor gathers of parameters share a group with other traffic"
            : "nothing to isolate: no exchange shares its group with other traffic";
  if (!context.explain) return change;
  JsonWriter json;
  json.begin_object().key("moves").begin_array();
  for (const GroupMove& move : done.moves) {
    change.plan += line_of(*job, move) + "\n";
    json.begin_object().key("from").string("@" + group_name(*job, move.from));
    json.key("to").string("@" + group_name(*job, move.to));
    json.key("kind").string(move.gathers ? "gathers" : "exchanges").key("count").natural(move.count).end_object();
  }
  change.plan_json = json.end_array().end_object().take();
  return change;
}

}  // namespace sg
