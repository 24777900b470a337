#include "librun/comm/comm_match.h"

namespace sg {
namespace {

std::string node_on(const CollectiveCall& call, uint32_t rank) {
  return "%" + std::string(call.label) + " (" + std::string(collective_name(call.kind)) + ") on rank " +
         std::to_string(rank);
}

Error differ(std::span<const CollectiveCall> calls, const RankGroup& group, size_t a, size_t b,
             const std::string& what) {
  return Error{ErrorKind::rank_failed,
               "the ranks of group " + group.name + " do not do the same: " + node_on(calls[a], group.ranks[a]) +
                   " and " + node_on(calls[b], group.ranks[b]) + ": " + what,
               {},
               "all ranks of a group must call its collectives in the same order, with matching sizes"};
}

// The tensor by which members can be compared; none if a member has none.
const Tensor& payload(const CollectiveCall& call) { return call.input.is_none() ? call.output : call.input; }

std::string versus(const std::string& x, const std::string& y) { return x + " against " + y; }

// The difference between two calls that must match; empty if there is none.
std::string difference(const CollectiveCall& a, const CollectiveCall& b) {
  const Tensor &x = payload(a), &y = payload(b);
  if (a.kind != b.kind) return "they are different collectives";
  if (!x.is_none() && !y.is_none() && x.dtype != y.dtype)
    return versus(std::string(dtype_name(x.dtype)), std::string(dtype_name(y.dtype)));
  if (a.root != b.root) return "root " + versus(std::to_string(a.root), std::to_string(b.root));
  switch (a.kind) {
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_reduce:
      if (a.reduction != b.reduction) return versus(reduction_name(a.reduction), reduction_name(b.reduction));
      [[fallthrough]];
    case CollectiveKind::all_gather:
      if (a.input.elements() == b.input.elements()) return {};
      return versus(std::to_string(a.input.elements()), std::to_string(b.input.elements())) + " elements";
    default: return {};
  }
}

Status check_slots(std::span<const CollectiveCall> calls, const RankGroup& group) {
  size_t n = calls.size();
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) {
      int64_t sent = sent_to(calls[i], j, n), expected = received_from(calls[j], i, n);
      if (sent != expected)
        return differ(calls, group, i, j,
                      std::to_string(sent) + " elements sent, " + std::to_string(expected) + " expected");
    }
  return ok_status();
}

// broadcast, gather, scatter: every member's part must match the root's whole.
Status check_rooted(std::span<const CollectiveCall> calls, const RankGroup& group) {
  size_t root = calls[0].root, n = calls.size();
  CollectiveKind kind = calls[0].kind;
  const Tensor& whole = kind == CollectiveKind::gather ? calls[root].output : calls[root].input;
  for (size_t i = 0; i < n; ++i) {
    const Tensor& part = kind == CollectiveKind::gather ? calls[i].input : calls[i].output;
    int64_t have = part.is_none() ? 0 : part.elements(), need = whole.is_none() ? 0 : whole.elements();
    int64_t slots = kind == CollectiveKind::broadcast ? 1 : static_cast<int64_t>(n), all;
    if (__builtin_mul_overflow(have, slots, &all) || all != need)
      return differ(calls, group, root, i,
                    std::to_string(need) + " elements at the root against " + std::to_string(have));
  }
  return ok_status();
}

}  // namespace

int64_t sent_to(const CollectiveCall& call, size_t peer, size_t members) {
  if (call.send.empty()) return call.input.elements() / static_cast<int64_t>(members);
  return call.send[peer];
}

int64_t received_from(const CollectiveCall& call, size_t peer, size_t members) {
  if (call.receive.empty()) return call.output.elements() / static_cast<int64_t>(members);
  return call.receive[peer];
}

Error not_in_group(const CollectiveCall& call, uint32_t rank) {
  return Error{ErrorKind::cannot_apply,
               std::string(collective_name(call.kind)) + " %" + std::string(call.label) + ": rank " +
                   std::to_string(rank) + " is not in the group",
               {},
               {}};
}

Status check_match(std::span<const CollectiveCall> calls, const RankGroup& group) {
  for (size_t i = 1; i < calls.size(); ++i)
    if (std::string what = difference(calls[0], calls[i]); !what.empty()) return differ(calls, group, 0, i, what);
  switch (calls[0].kind) {
    case CollectiveKind::all_to_all: return check_slots(calls, group);
    case CollectiveKind::broadcast:
    case CollectiveKind::gather:
    case CollectiveKind::scatter: return check_rooted(calls, group);
    default: return ok_status();
  }
}

}  // namespace sg
