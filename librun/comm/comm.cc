#include "librun/comm/comm.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "libgraph/base/joined.h"
#include "libgraph/base/sha256.h"
#include "librun/element.h"

namespace sg {
namespace {

constexpr std::string_view kKinds[] = {"barrier",    "all_gather", "reduce_scatter", "all_reduce",
                                       "all_to_all", "broadcast",  "gather",         "scatter"};
constexpr std::string_view kReductions[] = {"sum", "avg", "product", "min", "max", "premul_sum", "band", "bor", "bxor"};
constexpr std::string_view kPremul = "premul_sum:";

Error refuse(const CollectiveCall& call, std::string message) {
  return Error{ErrorKind::cannot_apply,
               std::string(collective_name(call.kind)) + " %" + std::string(call.label) + ": " + message,
               {},
               {}};
}

// Number of elements, 0 for none. Cannot overflow: checked when the memory was allocated.
int64_t count_of(const Tensor& t) { return t.is_none() ? 0 : t.elements(); }

Status check_slots(const CollectiveCall& call, const std::vector<int64_t>& slots, const Tensor& t,
                   std::string_view what) {
  int64_t total = 0;
  for (int64_t n : slots)
    if (n < 0 || __builtin_add_overflow(total, n, &total))
      return refuse(call, std::string(what) + " split sizes are out of range");
  if (total == count_of(t)) return ok_status();
  return refuse(call, std::string(what) + " split sizes add up to " + std::to_string(total) + " elements of " +
                          std::to_string(count_of(t)));
}

Status check_exchange(const CollectiveCall& call, size_t members) {
  auto n = static_cast<int64_t>(members);
  if (call.send.empty() != call.receive.empty()) return refuse(call, "split sizes are given for one side only");
  if (call.send.empty()) {
    if (count_of(call.input) == count_of(call.output) && count_of(call.input) % n == 0) return ok_status();
    return refuse(call,
                  std::to_string(count_of(call.input)) + " elements do not make " + std::to_string(n) + " equal parts");
  }
  if (call.send.size() != members || call.receive.size() != members)
    return refuse(call, "one split size per rank is needed, " + std::to_string(members) + " in all");
  SG_TRY(check_slots(call, call.send, call.input, "input"));
  return check_slots(call, call.receive, call.output, "output");
}

// Checks that `whole` holds one slot the size of `part` for each member.
Status check_scaled(const CollectiveCall& call, const Tensor& part, const Tensor& whole, size_t members) {
  int64_t needed;
  if (!__builtin_mul_overflow(count_of(part), static_cast<int64_t>(members), &needed) && needed == count_of(whole))
    return ok_status();
  return refuse(call, std::to_string(members) + " ranks of " + std::to_string(count_of(part)) +
                          " elements each do not make " + std::to_string(count_of(whole)));
}

// As a rank sees it that is in no part.
RankGroup group_of(const Job& job, const Group& family) {
  const std::string axis(job.pool->strings[family.axis]), number = std::to_string(family.ordinal);
  RankGroup out;
  out.name = "@" + axis + (family.ordinal ? ":" + number : "");
  out.axis = axis + ":" + number;
  return out;
}

void set_part(const GroupPart& part, RankGroup* group) {
  group->ranks = part.ranks;
  group->digest = hex(sha256(identity_of(*group)));
}

}  // namespace

std::string ranks_text(const std::vector<uint32_t>& ranks) {
  constexpr size_t kMost = 8;
  const std::string out = (ranks.size() == 1 ? "rank " : "ranks ") + joined(first_of(ranks, kMost), ", ");
  return ranks.size() > kMost ? out + " and " + std::to_string(ranks.size() - kMost) + " more" : out;
}

std::vector<uint32_t> Communicator::ranks_of_machine() {
  std::vector<uint32_t> out;
  for (const WatchedRank& seen : in_sight()) out.push_back(seen.rank);
  std::ranges::sort(out);
  return out;
}

std::string_view collective_name(CollectiveKind kind) { return kKinds[static_cast<size_t>(kind)]; }

Result<Reduction> parse_reduction(std::string_view name) {
  Reduction out;
  if (name.starts_with(kPremul)) {
    std::string_view number = name.substr(kPremul.size());
    auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.factor);
    if (error == std::errc() && end == number.data() + number.size() && std::isfinite(out.factor)) {
      out.kind = ReduceKind::premul_sum;
      return out;
    }
  } else if (auto at = std::find(std::begin(kReductions), std::end(kReductions), name);
             at != std::end(kReductions) && name != "premul_sum") {
    out.kind = static_cast<ReduceKind>(at - std::begin(kReductions));
    return out;
  }
  return Error{ErrorKind::cannot_apply,
               "unknown reduction '" + std::string(name) + "'",
               {},
               "known are sum, avg, product, min, max, band, bor, bxor and premul_sum:FACTOR"};
}

