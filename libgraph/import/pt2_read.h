// What the parts of the .pt2 importer share.
//
//   pt2.cc            the archive: layouts, models, the job
//   pt2_program.cc    ExportedProgram: version, symbols, guards
//   pt2_graph.cc      graphs and nodes;  pt2_args.cc  arguments;  pt2_values.cc  types and expressions
//   pt2_signature.cc  inputs and outputs of the program
//   pt2_weights.cc    weights and constants;  pt2_list.cc  what --list says
// Internal to the importer.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/import/capture_read.h"
#include "libgraph/import/pt2.h"
#include "libgraph/import/source_graph.h"
#include "libgraph/import/zip_archive.h"

namespace sg {

// Before schema 8.14 (torch 2.9) every tensor is recorded at offset 0, wherever it lies.
inline constexpr int64_t kOffsetsMinor = 14;
inline constexpr int kMaxPt2Depth = 32;  // graphs within graphs, arguments within arguments

// Calls fn(key, Json) with the one field of a union that is set. Newer keys arrive like all others.
template <class Fn>
Status with_union(const Json& json, const Fn& fn) {
  bool found = false;
  SG_TRY(for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
    if (value.is_null() && key != "as_none") return ok_status();
    if (found) return value.error("a union with two values");
    found = true;
    return fn(key, value);
  }));
  return found ? ok_status() : Status(json.error("a union without a value"));
}

// fn(Json) with a field that must be there.
template <class Fn>
Status need_field(const Json& object, std::string_view key, const Fn& fn) {
  simdjson::dom::element element;
  if (!object.is_object()) return object.error("expected an object, not " + std::string(json_kind(object.element)));
  if (object.element[key].get(element)) return object.error("there is no `" + std::string(key) + "`");
  JsonPlace place = JsonPlace::at_key(object.place, key);
  return fn(Json{element, &place, object.text});
}
Result<std::string_view> need_string(const Json& object, std::string_view key);

Result<DType> pt2_dtype(const Json& json);
std::string_view pt2_layout(int64_t number);  // empty = unknown
Result<std::string> pt2_device(const Json& json);

class Pt2Reader {
 public:
  Pt2Reader(ImportContext* context, const CaptureText& text) : context_(context), text_(text) {}

  Status read(Program* program);  // the whole ExportedProgram into an empty program

 private:
  using element = simdjson::dom::element;
  enum class Part : uint8_t { inputs, nodes, outputs, count };
  using Values = FlatTextMap<element>;

  // The values of one graph by name, and how its places are called.
  struct Scope {
    Values tensors, ints, floats, bools, objects;
    uint32_t number = 0;  // of the graph
    uint32_t node = 0;    // being read
    SourcePlace place(Part part, size_t index) const {
      return {number * static_cast<uint32_t>(Part::count) + static_cast<uint32_t>(part), static_cast<uint32_t>(index)};
    }
  };

  Pool& pool() { return context_->pool(); }
  StrId str(std::string_view s) { return context_->str(s); }
  Json root() const { return {text_.root(), nullptr, &text_}; }

  // --- the program (pt2_program.cc) ---
  Status check_version();
  Status read_ranges();
  Status read_range(std::string_view text, const Json& json);
  Status read_guards();
  bool read_guard(std::string_view text);
  std::string with_sizes(std::string_view guard) const;
  void set_hints();
  void set_sources();
  void keep_specs();
  Location where(SourcePlace place) const;

  // --- graphs (pt2_graph.cc) ---
  Status open_scope(const Json& graph, Scope* scope);
  Status read_nodes(const Json& graph, Scope* scope, SourceGraph* out, int depth);
  Status read_node(const Json& json, Scope* scope, SourceGraph* out, int depth);
  Status read_results(const Json& json, bool is_single, Scope* scope, SourceNode* node, std::vector<SourceNode>* after);
  Status read_result(const Json& json, Scope* scope, SourceNode* node, std::vector<SourceNode>* after);
  Status read_nested_graph(const Json& json, std::string_view name, int depth, NestedId* id);
  Status read_node_meta(const Json& json, SourceNode* node);
  Status read_custom(const Json& json, SourceNode* node);
  void read_module_stack(std::string_view text, SourceNode* node);
  void read_stack_trace(std::string_view text, SourceNode* node);

