// From the tree of one module to a source's graph: names, ops, arguments, ports. Internal to the importers.
//
//   fx_lower.cc          a module with its nested graphs as a program
//   fx_module.h          one module: its statements (fx_module.cc), inputs, attributes and outputs (fx_module_ports.cc)
//   fx_lower_args.cc     arguments                                fx_groups.h   process groups
//   fx_program.cc        what ports are, phases; a forward and a backward made one
//   fx_dynamo.cc         inputs as Dynamo's graph names them      fx_sizes.cc   what a trace tells of symbols
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/flat_set.h"
#include "libgraph/import/fx_groups.h"
#include "libgraph/import/fx_import.h"
#include "libgraph/import/fx_notes.h"
#include "libgraph/import/source_graph.h"
#include "libgraph/op.h"

namespace sg {

// A text with its tree and what has been read of its comments. Keeps its address.
struct FxUnit {
  FxText text;
  FxFile file;
  std::vector<FxContext> contexts;                                     // by comment, once lowering begins
  std::map<std::pair<uint32_t, std::string_view>, uint32_t> children;  // modules by parent and name
};
Result<std::unique_ptr<FxUnit>> read_fx_unit(FxText text);

// A program that is not built yet, with what descriptors say of its ports.
struct FxProgram {
  SourceProgram source;
  std::vector<std::string> input_descriptors, output_descriptors;  // empty where there is none
  FlatSet<StrId> tokens;                                           // inputs that order operators with effects
  uint64_t foreign_calls = 0;                                      // of functions and methods that are no operators
  uint64_t operator_calls = 0;
  std::string first_foreign;
  Location first_foreign_at;
};

struct FxLowering {
  Job* job;
  FxGroups* groups;
  FxTypes* types;
  FxGaps* gaps;
};

// The program of modules[module] with the graphs inside it. Places are {offset, `unit_index`}.
Result<FxProgram> lower_fx_program(const FxLowering& lowering, FxUnit* unit, uint32_t module, uint32_t unit_index);

// The modules that no other holds and that can be run. Of a log that shows several attempts at a compilation (0/0,
// 0/0_1) those of the last, as in a trace.
std::vector<uint32_t> fx_roots(const FxFile& file);
// Kinds and FQNs of inputs from the graph that Dynamo made of the same step. What its names have lost (underscores) is
// in the sources among `sizes`, where there are any.
void name_inputs_from_dynamo(const FxUnit& dynamo, const std::vector<FxSize>& sizes, Pool* pool, FxProgram* program);
// What Dynamo calls an input that it takes from there: L['self']._modules['norm'].eps is L_self_modules_norm_eps.
std::string dynamo_name(std::string_view source);
// Hints and ranges of symbols, and what was assumed of them. Symbols of floats are passed over; guards that cannot be
// read are counted.
void learn_fx_sizes(const std::vector<FxSize>& sizes, Pool* pool, SourceProgram* program, FxGaps* gaps);
// Under dynamic=True numbers of the model's objects (`self.eps`) are inputs of no sizes; a trace tells them: they
// become nodes. REQUIRES: the ports are classified
void put_numbers_in(const std::vector<FxSize>& sizes, Pool* pool, SourceProgram* program);
// Kinds of inputs and outputs from descriptors and names, or from their order in versions that describe nothing.
void classify_fx_ports(FxProgram* program, Pool* pool);
// Phases: backward is what a comment calls so, what depends on it or on a tangent, and what has no comment of its own
// and serves nothing else (the first gradient of a loss).
void spread_backward(SourceGraph* graph);

// A forward and its backward, joined at what the one saves for the other: by name, else by position.
Result<FxProgram> join_fx_programs(FxProgram forward, FxProgram backward, Pool* pool);

// A name of one graph while it is read: "mm_3" is a value, "fw_graph0" may be a nested graph.
struct FxName {
  std::string_view canonical;  // what the value is called: another name where one only repeats it
  bool is_nested = false;
  uint32_t nested = 0;  // index into SourceProgram::nested
};

// Arguments of one node (fx_lower_args.cc).
class FxArgs {
 public:
  FxArgs(const FxLowering& lowering, const FxUnit& unit, const FlatTextMap<FxName>& names, uint32_t unit_index,
         SourceNode* node)
      : lowering_(lowering), unit_(unit), names_(names), unit_index_(unit_index), node_(node) {}

  // Fills node->args and refs from the arguments of `call` from `first` on.
  Status read(const FxExpr& call, uint32_t first, const OpInfo* info);
  Result<Arg> arg(uint32_t index, bool is_group = false);

 private:
  Result<Arg> name(const FxExpr& e);
  Result<Arg> number(const FxExpr& e, bool is_negative);
  Result<Arg> unary(const FxExpr& e);
  Result<Arg> binary(const FxExpr& e);
  Result<Arg> call(const FxExpr& e);
  Result<Arg> items(const FxExpr& e, uint32_t first = 0);
  Result<Arg> dict(const FxExpr& e);
  Arg text(ArgKind kind, std::string_view s) const { return Arg::text(kind, lowering_.job->pool->str(s)); }
  Arg opaque(const FxExpr& e) const;
  std::optional<int64_t> group_size(const FxExpr& call, uint32_t first, const OpInfo* info) const;
  std::string device_of(const FxExpr& call) const;
  Error error(const FxExpr& e, std::string message, std::string hint = {}) const {
    return unit_.text.error(e.at, std::move(message), std::move(hint));
  }

  const FxLowering& lowering_;
  const FxUnit& unit_;
  const FlatTextMap<FxName>& names_;
  uint32_t unit_index_;
  SourceNode* node_;
  std::optional<int64_t> group_size_;
};

// device(type='cuda', index=0) is "cuda:0"; empty when the call is none.
std::string fx_device_text(const FxFile& file, const FxExpr& call);

}  // namespace sg
