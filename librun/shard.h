// Which elements of a global tensor a rank holds, by PyTorch's placements.
//
//   S(d)      the axis d is cut into as many pieces as the mesh axis has ranks, each of the rounded-up size (the last
//             ones shorter or empty); rank i of the axis has piece i
//   _S(d, k)  the axis d is cut into k times as many pieces; rank i of n has pieces i, i + n, i + 2n, ...: what is left
//             when a later mesh axis has cut first
//   R         the whole; P(...) the whole too, of which the axis' reduction makes the tensor
// One placement a mesh axis, applied in that order.
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
  // Of a rank, by the meshes of the job (else the groups of its axes). An error when the job has no such axis, the
  // placement is unknown, or the part does not have the local shape.
  static Result<Shard> of(const Job& job, uint32_t rank, const Sharding& sharding, std::span<const int64_t> local_shape,
                          const SizeValues& sizes);

  const std::vector<int64_t>& local_shape() const { return local_shape_; }
  const std::vector<int64_t>& global_shape() const { return global_shape_; }
  // Where element `i` of local axis `d` lies along the global axis.
  int64_t global_index(size_t d, int64_t i) const { return map_[d].empty() ? i : map_[d][static_cast<size_t>(i)]; }
  // How many elements from `i` on lie side by side globally.
  int64_t run_length(size_t d, int64_t i) const;
  // P(sum) on a rank that is not the first of its axis: its share of the sum is zero.
  bool is_zero() const { return is_zero_; }

 private:
  std::vector<int64_t> local_shape_, global_shape_;
  std::vector<std::vector<int64_t>> map_;  // by axis; empty = index i is i
  bool is_zero_ = false;
};

}  // namespace sg
