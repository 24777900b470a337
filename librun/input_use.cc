#include "librun/input_use.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "libgraph/op.h"
#include "librun/param_use.h"

namespace sg {
namespace {

constexpr size_t kMaxAxes = 8;
constexpr size_t kMaxPieces = 1 << 16;    // inputs in one value: beyond this they are not tracked
constexpr int kMaxDepth = 16;             // nesting of bodies
constexpr size_t kMaxNodes = 20'000'000;  // visited; a body counts once per call

// One input's elements within a value. `axes[d]` is the axis of the (global) input that corresponds to axis d of the
// value.
struct Piece {
  uint32_t input = 0;
  bool has_axes = false;
  std::array<int8_t, kMaxAxes> axes{};
  int64_t shift = 0;  // integers: value = element + shift
};
using Pieces = std::shared_ptr<const std::vector<Piece>>;

std::string_view without_overload(std::string_view op) {
  size_t space = op.find('.');
  size_t overload = space == std::string_view::npos ? space : op.find('.', space + 1);
  return op.substr(0, overload);
}

// The parameter of argument `i` of a node; null if there is none.
const Param* param_of(const Pool& pool, const OpInfo& op, const Node& node, size_t i) {
  const Arg& arg = node.args[i];
  if (arg.key().is_none()) return i < op.params.size() ? &op.params[i] : nullptr;
  int at = op.param_index(pool.strings[arg.key()]);
  return at < 0 ? nullptr : &op.params[static_cast<size_t>(at)];
}

class UseFinder {
 public:
  UseFinder(const Program& program, const SizeValues& sizes)
      : program_(program),
        pool_(program.graph.pool()),
        sizes_(sizes),
        uses_(program.graph.inputs().size()),
        compared_(uses_.size()),
        is_ranged_(uses_.size()) {}

  std::vector<InputUse> run() {
    const Graph& graph = program_.graph;
    State state(graph);
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      if (graph.type(graph.inputs()[i].value).kind != TypeKind::tensor) continue;
      Piece piece{static_cast<uint32_t>(i)};
      identity(graph.type(graph.inputs()[i].value).shape.size(), &piece);
      state.pieces[graph.inputs()[i].value.index] = one(piece);
    }
    walk(graph, &state, 0);
    take_compared();
    return std::move(uses_);
  }

 private:
  // What the values of one graph hold. A view of memory that is written later shares its root's pieces.
  struct State {
    explicit State(const Graph& graph)
        : pieces(graph.value_id_limit()), of_root(graph.value_id_limit()), root(graph.value_id_limit()) {
      for (uint32_t i = 0; i < root.size(); ++i) root[i] = ValueId(i);
    }
    const Pieces& of(ValueId v) const { return pieces[v.index] ? pieces[v.index] : of_root[root[v.index].index]; }
    std::vector<Pieces> pieces, of_root;
    std::vector<ValueId> root;
  };

  static Pieces one(const Piece& piece) { return std::make_shared<const std::vector<Piece>>(1, piece); }

  static void identity(size_t rank, Piece* piece) {
    piece->has_axes = rank <= kMaxAxes;
    for (size_t d = 0; piece->has_axes && d < rank; ++d) piece->axes[d] = static_cast<int8_t>(d);
  }

  void walk(const Graph& graph, State* state, int depth) {
    for (NodeId n : graph.nodes()) {
      if (++visited_ > kMaxNodes) return;
      const OpInfo* op = graph.op_info(n);
      if (op == nullptr) continue;
      if (op->name == "sg.call") enter(graph, n, state, depth);
      else visit(graph, n, *op, state);
    }
  }

  void visit(const Graph& graph, NodeId n, const OpInfo& op, State* state) {
    const Node& node = graph.node(n);
    const std::string_view name = without_overload(op.name);
    has_embedding_ |= name == "aten.embedding";
    std::vector<Piece> carried;
    bool carries = false;
    for (size_t i = 0; i < node.args.size(); ++i) {
      const Param* param = param_of(pool_, op, node, i);
      if (param == nullptr) continue;
      for (const ParamUse& use : uses_of_param(name, param->name)) note(graph, n, use, node.args[i], *state);
      note_written(*param, name, node.args[i], *state);
      if (!is_carried(op, name, *param)) continue;
      carries = true;
      append(node.args[i], *state, &carried);
    }
    note_classes(graph, n, name, *state);
    note_compared(name, node, *state);
    note_truth(graph, name, node, carries, *state);
    if (carries) carry(graph, n, op, carried, state);
    else shift(graph, name, node, state);
  }

