// Which elements of a global tensor a rank holds, by PyTorch's placements.
//
//   S(d)      axis d is cut into as many pieces as the mesh axis has ranks, each of the rounded-up size (the last ones
//             shorter or empty); rank i of the axis has piece i
//   _S(d, k)  axis d is cut into k times as many pieces; rank i of n has pieces i, i + n, i + 2n, ...: the remainder if
//             a later mesh axis has cut first
//   R         the whole; P(...) also the whole, a term of the reduction over the mesh axis
// One placement per mesh axis, applied in that order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libgraph/expr/sizes.h"
#include "libgraph/job.h"

namespace sg {

class Shard {
 public:
  // The whole tensor.
  static Shard whole(std::span<const int64_t> shape);
  // The part of a rank, by the meshes of the job (else by the groups of its axes). An error if the job has no such
  // axis, the placement is unknown, or the part does not have the local shape.
  static Result<Shard> of(const Job& job, uint32_t rank, const Sharding& sharding, std::span<const int64_t> local_shape,
                          const SizeValues& sizes);

  const std::vector<int64_t>& local_shape() const { return local_shape_; }
  const std::vector<int64_t>& global_shape() const { return global_shape_; }
  // The global index of element `i` along local axis `d`.
  int64_t global_index(size_t d, int64_t i) const { return map_[d].empty() ? i : map_[d][static_cast<size_t>(i)]; }
  // How many elements from `i` on are also adjacent globally.
  int64_t run_length(size_t d, int64_t i) const;
  // P(sum) on a rank other than the first of its axis: its term of the sum is zero.
  bool is_zero() const { return is_zero_; }

 private:
  std::vector<int64_t> local_shape_, global_shape_;
  std::vector<std::vector<int64_t>> map_;  // by axis; empty = the identity
  bool is_zero_ = false;
};

// Whether some ranks hold other parts than `rank`: a placement cuts along a mesh axis of more than one rank.
bool is_in_shards(const Job& job, uint32_t rank, const Sharding& sharding);

}  // namespace sg
