// GraphRun: executes one step at a time: its arguments and result memory, numbers for the host, calls of bodies,
// collectives.
#include <algorithm>

#include "libgraph/facts/transfer.h"
#include "libgraph/op.h"
#include "librun/check/value_choice.h"
#include "librun/cpu/fill.h"
#include "librun/execute/call_check.h"
#include "librun/execute/graph_run.h"
#include "librun/execute/host_ops.h"

namespace sg {
namespace {

RandomStream random_stream(const Graph& graph, NodeId n, const RankState& state) {
  const RandomInfo& info = graph.meta(n).random;
  RandomStream out;
  if (graph.node(n).result_count != 0) out.recorded = graph.type(graph.node(n).result(0)).dtype;
  if (info.stream == 0) return out;
  out.seed = state.seed;
  out.step = state.step;
  out.stream = info.stream;
  out.rank = info.rank_local ? state.rank + 1 : 0;
  for (Expr e : info.origin_shape) out.origin_shape.push_back(state.bindings->value(e).value_or(0));
  for (Expr e : info.origin_offset) out.origin_offset.push_back(state.bindings->value(e).value_or(0));
  return out;
}

// Whether the sizes of this tensor type are known now.
bool is_sized(const Type& type, const Bindings& bindings) {
  return std::ranges::all_of(type.shape, [&](Expr e) { return bindings.value(e).has_value(); });
}

}  // namespace

// Defines the result tensors and the arguments; only once for static steps.
Status GraphRun::resolve(Step* step) {
  const Node& node = graph_.node(step->node);
  bool binds = !alias_->binds(step->node).empty();
  if (const OpInfo* op = graph_.op_info(step->node); binds && op != nullptr && op->has(kView))
    SG_TRY(bind_view_sizes(graph_, step->node, alias_->binds(step->node), values_, state_.bindings));
  for (uint32_t i = 0; i < node.result_count; ++i) {
    const Type& type = graph_.type(node.result(i));
    bool by_kernel = binds && type.kind == TypeKind::tensor && !is_sized(type, *state_.bindings);
    if (by_kernel) values_.tensors[node.result(i).index] = {};
    else SG_TRY(define_result(step->node, i));
  }
  if (step->kind == StepKind::view)
    return step->has_open_sizes ? check_sizes(graph_, step->node, values_, *state_.bindings) : ok_status();
  if (!step->call) step->call = std::make_unique<KernelCall>(*graph_.op_info(step->node), state_.kernels);
  KernelCall& call = *step->call;
  call.ordered_sums = keeps_order(state_.kernels->sum_order, graph_, step->node);
  SG_TRY(read_arguments(graph_, step->node, values_, *state_.bindings, &call));
  if (step->has_open_sizes) SG_TRY(check_sizes(graph_, step->node, values_, *state_.bindings));
  const std::span<const Tensor> results = values_.results_of(node);
  call.results.assign(results.begin(), results.end());
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
  // The sizes are known from here on, and with them the recorded strides, which readers rely on.
  const Type& type = graph_.type(v);
  if (type.shape.size() != shape.size())
    return Error{ErrorKind::cannot_apply,
                 "result %" + std::string(graph_.name(v)) + " has another number of axes than the graph records"};
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

// Stores the numbers that a step gives to the host, and binds the symbols they stand for.
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
    bool is_unbound = is_whole && binds.size() == node.result_count && !state_.bindings->value(binds[i]);
    if (is_unbound)
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
      "aten.sym_storage_offset.default") {  // a tensor does not know its storage offset, but its type does
    auto offset = state_.bindings->value(graph_.type(graph_.node(step->node).result(0)).value);
    if (!offset) return step->call->fail("the storage offset has no value");
    step->call->scalars[0] = Scalar::integer(*offset);
    return bind_results(step);
  }
  SG_ASSIGN(Scalar number, run_host_op(*step->call));
  step->call->scalars[0] = number;
  return bind_results(step);
}

// Checks that an argument has the layout that the body's views of it rely on.
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

// The collective that produces the value, chosen by storage if the node has several results.
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
  return argument.is(ArgKind::value) ? finish_value(argument.as_value()) : ok_status();
}

Status GraphRun::finish_value(ValueId v) {
  if (NodeId begun = alias_->launch_of(v); begun && steps_[step_of_[begun.index]].copy != 0) {
    state_.backend->end_copy(std::exchange(steps_[step_of_[begun.index]].copy, 0));
    return ok_status();
  }
  Launched* launched = launched_for(v);
  if (launched && in_flight_ > 0) --in_flight_;
  if (!launched) return ok_status();
  SG_TRY(finish_collective(*state_.comm, *launched));
  std::vector<Launched>& all = steps_[step_of_[alias_->launch_of(v).index]].launched;
  if (std::ranges::all_of(all, [](const Launched& l) { return l.ticket.id == 0; })) std::vector<Launched>().swap(all);
  return ok_status();
}

// A body cannot wait for an argument's launch outside of it, so arguments are completed before the call.
Status GraphRun::finish_arguments(NodeId n) {
  Status status = ok_status();
  for (const Arg& arg : graph_.node(n).args)
    arg.walk([&](const Arg& a) {
      if (status.ok() && a.is(ArgKind::value)) status = finish_value(a.as_value());
    });
  return status;
}

// Finishes collectives and copies that the graph never waits for.
Status GraphRun::finish_launched() {
  in_flight_ = 0;
  for (Step& step : steps_) {
    for (Launched& launched : step.launched) SG_TRY(finish_collective(*state_.comm, launched));
    if (step.copy != 0) state_.backend->end_copy(std::exchange(step.copy, 0));
  }
  return ok_status();
}

// --- copies to the host and back, on a backend ---

// Runs asynchronously if both sides have the same layout and no observer needs each node; otherwise in order, as a
// kernel.
Status GraphRun::run_copy(Step* step) {
  if (!step->resolved) SG_TRY(resolve(step));
  const Tensor& to = step->call->results[0];
  const Tensor& from = step->call->params()[0].tensor;
  const bool alike = to.dtype == from.dtype && to.conjugate == from.conjugate && to.is_dense() &&
                     std::ranges::equal(to.strides(), from.strides());
  if (!alike || to.elements() == 0 || shows_nodes()) return run_kernel(step);
  const bool to_host = transfer_of(&step->call->op()) == Transfer::to_host;
  step->copy = state_.backend->begin_copy(to.data, from.data, to.bytes(), to_host);
  return ok_status();
}

bool GraphRun::is_of_copy(const Step& step) const {
  if (step.kind != StepKind::wait) return step.kind == StepKind::copy;
  const Arg& argument = graph_.node(step.node).args[0];
  const NodeId begun = argument.is(ArgKind::value) ? alias_->launch_of(argument.as_value()) : NodeId();
  return begun && starts_transfer(graph_.op_info(begun));
}

}  // namespace sg
