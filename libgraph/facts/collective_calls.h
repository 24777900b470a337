// The collectives of a program in the order in which a rank meets them, and what each says about itself: for the
// verifier, which holds the ranks of a job against each other, and for ranks that agree before a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/expr/sizes.h"
#include "libgraph/job.h"

namespace sg {

inline constexpr int kMaxCollectiveDepth = 64;  // of calls within calls

// One launch of a collective, or one wait for it.
struct CollectiveEvent {
  bool is_wait = false;
  uint32_t group = 0;
  uint32_t call = 0;  // the index of the launch within its group
  const Graph* graph = nullptr;
  NodeId node;
  NodeId top;  // the node of the program's main graph that this happens in: a call, or `node` itself
};

struct CollectiveSequence {
  std::vector<CollectiveEvent> events;
  std::unordered_map<uint32_t, std::vector<size_t>> launches;  // by group: indices into events
  bool complete = true;                                        // false: a limit was met
  const std::vector<size_t>& of_group(uint32_t g) const;
};

// Takes one from `budget` for each node that it looks at.
CollectiveSequence collective_sequence(const Program& program, size_t* budget);

struct CollectiveFacts {
  std::string_view kind;  // "all_gather_into_tensor": with or without a buffer is one kind
  DType dtype = DType::none;
  std::optional<int64_t> elements;  // of the input, where known
  std::string_view reduce_op;
  std::optional<int64_t> src;
  const Arg* send = nullptr;  // split sizes of an exchange
  const Arg* receive = nullptr;
};

// Without `values`, only sizes that are numbers are known.
CollectiveFacts collective_facts(const Pool& pool, const CollectiveEvent& event, const SizeValues& values = {});

// What keeps two calls from being one collective ("it is a here, b there"); empty when nothing that can be seen does.
std::string collective_mismatch(const CollectiveFacts& here, const CollectiveFacts& there);

}  // namespace sg
