// Rules across ranks: all members of a group call the same collectives in the same order, and ranks do not wait for
// each other in a cycle. Either would hang the job on a cluster; both can be detected before it starts.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "libgraph/facts/collective_calls.h"
#include "libgraph/group_name.h"
#include "libgraph/programs_by_rank.h"
#include "libgraph/verify/verify_rules.h"

namespace sg {
namespace {

using Event = CollectiveEvent;
using Sequence = CollectiveSequence;
using Call = CollectiveFacts;

// The programs of the part's ranks, of those that the job holds.
std::vector<uint32_t> programs_of(const ProgramsByRank& programs, const GroupPart& part) {
  std::vector<uint32_t> out;
  for (uint32_t r : part.ranks)
    if (const std::optional<uint32_t> p = programs.of(r)) out.push_back(*p);
  return out;
}

std::string one_rank_of(const Program& p) {
  return p.ranks.empty() ? "every rank"
                         : "rank " + std::to_string(p.ranks[0]) + (p.ranks.size() > 1 ? " (and others)" : "");
}

struct Ranks {
  std::vector<Sequence> sequences;  // by program
  bool complete = true;             // false: a limit was reached
};

Ranks sequences_of(const Job& job, size_t max_events) {
  Ranks out;
  size_t budget = max_events;
  for (const auto& p : job.programs) {
    out.sequences.push_back(collective_sequence(*p, &budget));
    out.complete = out.complete && out.sequences.back().complete;
  }
  return out;
}

void warn_incomplete(Check& c) {
  c.leave();
  c.warn("the ranks were not compared: they launch and wait more than " + std::to_string(c.options.max_rank_events) +
             " times, or calls nest more than " + std::to_string(kMaxCollectiveDepth) + " deep",
         "check a job of fewer layers or ranks");
}

void stand_at(Check& c, uint32_t program, const Event& e) {
  c.program = c.job.programs[program].get();
  c.graph = e.graph;
}

// Compares program `b` with program `a`, both members of group `g`. True if all calls match.
bool compare_programs(Check& c, const Ranks& ranks, uint32_t g, uint32_t a, uint32_t b) {
  const Sequence &left = ranks.sequences[a], &right = ranks.sequences[b];
  const std::vector<size_t>&first = left.of_group(g), &second = right.of_group(g);
  std::string other = one_rank_of(*c.job.programs[a]);
  for (size_t k = 0; k < std::min(first.size(), second.size()); ++k) {
    const Event &x = left.events[first[k]], &y = right.events[second[k]];
    std::string why = collective_mismatch(collective_facts(c.pool, y), collective_facts(c.pool, x));
    if (why.empty()) continue;
    stand_at(c, b, y);
    c.fail(y.node,
           "call " + std::to_string(k + 1) + " of group @" + group_name(c.job, GroupId(g)) + " is not the same on " +
               other + " (%" + std::string(x.graph->label(x.node)) + " there): " + why,
           "all ranks of a group must call its collectives in the same order, with matching sizes");
    return false;
  }
  if (first.size() == second.size()) return true;
  bool here = second.size() > first.size();
  size_t k = std::min(first.size(), second.size());
  const Event& extra = here ? right.events[second[k]] : left.events[first[k]];
  stand_at(c, here ? b : a, extra);
  c.fail(extra.node,
         "call " + std::to_string(k + 1) + " of group @" + group_name(c.job, GroupId(g)) + " has no partner on " +
             (here ? other : one_rank_of(*c.job.programs[b])) + ", which calls " + std::to_string(k),
         "it would wait forever: add the call there, or remove it here");
  return false;
}

// False: the budget does not have so much.
bool take(size_t work, size_t* budget) {
  if (work > *budget) return false;
  *budget -= work;
  return true;
}

size_t squared(size_t n) { return n > UINT32_MAX ? SIZE_MAX : n * n; }

// One exchange of a part: what its members send and expect, by their place in it.
struct Exchange {
  std::vector<Call> members;
  std::vector<uint32_t> programs;  // equal programs send and expect the same

