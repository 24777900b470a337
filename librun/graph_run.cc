#include "librun/graph_run.h"

#include <algorithm>

#include "libgraph/op.h"
#include "libgraph/view_rule.h"
#include "librun/call_check.h"
#include "librun/cpu/fill.h"
#include "librun/host_ops.h"

namespace sg {

void NamingObserver::enter_body(const Graph& graph, NodeId n) {
  calls_.push_back((calls_.empty() ? "" : calls_.back()) + std::string(graph.label(n)) + "/");
}

void NamingObserver::leave_body() { calls_.pop_back(); }

std::string NamingObserver::name_of_result(const Graph& graph, NodeId n, uint32_t result) const {
  return (calls_.empty() ? "" : calls_.back()) + std::string(graph.name(graph.node(n).result(result)));
}

bool has_settled_results(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  std::string_view name = graph.op_name(n);
  return op && !op->has(kCollective) && !name.starts_with("aten.empty") && !name.starts_with("aten.new_empty");
}

Error GraphRun::at_node(Error error, NodeId n) const {
  const Node& node = graph_.node(n);
  const Pool& pool = graph_.pool();
  error.message = "rank " + std::to_string(state_.rank) + ", %" + std::string(graph_.label(n)) + " = " +
                  std::string(graph_.op_name(n)) + ": " + error.message;
  if (!node.source.is_none() && error.where.file.empty()) {
    const Source& source = pool.sources[node.source];
    error.where.file = std::string(pool.strings[source.file]);
    error.where.line = source.line;
  }
  return error;
}

Status GraphRun::bind_inputs(std::span<const Tensor> tensors, std::span<const Scalar> scalars) {
  finish();
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    ValueId v = graph_.inputs()[i].value;
    const Type& type = graph_.type(v);
    values_.scalars[v.index] = scalars[i];
    if (type.kind != TypeKind::tensor || tensors[i].is_none()) continue;  // nothing uses what is not given
    Slot& slot = slots_[alias_->storage_of(v).index];
    int64_t before = state_.bindings->value(type.offset).value_or(0) * dtype_bytes(tensors[i].dtype);
    slot.base = tensors[i].data - before;
    slot.bytes = before + extent_bytes(tensors[i]);
    values_.tensors[v.index] = tensors[i];
  }
  set_arena_bases();
  SG_TRY(define_static_values());
  for (Step& step : steps_) step.resolved = false;
  groups_.clear();
  items_.clear();
  segments_.clear();
  recorded_.clear();
  runs_ = 0;
  fused_ = false;
  return ok_status();
}

Status GraphRun::rebind_inputs(std::span<const Tensor> tensors, std::span<const Scalar> scalars) {
  if (tensors.empty() || !std::ranges::equal(tensors, bound_, same_view)) {
    bound_.assign(tensors.begin(), tensors.end());
    return bind_inputs(tensors, scalars);
  }
  finish();
  for (size_t i = 0; i < scalars.size(); ++i) values_.scalars[graph_.inputs()[i].value.index] = scalars[i];
  return ok_status();
}

Status GraphRun::reserve() {
  SG_ASSIGN(arena_, Arena::reserve(plan_.arena_bytes, state_.backend ? &state_.backend->memory() : nullptr));
  SG_ASSIGN(host_arena_, Arena::reserve(plan_.host_bytes, state_.backend ? &state_.backend->host_memory() : nullptr));
  return ok_status();
}

void GraphRun::set_arena_bases() {
  for (uint32_t s = 0; s < slots_.size() && s < placed_->offsets.size(); ++s)
    if (int64_t offset = placed_->offsets[s]; offset != MemoryPlan::kNoOffset) {
      const LiveStorage* live = live_->find(StorageId(s));
      slots_[s].base = live != nullptr && live->is_host ? root_->host_arena_.data() + offset
                                                        : root_->arena_.data() + frame_ + offset;
    }
}

