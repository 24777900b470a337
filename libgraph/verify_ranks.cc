// Rules across ranks: that all members of a group call the same collectives in the same order, and that no ranks wait
// for each other in a circle. Both are what hangs a job on a cluster, and both can be seen here before it starts.
#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "libgraph/verify_rules.h"

namespace sg {
namespace {

constexpr int kMaxCallDepth = 64;
constexpr int kMaxViews = 64;           // between a launch and its wait

// One launch of a collective, or one wait for it, in the order in which a rank meets them.
struct Event {
  bool is_wait = false;
  uint32_t group = 0;
  uint32_t call = 0;              // the how-manieth launch on that group
  const Graph* graph = nullptr;
  NodeId node;
};

struct Sequence {
  std::vector<Event> events;
  std::unordered_map<uint32_t, std::vector<size_t>> launches;   // by group: indices into events
  const std::vector<size_t>& of_group(uint32_t g) const {
    static const std::vector<size_t> none;
    auto it = launches.find(g);
    return it == launches.end() ? none : it->second;
  }
};

std::optional<uint32_t> group_of(const Node& node) {
  std::optional<uint32_t> found;
  for (const Arg& arg : node.args)
    arg.walk([&](const Arg& a) {
      if (!found && a.is(ArgKind::group)) found = a.as_group().index;
    });
  return found;
}

class SequenceBuilder {
 public:
  SequenceBuilder(const Program& program, size_t* budget) : program_(program), budget_(budget) {}

  Sequence build() {
    visit(program_.graph, 0);
    return std::move(out_);
  }
  bool complete() const { return complete_; }       // false: a limit was met

 private:
  // The nodes of a graph that matter here, found once a graph.
  const std::vector<NodeId>& nodes_of(const Graph& g) {
    auto [it, is_new] = nodes_.try_emplace(&g);
    if (!is_new) return it->second;
    for (NodeId n : g.nodes()) {
      const OpInfo* info = g.op_info(n);
      bool matters = info && (info->has(kWait) || info->name == "sg.call");
      if (matters || group_of(g.node(n))) it->second.push_back(n);
    }
    return it->second;
  }

  void visit(const Graph& g, int depth) {
    for (NodeId n : nodes_of(g)) {
      if (*budget_ == 0) complete_ = false;
      if (!complete_) return;
      --*budget_;
      const Node& node = g.node(n);
      const OpInfo* info = g.op_info(n);
      if (info && info->has(kWait)) {
        add_wait(g, n);
      } else if (std::optional<uint32_t> group = group_of(node)) {
        std::vector<size_t>& calls = out_.launches[*group];
        launched_[&g][n.index] = out_.events.size();
        calls.push_back(out_.events.size());
        out_.events.push_back({false, *group, static_cast<uint32_t>(calls.size() - 1), &g, n});
      } else if (!node.args.empty() && node.args[0].is(ArgKind::graph)) {
        if (depth == kMaxCallDepth) return void(complete_ = false);
        visit(program_.nested[node.args[0].as_graph().index]->graph, depth + 1);
      }
    }
  }

  // The launch behind a wait, through the views between them.
  void add_wait(const Graph& g, NodeId n) {
    NodeId at = n;
    for (int steps = 0; steps < kMaxViews; ++steps) {
      const Node& node = g.node(at);
      if (node.args.empty() || !node.args[0].is(ArgKind::value)) return;
      at = g.value(node.args[0].as_value()).def;
      if (!at) return;
      auto& launched = launched_[&g];
      if (auto it = launched.find(at.index); it != launched.end()) {
        const Event launch = out_.events[it->second];
        out_.events.push_back({true, launch.group, launch.call, &g, n});
        return;
      }
    }
    complete_ = false;
  }

