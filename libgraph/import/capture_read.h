// What the parts of the capture importer share: the import's context, one rank's capture, one node's record.
//
//   capture.cc          driver: files -> ranks -> groups -> programs -> job
//   capture_header.cc   format, version, world, meshes, groups, what is for people
//   capture_groups.cc   the group families of a rank set, or of all ranks from one capture and its mesh
//   capture_program.cc  symbols, guards, nested graphs, random streams of one rank
//   capture_graph.cc    one graph: its names;  capture_records.cc  nodes before they are built (getitems folded),
//   capture_nodes.cc    nodes and links        capture_ports.cc    inputs and outputs
//   capture_args.cc     arguments        capture_types.cc  types        capture_meta.cc  node metadata
// Internal to the importer.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/flat_map.h"
#include "libgraph/import/capture.h"
#include "libgraph/import/capture_json.h"
#include "libgraph/import/import_tally.h"
#include "libgraph/job.h"
#include "libgraph/op.h"

namespace sg {

// How deep arguments and types may nest. Real captures reach 3; recursion on a hostile one stays shallow.
inline constexpr int kMaxCaptureDepth = 64;
inline constexpr uint32_t kMaxWorld = 1u << 20;

class ImportContext {
 public:
  explicit ImportContext(bool spmd) : is_spmd(spmd) {}

  Job job;
  ImportTally tally;
  Extras job_extras;  // becomes Job::extra
  const bool is_spmd;

  Pool& pool() { return *job.pool; }
  StrId str(std::string_view s);              // Pool::str with those of late at hand
  Expr constant(int64_t value);               // ExprPool::constant with the small ones at hand
  Result<Expr> expr(const Json& json);        // an integer, or {"sym": expression}
  Result<Expr> parse_expr(const Json& json);  // the expression as a string

 private:
  struct Known {
    std::string_view text;  // lies in the pool
    StrId id = StringTable::kEmpty;
  };
  std::array<Known, 64> lately_;  // modules, files and devices repeat from node to node
  std::vector<Expr> small_;
  FlatTextMap<Expr> parsed_;  // texts lie in parsed_texts_
  std::deque<std::string> parsed_texts_;
};

struct CapturedGroup {
  std::string_view name;  // lies in RankCapture::group_names
  StrId axis;
  std::vector<uint32_t> ranks;
  bool holds_rank = false;  // the capture's own rank is one of them
  GroupId family;           // set by make_families
};

// One file: its header, and the parts from which its program is read.
struct RankCapture {
  std::unique_ptr<CaptureText> text;
  uint32_t world = 1, rank = 0;
  std::vector<Mesh> meshes;
  Extras extras;  // unknown keys of world and groups
  std::vector<CapturedGroup> groups;
  std::deque<std::string> group_names;
  FlatTextMap<uint32_t> group_index;
  Json root() const { return {text->root(), nullptr, text.get()}; }
};

// REQUIRES: parsed; what is read here outlives the DOM.
Result<RankCapture> read_header(ImportContext* context, std::unique_ptr<CaptureText> text);
// The part of the header that a job has once: title, producer, note, unknown keys.
Status read_people(ImportContext* context, const RankCapture& capture);
Result<Source> read_source(ImportContext* context, const Json& json, std::string_view prefix, Extras* extras);

// Job::groups from the groups of all captures; with spmd the parts of other ranks follow from the mesh.
Status make_families(ImportContext* context, std::vector<RankCapture>* captures);

Status read_program(ImportContext* context, const RankCapture& capture, Program* program);

// Calls fn(Json) with the field `key` of an object, when it is there and not null.
template <class Fn>
Status with_field(const Json& object, std::string_view key, const Fn& fn) {
  simdjson::dom::element element;
  if (!object.is_object() || object.element[key].get(element) || element.is_null()) return ok_status();
  JsonPlace place = JsonPlace::at_key(object.place, key);
  return fn(Json{element, &place, object.text});
}

using NestedIndex = FlatTextMap<NestedId>;

// Reads `inputs`, `nodes` and `outputs` of `json` into an empty graph. `next_stream` numbers the random nodes of the
// whole program.
Status read_graph(ImportContext* context, const RankCapture& capture, const NestedIndex& nested, const Json& json,
                  uint32_t* next_stream, Program* program, Graph* graph);

Result<TypeId> read_type(ImportContext* context, const Json& json, Extras* extras, const JsonPlace* owner,
                         int depth = 0);
// global_shape, placements or mesh_axes; false = the key is another one.
Result<bool> read_sharding(ImportContext* context, std::string_view key, const Json& json, Sharding* sharding);

enum class NodeField : uint8_t {
  name,
  op,
  args,
  kwargs,
  type,
  module,
  phase,
  seq,
  draws_as,
  recompute,
  source,
  custom,
  meta,
  binds,
  bind_paths,
};
inline constexpr std::string_view kNodeKeys[] = {"name",   "op",     "args", "kwargs",   "type",
                                                 "module", "phase",  "seq",  "draws_as", "recompute",
                                                 "source", "custom", "meta", "binds",    "bind_paths"};
inline constexpr size_t kNodeFieldCount = std::size(kNodeKeys);

// A node of the file, found before any node is built: names and getitems must be known ahead.
struct NodeRecord {
  static constexpr uint32_t kNotFolded = 0xFFFFFFFFu;
  static constexpr uint32_t kNoForward = 0xFFFFFFFFu;

