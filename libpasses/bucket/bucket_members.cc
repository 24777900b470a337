// Finds collectives that may be merged: facts of each program, and what programs have in common.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "libgraph/base/disjoint_sets.h"
#include "libgraph/expr/sizes.h"
#include "libgraph/facts/collective_roles.h"
#include "libgraph/op.h"
#include "libgraph/programs_by_rank.h"
#include "libpasses/bucket/bucket_parts.h"
#include "libpasses/schedule.h"
#include "libpasses/value_numbers.h"

namespace sg::bucket_parts {
namespace {

struct Found {
  Member member;
  Site site;
};
using CallId = std::pair<uint32_t, uint32_t>;  // group, call
using Calls = std::map<CallId, Found>;

// Reports a line once, even if several programs give it.
void leave(Members* out, std::string line) {
  if (std::ranges::find(out->left, line) == out->left.end()) out->left.push_back(std::move(line));
}

MemberKind kind_of(std::string_view op) {
  if (op.find(".all_gather") != op.npos) return MemberKind::gather;
  return op.find(".reduce_scatter") != op.npos ? MemberKind::scatter : MemberKind::reduce;
}

// One program's chains as members, and why others are left out.
class Finder {
 public:
  Finder(const Job& job, const Program& program)
      : job_(job),
        graph_(program.graph),
        alias_(program, graph_),
        schedule_(graph_, alias_),
        numbers_(graph_, alias_, ValueNumbers::Launches::functions),
        program_(program) {}

  // Adds to `out` why others are left alone, and how many are in buckets.
  Calls find(Members* out) {
    size_t bucketed = 0;
    const std::map<NodeId, CallId> calls = number_calls();
    Calls found;
    const CollectiveRoles roles(program_, graph_);
    for (const CollectiveChain& chain : roles.chains()) {
      const CollectiveInfo& info = graph_.meta(chain.launch).collective;
      if (info.bucket != -1 || info.direction != BucketDirection::none) {
        ++bucketed;
        continue;
      }
      Found f;
      const CallId id = calls.at(chain.launch);
      const std::string why = examine(chain, id, &f);
      if (why.empty()) found.emplace(id, std::move(f)).first->second.member.twin = twin_of(chain, id, calls, found);
      else leave(out, "%" + std::string(graph_.label(chain.launch)) + " stays alone: " + why);
    }
    leave_consumed(&found, out);
    out->bucketed = std::max(out->bucketed, bucketed);
    return found;
  }

 private:
  // Leaves out reductions whose results are used before others are launched: a bucket would launch them too late.
  void leave_consumed(Calls* found, Members* out) const {
    std::map<std::pair<uint32_t, MemberKind>, NodeId> last;
    for (const auto& [id, f] : *found) {
      NodeId& launch = last[{id.first, f.member.kind}];
      if (!launch || graph_.before(launch, f.site.launch)) launch = f.site.launch;
    }
    std::erase_if(*found, [&](const auto& entry) {
      const auto& [id, f] = entry;
      const NodeId launch = last.at({id.first, f.member.kind});
      if (!f.site.consumer || !graph_.before(f.site.consumer, launch)) return false;
      leave(out, "%" + std::string(graph_.label(f.site.launch)) + " stays alone: %" +
                     std::string(graph_.label(f.site.consumer)) + " reads it before %" +
                     std::string(graph_.label(launch)) + " is launched");
      return true;
    });
  }

  std::map<NodeId, CallId> number_calls() const {
    std::map<NodeId, CallId> out;
    std::map<uint32_t, uint32_t> count;
    for (NodeId n : graph_.nodes()) {
      const OpInfo* op = graph_.op_info(n);
      const auto groups = alias_.groups(n);
      if (op != nullptr && op->has(kCollective) && groups.size() == 1)
        out[n] = {groups[0].index, count[groups[0].index]++};
    }
    return out;
  }