  const Program& program_;
  size_t* budget_;
  bool complete_ = true;
  Sequence out_;
  std::unordered_map<const Graph*, std::vector<NodeId>> nodes_;
  std::unordered_map<const Graph*, std::unordered_map<uint32_t, size_t>> launched_;
};

// Which program each rank runs; asked for ranks that groups name.
class RankMap {
 public:
  explicit RankMap(const Job& job) {
    if (job.is_spmd()) return;
    for (uint32_t p = 0; p < job.programs.size(); ++p)
      for (uint32_t r : job.programs[p]->ranks) program_.emplace(r, p);
    spmd_ = false;
  }
  std::optional<uint32_t> program_of(uint32_t rank) const {
    if (spmd_) return 0;
    auto it = program_.find(rank);
    return it == program_.end() ? std::nullopt : std::optional<uint32_t>(it->second);
  }
  // One a rank of the part; empty when the job does not hold all of them.
  std::vector<uint32_t> programs_of(const GroupPart& part) const {
    std::vector<uint32_t> out;
    for (uint32_t r : part.ranks) {
      std::optional<uint32_t> p = program_of(r);
      if (!p) return {};
      out.push_back(*p);
    }
    return out;
  }

 private:
  bool spmd_ = true;
  std::unordered_map<uint32_t, uint32_t> program_;
};

// --- what one call says about itself ---

// "_c10d_functional.all_gather_into_tensor_out.default" -> "all_gather_into_tensor": with or without a buffer is one call.
std::string_view call_kind(std::string_view op) {
  size_t dot = op.find('.');
  if (dot == std::string_view::npos) return op;
  std::string_view name = op.substr(dot + 1);
  name = name.substr(0, name.find('.'));
  if (name.size() > 4 && name.substr(name.size() - 4) == "_out") name.remove_suffix(4);
  if (name.size() > 1 && name.back() == '_') name.remove_suffix(1);
  return name;
}

struct Call {
  std::string_view kind;
  DType dtype = DType::none;
  std::optional<int64_t> elements;      // of the input, when a number
  std::string_view reduce_op;
  std::optional<int64_t> src;
  const Arg* send = nullptr;            // split sizes of an exchange
  const Arg* receive = nullptr;
};

std::optional<int64_t> elements_of(const Pool& pool, const Type& t) {
  int64_t n = 1;
  for (Expr e : t.shape) {
    std::optional<int64_t> size = pool.exprs.constant_value(e);
    if (!size || __builtin_mul_overflow(n, *size, &n)) return std::nullopt;
  }
  return n;
}

void add_payload(const Pool& pool, const Graph& g, const Arg& input, Call* call) {
  int64_t total = 0;
  bool known = true;
  input.walk([&](const Arg& a) {
    if (!a.is(ArgKind::value)) return;
    const Type& t = g.type(a.as_value());
    std::optional<int64_t> n = t.kind == TypeKind::tensor ? elements_of(pool, t) : std::nullopt;
    if (t.kind == TypeKind::tensor) call->dtype = t.dtype;
    known = known && n && !__builtin_add_overflow(total, *n, &total);
  });
  if (known) call->elements = total;
}

Call describe(const Pool& pool, const Event& e) {
  const Node& node = e.graph->node(e.node);
  const OpInfo* info = e.graph->op_info(e.node);
  Call call;
  call.kind = call_kind(e.graph->op_name(e.node));
  if (!info) return call;
  std::vector<const Arg*> args = args_by_param(pool, node, *info);
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i]) continue;
    std::string_view param = info->params[i].name;
    if (i == 0) add_payload(pool, *e.graph, *args[i], &call);
    if (param == "reduce_op" && args[i]->is(ArgKind::string)) call.reduce_op = pool.strings[args[i]->as_text()];
    if (param == "src" && args[i]->is(ArgKind::integer)) call.src = args[i]->as_int();
    if (param == "input_split_sizes" && args[i]->is(ArgKind::list)) call.send = args[i];
    if (param == "output_split_sizes" && args[i]->is(ArgKind::list)) call.receive = args[i];
  }
  return call;
}