  bool is_carried(const OpInfo& op, std::string_view name, const Param& param) const {
    if ((op.has(kView) || op.has(kMayAlias)) && param.alias != 0 && !param.written) return true;
    return carries_elements(name, param.name);
  }

  static void append(const Arg& arg, const State& state, std::vector<Piece>* out) {
    arg.walk([&](const Arg& a) {
      if (!a.is(ArgKind::value)) return;
      const Pieces& pieces = state.of(a.as_value());
      if (pieces && out->size() + pieces->size() <= kMaxPieces) out->insert(out->end(), pieces->begin(), pieces->end());
    });
  }

  // Passes the incoming elements on to the results and to written arguments.
  void carry(const Graph& graph, NodeId n, const OpInfo& op, std::vector<Piece> pieces, State* state) {
    const Node& node = graph.node(n);
    std::vector<ValueId> targets;
    for (uint32_t i = 0; i < node.result_count; ++i) targets.push_back(node.result(i));
    const bool is_view = op.has(kView) || op.has(kMayAlias);
    std::vector<ValueId> written;
    for (size_t i = 0; i < node.args.size(); ++i) {
      const Param* param = param_of(pool_, op, node, i);
      if (param == nullptr || !(param->written || (is_view && param->alias != 0))) continue;
      node.args[i].walk([&](const Arg& a) {
        if (!a.is(ArgKind::value)) return;
        if (param->written) written.push_back(a.as_value());
        else
          for (ValueId target : targets) state->root[target.index] = state->root[a.as_value().index];
      });
    }
    if (pieces.empty()) return;
    if (node.result_count == 0) targets = written;
    const bool distributes = targets.size() > 1 || op.returns_list || node.is_tuple;
    if (distributes && pieces.size() != 1 && pieces.size() != targets.size()) return;
    for (size_t i = 0; i < targets.size(); ++i) {
      Pieces part =
          distributes && pieces.size() > 1 ? one(pieces[i]) : std::make_shared<const std::vector<Piece>>(pieces);
      state->pieces[targets[i].index] = with_axes(graph, op, node, targets[i], part);
    }
    for (size_t i = 0; i < written.size(); ++i)
      state->of_root[state->root[written[i].index].index] =
          state->pieces[(i < targets.size() ? targets[i] : targets[0]).index];
  }

  // Tracks one input's axes through transposes; any value with the input's own (or its global) shape has its axes.
  Pieces with_axes(const Graph& graph, const OpInfo& op, const Node& node, ValueId v, const Pieces& pieces) const {
    if (pieces->size() != 1) return pieces;
    Piece piece = (*pieces)[0];
    const std::vector<Expr>& shape = graph.type(v).shape;
    const std::string_view name = without_overload(op.name);
    const bool permutes = name == "aten.t" || name == "aten.transpose" || name == "aten.permute";
    const bool keeps = name == "aten._to_copy" || name == "aten.clone" || name == "aten.alias" ||
                       name == "aten.detach" || op.has(kWait) || name == "_c10d_functional.all_gather_into_tensor";
    if (permutes) permute(name, node, shape.size(), &piece);
    else if (is_shape_of_input(piece.input, shape)) identity(shape.size(), &piece);
    else if (!keeps) piece.has_axes = false;
    return one(piece);
  }

  bool is_shape_of_input(uint32_t input, const std::vector<Expr>& shape) const {
    const Input& i = program_.graph.inputs()[input];
    return shape == program_.graph.type(i.value).shape ||
           (!i.sharding.global_shape.empty() && shape == i.sharding.global_shape);
  }

  static void permute(std::string_view name, const Node& node, size_t rank, Piece* piece) {
    if (!piece->has_axes || rank > kMaxAxes) return void(piece->has_axes = false);
    const auto old = piece->axes;
    auto wrap = [&](const Arg& a) -> size_t {
      if (!a.is(ArgKind::integer)) return SIZE_MAX;
      return static_cast<size_t>(a.as_int() < 0 ? a.as_int() + static_cast<int64_t>(rank) : a.as_int());
    };
    if (name == "aten.t") {
      if (rank == 2) std::swap(piece->axes[0], piece->axes[1]);
      return;
    }
    if (name == "aten.transpose" && node.args.size() >= 3) {
      size_t a = wrap(node.args[1]), b = wrap(node.args[2]);
      piece->has_axes = a < rank && b < rank;
      if (piece->has_axes) std::swap(piece->axes[a], piece->axes[b]);
      return;
    }
    piece->has_axes = node.args.size() >= 2 && node.args[1].is(ArgKind::list) && node.args[1].items().size() == rank;
    for (size_t d = 0; piece->has_axes && d < rank; ++d) {
      size_t from = wrap(node.args[1].items()[d]);
      piece->has_axes = from < rank;
      if (piece->has_axes) piece->axes[d] = old[from];
    }
  }