  // The call of an earlier gather whose result is indistinguishable from this one's.
  uint32_t twin_of(const CollectiveChain& chain, CallId id, const std::map<NodeId, CallId>& calls,
                   const Calls& found) const {
    const NodeId leader = numbers_.leader(chain.launch);
    if (chain.role != CollectiveRole::unshard || leader == chain.launch) return Member::kNone;
    auto call = calls.find(leader);
    auto it = call == calls.end() ? found.end() : found.find(call->second);
    const bool fits = it != found.end() && call->second.first == id.first &&
                      is_private_behind(graph_, alias_, schedule_, chain.wait) &&
                      is_private_behind(graph_, alias_, schedule_, it->second.site.wait);
    return fits ? call->second.second : Member::kNone;
  }

  // Why it cannot be in a bucket; empty if it can.
  std::string examine(const CollectiveChain& chain, CallId id, Found* f) const {
    const Pool& pool = graph_.pool();
    const Node& node = graph_.node(chain.launch);
    if (!chain.wait) return "its result has other users than one wait";
    if (node.args.empty() || !node.args[0].is(ArgKind::value)) return "its input is not a value";
    const ValueId input = node.args[0].as_value();
    const Type& type = graph_.type(input);
    Member& m = f->member;
    m.group = id.first, m.call = id.second;
    m.kind = kind_of(graph_.op_name(chain.launch));
    m.dtype = type.dtype;
    m.device = pool.strings[type.device];
    m.depth = chain.depth;
    m.direction = node.phase == Phase::forward ? BucketDirection::forward : BucketDirection::backward;
    if (m.kind != MemberKind::gather && node.args.size() > 1 && node.args[1].is(ArgKind::string))
      m.reduction = pool.strings[node.args[1].as_text()];
    if (!is_number(type) || !is_number(graph_.type(graph_.node(chain.wait).result(0))))
      return "its size is not a number";
    m.elements = element_count(pool, type, [](StrId) { return std::optional<int64_t>(); }).value_or(0);
    if (m.elements == 0) return "it is empty";
    m.ranks = ranks_of(id.first);
    if (m.ranks < 2) return "its group has one rank";
    if (m.kind == MemberKind::scatter &&
        (type.shape.empty() || *pool.exprs.constant_value(type.shape[0]) % m.ranks != 0))
      return "its rows do not divide";
    const uint32_t memory = class_of(alias_, input);
    if (m.kind != MemberKind::gather && memory != kNoClass &&
        schedule_.is_written_after(memory, schedule_.position(chain.launch)))
      return "what it sends is written later";
    m.is_flat = is_contiguous(type);
    m.parameter = chain.parameters.empty() ? Member::kNone : chain.parameters[0];
    if (!chain.parameters.empty() && graph_.inputs()[m.parameter].fqn)
      m.name = pool.strings[graph_.inputs()[m.parameter].fqn];
    else if (node.module) m.name = std::string(pool.strings[node.module]) + ".";
    f->site = {chain.launch, chain.wait, chain.consumer, chain.before, chain.after};
    return {};
  }

  bool is_number(const Type& type) const {
    const ExprPool& e = graph_.pool().exprs;
    return type.kind == TypeKind::tensor && std::ranges::all_of(type.shape, [&](Expr x) { return e.is_constant(x); }) &&
           std::ranges::all_of(type.stride, [&](Expr x) { return e.is_constant(x); });
  }

  bool is_contiguous(const Type& type) const {
    const ExprPool& e = graph_.pool().exprs;
    int64_t step = 1;
    for (size_t i = type.shape.size(); i-- > 0;) {
      const int64_t size = *e.constant_value(type.shape[i]);
      if (size != 1 && *e.constant_value(type.stride[i]) != step) return false;
      step *= size;
    }
    return !type.shape.empty() && step > 0;
  }

  int64_t ranks_of(uint32_t group) const {
    if (group >= job_.groups.size() || job_.groups[group].parts.empty()) return 1;
    const GroupPart* part = job_.groups[group].part_of(program_.ranks.empty() ? 0 : program_.ranks[0]);
    return static_cast<int64_t>((part != nullptr ? *part : job_.groups[group].parts[0]).ranks.size());
  }