// What keeps two calls from being one collective; empty when nothing that can be seen does.
std::string mismatch(const Call& a, const Call& b) {
  auto differ = [](std::string_view what, std::string x, std::string y) {
    return std::string(what) + " " + x + " here, " + y + " there";
  };
  if (a.kind != b.kind) return differ("it is", std::string(a.kind), std::string(b.kind));
  if (a.dtype != b.dtype && a.dtype != DType::none && b.dtype != DType::none)
    return differ("elements are", std::string(dtype_name(a.dtype)), std::string(dtype_name(b.dtype)));
  if (a.reduce_op != b.reduce_op) return differ("it reduces by", std::string(a.reduce_op), std::string(b.reduce_op));
  if (a.src != b.src && a.src && b.src) return differ("it sends from", std::to_string(*a.src), std::to_string(*b.src));
  if (!a.send && !a.receive && a.elements && b.elements && *a.elements != *b.elements)
    return differ("it has", std::to_string(*a.elements) + " elements", std::to_string(*b.elements));
  return {};
}

std::string group_text(const Check& c, uint32_t g) {
  const Group& group = c.job.groups[g];
  return "@" + std::string(c.str(group.axis)) + (group.ordinal ? ":" + std::to_string(group.ordinal) : "");
}

std::string ranks_text(const Program& p) {
  return p.ranks.empty() ? "every rank" : "rank " + std::to_string(p.ranks[0]) + (p.ranks.size() > 1 ? " (and others)" : "");
}

struct Ranks {
  std::vector<Sequence> sequences;   // by program
  bool complete = true;              // false: a limit was met
};

Ranks sequences_of(const Job& job, size_t max_events) {
  Ranks out;
  size_t budget = max_events;
  for (const auto& p : job.programs) {
    SequenceBuilder builder(*p, &budget);
    out.sequences.push_back(builder.build());
    out.complete = out.complete && builder.complete();
  }
  return out;
}

void warn_incomplete(Check& c) {
  c.leave();
  c.warn("the ranks were not held against each other: they launch and wait more than " +
             std::to_string(c.options.max_rank_events) + " times, or calls nest more than " + std::to_string(kMaxCallDepth) + " deep",
         "check a job of fewer layers or ranks");
}

void stand_at(Check& c, uint32_t program, const Event& e) {
  c.program = c.job.programs[program].get();
  c.graph = e.graph;
}

// Program `b` against program `a`, both members of group `g`. True when all calls match.
bool compare_programs(Check& c, const Ranks& ranks, uint32_t g, uint32_t a, uint32_t b) {
  const Sequence &left = ranks.sequences[a], &right = ranks.sequences[b];
  const std::vector<size_t> &first = left.of_group(g), &second = right.of_group(g);
  std::string other = ranks_text(*c.job.programs[a]);
  for (size_t k = 0; k < std::min(first.size(), second.size()); ++k) {
    const Event &x = left.events[first[k]], &y = right.events[second[k]];
    std::string why = mismatch(describe(c.pool, y), describe(c.pool, x));
    if (why.empty()) continue;
    stand_at(c, b, y);
    c.fail(y.node, "call " + std::to_string(k + 1) + " of group " + group_text(c, g) + " is not the same on " + other +
                       " (%" + std::string(x.graph->label(x.node)) + " there): " + why,
           "all ranks of a group must call its collectives in the same order, with matching sizes");
    return false;
  }
  if (first.size() == second.size()) return true;
  bool here = second.size() > first.size();
  size_t k = std::min(first.size(), second.size());
  const Event& extra = here ? right.events[second[k]] : left.events[first[k]];
  stand_at(c, here ? b : a, extra);
  c.fail(extra.node, "call " + std::to_string(k + 1) + " of group " + group_text(c, g) + " has no partner on " +
                         (here ? other : ranks_text(*c.job.programs[b])) + ", which calls " + std::to_string(k),
         "it would wait forever: add the call there, or remove it here");
  return false;
}