  std::array<simdjson::dom::element, kNodeFieldCount> fields;
  simdjson::dom::element object;
  uint32_t present = 0;  // bit a field; null counts as absent
  bool has_unknown_keys = false;
  bool is_tuple = false;
  bool is_used = false;  // told only for nodes without a type
  std::string_view name, op;
  uint32_t forward = kNoForward;      // the first forward record with the number that this one has
  uint32_t folded_into = kNotFolded;  // getitems: the record of the node they take apart
  uint32_t result = 0;                // getitems: which result
  uint32_t result_count = 0;
  std::vector<uint32_t> getitems;  // records folded into this one, in order
  NodeId node;                     // once built; for a getitem its parent's

  bool has(NodeField f) const { return (present >> static_cast<int>(f) & 1) != 0; }
  bool is_folded() const { return folded_into != kNotFolded; }
  simdjson::dom::element field(NodeField f) const { return fields[static_cast<size_t>(f)]; }
};

// A record with the place it stands at.
struct PlacedNode {
  const NodeRecord* record;
  const JsonPlace* place;
  const CaptureText* text;

  // fn(Json) with the field, when the node has it.
  template <class Fn>
  Status with(NodeField f, const Fn& fn) const {
    if (!record->has(f)) return ok_status();
    JsonPlace at = JsonPlace::at_key(place, kNodeKeys[static_cast<size_t>(f)]);
    return fn(Json{record->field(f), &at, text});
  }
};

// recompute, custom, meta, bind_paths. `binds` and unknown keys of the node itself are the graph's.
Status read_meta(ImportContext* context, const PlacedNode& node, NodeMeta* meta, Extras* extras);
// What a folded getitem says that its parent does not: chunk facts of the result, the rest to extras.
Status read_getitem_meta(ImportContext* context, const PlacedNode& getitem, const PlacedNode& parent,
                         ResultChunk* chunk, Extras* extras);

// Finds what a name in an argument means.
class NameScope {
 public:
  virtual ~NameScope() = default;
  virtual Result<Arg> resolve(const Json& at, std::string_view name) = 0;  // a value, or a list of all results
  virtual Result<NestedId> nested(const Json& at, std::string_view name) = 0;
  virtual Result<GroupId> group(const Json& at, std::string_view name) = 0;
};

// The arguments of one node, positional first. `op` may be null.
Result<std::vector<Arg>> read_args(ImportContext* context, const PlacedNode& node, const OpInfo* op, NameScope* scope,
                                   Extras* extras);

}  // namespace sg