std::string reduction_name(const Reduction& reduction) {
  std::string name(kReductions[static_cast<size_t>(reduction.kind)]);
  if (reduction.kind != ReduceKind::premul_sum) return name;
  char digits[32];
  auto end = std::to_chars(digits, digits + sizeof digits, reduction.factor).ptr;
  return name + ":" + std::string(digits, end);
}

bool can_reduce(ReduceKind kind, DType dtype) {
  if (!is_runnable(dtype)) return false;
  switch (kind) {
    case ReduceKind::sum: return true;
    case ReduceKind::average: return dtype != DType::boolean;
    case ReduceKind::premul_sum: return is_floating(dtype) || is_complex(dtype);
    case ReduceKind::product:
    case ReduceKind::minimum:
    case ReduceKind::maximum: return !is_complex(dtype);
    default: return is_integral(dtype) || dtype == DType::boolean;
  }
}

std::string identity_of(const RankGroup& group) { return group.axis + " [" + joined(group.ranks, " ") + "]"; }

std::vector<RankGroup> groups_of_rank(const Job& job, uint32_t rank) {
  std::vector<RankGroup> out;
  for (const Group& family : job.groups) {
    RankGroup& group = out.emplace_back(group_of(job, family));
    const GroupPart* part = family.part_of(rank);
    if (!part) continue;
    set_part(*part, &group);
    group.position = static_cast<uint32_t>(std::ranges::find(part->ranks, rank) - part->ranks.begin());
  }
  return out;
}

std::vector<std::vector<RankGroup>> groups_of_all_ranks(const Job& job) {
  std::vector<std::vector<RankGroup>> out(job.world);
  for (const Group& family : job.groups) {
    const RankGroup group = group_of(job, family);
    for (std::vector<RankGroup>& of_rank : out) of_rank.push_back(group);
    for (const GroupPart& part : family.parts) {
      RankGroup members = group;
      set_part(part, &members);
      for (; members.position < part.ranks.size(); ++members.position)
        out[part.ranks[members.position]].back() = members;
    }
  }
  return out;
}

Status check_call(const CollectiveCall& call, size_t members) {
  const Tensor &in = call.input, &out = call.output;
  if (members == 0) return refuse(call, "the rank is not in the group");
  if (call.root >= members) return refuse(call, "root " + std::to_string(call.root) + " is not in the group");
  if (!in.is_none() && !out.is_none() && in.dtype != out.dtype)
    return refuse(call, "from " + std::string(dtype_name(in.dtype)) + " to " + std::string(dtype_name(out.dtype)));
  if ((!in.is_none() && !in.is_contiguous()) || (!out.is_none() && !out.is_contiguous()))
    return refuse(call, "tensors have to be contiguous");
  switch (call.kind) {
    case CollectiveKind::barrier: return ok_status();
    case CollectiveKind::all_gather: return check_scaled(call, in, out, members);
    case CollectiveKind::all_to_all: return check_exchange(call, members);
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_reduce:
      if (!can_reduce(call.reduction.kind, out.dtype))
        return refuse(call,
                      "cannot reduce " + std::string(dtype_name(out.dtype)) + " by " + reduction_name(call.reduction));
      return call.kind == CollectiveKind::reduce_scatter ? check_scaled(call, out, in, members)
                                                         : check_scaled(call, in, out, 1);
    default: return ok_status();  // only the root knows its side
  }
}

}  // namespace sg