// What rank i sends to j must be what j expects from i, as far as both are numbers. Sets the budget to 0 when it is met.
void compare_splits(Check& c, const Ranks& ranks, uint32_t g, const GroupPart& part, const std::vector<uint32_t>& programs,
                    size_t* budget) {
  size_t n = part.ranks.size();
  size_t calls = ranks.sequences[programs[0]].of_group(g).size();
  for (size_t k = 0; k < calls; ++k) {
    std::vector<Call> members;
    for (uint32_t p : programs) {
      const Sequence& s = ranks.sequences[p];
      Call call = describe(c.pool, s.events[s.of_group(g)[k]]);
      if (!call.send || !call.receive) break;
      members.push_back(call);
    }
    if (members.size() != n) continue;
    if (n > *budget / n) {
      *budget = 0;
      return;
    }
    *budget -= n * n;
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) {
        const ArgList &send = members[i].send->items(), &receive = members[j].receive->items();
        if (send.size() != n || receive.size() != n) continue;
        if (!send[j].is(ArgKind::integer) || !receive[i].is(ArgKind::integer)) continue;
        if (send[j].as_int() == receive[i].as_int()) continue;
        const Sequence& s = ranks.sequences[programs[i]];
        const Event& e = s.events[s.of_group(g)[k]];
        stand_at(c, programs[i], e);
        c.fail(e.node, "rank " + std::to_string(part.ranks[i]) + " sends " + std::to_string(send[j].as_int()) + " to rank " +
                           std::to_string(part.ranks[j]) + ", which expects " + std::to_string(receive[i].as_int()),
               "what one rank sends, the other must expect");
        return;
      }
  }
}

}  // namespace

void check_collective_order(Check& c) {
  Ranks ranks = sequences_of(c.job, c.options.max_rank_events);
  if (!ranks.complete) return warn_incomplete(c);
  RankMap map(c.job);
  std::set<std::tuple<uint32_t, uint32_t, uint32_t>> compared;
  size_t split_budget = c.options.max_split_checks;
  for (uint32_t g = 0; g < c.job.groups.size(); ++g)
    for (const GroupPart& part : c.job.groups[g].parts) {
      std::vector<uint32_t> programs = map.programs_of(part);
      bool agree = !programs.empty();
      for (size_t i = 1; i < programs.size(); ++i) {
        if (programs[i] == programs[0] || !compared.insert({g, programs[0], programs[i]}).second) continue;
        agree = compare_programs(c, ranks, g, programs[0], programs[i]) && agree;
      }
      if (agree && split_budget != 0) compare_splits(c, ranks, g, part, programs, &split_budget);
    }
  c.leave();
  if (split_budget == 0)
    c.warn("not all exchanges were held against each other: there are more than " +
               std::to_string(c.options.max_split_checks) + " pairs of split sizes", "check a job of fewer layers or ranks");
}

// --- deadlock ---

namespace {

// Runs the launches and waits of all ranks: a launch never blocks, a wait blocks until all members have launched.
class Simulation {
 public:
  Simulation(const Job& job, const Ranks& ranks) : job_(job), map_(job) {
    for (uint32_t p = 0; p < job.programs.size(); ++p)
      for (uint32_t r : job.programs[p]->ranks) {
        index_.emplace(r, static_cast<uint32_t>(members_.size()));
        members_.push_back({r, p, &ranks.sequences[p].events, 0});
        events_ += ranks.sequences[p].events.size();
      }
  }

  struct Member {
    uint32_t rank, program;
    const std::vector<Event>* events;
    size_t at;
    bool blocked() const { return at < events->size(); }
    const Event& event() const { return (*events)[at]; }
  };

  size_t events() const { return events_; }

  void run() {
    find_parts();
    std::deque<uint32_t> ready;
    for (uint32_t m = 0; m < members_.size(); ++m) ready.push_back(m);
    while (!ready.empty()) {
      uint32_t m = ready.front();
      ready.pop_front();
      advance(m, &ready);
    }
  }