  // x + c and x - c with an integer c: a bound of the result gives a bound of x.
  void shift(const Graph& graph, std::string_view name, const Node& node, State* state) {
    if ((name != "aten.add" && name != "aten.sub") || node.args.size() != 2 || node.result_count != 1) return;
    if (!node.args[0].is(ArgKind::value) || !node.args[1].is(ArgKind::integer)) return;
    const Pieces& pieces = state->of(node.args[0].as_value());
    if (!pieces || !is_integral(graph.type(node.result(0)).dtype)) return;
    auto out = std::make_shared<std::vector<Piece>>(*pieces);
    const int64_t c = node.args[1].as_int();
    for (Piece& piece : *out) {
      bool overflows = name == "aten.add" ? __builtin_add_overflow(piece.shift, c, &piece.shift)
                                          : __builtin_sub_overflow(piece.shift, c, &piece.shift);
      if (overflows) return;
    }
    state->pieces[node.result(0).index] = out;
  }

  std::optional<int64_t> size(const Graph& graph, ValueId v, size_t axis) const {
    const Type& type = graph.type(v);
    if (type.kind != TypeKind::tensor || axis >= type.shape.size()) return std::nullopt;
    return evaluate_size(pool_, type.shape[axis], sizes_);
  }

  std::optional<int64_t> elements(const Graph& graph, const Arg* tensor) const {
    if (tensor == nullptr || !tensor->is(ArgKind::value)) return std::nullopt;
    return element_count(pool_, graph.type(tensor->as_value()), sizes_);
  }

  const Arg* argument(const OpInfo& op, const Node& node, std::string_view name) const {
    for (size_t i = 0; i < node.args.size(); ++i) {
      const Param* param = param_of(pool_, op, node, i);
      if (param != nullptr && param->name == name) return &node.args[i];
    }
    return nullptr;
  }

  void note(const Graph& graph, NodeId n, const ParamUse& row, const Arg& arg, const State& state) {
    const OpInfo& op = *graph.op_info(n);
    if (row.role == ParamRole::index_list) return note_index_list(graph, n, op, arg, state);
    if (!arg.is(ArgKind::value)) return;
    const Pieces& pieces = state.of(arg.as_value());
    if (!pieces) return;
    if (row.role == ParamRole::index && row.op == "aten.embedding")
      for (const Piece& piece : *pieces) uses_[piece.input].is_embedded = true;
    if (row.role == ParamRole::index) return bound(graph, n, *pieces, extent_indexed(graph, n, op, row));
    if (row.role == ParamRole::classes) return bound(graph, n, *pieces, class_count(graph, n, op));
    if (pieces->size() != 1) return;
    InputUse& use = uses_[(*pieces)[0].input];
    if (row.role == ParamRole::starts) return void(use.parted = elements(graph, argument(op, graph.node(n), "self")));
    if (use.kind != UseKind::none) return;
    use.kind = use_kind(row.role);
    const auto rank = static_cast<int>(graph.type(arg.as_value()).shape.size());
    const int axis = row.axis < 0 ? std::max(row.axis + rank, 0) : row.axis;
    if (row.role == ParamRole::product && (*pieces)[0].has_axes && axis < rank)
      use.contracted = (*pieces)[0].axes[static_cast<size_t>(axis)];
  }

  static UseKind use_kind(ParamRole role) {
    switch (role) {
      case ParamRole::product: return UseKind::product;
      case ParamRole::convolution: return UseKind::convolution;
      case ParamRole::table: return UseKind::table;
      case ParamRole::scaled: return UseKind::scaled;
      case ParamRole::added: return UseKind::added;
      case ParamRole::variance: return UseKind::variance;
      case ParamRole::divisor: return UseKind::divisor;
      case ParamRole::positive: return UseKind::positive;
      default: return UseKind::none;
    }
  }

  // Notes the first argument of an op that writes it, if the op only adds to it or replaces it.
  void note_written(const Param& param, std::string_view name, const Arg& arg, const State& state) {
    if (!param.written || !arg.is(ArgKind::value)) return;
    if (name != "aten.add_" && name != "aten.copy_" && name != "aten.fill_" && name != "aten.zero_") return;
    const Pieces& pieces = state.of(arg.as_value());
    if (pieces && pieces->size() == 1 && uses_[(*pieces)[0].input].kind == UseKind::none)
      uses_[(*pieces)[0].input].kind = UseKind::written;
  }

