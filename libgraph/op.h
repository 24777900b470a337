// The op table: one row an operator (op.def), shared by everything that must know what an op is.
//
// A row gives the op's identity and schema in PyTorch's schema notation, alias annotations included (`Tensor(a)` is a
// view of what is marked (a), `Tensor(a!)` is written), its traits, and the names of the rule functions that a family
// of ops shares: result types, cost, chunking. An op without a row is opaque: it travels, nothing is known about it,
// and every analysis is conservative about it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "libgraph/base/ids.h"
#include "libgraph/base/result.h"

namespace sg {

class Arg;
class Graph;
class StringTable;
struct Node;
struct Program;

enum Trait : uint32_t {
  kPure = 1u << 0,       // no effect besides its results; equal arguments, equal results
  kView = 1u << 1,       // a result always shares storage with an argument
  kMayAlias = 1u << 2,   // a result may share storage: decided by strides (reshape, contiguous, to)
  kPointwise = 1u << 3,  // element i of the result depends on element i of the (broadcast) arguments only
  kReduction = 1u << 4,
  kContraction = 1u << 5,       // matrix products, convolutions, attention
  kRandom = 1u << 6,            // draws from a random stream
  kCollective = 1u << 7,        // talks to other ranks of its group; ordered per group
  kWait = 1u << 8,              // completes a collective
  kHostSync = 1u << 9,          // the host must see device data to go on
  kBindsSymbol = 1u << 10,      // results define data-dependent symbols; those of a pure op where no argument says them
  kAssert = 1u << 11,           // no result; fails the run when its condition is false
  kSize = 1u << 12,             // arithmetic on sizes: scalars in, scalars out, nothing on the device
  kHigherOrder = 1u << 13,      // takes nested graphs
  kRandomIfDropout = 1u << 14,  // draws random numbers when its dropout probability is not a literal 0
  kWritesInTraining = 1u << 15,  // writes the arguments that its schema marks unless its `training` is a literal false
  kChooses = 1u << 16,           // picks elements by their values: the slightest change may make it pick others
};

enum class ParamKind : uint8_t {
  tensor,
  tensor_list,
  scalar,
  integer,
  integer_list,
  floating,
  boolean,
  string,
  dtype,
  layout,
  device,
  memory_format,
  group,
  graph,
  any
};

struct Param {
  std::string_view name;
  ParamKind kind = ParamKind::any;
  bool optional = false;      // "?" in the schema
  bool keyword_only = false;  // after "*"
  bool has_default = false;
  std::string_view default_text;
  char alias = 0;        // alias set letter; 0 = none
  bool written = false;  // "!"
};

struct ResultInfo {
  ParamKind kind = ParamKind::tensor;
  char alias = 0;
  bool written = false;
};

struct InferCall;  // infer.h: arguments by name in, result types out
struct CostCall;   // cost.h
using InferRule = Status (*)(InferCall&);
struct OpCost {
  double flops = 0;
  double bytes = 0;  // read and written by the device
};
using CostRule = OpCost (*)(const CostCall&);

// How an op acts on a chunked axis of its arguments; the chunk engine's rule families (used by sg-chunk).
enum class ChunkRule : uint8_t { none, keep, contract, broadcast, permute, merge, gather, custom };

struct OpInfo {
  std::string_view name;    // full name with overload: "aten.add.Tensor"
  std::string_view schema;  // "(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
  uint32_t traits = 0;
  InferRule infer = nullptr;  // null = types come from the capture only
  CostRule cost = nullptr;
  ChunkRule chunk = ChunkRule::none;
  // Comma-separated argument sets in which the op is linear, the rest held fixed: "self,other" = in each of the two,
  // "self+other" = in both together.
  std::string_view linear_in;
  std::vector<Param> params;  // parsed from the schema
  std::vector<ResultInfo> results;
  bool returns_list = false;  // "Tensor[]": as many results as the call says

  bool has(Trait t) const { return (traits & t) != 0; }
  int param_index(std::string_view param_name) const;  // -1 = no such parameter
  bool writes() const;                                 // some parameter is marked "!"
};

const OpInfo* find_op(std::string_view full_name);  // null = not in the table
std::span<const OpInfo> all_ops();                  // in table order

// What a node passes for a parameter: by keyword, else by position; null when it is left out.
const Arg* argument(const Node& node, const OpInfo& op, const StringTable& strings, std::string_view name);

// Whether this call draws random numbers: kRandom, or kRandomIfDropout with a probability that may differ from 0.
bool draws_random(const Graph& graph, NodeId n);

// Whether this call writes the arguments that its schema marks as written.
bool writes_arguments(const Graph& graph, NodeId n);

// How many results a list-returning call has, as far as its list of sizes to split into tells; 0 = it does not.
uint32_t split_result_count(const OpInfo* op, std::span<const Arg> args);

// The data-dependent symbols that a node defines when its NodeMeta::binds says nothing: those of kind `data` that stand
// alone as a scalar result or as a dimension of a tensor result and in no argument's type. Only kBindsSymbol ops and
// ops without a row define any.
std::vector<StrId> default_binds(const Program& program, const Graph& graph, NodeId n);

// Whether the op gives a view with a conjugate or a negative bit, which its type does not show.
bool has_hidden_bits(std::string_view op);

}  // namespace sg
