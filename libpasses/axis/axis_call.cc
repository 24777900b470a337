#include "libpasses/axis/axis_call.h"

#include "libgraph/infer/infer_sizes.h"

namespace sg {

AxisCall::AxisCall(AxisWorld* world_in, const Program& program_in, NodeId n)
    : world(*world_in),
      program(program_in),
      graph(program_in.graph),
      exprs(graph.pool().exprs),
      id(n),
      node(graph.node(n)),
      op(*graph.op_info(n)),
      bound_(op.params.size()) {
  size_t positional = 0;
  for (const Arg& arg : node.args) {
    const int at =
        arg.key().is_none() ? static_cast<int>(positional++) : op.param_index(graph.pool().strings[arg.key()]);
    if (at >= 0 && static_cast<size_t>(at) < bound_.size()) bound_[static_cast<size_t>(at)] = &arg;
  }
}

const Arg* AxisCall::find(std::string_view name) const {
  const int at = op.param_index(name);
  if (at < 0) return nullptr;
  const Arg* arg = bound_[static_cast<size_t>(at)];
  return arg == nullptr || arg->is(ArgKind::none) ? nullptr : arg;
}

ValueId AxisCall::tensor(std::string_view name) const {
  const Arg* arg = find(name);
  return arg != nullptr && arg->is(ArgKind::value) ? arg->as_value() : ValueId();
}

std::vector<ValueId> AxisCall::tensors() const {
  std::vector<ValueId> out;
  for (const Arg& arg : node.args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::value) && type(a.as_value()).kind == TypeKind::tensor) out.push_back(a.as_value());
    });
  return out;
}

std::optional<int64_t> AxisCall::integer(std::string_view name) const {
  const Arg* arg = find(name);
  return arg != nullptr && arg->is(ArgKind::integer) ? std::optional(arg->as_int()) : std::nullopt;
}

bool AxisCall::boolean(std::string_view name, bool fallback) const {
  const Arg* arg = find(name);
  return arg != nullptr && arg->is(ArgKind::boolean) ? arg->as_bool() : fallback;
}

std::optional<std::vector<int64_t>> AxisCall::integers(std::string_view name) const {
  const Arg* arg = find(name);
  if (arg == nullptr) return std::nullopt;
  if (arg->is(ArgKind::integer)) return std::vector<int64_t>{arg->as_int()};
  if (!arg->is(ArgKind::list)) return std::nullopt;
  std::vector<int64_t> out;
  for (const Arg& item : arg->items()) {
    if (!item.is(ArgKind::integer)) return std::nullopt;
    out.push_back(item.as_int());
  }
  return out;
}

const AxisState& AxisCall::state(ValueId v) const {
  const AxisState& own = world.state_now(v);
  return own.kind == AxisKind::whole && !world.seeds.empty() && world.seeds[v.index].kind == AxisKind::along
             ? world.seeds[v.index]
             : own;
}

const AxisState* AxisCall::along(ValueId v) const {
  return !v.is_none() && state(v).kind == AxisKind::along ? &state(v) : nullptr;
}

bool AxisCall::is_whole(ValueId v) const { return v.is_none() || !state(v).is_chunked(); }

Expr AxisCall::extent(const Along& a) const { return a.length(&exprs, domain(a).size); }

bool AxisCall::is_as_long(ValueId v, const Along& a) const {
  return a.axis < rank(v) && is_as_long(type(v).shape[a.axis], extent(a));
}

std::optional<size_t> AxisCall::wrap(int64_t d, size_t rank) const {
  const int64_t n = static_cast<int64_t>(rank);
  if (d < 0) d += n;
  return d < 0 || d >= n ? std::nullopt : std::optional(static_cast<size_t>(d));
}

std::optional<size_t> AxisCall::dim(std::string_view name, size_t rank, int64_t fallback) const {
  const Arg* arg = find(name);
  if (arg != nullptr && !arg->is(ArgKind::integer)) return std::nullopt;
  return wrap(integer(name, fallback), rank);
}

Result<ValueId> AxisCall::first_along() const {
  for (ValueId v : tensors())
    if (along(v) != nullptr) return v;
  return fail("no operand is chunked along an axis");
}