Status GraphRun::run() {
  finish();
  bool whole = state_.use_arena && !state_.observer;  // who looks at nodes sees each
  if (whole && !fused_) SG_TRY(fuse());
  if (whole && state_.backend && nested_.is_none()) return run_on_device();
  auto group = groups_.begin();
  for (size_t i = 0; i < steps_.size();) {
    if (whole && group != groups_.end() && (*group)->first == i) {
      SG_TRY(run_group(**group));
      i += (*group++)->count;
    } else {
      SG_TRY(run_step(i++));
    }
    if (in_flight_ > 0) state_.comm->progress();
  }
  return finish_launched();
}

Status GraphRun::run_group(FusedGroup& group) {
  begin_node(steps_[group.first].node);
  Status status = group.on_device ? group.on_device->run() : group.program.run(team());
  if (!status.ok()) return at_node(std::move(status.error()), steps_[group.first].node);
  for (size_t i = group.first; i < group.first + group.count; ++i) free_after(i);
  return ok_status();
}

void GraphRun::finish() {
  for (Slot& slot : slots_) {
    if (slot.from_pool) state_.pool->give(slot.base);
    if (!slot.is_static) slot = {};
  }
}

Status GraphRun::run_by_kind(Step* step) {
  switch (step->kind) {
    case StepKind::kernel: return run_kernel(step);
    case StepKind::view: return resolve(step);
    case StepKind::host: return run_host(step);
    case StepKind::call: return run_body(step);
    case StepKind::launch: return run_launch(step);
    case StepKind::wait: return run_wait(step);
  }
  return ok_status();
}

Status GraphRun::begin_step(size_t i) {
  Status status = resolve(&steps_[i]);
  return status.ok() ? status : at_node(std::move(status.error()), steps_[i].node);
}

void GraphRun::free_after(size_t i) {
  for (StorageId s : steps_[i].frees) {
    Slot& slot = slots_[s.index];
    if (slot.from_pool) state_.pool->give(slot.base);
    slot = {};
  }
}

void GraphRun::begin_node(NodeId n) {
  if (state_.comm) state_.comm->heartbeat().at(nested_, n);
  if (state_.backend) state_.backend->at(uint64_t{nested_.index + 1u} << 32 | n.index);
}

// To the observer: results that lie on a device as they are there, in memory of the host.
Status GraphRun::show_results(NodeId n) {
  const Node& node = graph_.node(n);
  std::span<const Tensor> results(values_.tensors.data() + node.first_result.index, node.result_count);
  if (!state_.backend) return state_.observer->after(graph_, n, results);
  std::vector<Tensor> shown(results.begin(), results.end());
  std::vector<std::vector<std::byte>> memory;
  for (Tensor& t : shown) {
    if (t.is_none() || !has_settled_results(graph_, n)) continue;
    auto bytes = static_cast<size_t>(extent_bytes(t));
    memory.emplace_back(bytes);
    SG_TRY(state_.backend->download(memory.back().data(), t.data, static_cast<int64_t>(bytes)));
    t.data = memory.back().data();
  }
  return state_.observer->after(graph_, n, shown);
}

const GraphRun* GraphRun::find_nested(uint64_t place) const {
  if (place >> 32 == uint64_t{nested_.index + 1u}) return this;
  for (const Step& step : steps_)
    if (const GraphRun* found = step.body ? step.body->find_nested(place) : nullptr) return found;
  return nullptr;
}

Status GraphRun::run_step(size_t index, bool give_back) {
  Step& step = steps_[index];
  begin_node(step.node);
  if (state_.observer) state_.observer->before(graph_, step.node);
  Status status = run_by_kind(&step);
  if (!status.ok()) return at_node(std::move(status.error()), step.node);
  if (state_.observer)
    if (Status seen = show_results(step.node); !seen.ok()) return at_node(std::move(seen.error()), step.node);
  if (give_back) free_after(index);
  return ok_status();
}

// --- where values are ---