  const Job& job_;
  const Graph& graph_;
  AliasAnalysis alias_;
  Schedule schedule_;
  ValueNumbers numbers_;
  const Program& program_;
};

bool agree(const Member& a, const Member& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.device == b.device && a.reduction == b.reduction &&
         a.direction == b.direction && a.depth == b.depth && a.elements == b.elements && a.ranks == b.ranks &&
         a.twin == b.twin && a.is_flat == b.is_flat && a.name == b.name;
}

// What the programs of a job have in common, group family by group family.
class Common {
 public:
  Common(const Job& job, std::vector<Calls> found)
      : job_(job), found_(std::move(found)), all_(found_.size()), by_rank_(job) {
    std::iota(all_.begin(), all_.end(), size_t{0});
  }

  void find(Members* out) {
    std::set<uint32_t> groups;
    for (const Calls& calls : found_)
      for (const auto& [id, f] : calls) groups.insert(id.first);
    for (uint32_t group : groups) {
      if (is_common(group)) take(group, all_, out);
      else
        for (const Programs& party : parties(group)) take(group, party, out);
    }
    std::ranges::sort(out->list, [&](const Member& a, const Member& b) {
      const size_t p = a.programs[0], q = b.programs[0];
      return p != q ? p < q : job_.programs[p]->graph.before(launch(p, a), launch(p, b));
    });
    out->sites.assign(found_.size(), std::vector<Site>(out->list.size()));
    for (size_t i = 0; i < out->list.size(); ++i)
      for (size_t p : out->list[i].programs) out->sites[p][i] = found_[p].at(id_of(out->list[i])).site;
  }

 private:
  static CallId id_of(const Member& m) { return {m.group, m.call}; }
  NodeId launch(size_t program, const Member& m) const { return found_[program].at(id_of(m)).site.launch; }

  bool is_everywhere(const Member& m, const Programs& programs) const {
    return std::ranges::all_of(programs, [&](size_t p) {
      auto it = found_[p].find(id_of(m));
      return it != found_[p].end() && agree(it->second.member, m);
    });
  }

  // Calls fn(member) for a program's calls on a group.
  template <class Fn>
  void for_calls(size_t program, uint32_t group, const Fn& fn) const {
    const Calls& calls = found_[program];
    for (auto it = calls.lower_bound({group, 0}); it != calls.end() && it->first.first == group; ++it)
      fn(it->second.member);
  }

  // Whether all programs make the same calls on a group, in whatever part of it their ranks are.
  bool is_common(uint32_t group) const {
    size_t first = 0;
    bool is_same = true;
    for_calls(0, group, [&](const Member& m) { ++first, is_same = is_same && is_everywhere(m, all_); });
    return is_same && std::ranges::all_of(all_, [&](size_t p) {
             size_t count = 0;
             for_calls(p, group, [&](const Member&) { ++count; });
             return count == first;
           });
  }

  // The programs whose ranks meet in the parts of a group, directly or through others.
  std::vector<Programs> parties(uint32_t group) const {
    DisjointSets<size_t> meeting(found_.size());
    std::vector<bool> is_in(found_.size());
    if (group < job_.groups.size())
      for (const GroupPart& part : job_.groups[group].parts) {
        std::optional<size_t> before;
        for (uint32_t rank : part.ranks) {
          const std::optional<uint32_t> p = by_rank_.of(rank);
          if (!p) continue;
          is_in[*p] = true;
          if (before) meeting.join(*p, *before);
          before = *p;
        }
      }
    std::map<size_t, Programs> out;
    for (size_t p : all_)
      if (is_in[p]) out[meeting.first_of(p)].push_back(p);
    std::vector<Programs> list;
    for (auto& [first, programs] : out) list.push_back(std::move(programs));
    return list;
  }

  void take(uint32_t group, const Programs& programs, Members* out) const {
    for_calls(programs[0], group, [&](const Member& m) {
      if (is_everywhere(m, programs)) out->list.emplace_back(m).programs = programs;
      else
        leave(out, "%" + std::string(job_.programs[programs[0]]->graph.label(launch(programs[0], m))) +
                       " stays alone: other ranks have another in its place");
    });
  }

  const Job& job_;
  std::vector<Calls> found_;  // by program
  Programs all_;
  ProgramsByRank by_rank_;
};

}  // namespace

Members find_members(const Job& job) {
  Members out;
  std::vector<Calls> found;
  for (const auto& program : job.programs) found.push_back(Finder(job, *program).find(&out));
  Common(job, std::move(found)).find(&out);
  return out;
}

}  // namespace sg::bucket_parts
