// Schedule: the position of each node, and where each piece of memory is read and written. Passes consult it before
// they move, merge or repeat a node.
//
// A pure function of a const graph, linear in time and memory. It describes the graph at construction: nodes added
// later have no position, and erasing nodes keeps the rest valid.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/facts/alias.h"

namespace sg {

// The value's alias class; kNoClass when it has no memory.
constexpr uint32_t kNoClass = 0xFFFFFFFFu;
uint32_t class_of(const AliasAnalysis& alias, ValueId v);

class Schedule {
 public:
  Schedule(const Graph& graph, const AliasAnalysis& alias);
  uint32_t position(NodeId n) const { return position_[n.index]; }  // positions start at 1
  bool is_written_after(uint32_t alias_class, uint32_t after) const;
  uint32_t next_write(uint32_t alias_class, uint32_t after) const;                    // UINT32_MAX = none
  uint32_t last_read(uint32_t alias_class) const { return last_read_[alias_class]; }  // 0 = never
  // Last use of any value in the class; UINT32_MAX: one is an output.
  uint32_t last_use(uint32_t alias_class) const { return last_use_[alias_class]; }

 private:
  std::vector<uint32_t> position_;              // by node
  std::vector<std::vector<uint32_t>> writes_;   // by class; ascending
  std::vector<uint32_t> last_read_, last_use_;  // by class
};

// Whether the value has memory of its own that nothing writes behind position `after` (0: nothing at all) and no output
// shows; or none.
bool is_private(const AliasAnalysis& alias, const Schedule& schedule, ValueId v, uint32_t after = 0);
// The same of a wait's result, which its collective has written.
bool is_private_behind(const Graph& graph, const AliasAnalysis& alias, const Schedule& schedule, NodeId wait);

}  // namespace sg