Status GraphRun::define_static_values() {
  for (ValueId v : static_values_) {
    const Type& type = graph_.type(v);
    if (type.kind == TypeKind::tensor) {
      Result<Tensor> view = view_of(v);
      NodeId def = graph_.value(v).def;
      if (!view.ok()) return def.is_none() ? view.error() : at_node(std::move(view.error()), def);
      values_.tensors[v.index] = *view;
    } else if (type.has_value) {
      int64_t number = *state_.bindings->value(type.value);
      values_.scalars[v.index] =
          type.kind == TypeKind::boolean ? Scalar::boolean(number != 0) : Scalar::integer(number);
    }
  }
  return ok_status();
}

Result<Tensor> GraphRun::view_of(ValueId v) const {
  const Type& type = graph_.type(v);
  const Slot& slot = slots_[alias_->storage_of(v).index];
  Tensor t;
  t.dtype = stored_dtype(type.dtype, state_.kernels->numerics);
  t.conjugate = conjugate_[v.index];
  t.rank = static_cast<int>(type.shape.size());
  auto number = [&](Expr e) { return e.is_none() ? std::optional<int64_t>(0) : state_.bindings->value(e); };
  auto offset = number(type.offset);
  bool known = offset.has_value(), legal = known && *offset >= 0, empty = false;
  int64_t last = offset.value_or(0);
  for (size_t i = 0; i < type.shape.size(); ++i) {
    auto size = number(type.shape[i]), stride = number(type.stride[i]);
    known &= size.has_value() && stride.has_value();
    if (!known) break;
    t.shape[i] = *size;
    t.stride[i] = *stride;
    legal &= *size >= 0 && *stride >= 0;
    empty |= *size == 0;
    int64_t reach;
    legal &= !__builtin_mul_overflow(*size - 1, *stride, &reach) &&
             !__builtin_add_overflow(last, std::max<int64_t>(reach, 0), &last);
  }
  Error wrong{ErrorKind::cannot_apply, "result %" + std::string(graph_.name(v))};
  if (!known) return wrong.message += " has a size that nothing gives a value", wrong;
  if (!legal) return wrong.message += " has a negative or endless size", wrong;
  int64_t bytes;
  if (!empty &&
      (__builtin_mul_overflow(last + 1, static_cast<int64_t>(dtype_bytes(t.dtype)), &bytes) || bytes > slot.bytes))
    return wrong.message += " reaches beyond its memory of " + std::to_string(slot.bytes) + " bytes", wrong;
  t.data = slot.base ? slot.base + (empty ? 0 : *offset * dtype_bytes(t.dtype)) : nullptr;
  return t;
}

Status GraphRun::take_memory(StorageId s, int64_t bytes) {
  Slot& slot = slots_[s.index];
  slot.base = state_.pool->take(bytes);
  if (!slot.base)
    return Error{ErrorKind::missing,
                 "no memory for " + std::to_string(bytes) + " bytes",
                 {},
                 "see sg-run --plan and --memory-limit"};
  slot.bytes = bytes;
  slot.from_pool = true;
  return ok_status();
}

// Memory for a storage that begins with `v`: as much as v's own type needs.
Status GraphRun::define_fresh(NodeId n, ValueId v) {
  StorageId s = alias_->storage_of(v);
  Slot& slot = slots_[s.index];
  if (slot.is_static) return ok_status();
  if (!alias_->storage(s).certain && graph_.op_info(n)->has(kMayAlias)) {
    SizeValues sizes = state_.bindings->lookup();
    ValueId source = graph_.node(n).args[0].as_value();
    if (result_is_view(graph_, n, source, v, &sizes) == ViewAnswer::yes) {
      slot = slots_[alias_->storage_of(source).index];
      slot.from_pool = slot.is_static = false;  // the source's to give back
      return ok_status();
    }
  }
  const Type& type = graph_.type(v);
  Type stored = type;
  stored.dtype = stored_dtype(type.dtype, state_.kernels->numerics);
  auto bytes = storage_bytes(graph_.pool(), stored, state_.bindings->lookup());
  if (!bytes) return Error{ErrorKind::cannot_apply, "result %" + std::string(graph_.name(v)) + " has no size"};
  return take_memory(s, *bytes);
}