  struct Extent {
    std::optional<int64_t> size;
    std::string what;  // "rows of %weight"
  };

  static std::string value_text(const Graph& graph, ValueId v) { return "%" + std::string(graph.name(v)); }

  std::optional<int64_t> number(const Graph& graph, const Arg* arg) const {
    if (arg == nullptr) return std::nullopt;
    if (arg->is(ArgKind::integer)) return arg->as_int();
    if (arg->is(ArgKind::expr)) return evaluate_size(pool_, arg->as_expr(), sizes_);
    if (!arg->is(ArgKind::value)) return std::nullopt;
    const Type& type = graph.type(arg->as_value());
    return type.kind == TypeKind::integer && type.has_value ? evaluate_size(pool_, type.value, sizes_) : std::nullopt;
  }

  Extent extent_indexed(const Graph& graph, NodeId n, const OpInfo& op, const ParamUse& row) const {
    const Node& node = graph.node(n);
    if (row.op == "aten.embedding_dense_backward")
      return {number(graph, argument(op, node, "num_weights")), "rows of the table"};
    if (row.op == "aten.one_hot") return {number(graph, argument(op, node, "num_classes")), "classes"};
    const Arg* self = argument(op, node, row.op == "aten.embedding" ? "weight" : "self");
    if (self == nullptr || !self->is(ArgKind::value)) return {};
    const ValueId v = self->as_value();
    if (row.op == "aten.embedding" || row.op == "aten.embedding_renorm_")
      return {size(graph, v, 0), "rows of " + value_text(graph, v)};
    if (row.op == "aten.take")
      return {element_count(pool_, graph.type(v), sizes_), "elements of " + value_text(graph, v)};
    auto dim = number(graph, argument(op, node, "dim"));
    if (row.op == "torchtitan.deterministic_scatter_add") dim = 0;
    if (!dim) return {};
    const auto rank = static_cast<int64_t>(graph.type(v).shape.size());
    const int64_t axis = *dim < 0 ? *dim + rank : *dim;
    if (axis < 0) return {};
    return {size(graph, v, static_cast<size_t>(axis)), "axis " + std::to_string(axis) + " of " + value_text(graph, v)};
  }

  Extent class_count(const Graph& graph, NodeId n, const OpInfo& op) const {
    const Arg* self = argument(op, graph.node(n), "self");
    if (self == nullptr || !self->is(ArgKind::value)) return {};
    const ValueId v = self->as_value();
    return {size(graph, v, graph.type(v).shape.size() < 2 ? 0 : 1), "classes of " + value_text(graph, v)};
  }

  void note_index_list(const Graph& graph, NodeId n, const OpInfo& op, const Arg& list, const State& state) {
    const Arg* self = argument(op, graph.node(n), "self");
    if (self == nullptr || !self->is(ArgKind::value) || !list.is(ArgKind::list)) return;
    const ValueId v = self->as_value();
    size_t axis = 0;
    for (const Arg& item : list.items()) {
      size_t covered = 1;
      if (item.is(ArgKind::value)) {
        const Type& type = graph.type(item.as_value());
        if (type.dtype == DType::boolean) covered = type.shape.size();  // a mask covers as many axes as it has
        else if (const Pieces& pieces = state.of(item.as_value()))
          bound(graph, n, *pieces,
                {size(graph, v, axis), "axis " + std::to_string(axis) + " of " + value_text(graph, v)});
      }
      axis += covered;
    }
  }

  void bound(const Graph& graph, NodeId n, const std::vector<Piece>& pieces, const Extent& extent) {
    if (!extent.size) return;
    for (const Piece& piece : pieces) {
      InputUse& use = uses_[piece.input];
      if (piece.shift < 0 && piece.shift > -*extent.size) use.from = std::max(use.from, -piece.shift);
      int64_t below = 0;  // of the element: 0 <= element + shift < size; a positive shift allows no negative elements
      if (__builtin_sub_overflow(*extent.size, piece.shift, &below) || (use.below && *use.below <= below)) continue;
      use.below = below;
      use.because = extent.what + ", in %" + std::string(graph.label(n));
    }
  }

