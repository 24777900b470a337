// The parts of sg-bucket: which collectives may be merged, which are, and where the results are placed. Internal to the
// pass.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libpasses/bucket/bucket.h"

namespace sg::bucket_parts {

enum class MemberKind : uint8_t { gather, scatter, reduce };  // all_gather, reduce_scatter, all_reduce

using Programs = std::vector<size_t>;  // indices into Job::programs, sorted

// One collective that may share a bucket, with the facts common to the programs that launch it: all of the job's, or
// those whose ranks share a part of its group (one stage of a pipeline).
struct Member {
  static constexpr uint32_t kNone = 0xFFFFFFFFu;

  Programs programs;
  uint32_t group = 0, call = 0;  // the call-th launch of its program's main graph on the group family
  MemberKind kind = MemberKind::gather;
  DType dtype = DType::none;
  std::string device;
  std::string reduction;  // "sum"; empty for gathers
  BucketDirection direction = BucketDirection::forward;
  uint32_t depth = 0;          // CollectiveChain::depth
  int64_t elements = 0;        // of its input
  int64_t ranks = 1;           // of its group
  uint32_t twin = kNone;       // gathers: an earlier call on the group that gathers the same, with equal results
  bool is_flat = false;        // its input is contiguous: its bytes may be viewed as another element type
  uint32_t parameter = kNone;  // the first graph input that it gathers or reduces
  std::string name;            // of that parameter; else of the launching module

  int64_t whole_bytes() const { return elements * dtype_bytes(dtype) * (kind == MemberKind::gather ? ranks : 1); }
};

// A member's nodes in one program.
struct Site {
  NodeId launch, wait;
  NodeId consumer;  // CollectiveChain::consumer
  std::vector<NodeId> before, after;
};

struct Members {
  std::vector<Member> list;              // by first program, in its schedule order
  std::vector<std::vector<Site>> sites;  // by program, then as `list`; empty in programs that do not launch it
  std::vector<std::string> left;         // with a role and already in buckets, in the program with the most
  size_t bucketed = 0;  // collectives with a role that are already in buckets, in the program with the most
};

Members find_members(const Job& job);

struct Bucket {
  std::vector<size_t> members;  // indices into Members::list, in packing order
};
struct Plan {
  std::vector<Bucket> buckets;         // in the order of first members; includes buckets of one
  std::vector<std::string> module_of;  // by member: the module it is attributed to; empty = none

  // The modules whose parameters a bucket holds.
  std::vector<std::string> modules(const Bucket& bucket) const;
};

Plan plan_per_block(const Members& members);
Result<Plan> plan_per_module(const Members& members, const std::string& text, const std::string& file);
Plan plan_by_size(const Members& members, int64_t size_bytes);

// The plan with one gather less: the largest parameter of the backward's first gather that the forward also gathered is
// kept instead. None if there is no such parameter.
std::optional<Plan> with_one_kept(const Members& members, const Plan& plan);

// Merges the buckets in all programs, numbering them from the first number that the job does not use. Returns how many
// collectives were removed.
size_t merge_buckets(Job* job, const Members& members, const Plan& plan);

// Moves the launches and waits of buckets apart. Returns how many places of the order hold another node.
size_t place_buckets(Job* job, int64_t prefetch);

}  // namespace sg::bucket_parts
