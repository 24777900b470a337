// What every op that draws random numbers asks: the key of its call, and an element's place in the original tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "librun/kernel.h"
#include "librun/random.h"

namespace sg::cpu {

inline RandomKey random_key(const KernelCall& call) {
  const RandomStream& r = call.random;
  return RandomKey(r.seed, r.step, static_cast<uint32_t>(r.stream), static_cast<uint32_t>(r.rank));
}

// Maps row-major indices of a tensor to those of the original that it is a part of.
class RandomPlaces {
 public:
  RandomPlaces(const RandomStream& stream, const Tensor& t)
      : stream_(stream), shape_(t.sizes().begin(), t.sizes().end()) {
    is_chunk_ =
        stream.origin_shape.size() == shape_.size() && stream.origin_offset.size() == shape_.size() && !shape_.empty();
  }
  bool is_chunk() const { return is_chunk_; }
  uint64_t operator()(int64_t element) const {
    if (!is_chunk_) return static_cast<uint64_t>(element);
    uint64_t place = 0, weight = 1;
    for (size_t axis = shape_.size(); axis-- > 0;) {
      place += weight * static_cast<uint64_t>(element % shape_[axis] + stream_.origin_offset[axis]);
      weight *= static_cast<uint64_t>(stream_.origin_shape[axis]);
      element /= shape_[axis];
    }
    return place;
  }

 private:
  const RandomStream& stream_;
  std::vector<int64_t> shape_;
  bool is_chunk_;
};

}  // namespace sg::cpu