  bool has_sizes_for_all() const {
    return std::ranges::all_of(members, [&](const Call& m) {
      return m.send->items().size() == members.size() && m.receive->items().size() == members.size();
    });
  }
};

// The number in a program's list that stands for the ranks of each program; none where no item is a number. False: one
// program's ranks have different ones.
bool one_by_program(const ArgList& sizes, const std::vector<uint32_t>& programs,
                    std::map<uint32_t, int64_t>* number_of) {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i].is(ArgKind::integer) &&
        number_of->try_emplace(programs[i], sizes[i].as_int()).first->second != sizes[i].as_int())
      return false;
  return true;
}

// Whether all sizes are seen to match by comparing programs, of which there are fewer than ranks.
bool matches_by_program(const Exchange& exchange) {
  using Numbers = std::map<uint32_t, int64_t>;  // by program
  std::map<uint32_t, std::pair<Numbers, Numbers>> sizes;
  for (size_t i = 0; i < exchange.members.size(); ++i) {
    const auto [at, is_new] = sizes.try_emplace(exchange.programs[i]);
    auto& [send, receive] = at->second;
    if (is_new && !(one_by_program(exchange.members[i].send->items(), exchange.programs, &send) &&
                    one_by_program(exchange.members[i].receive->items(), exchange.programs, &receive)))
      return false;
  }
  for (const auto& [from, here] : sizes)
    for (const auto& [to, sent] : here.first) {
      const Numbers& expected = sizes.at(to).second;
      if (const auto at = expected.find(from); at != expected.end() && at->second != sent) return false;
    }
  return true;
}

// Two members that do not expect of each other what they send.
std::optional<std::pair<size_t, size_t>> mismatch(const Exchange& exchange) {
  for (size_t i = 0; i < exchange.members.size(); ++i)
    for (size_t j = 0; j < exchange.members.size(); ++j) {
      const Arg &sent = exchange.members[i].send->items()[j], &expected = exchange.members[j].receive->items()[i];
      if (sent.is(ArgKind::integer) && expected.is(ArgKind::integer) && sent.as_int() != expected.as_int())
        return std::pair(i, j);
    }
  return std::nullopt;
}

// What rank i sends to j must be what j expects from i, where both are numbers. False: the budget ran out.
bool compare_splits(Check& c, const Ranks& ranks, uint32_t g, const GroupPart& part,
                    const std::vector<uint32_t>& programs, size_t* budget) {
  const size_t calls = ranks.sequences[programs[0]].of_group(g).size();
  const size_t distinct = std::set(programs.begin(), programs.end()).size();
  const auto event = [&](size_t member, size_t call) -> const Event& {
    const Sequence& s = ranks.sequences[programs[member]];
    return s.events[s.of_group(g)[call]];
  };
  for (size_t k = 0; k < calls; ++k) {
    Exchange exchange{{}, programs};
    for (size_t i = 0; i < programs.size(); ++i) {
      const Call call = collective_facts(c.pool, event(i, k));
      if (!call.send || !call.receive) break;
      exchange.members.push_back(call);
    }
    if (exchange.members.size() != programs.size() || !exchange.has_sizes_for_all()) continue;
    if (!take(squared(distinct), budget)) return false;
    if (matches_by_program(exchange)) continue;
    if (!take(squared(programs.size()), budget)) return false;
    const auto found = mismatch(exchange);
    if (!found) continue;
    const auto [i, j] = *found;
    const auto number = [](const Arg& size) { return std::to_string(size.as_int()); };
    stand_at(c, programs[i], event(i, k));
    c.fail(event(i, k).node,
           "rank " + std::to_string(part.ranks[i]) + " sends " + number(exchange.members[i].send->items()[j]) +
               " to rank " + std::to_string(part.ranks[j]) + ", which expects " +
               number(exchange.members[j].receive->items()[i]),
           "what one rank sends, the other must expect");
    return true;
  }
  return true;
}

}  // namespace

