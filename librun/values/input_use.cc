#include "librun/values/input_use.h"

#include <algorithm>
#include <string_view>

#include "libgraph/op.h"
#include "librun/values/input_pieces.h"
#include "librun/values/param_use.h"

namespace sg {
namespace {

constexpr int kMaxDepth = 16;             // nesting of bodies
constexpr size_t kMaxNodes = 20'000'000;  // visited; a body counts once per call

using input_use::Held, input_use::Piece, input_use::Pieces, input_use::param_of, input_use::without_overload;

class UseFinder {
 public:
  UseFinder(const Program& program, const SizeValues& sizes)
      : program_(program),
        pool_(program.graph.pool()),
        sizes_(sizes),
        follower_(program),
        uses_(program.graph.inputs().size()),
        compared_(uses_.size()),
        is_ranged_(uses_.size()) {}

  std::vector<InputUse> run() {
    const Graph& graph = program_.graph;
    Held held(graph);
    for (uint32_t i = 0; i < graph.inputs().size(); ++i) {
      const ValueId v = graph.inputs()[i].value;
      if (graph.type(v).kind == TypeKind::tensor) held.set(v, input_use::whole_input(i, graph.type(v).shape.size()));
    }
    walk(graph, &held, 0);
    take_compared();
    return std::move(uses_);
  }

 private:
  void walk(const Graph& graph, Held* held, int depth) {
    for (NodeId n : graph.nodes()) {
      if (++visited_ > kMaxNodes) return;
      const OpInfo* op = graph.op_info(n);
      if (op == nullptr) continue;
      if (op->name == "sg.call") enter(graph, n, held, depth);
      else visit(graph, n, *op, held);
    }
  }

  void visit(const Graph& graph, NodeId n, const OpInfo& op, Held* held) {
    const Node& node = graph.node(n);
    const std::string_view name = without_overload(op.name);
    has_embedding_ |= name == "aten.embedding";
    for (size_t i = 0; i < node.args.size(); ++i) {
      const Param* param = param_of(pool_, op, node, i);
      if (param == nullptr) continue;
      for (const ParamUse& use : uses_of_param(name, param->name)) note(graph, n, use, node.args[i], *held);
      note_written(*param, name, node.args[i], *held);
    }
    const std::optional<std::vector<Piece>> carried = follower_.carried(graph, n, op, *held);
    note_classes(graph, n, name, *held);
    note_compared(name, node, *held);
    note_truth(graph, name, node, carried.has_value(), *held);
    if (carried) follower_.carry(graph, n, op, *carried, held);
    else follower_.shift(graph, n, op, held);
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
    return sg::argument(node, op, pool_.strings, name);
  }

  void note(const Graph& graph, NodeId n, const ParamUse& row, const Arg& arg, const Held& held) {
    const OpInfo& op = *graph.op_info(n);
    if (row.role == ParamRole::index_list) return note_index_list(graph, n, op, arg, held);
    if (!arg.is(ArgKind::value)) return;
    const Pieces& pieces = held.of(arg.as_value());
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
  void note_written(const Param& param, std::string_view name, const Arg& arg, const Held& held) {
    if (!param.written || !arg.is(ArgKind::value)) return;
    if (name != "aten.add_" && name != "aten.copy_" && name != "aten.fill_" && name != "aten.zero_") return;
    const Pieces& pieces = held.of(arg.as_value());
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

  void note_index_list(const Graph& graph, NodeId n, const OpInfo& op, const Arg& list, const Held& held) {
    const Arg* self = argument(op, graph.node(n), "self");
    if (self == nullptr || !self->is(ArgKind::value) || !list.is(ArgKind::list)) return;
    const ValueId v = self->as_value();
    size_t axis = 0;
    for (const Arg& item : list.items()) {
      size_t covered = 1;
      if (item.is(ArgKind::value)) {
        const Type& type = graph.type(item.as_value());
        if (type.dtype == DType::boolean) covered = type.shape.size();  // a mask covers as many axes as it has
        else if (const Pieces& pieces = held.of(item.as_value()))
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
  void note_classes(const Graph& graph, NodeId n, std::string_view name, const Held& held) {
    const Node& node = graph.node(n);
    if (name != "aten.eq" || node.args.size() != 2 || !node.args[0].is(ArgKind::value)) return;
    const Pieces& pieces = held.of(node.args[0].as_value());
    if (!pieces || !node.args[1].is(ArgKind::value)) return;
    const NodeId of = graph.value(node.args[1].as_value()).def;
    const OpInfo* op = of ? graph.op_info(of) : nullptr;
    if (op == nullptr || op->name != "aten.arange.default") return;
    bound(graph, n, *pieces,
          {number(graph, argument(*op, graph.node(of), "end")), "numbers of %" + std::string(graph.label(of))});
  }

  void note_compared(std::string_view name, const Node& node, const Held& held) {
    const bool is_upper = name == "aten.lt" || name == "aten.le";
    if (!is_upper && name != "aten.ge" && name != "aten.gt") return;
    if (node.args.size() < 2 || !node.args[0].is(ArgKind::value) || !node.args[1].is(ArgKind::integer)) return;
    const Pieces& pieces = held.of(node.args[0].as_value());
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
  void note_truth(const Graph& graph, std::string_view name, const Node& node, bool carries, const Held& held) {
    if (node.result_count != 1 || node.args.empty() || !node.args[0].is(ArgKind::value)) return;
    const bool is_complement = name == "aten.rsub" && node.args.size() == 2 && is_one(node.args[1]);
    if (!is_complement && (graph.type(node.result(0)).dtype != DType::boolean ||
                           graph.type(node.args[0].as_value()).dtype == DType::boolean))
      return;
    const bool is_held = (name == "aten.eq" || name == "aten.ne") && node.args.size() == 2 &&
                         node.args[1].is(ArgKind::integer) && (node.args[1].as_int() & ~int64_t{1}) == 0;
    if (!carries && !is_held && !is_complement && name != "aten.logical_not") return;
    const Pieces& pieces = held.of(node.args[0].as_value());
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

  void enter(const Graph& graph, NodeId n, Held* held, int depth) {
    const Node& node = graph.node(n);
    if (depth >= kMaxDepth || node.args.size() < 2 || !node.args[0].is(ArgKind::graph) ||
        !node.args[1].is(ArgKind::list))
      return;
    const uint32_t body_index = node.args[0].as_graph().index;
    if (body_index >= program_.nested.size()) return;
    const Graph& body = program_.nested[body_index]->graph;
    Held inner(body);
    const ArgList& given = node.args[1].items();
    for (size_t i = 0; i < std::min(given.size(), body.inputs().size()); ++i)
      if (given[i].is(ArgKind::value)) inner.set(body.inputs()[i].value, held->of(given[i].as_value()));
    walk(body, &inner, depth + 1);
    for (uint32_t i = 0; i < std::min<size_t>(node.result_count, body.outputs().size()); ++i)
      if (ValueId out = body.outputs()[i].value) held->set(node.result(i), inner.of(out));
  }

  const Program& program_;
  const Pool& pool_;
  const SizeValues& sizes_;
  const input_use::Follower follower_;
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
