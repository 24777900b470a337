#include "libgraph/plan/caching_allocator.h"

#include <algorithm>

namespace sg {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kLeastBlock = 512;
constexpr int64_t kSmallRequest = kMiB;  // up to here: from small segments
constexpr int64_t kSmallSegment = 2 * kMiB;
constexpr int64_t kMiddleSegment = 20 * kMiB;
constexpr int64_t kOwnSegment = 10 * kMiB;  // from here on: a separate segment
constexpr int64_t kSegmentStep = 2 * kMiB;

int64_t round_up(int64_t bytes, int64_t step) { return (bytes + step - 1) / step * step; }

}  // namespace

int64_t CachingAllocator::rounded(int64_t bytes) { return std::max(round_up(bytes, kLeastBlock), kLeastBlock); }

int64_t CachingAllocator::segment_bytes(int64_t rounded) {
  if (rounded <= kSmallRequest) return kSmallSegment;
  return rounded < kOwnSegment ? kMiddleSegment : round_up(rounded, kSegmentStep);
}

CachingAllocator::Block CachingAllocator::allocate(int64_t bytes) {
  bytes = rounded(bytes);
  const bool is_small = bytes <= kSmallRequest;
  uint32_t piece = take_free(bytes, is_small);
  if (piece == kNone) {
    piece = new_piece({segment_bytes(bytes), kNone, kNone, is_small, false});
    reserved_ += pieces_[piece].bytes;
    ++segments_;
  }
  const int64_t rest = pieces_[piece].bytes - bytes;
  if (is_small ? rest >= kLeastBlock : rest > kSmallRequest) split(piece, bytes);
  allocated_ += pieces_[piece].bytes;
  most_allocated_ = std::max(most_allocated_, allocated_);
  return piece;
}

void CachingAllocator::free(Block block) {
  allocated_ -= pieces_[block].bytes;
  const uint32_t next = pieces_[block].next, previous = pieces_[block].previous;
  if (next != kNone && pieces_[next].is_free) absorb_next(block);
  if (previous != kNone && pieces_[previous].is_free) {
    pool_of(pieces_[previous]).erase({pieces_[previous].bytes, previous});
    pieces_[previous].is_free = false;
    absorb_next(previous);
    block = previous;
  }
  pieces_[block].is_free = true;
  pool_of(pieces_[block]).insert({pieces_[block].bytes, block});
}

uint32_t CachingAllocator::new_piece(Piece piece) {
  if (unused_.empty()) {
    pieces_.push_back(piece);
    return static_cast<uint32_t>(pieces_.size() - 1);
  }
  const uint32_t number = unused_.back();
  unused_.pop_back();
  pieces_[number] = piece;
  return number;
}

uint32_t CachingAllocator::take_free(int64_t bytes, bool is_small) {
  Pool& pool = is_small ? small_ : large_;
  const auto it = pool.lower_bound({bytes, 0});
  if (it == pool.end()) return kNone;
  const uint32_t piece = it->second;
  pool.erase(it);
  pieces_[piece].is_free = false;
  return piece;
}

// Keeps the first `bytes` in `piece`; the rest becomes a free piece.
void CachingAllocator::split(uint32_t piece, int64_t bytes) {
  const Piece whole = pieces_[piece];
  const uint32_t rest = new_piece({whole.bytes - bytes, piece, whole.next, whole.is_small, true});
  if (whole.next != kNone) pieces_[whole.next].previous = rest;
  pieces_[piece].next = rest;
  pieces_[piece].bytes = bytes;
  pool_of(whole).insert({pieces_[rest].bytes, rest});
}

// REQUIRES: `piece` is in no pool
void CachingAllocator::absorb_next(uint32_t piece) {
  const uint32_t next = pieces_[piece].next;
  if (pieces_[next].is_free) pool_of(pieces_[next]).erase({pieces_[next].bytes, next});
  pieces_[piece].bytes += pieces_[next].bytes;
  pieces_[piece].next = pieces_[next].next;
  if (pieces_[next].next != kNone) pieces_[pieces_[next].next].previous = piece;
  unused_.push_back(next);
}

}  // namespace sg