void check_collective_order(Check& c) {
  if (c.job.groups.empty()) return;
  Ranks ranks = sequences_of(c.job, c.options.max_rank_events);
  if (!ranks.complete) return warn_incomplete(c);
  const ProgramsByRank by_rank(c.job);
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, bool> agreed;  // group, two programs
  size_t split_budget = c.options.max_split_checks;
  bool all_are_compared = true;
  for (uint32_t g = 0; g < c.job.groups.size(); ++g)
    for (const GroupPart& part : c.job.groups[g].parts) {
      std::vector<uint32_t> programs = programs_of(by_rank, part);
      bool agree = programs.size() == part.ranks.size() && !programs.empty();
      for (size_t i = 1; i < programs.size(); ++i) {
        if (programs[i] == programs[0]) continue;
        const auto [known, is_new] = agreed.try_emplace({g, programs[0], programs[i]});
        if (is_new) known->second = compare_programs(c, ranks, g, programs[0], programs[i]);
        agree = agree && known->second;
      }
      if (agree && all_are_compared) all_are_compared = compare_splits(c, ranks, g, part, programs, &split_budget);
    }
  c.leave();
  if (!all_are_compared)
    c.warn("not all exchanges were compared: there are more than " + std::to_string(c.options.max_split_checks) +
               " pairs of split sizes",
           "check a job of fewer layers or ranks");
}

// --- deadlock ---

namespace {

// Runs the launches and waits of all ranks: a launch never blocks, a wait blocks until all members have launched.
class Simulation {
 public:
  Simulation(const Job& job, const Ranks& ranks) : job_(job), by_rank_(job) {
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

  // A member of the part that has not yet made the call that `m` waits for.
  const Member* missing(const Member& m) const {
    const Event& wanted = m.event();
    for (uint32_t r : job_.groups[wanted.group].part_of(m.rank)->ranks) {
      const Member& other = members_[index_.at(r)];
      size_t made = 0;
      for (size_t i = 0; i < other.at; ++i)
        made += !(*other.events)[i].is_wait && (*other.events)[i].group == wanted.group;
      if (made <= wanted.call) return &other;
    }
    return nullptr;
  }

 private:
  struct Part {
    uint32_t size = 0;                                            // 0 = the job lacks some ranks: waits do not block
    std::vector<uint32_t> made;                                   // by call: how many members have launched it
    std::unordered_map<uint32_t, std::vector<uint32_t>> waiting;  // by call
  };
  uint64_t key(uint32_t group, uint32_t rank) const { return uint64_t{group} << 32 | rank; }

  void find_parts() {
    for (uint32_t g = 0; g < job_.groups.size(); ++g)
      for (const GroupPart& part : job_.groups[g].parts) {
        bool held = !part.ranks.empty() && programs_of(by_rank_, part).size() == part.ranks.size();
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
  ProgramsByRank by_rank_;
  std::vector<Member> members_;
  std::unordered_map<uint32_t, uint32_t> index_;  // rank -> member
  std::unordered_map<uint64_t, uint32_t> part_of_;
  std::vector<Part> parts_;
  size_t events_ = 0;
};

}  // namespace

void check_deadlock(Check& c) {
  if (c.job.programs.size() < 2 || c.found_in_rule("collective-order")) return;
  Ranks ranks = sequences_of(c.job, c.options.max_rank_events);
  if (!ranks.complete) return;  // reported by collective-order
  Simulation simulation(c.job, ranks);
  if (simulation.events() > c.options.max_rank_events) return warn_incomplete(c);
  simulation.run();
  for (const Simulation::Member& m : simulation.members()) {
    if (!m.blocked()) continue;
    const Simulation::Member* other = simulation.missing(m);
    if (!other || !other->blocked()) continue;
    const Event &here = m.event(), &there = other->event();
    stand_at(c, m.program, here);
    c.fail(here.node,
           "rank " + std::to_string(m.rank) + " waits here for group @" + group_name(c.job, GroupId(here.group)) +
               ", but rank " + std::to_string(other->rank) + " waits at %" +
               std::string(there.graph->label(there.node)) + " for group @" + group_name(c.job, GroupId(there.group)) +
               " before it joins",
           "launch the collectives of both groups before the first wait, or in the same order on all ranks");
    break;  // the others are part of the same cycle
  }
  c.leave();
}

}  // namespace sg