Status GraphRun::define_result(NodeId n, uint32_t i) {
  ValueId v = graph_.node(n).result(i);
  if (graph_.type(v).kind != TypeKind::tensor) return ok_status();
  StorageId s = alias_->storage_of(v);
  if (alias_->storage(s).def == n && alias_->storage(s).owner == v) SG_TRY(define_fresh(n, v));
  SG_ASSIGN(values_.tensors[v.index], view_of(v));
  return ok_status();
}

// --- steps ---

namespace {

RandomStream random_stream(const Graph& graph, NodeId n, const RankState& state) {
  const RandomInfo& info = graph.meta(n).random;
  RandomStream out;
  if (info.stream == 0) return out;
  out.seed = state.seed;
  out.step = state.step;
  out.stream = info.stream;
  out.rank = info.rank_local ? state.rank + 1 : 0;
  for (Expr e : info.origin_shape) out.origin_shape.push_back(state.bindings->value(e).value_or(0));
  for (Expr e : info.origin_offset) out.origin_offset.push_back(state.bindings->value(e).value_or(0));
  return out;
}

// Whether the sizes of this tensor type can be worked out now.
bool is_sized(const Type& type, const Bindings& bindings) {
  return std::ranges::all_of(type.shape, [&](Expr e) { return bindings.value(e).has_value(); });
}

}  // namespace

// Works out the results' tensors and the arguments; for static steps once.
Status GraphRun::resolve(Step* step) {
  const Node& node = graph_.node(step->node);
  bool binds = !alias_->binds(step->node).empty();
  for (uint32_t i = 0; i < node.result_count; ++i) {
    const Type& type = graph_.type(node.result(i));
    bool by_kernel = binds && type.kind == TypeKind::tensor && !is_sized(type, *state_.bindings);
    if (by_kernel) values_.tensors[node.result(i).index] = {};
    else SG_TRY(define_result(step->node, i));
  }
  if (!step->call) return ok_status();
  KernelCall& call = *step->call;
  SG_TRY(read_arguments(graph_, step->node, values_, *state_.bindings, &call));
  if (step->has_open_sizes) SG_TRY(check_sizes(graph_, step->node, values_, *state_.bindings));
  auto first = values_.tensors.begin() + node.first_result.index;
  call.results.assign(node.result_count == 0 ? values_.tensors.begin() : first,
                      node.result_count == 0 ? values_.tensors.begin() : first + node.result_count);
  call.scalars.assign(node.result_count, Scalar());
  call.random = random_stream(graph_, step->node, state_);
  if (binds)
    call.allocate = [this, step](size_t i, std::span<const int64_t> shape) {
      return allocate_by_kernel(step, i, shape);
    };
  step->resolved = step->is_static;
  return ok_status();
}

Status GraphRun::allocate_by_kernel(Step* step, size_t i, std::span<const int64_t> shape) {
  ValueId v = graph_.node(step->node).result(static_cast<uint32_t>(i));
  Tensor t = make_tensor(nullptr, stored_dtype(graph_.type(v).dtype, state_.kernels->numerics), shape);
  SG_TRY(take_memory(alias_->storage_of(v), t.bytes()));
  t.data = slots_[alias_->storage_of(v).index].base;
  // The sizes are numbers from here on, so the recorded strides are too: who reads it goes by them.
  const Type& type = graph_.type(v);
  if (type.shape.size() != shape.size())
    return Error{ErrorKind::cannot_apply, "the data gives result %" + std::string(graph_.name(v)) +
                                              " another number of axes than the graph says"};
  std::span<const StrId> binds = alias_->binds(step->node);
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    auto symbol = graph_.pool().exprs.as_symbol(type.shape[axis]);
    if (symbol && std::ranges::find(binds, *symbol) != binds.end()) SG_TRY(state_.bindings->bind(*symbol, shape[axis]));
  }
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (auto stride = state_.bindings->value(type.stride[axis])) t.stride[axis] = *stride;
  if (extent_bytes(t) > t.bytes())
    return Error{ErrorKind::cannot_apply, "result %" + std::string(graph_.name(v)) + " reaches beyond its memory of " +
                                              std::to_string(t.bytes()) + " bytes"};
  step->call->results[i] = t;
  return ok_status();
}

