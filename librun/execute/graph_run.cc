#include "librun/execute/graph_run.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/facts/view_rule.h"
#include "libgraph/op.h"
#include "librun/check/tie_order.h"
#include "librun/execute/bindings.h"
#include "librun/execute/call_check.h"

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
  // What another rank failed with is not of the node that was waiting for it, and run_ranks knows it by its words.
  if (state_.comm)
    if (const auto failure = state_.comm->failure(); failure && failure->message == error.message) return error;
  const Node& node = graph_.node(n);
  const Pool& pool = graph_.pool();
  if (error.hint == kOfData)
    if (const std::string tie = tie_order_hint(graph_, n); !tie.empty()) error.hint += ". " + tie;
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
    if (type.kind != TypeKind::tensor || tensors[i].is_none()) continue;  // an input that is not given is unused
    Slot& slot = slots_[alias_->storage_of(v).index];
    int64_t before = state_.bindings->value(type.offset).value_or(0) * dtype_bytes(tensors[i].dtype);
    slot.base = tensors[i].data ? tensors[i].data - before : nullptr;  // an empty tensor has no address
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
  fused_ = 0;
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
  const bool whole = state_.use_arena && !shows_nodes();
  if (whole && fused_ == 0 && state_.backend) SG_TRY(fuse());
  if (whole && state_.backend && nested_.is_none()) return run_on_device();
  size_t group = 0;
  const std::vector<ShownView> views = views_to_show();
  size_t shown = 0;
  for (size_t i = 0; i < steps_.size();) {
    while (shown < views.size() && views[shown].before <= i) SG_TRY(show_view(views[shown++].node));
    if (whole && fused_ <= i) SG_TRY(fuse_from(i));
    if (whole && group < groups_.size() && groups_[group]->first == i) {
      SG_TRY(run_group(*groups_[group]));
      i += groups_[group++]->count;
    } else {
      SG_TRY(run_step(i));
      free_after(i++);
    }
    if (in_flight_ > 0) state_.comm->progress();
  }
  while (shown < views.size()) SG_TRY(show_view(views[shown++].node));
  return finish_launched();
}

std::vector<GraphRun::ShownView> GraphRun::views_to_show() const {
  std::vector<ShownView> out;
  if (!shows_nodes() || !state_.observer->looks_at_views()) return out;
  size_t step = 0;
  for (NodeId n : live_->schedule) {
    if (step < steps_.size() && steps_[step].node == n) ++step;
    else if (is_plain_view(n)) out.push_back({n, step});
  }
  return out;
}

// Whether an observer needs each node to run separately.
bool GraphRun::shows_nodes() const {
  return state_.observer && (!state_.backend || state_.observer->looks_at_results());
}

Status GraphRun::run_group(FusedGroup& group) {
  const NodeId first = steps_[group.first].node;
  begin_node(first);
  if (state_.observer) state_.observer->before(graph_, first);
  Status status = group.on_device ? group.on_device->run() : group.program->run(team());
  if (!status.ok()) return at_node(std::move(status.error()), first);
  if (state_.observer) state_.observer->ran(graph_, first, group.count);
  for (size_t i = group.first; i < group.first + group.count; ++i) free_after(i);
  if (!keeps_calls()) group.program.reset();
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
    case StepKind::copy: return run_copy(step);
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
  if (!keeps_calls()) give_up_calls(i, i + 1);
}

void GraphRun::begin_node(NodeId n) {
  if (state_.comm) state_.comm->heartbeat().at(nested_, n);
  if (state_.backend) state_.backend->at(uint64_t{nested_.index + 1u} << 32 | n.index);
}

// Passes results to the observer; results on a device are copied to the host first, in the same layout.
Status GraphRun::show_results(NodeId n) {
  if (!state_.observer->looks_at_results()) return state_.observer->after(graph_, n, {});
  return show(n, [&](std::span<const Tensor> results) { return state_.observer->after(graph_, n, results); });
}

Status GraphRun::show_view(NodeId n) {
  const auto is_nowhere = [](const Tensor& t) { return !t.is_none() && t.data == nullptr && t.elements() > 0; };
  if (std::ranges::any_of(values_.results_of(graph_.node(n)), is_nowhere)) return ok_status();  // nobody needs it
  return show(n, [&](std::span<const Tensor> results) { return state_.observer->at_view(graph_, n, results); });
}

Status GraphRun::show(NodeId n, const std::function<Status(std::span<const Tensor>)>& look) {
  const std::span<const Tensor> results = values_.results_of(graph_.node(n));
  if (!state_.backend) return look(results);
  std::vector<Tensor> shown(results.begin(), results.end());
  std::vector<std::vector<std::byte>> memory;
  for (Tensor& t : shown) {
    if (t.is_none() || !has_settled_results(graph_, n)) continue;
    auto bytes = static_cast<size_t>(extent_bytes(t));
    memory.emplace_back(bytes);
    SG_TRY(state_.backend->download(memory.back().data(), t.data, static_cast<int64_t>(bytes)));
    t.data = memory.back().data();
  }
  return look(shown);
}

const GraphRun* GraphRun::find_nested(uint64_t place) const {
  if (place >> 32 == uint64_t{nested_.index + 1u}) return this;
  for (const Step& step : steps_)
    if (const GraphRun* found = step.body ? step.body->find_nested(place) : nullptr) return found;
  return nullptr;
}

Status GraphRun::run_step(size_t index) {
  Step& step = steps_[index];
  begin_node(step.node);
  if (state_.observer) state_.observer->before(graph_, step.node);
  Status status = run_by_kind(&step);
  if (!status.ok()) return at_node(std::move(status.error()), step.node);
  if (state_.observer) {
    state_.observer->ran(graph_, step.node, 1);
    if (Status seen = show_results(step.node); !seen.ok()) return at_node(std::move(seen.error()), step.node);
  }
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
  for (NodeId n : open_views_)
    if (Status status = check_sizes(graph_, n, values_, *state_.bindings); !status.ok())
      return at_node(std::move(status.error()), n);
  open_views_.clear();
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
  if (const auto left = state_.pool->left(); !slot.base && left && *left < bytes)
    return Error{ErrorKind::negative,
                 "its data need " + human_bytes(double(bytes)) + " more, and --memory-limit leaves " +
                     human_bytes(double(std::max<int64_t>(*left, 0))),
                 {},
                 "sizes that the data decide are not in the plan: sg-run --plan shows what else is alive"};
  if (!slot.base)
    return Error{ErrorKind::missing,
                 "no memory for " + std::to_string(bytes) + " bytes",
                 {},
                 "see sg-run --plan and --memory-limit"};
  slot.bytes = bytes;
  slot.from_pool = true;
  return ok_status();
}

// Memory for a storage whose first value is `v`: as much as the type of `v` needs.
Status GraphRun::define_fresh(NodeId n, ValueId v) {
  StorageId s = alias_->storage_of(v);
  Slot& slot = slots_[s.index];
  if (slot.is_static) return ok_status();
  if (!alias_->storage(s).certain && graph_.op_info(n)->has(kMayAlias)) {
    SizeValues sizes = state_.bindings->lookup();
    ValueId source = graph_.node(n).args[0].as_value();
    if (result_is_view(graph_, n, source, v, &sizes) == ViewAnswer::yes) {
      slot = slots_[alias_->storage_of(source).index];
      slot.from_pool = slot.is_static = false;  // released with the source
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

}  // namespace sg
