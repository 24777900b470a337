// InferCall: one call as an inference rule sees it: arguments by the schema's names in, result types out.
//
// A rule queries what its op needs; a query that the arguments cannot answer is an Error that the rule propagates.
// Nothing in a node can make a query crash.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "libgraph/infer/infer_sizes.h"
#include "libgraph/op.h"

namespace sg {

enum class MemoryFormat : uint8_t { preserve, contiguous, channels_last, channels_last_3d };

struct InferCall {
  InferCall(const Program& program_, const Graph& graph_, NodeId node_, const OpInfo& op_, Sizes& sizes_)
      : program(program_), graph(graph_), pool(graph_.pool()), node(graph_.node(node_)), op(op_), sizes(sizes_) {}

  // Binds the node's arguments to the schema's parameters. Fails on one too many or an unknown keyword.
  Status bind();

  // The argument for a parameter: null when it is left out, None, or no such parameter.
  const Arg* find(std::string_view name) const;
  bool given(std::string_view name) const { return find(name) != nullptr; }

  Result<const Type*> tensor(std::string_view name) const;
  Result<const Type*> optional_tensor(std::string_view name) const;       // null when not given
  Result<std::vector<const Type*>> tensors(std::string_view name) const;  // null for None inside the list
  Result<Expr> size(std::string_view name) const;                         // a number, known or symbolic
  Result<Exprs> size_list(std::string_view name) const;                   // one number stands for a list of it
  Result<int64_t> integer(std::string_view name) const;                   // a known number
  Result<std::vector<int64_t>> integers(std::string_view name) const;
  Result<bool> boolean(std::string_view name) const;
  std::optional<DType> dtype(std::string_view name) const;
  std::optional<StrId> device(std::string_view name) const;
  std::string_view text(std::string_view name) const;  // of a string; empty when not given
  MemoryFormat memory_format(std::string_view name, MemoryFormat otherwise) const;

  // The symbolic value of one argument or list item: an int, an expression, or a value of integer type.
  Result<Expr> as_size(const Arg& arg) const;
  // The type of a value argument, whatever it is; null for literals.
  const Type* type_of(const Arg& arg) const;

  // A dimension number of a tensor of that rank, negative ones counted from the end; rank 0 takes 0 and -1.
  Result<size_t> dim(std::string_view name, size_t rank) const;
  Result<size_t> wrap_dim(int64_t dim, size_t rank) const;

  // The tensor argument, where it is given, has this shape: fails where ranks or known sizes differ.
  Status expect_shape(std::string_view name, const Exprs& shape) const;
  // The same, or of sizes that broadcast to it.
  Status expect_broadcast(std::string_view name, const Exprs& shape) const;
  // Whether two sizes may be equal: only known and different ones may not.
  bool may_equal(Expr a, Expr b) const;
  // Whether the number is known and lies outside of [low, high].
  bool is_outside(Expr e, int64_t low, int64_t high) const;

  // --- results ---
  Type make(DType dtype, Exprs shape, Exprs stride, StrId device) const;
  Status give(Type t);                                                    // one more result
  Status give(DType dtype, Exprs shape, Exprs stride, const Type& like);  // offset 0
  Status give_contiguous(DType dtype, Exprs shape, const Type& like);
  Status give_none();
  Status give_integer(Expr value);

  Error fail(std::string message) const;

  const Program& program;
  const Graph& graph;
  Pool& pool;
  const Node& node;
  const OpInfo& op;
  Sizes& sizes;
  std::vector<Type> results;

 private:
  std::vector<const Arg*> bound_;
};

// PyTorch's promotion of two element types.
DType promote(DType a, DType b);
// Whether PyTorch writes results of one element type to a tensor of the other: not to a lower one of bool, whole,
// floating, complex.
bool can_cast(DType from, DType to);

}  // namespace sg