Status AxisCall::want(ValueId v, const Along& a) {
  const AxisState& s = state(v);
  if (s.kind == AxisKind::along) {
    if (s.along == a) return ok_status();
    want_to_meet(s.along, a);
    return fail(describe(*this, v) + ", and axis " + std::to_string(a.axis) + " is wanted");
  }
  if (s.kind == AxisKind::partial || s.kind == AxisKind::size)
    return fail("%" + std::string(graph.name(v)) + " is a sum over chunks, and single rows are wanted");
  if (!is_as_long(v, a))
    return fail("axis " + std::to_string(a.axis) + " of %" + std::string(graph.name(v)) +
                " is not as long as the chunked axis");
  if (s.kind == AxisKind::constant) return constants.emplace_back(v, along_state(a)), ok_status();
  if (!domain(a).is_rows)
    return fail("%" + std::string(graph.name(v)) + " is whole, and the data decides which of its entries a chunk has");
  for (const SliceWish& wish : slices)
    if (wish.value == v && !(wish.along == a))
      return fail("%" + std::string(graph.name(v)) + " would be sliced along two axes");
  slices.push_back({v, a});
  return ok_status();
}

bool AxisCall::is_as_long(Expr size, Expr wanted) const {
  if (size == wanted || (exprs.is_constant(size) && exprs.is_constant(wanted))) return size == wanted;
  return Sizes(&graph.pool(), &program).same(size, wanted);
}

Status AxisCall::want_whole(ValueId v, std::string_view what) {
  if (is_whole(v)) return ok_status();
  return fail(std::string(what) + " must be the same in every chunk, and " + describe(*this, v));
}

Status AxisCall::edit_size(std::string_view name, size_t item, const Along& a) {
  const Arg* arg = find(name);
  if (arg == nullptr) return fail("has no argument " + std::string(name));
  const auto at = static_cast<uint32_t>(arg - node.args.data());
  const Arg* literal = arg;
  if (arg->is(ArgKind::list)) {
    if (item >= arg->items().size()) return fail("argument " + std::string(name) + " is too short");
    literal = &arg->items()[item];
  }
  if (literal->is(ArgKind::integer) && literal->as_int() == -1) return ok_status();
  if (literal->is(ArgKind::value) && state(literal->as_value()).is_own_size()) return ok_status();
  edits.push_back({at, arg->is(ArgKind::list) ? std::optional(static_cast<uint32_t>(item)) : std::nullopt, a});
  return ok_status();
}

Status AxisCall::give(AxisState s) {
  const ValueId v = result(static_cast<uint32_t>(given.size()));
  given.push_back(type(v).kind == TypeKind::none ? AxisState() : std::move(s));
  return ok_status();
}

Status AxisCall::give_all(const AxisState& s) {
  while (given.size() < node.result_count) SG_TRY(give(s));
  return ok_status();
}

Status AxisCall::give_settled(Settle how) {
  const ValueId v = result(static_cast<uint32_t>(given.size()));
  if (type(v).kind != TypeKind::none && graph.is_used(v)) {
    settles.resize(given.size(), Settle::none);
    settles.push_back(how);
  }
  return give(AxisState());
}

Status AxisCall::edit_word(std::string_view name, Arg word) {
  const Arg* arg = find(name);
  if (arg == nullptr) return fail("argument " + std::string(name) + " is left out");
  words.push_back({static_cast<uint32_t>(arg - node.args.data()), std::move(word.set_key(arg->key()))});
  return ok_status();
}

Error AxisCall::fail(std::string message) const { return {ErrorKind::cannot_apply, std::move(message), {}, {}}; }

void AxisCall::want_to_meet(const Along& a, const Along& b) {
  if (a.axis != b.axis || !world.is_block(a) || !world.is_block(b)) return;
  for (const auto& [fine, coarse] : {std::pair(a, b), std::pair(b, a)}) {
    const Expr together = exprs.floordiv(coarse.unit, fine.unit);
    if (domain(fine).size != domain(coarse).size && exprs.mul(together, fine.unit) == coarse.unit &&
        exprs.mul(together, domain(coarse).size) == domain(fine).size)
      wanted_together = {domain(fine).size, together};
  }
}

std::string describe(const AxisCall& call, ValueId v) {
  const std::string name = "%" + std::string(call.graph.name(v));
  const AxisState& s = call.state(v);
  if (s.kind == AxisKind::partial) return name + " is a sum over chunks";
  if (s.kind == AxisKind::size) return name + " is a size of each chunk's own";
  if (s.kind != AxisKind::along) return name + " is whole";
  return name + " is chunked along axis " + std::to_string(s.along.axis) +
         (!call.domain(s.along).is_rows ? " in an order that the data decides"
          : s.along.runs                ? " in " + call.exprs.print(s.along.runs) + " runs"
                                        : "");
}

}  // namespace sg
