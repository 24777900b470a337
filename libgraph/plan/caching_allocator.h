// CachingAllocator: what PyTorch's caching allocator for CUDA would hand out and reserve for a row of requests. No
// memory is touched.
//
// Sizes     Requests are rounded up to 512 bytes. Up to 1 MiB they come from segments of 2 MiB; below 10 MiB from
//           segments of 20 MiB; larger ones have a segment of their own, a multiple of 2 MiB.
// Choice    The smallest free block that fits, the earliest of equal ones. What is left of it becomes a free block when
//           it is at least 512 bytes (small requests) or more than 1 MiB; else it stays with the block.
// Freed     Neighbouring free blocks of a segment become one. Segments are never given back.
// Left out  Streams, expandable segments, max_split_size and the other settings: PyTorch's defaults, on one stream.
// Cost      O(log blocks) a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace sg {

class CachingAllocator {
 public:
  using Block = uint32_t;

  static int64_t rounded(int64_t bytes);          // of the block handed out
  static int64_t segment_bytes(int64_t rounded);  // of a new segment for it

  // REQUIRES: bytes >= 0. PyTorch asks for nothing where a tensor is empty: callers leave those out
  Block allocate(int64_t bytes);
  void free(Block block);  // REQUIRES: handed out, not freed since

  int64_t allocated_bytes() const { return allocated_; }  // blocks handed out, rounded
  int64_t reserved_bytes() const { return reserved_; }    // segments
  int64_t most_allocated_bytes() const { return most_allocated_; }
  size_t segment_count() const { return segments_; }

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  struct Piece {  // of a segment: free or handed out
    int64_t bytes = 0;
    uint32_t previous = kNone, next = kNone;  // in its segment
    bool is_small = false, is_free = false;
  };
  using Pool = std::set<std::pair<int64_t, uint32_t>>;  // free pieces: size, number

  Pool& pool_of(const Piece& p) { return p.is_small ? small_ : large_; }
  uint32_t new_piece(Piece piece);
  uint32_t take_free(int64_t bytes, bool is_small);
  void split(uint32_t piece, int64_t bytes);
  void absorb_next(uint32_t piece);

  std::vector<Piece> pieces_;
  std::vector<uint32_t> unused_;  // numbers of pieces that were absorbed
  Pool small_, large_;
  int64_t allocated_ = 0, reserved_ = 0, most_allocated_ = 0;
  size_t segments_ = 0;
};

}  // namespace sg