  // x == arange(n), as F.one_hot is traced: x is a class in [0, n).
  void note_classes(const Graph& graph, NodeId n, std::string_view name, const State& state) {
    const Node& node = graph.node(n);
    if (name != "aten.eq" || node.args.size() != 2 || !node.args[0].is(ArgKind::value)) return;
    const Pieces& pieces = state.of(node.args[0].as_value());
    if (!pieces || !node.args[1].is(ArgKind::value)) return;
    const NodeId of = graph.value(node.args[1].as_value()).def;
    const OpInfo* op = of ? graph.op_info(of) : nullptr;
    if (op == nullptr || op->name != "aten.arange.default") return;
    bound(graph, n, *pieces,
          {number(graph, argument(*op, graph.node(of), "end")), "numbers of %" + std::string(graph.label(of))});
  }

  void note_compared(std::string_view name, const Node& node, const State& state) {
    const bool is_upper = name == "aten.lt" || name == "aten.le";
    if (!is_upper && name != "aten.ge" && name != "aten.gt") return;
    if (node.args.size() < 2 || !node.args[0].is(ArgKind::value) || !node.args[1].is(ArgKind::integer)) return;
    const Pieces& pieces = state.of(node.args[0].as_value());
    int64_t limit = 0;
    if (!pieces || __builtin_add_overflow(node.args[1].as_int(), name == "aten.le" || name == "aten.gt", &limit))
      return;
    for (const Piece& piece : *pieces) {
      int64_t below = 0;
      if (__builtin_sub_overflow(limit, piece.shift, &below)) continue;
      compared_[piece.input] = std::max(compared_[piece.input], below);
      if (is_upper) is_ranged_[piece.input] = true;
    }
  }

  static bool is_one(const Arg& a) {
    return (a.is(ArgKind::integer) && a.as_int() == 1) || (a.is(ArgKind::floating) && a.as_float() == 1);
  }

  // Notes integers whose consumers only ask whether they are nonzero, or subtract them from 1.
  void note_truth(const Graph& graph, std::string_view name, const Node& node, bool carries, const State& state) {
    if (node.result_count != 1 || node.args.empty() || !node.args[0].is(ArgKind::value)) return;
    const bool is_complement = name == "aten.rsub" && node.args.size() == 2 && is_one(node.args[1]);
    if (!is_complement && (graph.type(node.result(0)).dtype != DType::boolean ||
                           graph.type(node.args[0].as_value()).dtype == DType::boolean))
      return;
    const bool is_held = (name == "aten.eq" || name == "aten.ne") && node.args.size() == 2 &&
                         node.args[1].is(ArgKind::integer) && (node.args[1].as_int() & ~int64_t{1}) == 0;
    if (!carries && !is_held && !is_complement && name != "aten.logical_not") return;
    const Pieces& pieces = state.of(node.args[0].as_value());
    if (!pieces) return;
    for (const Piece& piece : *pieces) uses_[piece.input].is_truth |= piece.shift == 0;
  }

  // Only a two-sided check is a range (a rank's part of a vocabulary); `x > 0` alone may just test a mask.
  void take_compared() {
    for (size_t i = 0; i < uses_.size(); ++i)
      if (is_ranged_[i] && compared_[i] > 0) {
        uses_[i].compared = compared_[i];
        uses_[i].is_embedded |= has_embedding_;
      }
  }

  void enter(const Graph& graph, NodeId n, State* state, int depth) {
    const Node& node = graph.node(n);
    if (depth >= kMaxDepth || node.args.size() < 2 || !node.args[0].is(ArgKind::graph) ||
        !node.args[1].is(ArgKind::list))
      return;
    const uint32_t body_index = node.args[0].as_graph().index;
    if (body_index >= program_.nested.size()) return;
    const Graph& body = program_.nested[body_index]->graph;
    State inner(body);
    const ArgList& given = node.args[1].items();
    for (size_t i = 0; i < std::min(given.size(), body.inputs().size()); ++i)
      if (given[i].is(ArgKind::value)) inner.pieces[body.inputs()[i].value.index] = state->of(given[i].as_value());
    walk(body, &inner, depth + 1);
    for (uint32_t i = 0; i < std::min<size_t>(node.result_count, body.outputs().size()); ++i)
      if (ValueId out = body.outputs()[i].value) state->pieces[node.result(i).index] = inner.of(out);
  }

  const Program& program_;
  const Pool& pool_;
  const SizeValues& sizes_;
  std::vector<InputUse> uses_;
  std::vector<int64_t> compared_;  // by input: the largest limit that it is compared with
  std::vector<bool> is_ranged_;    // by input: compared with an upper limit
  bool has_embedding_ = false;
  size_t visited_ = 0;
};

}  // namespace

std::vector<InputUse> find_input_uses(const Program& program, const SizeValues& sizes) {
  return UseFinder(program, sizes).run();
}

}  // namespace sg