  const std::vector<Member>& members() const { return members_; }

  // A member of the part that has not made the call for which `m` waits.
  const Member* missing(const Member& m) const {
    const Event& wanted = m.event();
    for (uint32_t r : job_.groups[wanted.group].part_of(m.rank)->ranks) {
      const Member& other = members_[index_.at(r)];
      size_t made = 0;
      for (size_t i = 0; i < other.at; ++i) made += !(*other.events)[i].is_wait && (*other.events)[i].group == wanted.group;
      if (made <= wanted.call) return &other;
    }
    return nullptr;
  }

 private:
  struct Part {
    uint32_t size = 0;                               // 0 = not all of its ranks are here: nobody waits
    std::vector<uint32_t> made;                      // by call: how many members launched it
    std::unordered_map<uint32_t, std::vector<uint32_t>> waiting;   // by call
  };
  uint64_t key(uint32_t group, uint32_t rank) const { return uint64_t{group} << 32 | rank; }

  void find_parts() {
    for (uint32_t g = 0; g < job_.groups.size(); ++g)
      for (const GroupPart& part : job_.groups[g].parts) {
        bool held = !map_.programs_of(part).empty();
        for (uint32_t r : part.ranks) part_of_.emplace(key(g, r), static_cast<uint32_t>(parts_.size()));
        parts_.push_back({held ? static_cast<uint32_t>(part.ranks.size()) : 0, {}, {}});
      }
  }

  void advance(uint32_t m, std::deque<uint32_t>* ready) {
    Member& member = members_[m];
    for (; member.blocked(); ++member.at) {
      const Event& e = member.event();
      auto found = part_of_.find(key(e.group, member.rank));
      if (found == part_of_.end()) continue;
      Part& part = parts_[found->second];
      if (part.made.size() <= e.call) part.made.resize(e.call + size_t{1}, 0);
      if (e.is_wait) {
        if (part.size == 0 || part.made[e.call] >= part.size) continue;
        part.waiting[e.call].push_back(m);
        return;
      }
      if (++part.made[e.call] != part.size) continue;
      auto waiting = part.waiting.find(e.call);
      if (waiting == part.waiting.end()) continue;
      ready->insert(ready->end(), waiting->second.begin(), waiting->second.end());
      part.waiting.erase(waiting);
    }
  }

  const Job& job_;
  RankMap map_;
  std::vector<Member> members_;
  std::unordered_map<uint32_t, uint32_t> index_;      // rank -> member
  std::unordered_map<uint64_t, uint32_t> part_of_;
  std::vector<Part> parts_;
  size_t events_ = 0;
};

}  // namespace

void check_deadlock(Check& c) {
  if (c.job.programs.size() < 2 || c.found_in_rule("collective-order")) return;
  Ranks ranks = sequences_of(c.job, c.options.max_rank_events);
  if (!ranks.complete) return;                       // collective-order has said so
  Simulation simulation(c.job, ranks);
  if (simulation.events() > c.options.max_rank_events) return warn_incomplete(c);
  simulation.run();
  for (const Simulation::Member& m : simulation.members()) {
    if (!m.blocked()) continue;
    const Simulation::Member* other = simulation.missing(m);
    if (!other || !other->blocked()) continue;
    const Event &here = m.event(), &there = other->event();
    stand_at(c, m.program, here);
    c.fail(here.node, "rank " + std::to_string(m.rank) + " waits here for group " + group_text(c, here.group) + ", but rank " +
                          std::to_string(other->rank) + " waits at %" + std::string(there.graph->label(there.node)) +
                          " for group " + group_text(c, there.group) + " before it joins",
           "launch the collectives of both groups before the first wait, or in the same order on all ranks");
    break;   // the others are parts of the same circle
  }
  c.leave();
}

}  // namespace sg