Status GraphRun::run_kernel(Step* step) {
  if (!step->resolved) SG_TRY(resolve(step));
  KernelCall& call = *step->call;
  call.random.step = state_.step;
  const Node& node = graph_.node(step->node);
  bool became_view = false;
  if (node.result_count == 1 && call.op().has(kMayAlias) && graph_.type(node.result(0)).kind == TypeKind::tensor) {
    StorageId s = alias_->storage_of(node.result(0));
    became_view = !slots_[s.index].from_pool && !slots_[s.index].is_static;
  }
  Status status = became_view ? ok_status() : step->kernel(call);
  if (state_.backend) state_.backend->reset_scratch();
  call.scratch().reset();
  if (!status.ok() || !step->gives_numbers) return status;
  return bind_results(step);
}

// The numbers that a step gives to the host, and the symbols that they stand for.
Status GraphRun::bind_results(Step* step) {
  const Node& node = graph_.node(step->node);
  std::span<const StrId> binds = alias_->binds(step->node);
  const Pool& pool = graph_.pool();
  for (uint32_t i = 0; i < node.result_count; ++i) {
    ValueId v = node.result(i);
    const Type& type = graph_.type(v);
    values_.scalars[v.index] = step->call->scalars[i];
    auto bind = [&](Expr e, int64_t number) -> Status {
      auto symbol = e.is_none() ? std::nullopt : pool.exprs.as_symbol(e);
      if (!symbol || std::ranges::find(binds, *symbol) == binds.end()) return ok_status();
      return state_.bindings->bind(*symbol, number);
    };
    if (type.kind == TypeKind::integer && type.has_value) SG_TRY(bind(type.value, step->call->scalars[i].to_int()));
    bool is_whole = type.kind == TypeKind::integer || type.kind == TypeKind::boolean;
    bool hint = is_whole && binds.size() == node.result_count && !state_.bindings->value(binds[i]);
    if (hint)
      SG_TRY(state_.bindings->bind(binds[i], step->call->scalars[i].to_int()));  // the type has the captured number
    if (type.kind != TypeKind::tensor || !values_.tensors[v.index].is_none()) continue;
    const Tensor& made = step->call->results[i];
    for (int axis = 0; axis < made.rank; ++axis) SG_TRY(bind(type.shape[static_cast<size_t>(axis)], made.dim(axis)));
    SG_ASSIGN(values_.tensors[v.index], view_of(v));
    if (!same_shape(values_.tensors[v.index], made))
      return Error{ErrorKind::cannot_apply,
                   "the data gives result %" + std::string(graph_.name(v)) + " another shape than the graph says"};
  }
  return ok_status();
}

Status GraphRun::run_host(Step* step) {
  SG_TRY(resolve(step));
  if (step->call->op().name ==
      "aten.sym_storage_offset.default") {  // a tensor does not know where it begins, its type does
    auto offset = state_.bindings->value(graph_.type(graph_.node(step->node).result(0)).value);
    if (!offset) return step->call->fail("the storage offset has no value");
    step->call->scalars[0] = Scalar::integer(*offset);
    return bind_results(step);
  }
  SG_ASSIGN(Scalar number, run_host_op(*step->call));
  step->call->scalars[0] = number;
  return bind_results(step);
}

// What the caller gives has the layout that the body's views of it count on.
Status GraphRun::expect_input(size_t i, const Tensor& given) const {
  const Type& type = graph_.type(graph_.inputs()[i].value);
  if (type.kind != TypeKind::tensor) return ok_status();
  bool fits = given.dtype == stored_dtype(type.dtype, state_.kernels->numerics) &&
              type.shape.size() == static_cast<size_t>(given.rank);
  for (size_t axis = 0; fits && axis < type.shape.size(); ++axis) {
    int dim = static_cast<int>(axis);
    fits =
        state_.bindings->value(type.shape[axis]) == given.dim(dim) &&
        (given.dim(dim) <= 1 || given.elements() == 0 || state_.bindings->value(type.stride[axis]) == given.step(dim));
  }
  if (fits) return ok_status();
  return Error{ErrorKind::cannot_apply, "argument " + std::to_string(i) +
                                            " does not have the type of the body's input %" +
                                            std::string(graph_.name(graph_.inputs()[i].value))};
}

