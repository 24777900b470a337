// The parts of sg-bucket: what may be merged, what is, and where it is put. Internal to the pass.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libgraph/collective_roles.h"
#include "libpasses/bucket/bucket.h"

namespace sg::bucket_parts {

enum class MemberKind : uint8_t { gather, scatter, reduce };  // all_gather, reduce_scatter, all_reduce

// One collective that may share a bucket, as all programs of the job have it.
struct Member {
  static constexpr uint32_t kNone = 0xFFFFFFFFu;

  uint32_t group = 0, call = 0;  // the call-th launch of its program's main graph on the group family
  MemberKind kind = MemberKind::gather;
  DType dtype = DType::none;
  std::string reduction;  // "sum"; empty for gathers
  BucketDirection direction = BucketDirection::forward;
  uint32_t depth = 0;          // CollectiveChain::depth
  int64_t elements = 0;        // of its input
  int64_t ranks = 1;           // of its group
  uint32_t twin = kNone;       // gathers: the call before it on the group that gathers the same, with equal results
  bool is_flat = false;        // its input is contiguous: its bytes may be seen as another element type
  uint32_t parameter = kNone;  // the first graph input that it gathers or reduces
  std::string name;            // of that parameter; else of the module that launches it

  int64_t whole_bytes() const { return elements * dtype_bytes(dtype) * (kind == MemberKind::gather ? ranks : 1); }
};

// Where a member is in one program.
struct Site {
  NodeId launch, wait;
  NodeId consumer;  // CollectiveChain::consumer
  std::vector<NodeId> before, after;
};

struct Members {
  std::vector<Member> list;              // in the schedule of the first program
  std::vector<std::vector<Site>> sites;  // by program, then as `list`
  std::vector<std::string> left;         // why others are left alone, a line each
  size_t bucketed = 0;                   // those with a role that are in buckets already, of the program with most
};

Members find_members(const Job& job);

struct Bucket {
  std::vector<size_t> members;  // indices into Members::list, in packing order
};
struct Plan {
  std::vector<Bucket> buckets;         // in the order of first members; those of one included
  std::vector<std::string> module_of;  // by member: what it is to be known by; empty = by nothing

  // Of a bucket: whose parameters it holds.
  std::vector<std::string> modules(const Bucket& bucket) const;
};

Plan plan_per_block(const Members& members);
Result<Plan> plan_per_module(const Members& members, const std::string& text, const std::string& file);
Plan plan_by_size(const Members& members, int64_t size_bytes);

// The same with one gather less: the largest parameter of the backward's first gather that the forward has gathered too
// stays from there. None where there is no such parameter.
std::optional<Plan> with_one_kept(const Members& members, const Plan& plan);

// Merges in all programs, and numbers buckets from the first number that the job does not use. Returns how many
// collectives went.
size_t merge_buckets(Job* job, const Members& members, const Plan& plan);

// Moves the launches and waits of buckets apart. Returns how many nodes have another place than before.
size_t place_buckets(Job* job, int64_t prefetch);

}  // namespace sg::bucket_parts
