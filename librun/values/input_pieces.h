// Which inputs' elements the values of a program hold, followed node by node: through views, casts, gathers over ranks,
// splits and concatenations, and buckets of parameters. Internal to input_use.cc.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "libgraph/job.h"
#include "libgraph/op.h"

namespace sg::input_use {

inline constexpr size_t kMaxAxes = 8;

// One input's elements within a value. `axes[d]` is the axis of the (global) input that corresponds to axis d of the
// value.
struct Piece {
  uint32_t input = 0;
  bool has_axes = false;
  std::array<int8_t, kMaxAxes> axes{};
  int64_t shift = 0;  // integers: value = element + shift
};
using Pieces = std::shared_ptr<const std::vector<Piece>>;

// What the values of one graph hold. A view of memory that is written later shares its root's pieces.
class Held {
 public:
  explicit Held(const Graph& graph);
  const Pieces& of(ValueId v) const { return pieces_[v.index] ? pieces_[v.index] : of_root_[root_[v.index].index]; }
  void set(ValueId v, Pieces pieces) { pieces_[v.index] = std::move(pieces); }
  void set_memory(ValueId v, Pieces pieces) { of_root_[root_[v.index].index] = std::move(pieces); }
  void share_memory(ValueId view, ValueId of) { root_[view.index] = root_[of.index]; }

 private:
  std::vector<Pieces> pieces_, of_root_;
  std::vector<ValueId> root_;
};

// "aten.add" of "aten.add.Tensor".
std::string_view without_overload(std::string_view op);
// The parameter of argument `i` of a node; null if there is none.
const Param* param_of(const Pool& pool, const OpInfo& op, const Node& node, size_t i);

// All elements of an input, whose value has this many axes.
Pieces whole_input(uint32_t input, size_t rank);

class Follower {
 public:
  explicit Follower(const Program& program) : program_(program), pool_(program.graph.pool()) {}

  // The elements that a node passes on; none if it computes its results, or its op is unknown to param_use.h.
  std::optional<std::vector<Piece>> carried(const Graph& graph, NodeId n, const OpInfo& op, const Held& held) const;
  // Gives the results, and the arguments that the node writes, the elements passed on.
  void carry(const Graph& graph, NodeId n, const OpInfo& op, const std::vector<Piece>& pieces, Held* held) const;
  // x + c and x - c with an integer c: a bound of the result gives a bound of x.
  void shift(const Graph& graph, NodeId n, const OpInfo& op, Held* held) const;

 private:
  Pieces with_axes(const Graph& graph, const OpInfo& op, const Node& node, ValueId v, const Pieces& pieces) const;
  bool is_shape_of_input(uint32_t input, const std::vector<Expr>& shape) const;

  const Program& program_;
  const Pool& pool_;
};

}  // namespace sg::input_use
