#include "librun/values/input_pieces.h"

#include <utility>

#include "librun/values/param_use.h"

namespace sg::input_use {
namespace {

constexpr size_t kMaxPieces = 1 << 16;  // inputs in one value: beyond this they are not tracked

Pieces one(const Piece& piece) { return std::make_shared<const std::vector<Piece>>(1, piece); }

void identity(size_t rank, Piece* piece) {
  piece->has_axes = rank <= kMaxAxes;
  for (size_t d = 0; piece->has_axes && d < rank; ++d) piece->axes[d] = static_cast<int8_t>(d);
}

bool is_carried(const OpInfo& op, std::string_view name, const Param& param) {
  if ((op.has(kView) || op.has(kMayAlias)) && param.alias != 0 && !param.written) return true;
  return carries_elements(name, param.name);
}

void append(const Arg& arg, const Held& held, std::vector<Piece>* out) {
  arg.walk([&](const Arg& a) {
    if (!a.is(ArgKind::value)) return;
    const Pieces& pieces = held.of(a.as_value());
    if (pieces && out->size() + pieces->size() <= kMaxPieces) out->insert(out->end(), pieces->begin(), pieces->end());
  });
}

void permute(std::string_view name, const Node& node, size_t rank, Piece* piece) {
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

}  // namespace

Held::Held(const Graph& graph)
    : pieces_(graph.value_id_limit()), of_root_(graph.value_id_limit()), root_(graph.value_id_limit()) {
  for (uint32_t i = 0; i < root_.size(); ++i) root_[i] = ValueId(i);
}

std::string_view without_overload(std::string_view op) {
  size_t space = op.find('.');
  size_t overload = space == std::string_view::npos ? space : op.find('.', space + 1);
  return op.substr(0, overload);
}

const Param* param_of(const Pool& pool, const OpInfo& op, const Node& node, size_t i) {
  const Arg& arg = node.args[i];
  if (arg.key().is_none()) return i < op.params.size() ? &op.params[i] : nullptr;
  int at = op.param_index(pool.strings[arg.key()]);
  return at < 0 ? nullptr : &op.params[static_cast<size_t>(at)];
}

Pieces whole_input(uint32_t input, size_t rank) {
  Piece piece{input};
  identity(rank, &piece);
  return one(piece);
}

std::optional<std::vector<Piece>> Follower::carried(const Graph& graph, NodeId n, const OpInfo& op,
                                                    const Held& held) const {
  const Node& node = graph.node(n);
  std::vector<Piece> out;
  bool carries = false;
  for (size_t i = 0; i < node.args.size(); ++i) {
    const Param* param = param_of(pool_, op, node, i);
    if (param == nullptr || !is_carried(op, without_overload(op.name), *param)) continue;
    carries = true;
    append(node.args[i], held, &out);
  }
  return carries ? std::optional(std::move(out)) : std::nullopt;
}

void Follower::carry(const Graph& graph, NodeId n, const OpInfo& op, const std::vector<Piece>& pieces,
                     Held* held) const {
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
        for (ValueId target : targets) held->share_memory(target, a.as_value());
    });
  }
  if (pieces.empty()) return;
  if (node.result_count == 0) targets = written;
  const bool distributes = targets.size() > 1 || op.returns_list || node.is_tuple;
  if (distributes && pieces.size() != 1 && pieces.size() != targets.size()) return;
  for (size_t i = 0; i < targets.size(); ++i) {
    Pieces part =
        distributes && pieces.size() > 1 ? one(pieces[i]) : std::make_shared<const std::vector<Piece>>(pieces);
    held->set(targets[i], with_axes(graph, op, node, targets[i], part));
  }
  for (size_t i = 0; i < written.size(); ++i)
    held->set_memory(written[i], held->of(i < targets.size() ? targets[i] : targets[0]));
}

// Tracks one input's axes through transposes; any value with the input's own (or its global) shape has its axes.
Pieces Follower::with_axes(const Graph& graph, const OpInfo& op, const Node& node, ValueId v,
                           const Pieces& pieces) const {
  if (pieces->size() != 1) return pieces;
  Piece piece = (*pieces)[0];
  const std::vector<Expr>& shape = graph.type(v).shape;
  const std::string_view name = without_overload(op.name);
  const bool permutes = name == "aten.t" || name == "aten.transpose" || name == "aten.permute";
  const bool keeps = name == "aten._to_copy" || name == "aten.clone" || name == "aten.alias" || name == "aten.detach" ||
                     op.has(kWait) || name == "_c10d_functional.all_gather_into_tensor";
  if (permutes) permute(name, node, shape.size(), &piece);
  else if (is_shape_of_input(piece.input, shape)) identity(shape.size(), &piece);
  else if (!keeps) piece.has_axes = false;
  return one(piece);
}

bool Follower::is_shape_of_input(uint32_t input, const std::vector<Expr>& shape) const {
  const Input& i = program_.graph.inputs()[input];
  return shape == program_.graph.type(i.value).shape ||
         (!i.sharding.global_shape.empty() && shape == i.sharding.global_shape);
}

void Follower::shift(const Graph& graph, NodeId n, const OpInfo& op, Held* held) const {
  const Node& node = graph.node(n);
  const std::string_view name = without_overload(op.name);
  if ((name != "aten.add" && name != "aten.sub") || node.args.size() != 2 || node.result_count != 1) return;
  if (!node.args[0].is(ArgKind::value) || !node.args[1].is(ArgKind::integer)) return;
  const Pieces& pieces = held->of(node.args[0].as_value());
  if (!pieces || !is_integral(graph.type(node.result(0)).dtype)) return;
  auto out = std::make_shared<std::vector<Piece>>(*pieces);
  const int64_t c = node.args[1].as_int();
  for (Piece& piece : *out) {
    bool overflows = name == "aten.add" ? __builtin_add_overflow(piece.shift, c, &piece.shift)
                                        : __builtin_sub_overflow(piece.shift, c, &piece.shift);
    if (overflows) return;
  }
  held->set(node.result(0), out);
}

}  // namespace sg::input_use
