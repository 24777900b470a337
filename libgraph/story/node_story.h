// NodeStory: one node (or input) of a graph and how it stands in it: who made it and why, from what, for whom, which
// symbols it speaks of, how long its memory is in use, which collectives it feeds.
//
// Made by   From metadata: what passes leave on nodes (copies, chunks, buckets, tags, groups of their own), with the
//           step of the job's history that did it. Passes that leave no mark on nodes are not told apart from the
//           source.
// Memory    From the plan that sg-run would make with the sizes given.
// Cost      Linear in the graph: liveness and plan. Lists of neighbours are whole; collectives are the nearest, kMost
//           each way.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/expr/sizes.h"
#include "libgraph/job.h"

namespace sg {

struct StoryValue {
  std::string name, op, type;  // op: "param", "input", ... of an input; "output" of a graph output
  std::string phase, module;
};

struct StoryReason {
  std::string by;    // "sg-remat --policy default", "sg-import"; "the source" when no history says
  std::string what;  // "a copy of %mul_3, computed again"
};

struct StorySymbol {
  std::string line;        // "symbol u4 data [0, 256]"
  std::string defined_by;  // "%local_scalar"; empty = a size of an input
  std::vector<std::string> guards;
};

struct StoryMemory {
  std::string place;                // "arena", "host arena", "pool", "input", "none"
  std::string owner;                // the first value in the same memory; the value itself, mostly
  int64_t bytes = -1, offset = -1;  // -1 = not known, none
  std::string first, last;          // nodes; last empty = to the end of the step
  uint32_t first_position = 0, last_position = 0, positions = 0;
  std::string takes_over;  // whose memory it may take over
  bool at_peak = false;
};

struct StoryCollective {
  std::string name, kind, group;
  double payload_bytes = 0;
  size_t steps = 0;  // nodes on the way
};

struct NodeStory {
  static constexpr size_t kMost = 4;
  std::string name, line, op, phase, module, source;
  std::vector<uint32_t> ranks;  // of the program; empty = all
  bool is_input = false;
  std::vector<StoryReason> made_by;
  std::vector<StoryValue> from, used_by;
  std::string forward;                        // of a backward node
  std::vector<std::string> backward, copies;  // nodes that name this one
  std::vector<StorySymbol> symbols;
  std::optional<StoryMemory> memory;  // none: in a nested graph
  std::vector<StoryCollective> fed_by, feeds;
};

// The commands of a job's history, oldest first: "sg-remat --policy default" (libpasses/replay.h makes them).
using StoryHistory = std::vector<std::string>;

// `name`: of a value, or a node's label, with or without %; or the FQN of an input; or "loss", where no value has that
// name. An Error (cannot_apply) names the nearest, or the nodes of the module that is called so.
Result<NodeStory> tell_node(const Job& job, const Program& program, std::string_view name, const SizeValues& sizes,
                            const StoryHistory& history);

// The hint for a name that is a module's and not a node's: which nodes it has. Empty = there is no such module.
std::string hint_of_module(const Graph& graph, std::string_view name);

std::string print_story(const NodeStory& story);
std::string story_json(const NodeStory& story);

}  // namespace sg
