// Job: what a .sg file holds: the world, its groups and meshes, and one program for all ranks or several for some each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libgraph/expr/symbol_list.h"
#include "libgraph/graph.h"
#include "libgraph/pool.h"

namespace sg {

// The order is the value in the file: append only.
enum class Relation : uint8_t { eq, ne, lt, le, gt, ge };

// A condition that held when the step was captured, and under which the graph is valid.
struct Guard {
  Relation relation = Relation::eq;
  Expr left, right;
  SourceId source;  // the line that asked for it; none = not said
};

// A nested graph: the body of a higher-order op or of sg.call. Closed: it sees only its own inputs.
struct Nested {
  StrId name;  // unique in the program
  Graph graph;
};

// The step of one rank, or of several that run the same.
struct Program {
  std::vector<uint32_t> ranks;  // sorted; empty = every rank of the world (SPMD)
  SymbolList symbols;           // unique names; declaration order
  std::vector<Guard> guards;
  Graph graph;
  std::vector<std::unique_ptr<Nested>> nested;  // by NestedId

  explicit Program(Pool* pool) : graph(pool) {}
  const Symbol* find_symbol(StrId name) const { return symbols.find(name); }
  Nested* find_nested(StrId name) const;
};

// One communicator's ranks, and the names its producer gave it (a name may differ from rank to rank).
struct GroupPart {
  struct Alias {
    uint32_t rank;
    StrId name;
  };
  std::vector<uint32_t> ranks;  // in group order: position is the group rank
  std::vector<Alias> aliases;   // sorted by rank
};

// A family of process groups of one axis. Identity of a group: (axis, rank list, ordinal), equal on all ranks. A node
// refers to the family; on rank r it means the part that holds r.
struct Group {
  StrId axis;                    // "ep", "batch/loss/fsdp"
  uint32_t ordinal = 0;          // tells families of equal axis and ranks apart
  int32_t priority = 0;          // larger = more urgent
  std::vector<GroupPart> parts;  // sorted by first rank; disjoint
  const GroupPart* part_of(uint32_t rank) const;
};

struct Mesh {
  StrId name;  // empty = the main mesh
  std::vector<StrId> axes;
  std::vector<uint32_t> shape;  // same length; ranks row-major, last axis fastest
};

// One tool that made or changed this job. No clock, no path: equal work gives equal bytes.
struct Provenance {
  StrId tool;                     // "sg-import"
  StrId version;                  // the tool's semantic version
  std::vector<KeyValue> options;  // those that influence the result, sorted by key
  StrId input_digest;             // "sha256:..." of what it read
};

class Job {
 public:
  Job() : pool(std::make_unique<Pool>()) {}
  Job(Job&&) = default;
  Job& operator=(Job&&) = default;
  Job(const Job& other);  // deep copy: every id stays the same
  // The same with some of the programs only. REQUIRES: indices into `programs`
  Job(const Job& other, std::span<const size_t> programs);
  Job& operator=(const Job&) = delete;

  std::unique_ptr<Pool> pool;
  StrId title = StringTable::kEmpty;
  std::vector<KeyValue> producer;  // {"torch": "2.15.0"}; values are JSON
  std::string note;                // for people
  uint32_t world = 1;
  std::vector<Mesh> meshes;
  std::vector<Group> groups;                       // by GroupId
  std::vector<std::unique_ptr<Program>> programs;  // sorted by first rank; one with no ranks = SPMD
  std::vector<Provenance> provenance;              // oldest first
  std::vector<KeyValue> extra;

  Program& add_program();
  // The program that `rank` runs; null when the job does not hold it.
  Program* program_of(uint32_t rank) const;
  bool is_spmd() const { return programs.size() == 1 && programs[0]->ranks.empty(); }
  GroupId find_group(StrId axis, uint32_t ordinal) const;
  size_t node_count() const;  // of all graphs

  // Calls fn(Graph&) for each program's graph and behind it those nested in it.
  template <class Fn>
  void for_each_graph(const Fn& fn) const {
    for (const auto& program : programs) {
      fn(program->graph);
      for (const auto& nested : program->nested) fn(nested->graph);
    }
  }
};

// "graph rank 0, node %mm_3": the place of a node, for diagnostics in memory.
std::string place_of(const Program& program, const Graph& graph, NodeId n);

}  // namespace sg
