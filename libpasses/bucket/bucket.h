// sg-bucket: one collective gathers all parameters of a block, and one reduces its gradients.
//
// Members   collectives that gather parameters or reduce gradients (libgraph/facts/collective_roles.h) in the main
//           graph, with one wait, numeric sizes, in a group of more than one rank. They may share a bucket if they
//           agree on: kind, group, reduction, direction (forward or backward), how many others lie before or after them
//           in their chain; reductions also on the element type. Gathers of several element types are packed as the
//           smallest of them, with the larger types first. Collectives already in a bucket stay as they are.
// Plan      per-block: a block is a parameter's name up to its first number; parameters outside blocks are grouped
//           with whatever else lies between the same two blocks. per-module: one bucket per line of a file. by-size:
//           in order, up to N bytes of whole parameters. auto: whichever of these has the shortest simulated step.
// Before    %a = all_gather(cast(%p)); wait    %b = all_gather(cast(%q)); wait
// After     sg.pack of the shards (with casts fused) -> one all_gather -> wait -> one copy that cuts out each
//           parameter. sg.pack of the gradients, shard by shard (with casts fused) -> one reduction -> wait -> views. A
//           bucket of one stays an ordinary collective, without copies.
// Place     A gather is launched where its first member was, a reduction where its last was. Then gathers move before
//           the wait of the gather `prefetch` buckets earlier in their direction (the first ones of the backward: to
//           its beginning), and waits for reductions after the launch of the reduction `prefetch` buckets later. 0
//           moves nothing. A node that uses a gradient without passing it on (libgraph/facts/consumers.h: its norm, an
//           update) stays after its wait; a reduction whose gradient is used before the last launch of its kind stays
//           alone.
// Kept      Parameters of the first `prefetch` gathers of the backward that the forward also gathered are kept instead
//           of gathered again, largest first, at most four, as long as peak memory does not rise.
// Legal     what a role guarantees: inputs of gathers are never written before, gradients never after; this is checked,
//           not assumed.
// Ranks     One plan for the job, based on all programs. Where these launch different collectives on a group, as the
//           stages of a pipeline do, those whose ranks share a part of it have buckets of their own. If the ranks would
//           not agree after all, nothing changes, and that is reported.
// Results   bitwise equal if a reduction adds element by element in rank order, whatever else is in its message:
//           --comm local and mpi, and nccl with --deterministic. NCCL's reduction order may depend on an element's
//           position in the buffer.
// Cost      linear in the nodes, and in the members of each bucket times its ranks for reductions; --peak makes one
//           memory plan per distance, --plan auto simulates each plan.
// Limits    main graphs only, and inputs that are declared parameters. Gathers of several element types do not run
//           with --numerics f64.
// Tests     golden/bucket, passes/run_bucket.py, unit/bucket_test.cc, unit/collective_roles_test.cc.
#pragma once

#include <string>

#include "libpasses/pass.h"

namespace sg {

extern const PassInfo bucket_pass;

enum class BucketPlanKind : uint8_t { per_block, per_module, by_size, automatic };

struct BucketOptions {
  BucketPlanKind plan = BucketPlanKind::per_block;
  std::string modules;             // per_module: the file's text
  std::string modules_name;        // per_module: the file's name as given, for messages
  int64_t size_bytes = 0;          // by_size
  int64_t prefetch = 1;            // buckets; -1: as many as `peak_bytes` allows, at most kMaxPrefetch
  int64_t peak_bytes = 0;          // 0 = no limit
  std::string machine = "h100-8";  // automatic: the machine to simulate
  static constexpr int64_t kMaxPrefetch = 8;
};

Result<Change> bucket(Job* job, const BucketOptions& options, PassContext& context);

}  // namespace sg
