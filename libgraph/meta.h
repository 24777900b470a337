// Node metadata that most nodes do not set. Interned as a whole in the Pool: a node holds a MetaId, and equal metadata
// is one record. The always-set part (module, phase, source line, link to the forward node) is in Node itself.
//
// All enums: the order is the value in the file, append only; the names are those of the text form (names.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libgraph/base/ids.h"

namespace sg {

enum class Phase : uint8_t { forward, backward, optimizer };

// What the memory policy says about recomputing this node's results in the backward. Written by captures and sg-remat.
enum class Recompute : uint8_t { none, must_save, prefer_save, prefer_recompute, must_recompute };

// The part a node plays in expert parallelism: which region it lies in, and which step of the exchange it is.
enum class EpRole : uint8_t { none, dispatch, compute, combine };
enum class EpStep : uint8_t { none, count_exchange, count_sync, token_exchange, token_exchange_wait };

// Why a node is a copy of another.
enum class CopyKind : uint8_t { none, remat, chunk, offload };

// What a collective (or a node of its chain) does for a sharded parameter.
enum class CollectiveRole : uint8_t { none, unshard, reduce };
enum class BucketDirection : uint8_t { none, forward, backward };

// Membership in a chunked region (sg-chunk, or a capture whose modules were chunked eagerly).
struct ChunkInfo {
  StrId region;             // module FQN of the region; none = the node is in no chunked region
  int32_t index = -1;       // which chunk; -1 = belongs to all of them
  StrId role;               // "body", "split_boundary", "materialization", "chunk_input", ...
  StrId producer;           // "graph" (a pass) or "eager" (the capture)
  StrId original;           // name of the node this is a copy of
  int8_t is_backward = -1;  // -1 = not said
  friend bool operator==(const ChunkInfo&, const ChunkInfo&) = default;
};

// Chunk facts of one result, where they differ from the node's (a split boundary gives result i to chunk i).
struct ResultChunk {
  int32_t index = -1;
  StrId original;
  friend bool operator==(const ResultChunk&, const ResultChunk&) = default;
};

struct CollectiveInfo {
  CollectiveRole role = CollectiveRole::none;
  BucketDirection direction = BucketDirection::none;
  int32_t bucket = -1;      // bucket id; -1 = not bucketed
  std::vector<StrId> plan;  // module FQNs whose parameters the bucket holds
  friend bool operator==(const CollectiveInfo&, const CollectiveInfo&) = default;
};

struct CopyOf {
  CopyKind kind = CopyKind::none;
  StrId of;  // the result name this is a copy of
  friend bool operator==(const CopyOf&, const CopyOf&) = default;
};

// The random stream of a node with the `random` trait. Its bits are a function of (seed, step, stream, rank if
// rank_local, logical element index). Copies keep the stream; a chunk keeps the logical index through its origin.
struct RandomInfo {
  uint32_t stream = 0;              // 1-based; 0 = the node draws no random numbers
  bool rank_local = true;           // false: all ranks draw the same
  std::vector<Expr> origin_shape;   // shape of the original tensor; empty = this node is the original
  std::vector<Expr> origin_offset;  // where this node's element [0, ..., 0] lies in it; same length
  friend bool operator==(const RandomInfo&, const RandomInfo&) = default;
};

// A free key with a JSON value in canonical compact spelling (libgraph/base/json.h). Keys are sorted.
struct KeyValue {
  StrId key;
  StrId json;
  friend bool operator==(const KeyValue&, const KeyValue&) = default;
};

struct NodeMeta {
  Recompute recompute = Recompute::none;
  int32_t recompute_region = -1;  // activation-checkpoint region number of the capture; -1 = none
  EpRole ep_role = EpRole::none;
  EpStep ep_step = EpStep::none;
  ChunkInfo chunk;
  std::vector<ResultChunk> result_chunks;  // empty, or one a result
  CollectiveInfo collective;
  CopyOf copy;
  RandomInfo random;
  std::vector<StrId> more_modules;  // FQNs beyond Node::module, for nodes that serve several
  // Data-dependent symbols whose value this node's results define. nullopt = the rule of `default_binds` (op.h).
  std::optional<std::vector<StrId>> binds;
  std::vector<KeyValue> extra;  // sorted by key text, keys unique

  friend bool operator==(const NodeMeta&, const NodeMeta&) = default;
};

uint64_t hash_of(const NodeMeta& meta);

}  // namespace sg
