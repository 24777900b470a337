// Communicators of their own: what sg-overlap does before it orders anything.
#include <algorithm>
#include <map>
#include <set>

#include "libgraph/collective_roles.h"
#include "libgraph/human.h"
#include "libgraph/json.h"
#include "libgraph/op.h"
#include "libpasses/overlap.h"

namespace sg {
namespace {

constexpr std::string_view kExchange = "_c10d_functional.all_to_all_single.default";

// What a group family carries, over all programs.
struct Traffic {
  size_t exchanges = 0, gathers = 0, others = 0;  // gathers: of parameters
};

struct Move {
  uint32_t from = 0, to = 0;
  size_t count = 0;
  bool gathers = false;
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

bool is_exchange(const Graph& graph, NodeId n) { return graph.op_name(n) == kExchange; }

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
      for_graphs(*program,
                 [&](Graph& graph) { count(graph, &graph == &program->graph ? gathers_.back() : std::set<NodeId>()); });
    }
  }

  std::vector<Move> run() {
    std::vector<Move> moves;
    for (const auto& [group, traffic] : traffic_) {
      if (traffic.exchanges != 0 && traffic.gathers + traffic.others != 0)
        moves.push_back({group, twin_of(group, 1), traffic.exchanges, false});
      if (traffic.gathers != 0 && traffic.others != 0)
        moves.push_back({group, twin_of(group, 0), traffic.gathers, true});
    }
    for (const Move& move : moves)
      for (size_t p = 0; p < job_.programs.size(); ++p)
        for_graphs(*job_.programs[p], [&](Graph& graph) {
          apply(move, &graph, &graph == &job_.programs[p]->graph ? gathers_[p] : std::set<NodeId>());
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

  void count(const Graph& graph, const std::set<NodeId>& gathers) {
    for (NodeId n : graph.nodes())
      for (uint32_t group : groups_of(graph, n)) {
        Traffic& t = traffic_[group];
        ++(is_exchange(graph, n) ? t.exchanges : is_collective(graph, n) && gathers.contains(n) ? t.gathers : t.others);
      }
  }

  // A new family of the same axis and ranks.
  uint32_t twin_of(uint32_t group, int32_t more_priority) {
    Group twin = job_.groups[group];
    for (const Group& other : job_.groups)
      if (other.axis == twin.axis) twin.ordinal = std::max(twin.ordinal, other.ordinal + 1);
    twin.priority += more_priority;
    for (GroupPart& part : twin.parts) part.aliases.clear();
    job_.groups.push_back(std::move(twin));
    return static_cast<uint32_t>(job_.groups.size() - 1);
  }

  static void apply(const Move& move, Graph* graph, const std::set<NodeId>& gathers) {
    for (NodeId n : graph->nodes()) {
      if (move.gathers ? !gathers.contains(n) : !is_exchange(*graph, n)) continue;
      std::vector<Arg> args = graph->node(n).args;
      for (Arg& arg : args)
        if (arg.is(ArgKind::group) && arg.as_group().index == move.from)
          arg = Arg::group(GroupId(move.to)).set_key(arg.key());
      graph->set_args(n, std::move(args));
    }
  }

  Job& job_;
  std::vector<std::set<NodeId>> gathers_;  // by program: of parameters, to be moved
  std::map<uint32_t, Traffic> traffic_;    // by group
};

std::string name_of_group(const Job& job, uint32_t group) {
  const Group& g = job.groups[group];
  return "@" + std::string(job.pool->strings[g.axis]) + (g.ordinal == 0 ? "" : ":" + std::to_string(g.ordinal));
}

std::string line_of(const Job& job, const Move& move) {
  const int32_t priority = job.groups[move.to].priority;
  return plural(move.count, move.gathers ? "gather" : "exchange") + " of " + name_of_group(job, move.from) +
         " now on " + name_of_group(job, move.to) +
         (priority == 0 ? std::string() : ", priority " + std::to_string(priority));
}

}  // namespace

Result<Change> isolate(Job* job, const IsolateOptions& options, PassContext& context) {
  size_t roles = 0;
  for (auto& program : job->programs) roles += store_roles(&program->graph, CollectiveRoles(*program, program->graph));
  const std::vector<Move> moves = Isolator(job, options.gathers).run();
  Change change;
  change.changed = roles + moves.size() > 0;
  for (const Move& move : moves) change.summary += (change.summary.empty() ? "" : "; ") + line_of(*job, move);
  if (moves.empty())
    change.summary =
        options.gathers
            ? "nothing to isolate: neither exchanges nor gathers of parameters share a group with other traffic"
            : "nothing to isolate: no exchange shares its group with other traffic";
  if (!context.explain) return change;
  JsonWriter json;
  json.begin_object().key("moves").begin_array();
  for (const Move& move : moves) {
    change.plan += line_of(*job, move) + "\n";
    json.begin_object()
        .key("from")
        .string(name_of_group(*job, move.from))
        .key("to")
        .string(name_of_group(*job, move.to));
    json.key("kind").string(move.gathers ? "gathers" : "exchanges").key("count").natural(move.count).end_object();
  }
  change.plan_json = json.end_array().end_object().take();
  return change;
}

}  // namespace sg
