// GraphReader: one graph of a capture, from its JSON lists of inputs, nodes and outputs. Internal to the importer.
//
// The nodes are gone through three times: to learn their names (any may be referred to), to fold getitems into the
// nodes whose results they take, and to build.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/import/capture_read.h"

namespace sg {

class GraphReader : public NameScope {
 public:
  GraphReader(ImportContext* context, const RankCapture& capture, const NestedIndex& nested, const Json& json,
              uint32_t* next_stream, Program* program, Graph* graph)
      : context_(context),
        capture_(capture),
        nested_(nested),
        json_(json),
        next_stream_(next_stream),
        program_(program),
        graph_(graph),
        nodes_place_(JsonPlace::at_key(json.place, "nodes")) {}

  Status read();

  // What names in arguments stand for, while the nodes are built in turn.
  Result<Arg> resolve(const Json& at, std::string_view name) override;
  Result<NestedId> nested(const Json& at, std::string_view name) override;
  Result<GroupId> group(const Json& at, std::string_view name) override;

 private:
  using element = simdjson::dom::element;
  struct Named {
    bool is_input;
    uint32_t index;
  };

  // --- the file's lists and names (capture_graph.cc) ---

  template <class Fn>
  Status list(std::string_view key, const Fn& fn) {
    element items;
    if (!json_.is_object() || json_.element[key].get(items))
      return json_.error("there is no `" + std::string(key) + "`");
    JsonPlace place = JsonPlace::at_key(json_.place, key);
    return for_each_item({items, &place, json_.text}, fn);
  }
  void reserve();
  JsonPlace place_of_node(size_t i) const { return JsonPlace::at_index(&nodes_place_, i); }
  Status declare(const Json& at, std::string_view name, bool is_input, size_t index);
  std::string print(Named named) const;
  Result<Named> find(const Json& at, std::string_view name) const;
  Error forward_reference(const Json& at, uint32_t index) const;
  Error unknown_group(const Json& at, std::string_view name) const;

  // --- inputs (capture_ports.cc) ---

  Status read_input(size_t index, const Json& json);
  Status read_input_kind(const Json& json, InputKind* kind);
  Status read_input_field(std::string_view key, const Json& value, Input* input, Extras* extras);

  // --- nodes: what must be known before the first is built (capture_records.cc) ---

  Status index_node(size_t index, const Json& json);
  void find_first_of_numbers();
  static std::optional<uint64_t> number_of(const NodeRecord& record);
  Status fold_getitem(size_t index);
  Status claim_untyped_result(size_t index, int64_t result, NodeRecord* parent);
  Error bad_index(size_t index, int64_t result, const NodeRecord& parent) const;
  static bool returns_nothing(const OpInfo* info);
  void mark_used();

  // --- nodes (capture_nodes.cc) ---

  Status build_node(size_t index);
  Status read_results(const PlacedNode& node, const OpInfo* info, NodeSpec* spec, Extras* extras);
  Status take_getitem_type(uint32_t index, TypeId* type, Extras* extras);
  void name_results(const NodeRecord& record, NodeSpec* spec);
  Status read_context(const PlacedNode& node, NodeSpec* spec, Extras* extras);
  Status give_stream(const PlacedNode& node, bool draws);
  Status read_binds(const Json& json, NodeId n);
  Status read_folded(const PlacedNode& parent, NodeMeta* meta, Extras* extras);
  Status keep_unknown_keys(const Json& json, const std::string& prefix, Extras* extras);
  void link_forward();

  // --- outputs (capture_ports.cc) ---

  Status read_output(const Json& json);
  Status read_output_value(const Json& json, Output* output);
  Status read_output_kind(const Json& json, Output* output, Extras* extras);
  Status read_output_field(std::string_view key, const Json& value, std::string_view* of, Output* output,
                           Extras* extras);
  void resolve_of(std::string_view of, Output* output);

  ImportContext* context_;
  const RankCapture& capture_;
  const NestedIndex& nested_;
  const Json& json_;
  uint32_t* next_stream_;
  Program* program_;
  Graph* graph_;
  JsonPlace nodes_place_;
  std::vector<NodeRecord> records_;
  FlatTextMap<Named> names_;
  FlatTextMap<size_t> named_inputs_, opaque_inputs_;  // by fqn; by what they describe
  size_t untyped_results_ = 0;
  size_t current_ = 0;  // the record being built: what comes later is not defined yet
};

}  // namespace sg