  // --- arguments (pt2_args.cc) ---
  Status read_inputs_of(const Json& json, const OpInfo* info, SourceNode* node, int depth);
  Result<Arg> read_arg(const Json& json, SourceNode* node, int depth);
  Result<Arg> read_tagged(std::string_view tag, const Json& json, SourceNode* node, int depth);
  Result<Arg> read_named(const Json& json, std::string_view literal, SourceNode* node);
  Result<Arg> read_list(const Json& json, std::string_view tag, SourceNode* node, int depth);
  Result<Arg> read_dict(const Json& json, SourceNode* node, int depth);
  Arg reference(std::string_view name, SourceNode* node);

  // --- types (pt2_values.cc) ---
  Result<TypeId> value_type(const Json& at, std::string_view tag, std::string_view name, const Scope& scope);
  Result<TypeId> tensor_type(const Json& meta);
  Result<TypeId> scalar_type(const Json& json, TypeKind kind);
  Result<std::vector<Expr>> sizes(const Json& json);
  Result<Expr> size(const Json& json);
  Result<Expr> expr(const Json& json);  // a SymExpr
  Result<Expr> parse_computed(std::string_view text, Result<Expr> refused);
  TypeId none_type();
  TypeId opaque_type(std::string_view text);

  // --- signature (pt2_signature.cc) ---
  Status read_root_ports(const Json& graph, const Json& signature, Scope* scope, SourceGraph* out);
  Status read_nested_ports(const Json& graph, Scope* scope, SourceGraph* out);
  Status read_input(const Json& arg, size_t index, const Scope& scope, SourceInput* input);
  Status read_input_spec(const Json& spec, size_t index, SourceInput* input);
  Status read_output(const Json& arg, size_t index, const Scope& scope, SourceOutput* output);
  Status read_output_spec(const Json& spec, SourceOutput* output);
  void tell_phases(SourceGraph* graph) const;

  ImportContext* context_;
  const CaptureText& text_;
  SourceProgram program_;
  std::vector<std::string> paths_;  // of graphs, by their number
  ComputedSizes computed_;
  FlatTextMap<Expr> exprs_;  // by text; the texts lie in the DOM
  std::map<StrId, int64_t> hints_;
  bool tells_offsets_ = true;                                  // whether a storage offset of 0 means that
  std::map<std::string, uint32_t, std::less<>> nested_names_;  // how often a name was wished for
  std::deque<std::unique_ptr<CaptureText>> customs_;           // parsed `custom` texts, which metadata may point into
};

// --- weights (pt2_weights.cc) ---

// Where an archive keeps its tensors: FQN -> entry and layout in it.
struct Pt2Payload {
  std::string entry;  // full path in the archive
  bool is_pickled = false;
  bool has_meta = false;
  DType dtype = DType::none;
  bool is_strided = true;
  std::vector<int64_t> shape, stride;
  int64_t offset = 0;
};
using Pt2Payloads = std::map<std::string, Pt2Payload, std::less<>>;

// Where the parts of one model lie.
struct Pt2Model {
  std::string name;                  // "model"
  std::string program;               // entry of its JSON
  std::vector<std::string> configs;  // entries of its payload configs
  std::vector<std::string> pickles;  // weights or constants that are reached by unpickling only
};
struct Pt2Layout {
  std::string root;    // the folder in which all lies, with its slash; may be empty
  std::string format;  // "pt2 0", "export.save of torch <= 2.7"
  std::vector<Pt2Model> models;
};
Result<Pt2Layout> find_layout(const ZipArchive& archive);
// Python's infinities and NaN, which torch 2.6 writes bare and JSON does not have, as strings of their length, so that
// places stay.
void quote_bare_numbers(std::string* json);
Result<std::unique_ptr<CaptureText>> read_json_entry(const ZipArchive& archive, const std::string& entry);
Result<Pt2Payloads> read_payloads(const ZipArchive& archive, const Pt2Model& model);
// Reads what the inputs of the job's program want; what cannot be read is said in one note.
Status read_weights(const ZipArchive& archive, const Pt2Model& model, const Pt2Layout& layout, Pt2Import* import,
                    Diagnostics* notes);

}  // namespace sg