Status GraphRun::run_body(Step* step) {
  if (!step->resolved) SG_TRY(resolve(step));
  if (alias_->effects(step->node) & kEffectWait) SG_TRY(finish_arguments(step->node));
  GraphRun& body = *step->body;
  std::vector<Tensor> tensors;
  std::vector<Scalar> scalars;
  for (const ParamValue& input : step->call->param("inputs").items) {
    SG_TRY(body.expect_input(tensors.size(), input.tensor));
    tensors.push_back(input.tensor);
    scalars.push_back(input.scalar);
  }
  SG_TRY(body.rebind_inputs(tensors, scalars));
  if (state_.observer) state_.observer->enter_body(graph_, step->node);
  SG_TRY(body.run());
  if (state_.observer) state_.observer->leave_body();
  const Node& node = graph_.node(step->node);
  for (uint32_t i = 0; i < node.result_count; ++i) {
    ValueId inner = body.graph().outputs()[i].value;
    if (inner.is_none()) continue;
    ValueId v = node.result(i);
    step->call->scalars[i] = body.values().scalars[inner.index];
    if (graph_.type(v).kind != TypeKind::tensor) continue;
    bool fresh = alias_->storage(alias_->storage_of(v)).def == step->node;
    const Tensor& made = body.values().tensors[inner.index];
    if (!same_shape(made, step->call->results[i]))
      return Error{ErrorKind::cannot_apply,
                   "result %" + std::string(graph_.name(v)) + " has another shape than the body gives"};
    if (fresh && made.data != step->call->results[i].data) cpu::copy(*step->call, step->call->results[i], made);
  }
  body.finish();
  return bind_results(step);
}

// --- collectives ---

Status GraphRun::run_launch(Step* step) {
  if (!step->resolved) SG_TRY(resolve(step));
  SG_ASSIGN(step->launched,
            launch_collective(*state_.comm, *step->call, graph_.label(step->node), state_.guards_flight));
  ++in_flight_;
  return bind_results(step);
}

// What was launched for the value: by its own result where the node has several.
Launched* GraphRun::launched_for(ValueId v) {
  NodeId launch = alias_->launch_of(v);
  if (launch.is_none()) return nullptr;
  Step& step = steps_[step_of_[launch.index]];
  if (step.launched.size() == 1) return &step.launched[0];
  const Node& node = graph_.node(launch);
  for (uint32_t i = 0; i < step.launched.size(); ++i)
    if (alias_->storage_of(node.result(i)) == alias_->storage_of(v)) return &step.launched[i];
  return nullptr;
}

Status GraphRun::run_wait(Step* step) {
  if (!step->resolved) SG_TRY(resolve(step));
  const Arg& argument = graph_.node(step->node).args[0];
  Launched* launched = argument.is(ArgKind::value) ? launched_for(argument.as_value()) : nullptr;
  if (launched && in_flight_ > 0) --in_flight_;
  return launched ? finish_collective(*state_.comm, *launched) : ok_status();
}

// A body that waits for what it is given knows nothing of its launch: it is complete before the call.
Status GraphRun::finish_arguments(NodeId n) {
  Status status = ok_status();
  for (const Arg& arg : graph_.node(n).args)
    arg.walk([&](const Arg& a) {
      Launched* launched = status.ok() && a.is(ArgKind::value) ? launched_for(a.as_value()) : nullptr;
      if (launched) status = finish_collective(*state_.comm, *launched);
    });
  return status;
}

// Those that the graph never waits for.
Status GraphRun::finish_launched() {
  in_flight_ = 0;
  for (Step& step : steps_)
    for (Launched& launched : step.launched) SG_TRY(finish_collective(*state_.comm, launched));
  return ok_status();
}

}  // namespace sg
