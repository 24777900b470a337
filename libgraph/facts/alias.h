// AliasAnalysis: which values share memory, and what each node reads and writes. Derived from op.def, never stored.
//
// Storage   A piece of memory. Each graph input is one (inputs do not alias each other), and each result is a new one
//           unless the op's schema says that it is a view (`Tensor(a)`) or the argument that was written
//           (`Tensor(a!)`). Ops that may alias are decided by strides (view_rule.h). Symbolic scalars have no storage.
// Class     Where nothing decides (an undecided reshape, an op without a row in the table), the result gets a storage
//           that is not `certain` and falls into one class with what it may share: values may alias exactly when their
//           storages are of one class. Classes are transitive, so may_alias errs on the safe side only.
// Opaque    An op that the table does not know may return, and may write, each of its tensor arguments.
// Bodies    sg.call aliases, writes and syncs as its body does; recursive bodies, which no valid job has, are opaque.
// In flight A collective, or a transfer (transfer.h), runs until its wait: the wait counts as a write of the buffer and
//           as a read of the inputs, so that nothing overwrites them between launch and wait.
// Views     of a value do not read it: they are free to move across writes.
//
// A pure function of a const graph, linear in time and memory. It describes the graph as it was: moving nodes keeps it
// valid, inserting, erasing and changing arguments does not.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libgraph/expr/sizes.h"
#include "libgraph/graph.h"
#include "libgraph/job.h"

namespace sg {

class BodySummaries;

using StorageId = Id<struct StorageTag>;

// What a node does besides computing its results and writing its arguments.
enum Effect : uint32_t {
  kEffectRandom = 1u << 0,    // draws from its own random stream: orders nothing
  kEffectHostSync = 1u << 1,  // the host waits for data; binding a symbol is one
  kEffectAssert = 1u << 2,
  kEffectCollective = 1u << 3,  // launches on groups(n)
  kEffectWait = 1u << 4,
  kEffectOpaque = 1u << 5,  // nothing is known: any effect
};

struct Storage {
  ValueId owner;  // the input, or the first value that lies in it
  NodeId def;     // none = a graph input
  uint32_t alias_class = 0;
  bool certain = true;     // false: may be no memory of its own, but another storage of its class
  bool is_output = false;  // a graph output lies in it
  bool is_input() const { return def.is_none(); }
};

struct AliasOptions {
  const SizeValues* sizes = nullptr;  // decide may-alias ops for these sizes; null = for all sizes
};

class AliasAnalysis {
 public:
  AliasAnalysis(const Program& program, const Graph& graph, const AliasOptions& options = {});
  // The same, with what is known about bodies kept for other graphs of the program (alias_body.h).
  AliasAnalysis(const Program& program, const Graph& graph, const AliasOptions& options, BodySummaries* bodies);

  // The storage a value lies in; none for scalars and absent results.
  StorageId storage_of(ValueId v) const { return storage_of_[v.index]; }
  const Storage& storage(StorageId s) const { return storages_[s.index]; }
  const std::vector<Storage>& storages() const { return storages_; }  // by StorageId, in schedule order

  // Every storage that v may lie in: one when it is certain, else those of its class; ascending.
  std::vector<StorageId> root_set(ValueId v) const;
  std::span<const StorageId> class_members(uint32_t alias_class) const;

  bool may_alias(ValueId a, ValueId b) const;
  bool must_alias(ValueId a, ValueId b) const;  // in one storage for certain; they may still not overlap

  // Ascending, each once. What is written is not listed as read, though it may be.
  std::span<const StorageId> reads(NodeId n) const { return slice(storage_list_, reads_[n.index]); }
  std::span<const StorageId> writes(NodeId n) const { return slice(storage_list_, writes_[n.index]); }
  uint32_t effects(NodeId n) const { return effects_[n.index]; }
  std::span<const GroupId> groups(NodeId n) const { return slice(group_list_, groups_[n.index]); }

  // The collective or transfer whose result v is (or is a view of); none otherwise.
  NodeId launch_of(ValueId v) const { return launch_[v.index]; }

  // Whether the caller of the graph can see writes to s: it may be an input's memory, or an output's.
  bool escapes(StorageId s) const { return class_escapes_[storages_[s.index].alias_class]; }
  bool may_be_input(StorageId s) const { return class_has_input_[storages_[s.index].alias_class]; }

  // Data symbols that the node defines (meta or default_binds), and those that the bodies of its calls define.
  std::span<const StrId> binds(NodeId n) const { return slice(symbol_list_, binds_[n.index]); }

 private:
  friend class AliasBuilder;
  friend class BodySummaries;

  struct Part {
    uint32_t begin = 0, count = 0;
  };
  template <class T>
  static std::span<const T> slice(const std::vector<T>& list, Part p) {
    return std::span<const T>(list).subspan(p.begin, p.count);
  }

  std::vector<Storage> storages_;
  std::vector<StorageId> storage_of_;                  // by value
  std::vector<NodeId> launch_;                         // by value
  std::vector<Part> reads_, writes_, groups_, binds_;  // by node
  std::vector<uint32_t> effects_;                      // by node
  std::vector<StorageId> storage_list_;
  std::vector<GroupId> group_list_;
  std::vector<StrId> symbol_list_;
  std::vector<Part> classes_;  // by class; into class_list_
  std::vector<StorageId> class_list_;
  std::vector<uint8_t> class_escapes_, class_has_input_;
};

}  // namespace sg
