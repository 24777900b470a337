// One graph of a source at a time, to a Graph. Internal to source_build.cc and source_names.cc; types and symbols of
// the whole program, which need all graphs, are settled in source_types.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/flat_map.h"
#include "libgraph/import/import_tally.h"
#include "libgraph/import/source_graph.h"
#include "libgraph/import/source_types.h"

namespace sg {

class SourceGraphBuilder {
 public:
  SourceGraphBuilder(const SourceProgram& program, const SourceGraph& source, const Job& job, ImportTally* tally,
                     uint32_t* next_stream, Graph* graph, GuessedTypes* guessed)
      : program_(program),
        source_(source),
        job_(job),
        tally_(tally),
        next_stream_(next_stream),
        graph_(graph),
        guessed_(guessed),
        records_(source.nodes.size()) {}

  Status build();

 private:
  // What must be known of a node before the first is built.
  struct Record {
    static constexpr uint32_t kNotFolded = 0xFFFFFFFFu;
    uint32_t folded_into = kNotFolded;  // getitems: the node that they take apart
    uint32_t result = 0;                // getitems: which result
    uint32_t result_count = 0;
    bool is_tuple = false;
    bool is_used = false;  // told only for nodes of unknown shape
    NodeId node;           // once built; for a getitem its parent's
    std::vector<uint32_t> getitems;
    bool is_folded() const { return folded_into != kNotFolded; }
  };
  struct Named {
    enum class Kind : uint8_t { input, node, result };
    Kind kind;
    uint32_t index;  // of the input, or of the node
    uint32_t result = 0;
  };
  // A place that knows its source: what tallies ask.
  struct At {
    const SourceProgram* program;
    SourcePlace place;
    Location where() const { return program->where ? program->where(place) : Location(); }
  };

  At at(SourcePlace place) const { return {&program_, place}; }
  Error error(SourcePlace place, std::string message, std::string hint = {}) const {
    return {ErrorKind::unreadable, std::move(message), at(place).where(), std::move(hint)};
  }
  Pool& pool() const { return *job_.pool; }
  std::string_view text(StrId s) const { return pool().strings[s]; }
  std::string quoted(StrId s) const { return "`" + std::string(text(s)) + "`"; }

  // Names, and getitems folded into what they take apart (source_names.cc).
  Status add_inputs();
  Status declare(SourcePlace place, StrId name, Named named);
  Status declare_node(uint32_t index);
  SourcePlace place_of(Named named) const;

  const SourceRef* getitem_parent(const SourceNode& node, int64_t* index) const;
  Status fold_getitem(uint32_t index);
  Status fold_into_tuple(uint32_t index, int64_t result, const SourceNode& parent, Record* record);
  Status claim_result(uint32_t index, int64_t result, const SourceNode& parent, Record* record);
  Error no_result(uint32_t index, int64_t result, const SourceNode& parent) const;
  bool returns_nothing(const SourceNode& node) const;
  void mark_used();

  // Nodes and outputs (source_build.cc).
  Status build_node(uint32_t index);
  Result<Arg> resolve(const SourceNode& node, const Arg& source) const;
  Result<Arg> resolve(const SourceRef& ref) const;
  Error unknown_name(const SourceRef& ref) const;
  void set_results(const OpInfo* info, const SourceNode& source, Record* record, NodeSpec* spec);
  void take_getitem_type(uint32_t getitem, TypeId* type);
  void name_results(const SourceNode& source, const Record& record, NodeSpec* spec);
  NodeMeta meta_of(const SourceNode& source, const Record& record) const;
  void number_stream(NodeId n);
  void link_forward();

  Status add_output(const SourceOutput& source);

  const SourceProgram& program_;
  const SourceGraph& source_;
  const Job& job_;
  ImportTally* tally_;
  uint32_t* next_stream_;
  Graph* graph_;
  GuessedTypes* guessed_;
  std::vector<Record> records_;
  FlatMap<StrId, Named> names_;
  size_t claimed_results_ = 0;
  uint32_t current_ = 0;  // the node being built: what comes later is not defined yet
};

}  // namespace sg
