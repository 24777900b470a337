// GraphRun::build: turns a graph into steps, and assigns memory to each storage.
#include <algorithm>
#include <array>

#include "libgraph/facts/transfer.h"
#include "libgraph/op.h"
#include "librun/cpu/kernels.h"
#include "librun/element.h"
#include "librun/execute/call_check.h"
#include "librun/execute/graph_run.h"
#include "librun/execute/unsupported.h"
#include "librun/float8.h"

namespace sg {
namespace {

constexpr std::string_view kNoFloat8 = "float8 is stored, converted and multiplied alone";
constexpr std::string_view kAttention = "aten._scaled_dot_product_";
// Zeros are the same bits in every type: autograd makes them for the gradient of random state.
constexpr std::array<std::string_view, 3> kZeros = {"aten.zeros.default", "aten.new_zeros.default",
                                                    "aten.zeros_like.default"};

// Why values of this type cannot be in a run; empty = they can. `as_state`: nothing computes with them.
std::string refusal(const Type& type, bool as_state) {
  if (type.kind == TypeKind::unknown) return std::string(kNoType);
  if (type.kind != TypeKind::tensor) return {};
  if (!is_held(type.dtype) && !(as_state && type.dtype == DType::u64))
    return "dtype " + std::string(dtype_name(type.dtype));
  if (type.shape.size() > static_cast<size_t>(kMaxRank))
    return "a tensor of more than " + std::to_string(kMaxRank) + " axes";
  return {};
}

// The argument that a result is, as it was written; null where the result is another tensor.
const Arg* written_as(const Graph& graph, NodeId n, uint32_t result) {
  const OpInfo* op = graph.op_info(n);
  if (op == nullptr || result >= op->results.size() || !op->results[result].written) return nullptr;
  const auto same = [&](const Param& p) { return p.written && p.alias == op->results[result].alias; };
  const auto param = std::ranges::find_if(op->params, same);
  return param == op->params.end() ? nullptr : argument(graph.node(n), *op, graph.pool().strings, param->name);
}

}  // namespace

GraphRun::GraphRun(RankState* state, const Graph& graph, NestedId nested)
    : state_(*state), graph_(graph), nested_(nested) {}
GraphRun::~GraphRun() = default;

Status GraphRun::build(std::vector<Unsupported>* unsupported) {
  liveness_ = compute_liveness(*state_.program, graph_, state_.bindings->lookup());
  if (state_.use_arena) plan_ = plan_memory(liveness_);
  if (plan_.overflow)
    return Error{ErrorKind::cannot_apply,
                 "the step needs more memory than can be addressed",
                 {},
                 "sg-run --plan shows what it holds"};
  take_apart(unsupported);
  build_bodies(unsupported);
  return ok_status();
}

void GraphRun::build_as_body(const Liveness* liveness, const MemoryPlan* plan, const GraphRun& root, int64_t frame,
                             std::vector<Unsupported>* unsupported) {
  live_ = liveness;
  placed_ = plan;
  root_ = &root;
  frame_ = frame;
  take_apart(unsupported);
  build_bodies(unsupported);
}

void GraphRun::take_apart(std::vector<Unsupported>* unsupported) {
  SizeValues sizes = state_.bindings->lookup();
  alias_ = std::make_unique<AliasAnalysis>(*state_.program, graph_, AliasOptions{&sizes});
  values_.tensors.resize(graph_.value_id_limit());
  values_.scalars.resize(graph_.value_id_limit());
  place_storages();
  find_conjugates();
  add_steps(unsupported);
  schedule_frees();
}

// Each call site has a run of its own, in a frame at a fixed address. Its inputs may move, so every call redefines its
// static values.
void GraphRun::build_bodies(std::vector<Unsupported>* unsupported) {
  static const MemoryPlan kNothingPlaced;
  for (Step& step : steps_) {
    if (!step.body) continue;
    auto call = std::ranges::find(live_->calls, step.node, &CallSite::node);
    auto id = graph_.node(step.node).args[0].as_graph().index;
    auto frame = static_cast<size_t>(call - live_->calls.begin());
    bool placed = state_.use_arena && id < root_->plan_.bodies.size() && frame < placed_->frame_offsets.size();
    step.body->build_as_body(root_->liveness_.bodies[id].get(), placed ? &root_->plan_.bodies[id] : &kNothingPlaced,
                             *root_, placed ? frame_ + placed_->frame_offsets[frame] : 0, unsupported);
  }
}

void GraphRun::place_storages() {
  slots_.resize(alias_->storages().size());
  for (uint32_t s = 0; s < slots_.size(); ++s) {
    bool placed = s < placed_->offsets.size() && placed_->offsets[s] != MemoryPlan::kNoOffset;
    slots_[s].is_static = placed || alias_->storages()[s].is_input();
    if (const LiveStorage* live = live_->find(StorageId(s))) slots_[s].bytes = live->bytes;
  }
}

// A conjugate is a view with a flag. Views of it and what is written into it have the flag, too; values computed from
// it are plain again.
void GraphRun::find_conjugates() {
  conjugate_.assign(graph_.value_id_limit(), false);
  for (NodeId n : graph_.nodes()) {
    const Node& node = graph_.node(n);
    const bool is_view = is_plain_view(n), flips = graph_.op_name(n) == "aten._conj.default";
    for (uint32_t i = 0; i < node.result_count; ++i) {
      const Arg* source = !is_view ? written_as(graph_, n, i) : node.args.empty() ? nullptr : &node.args[0];
      if (source != nullptr && source->is(ArgKind::value))
        conjugate_[node.result(i).index] = conjugate_[source->as_value().index] != flips;
    }
  }
}

// Whether all results certainly lie in existing memory, and nothing is written: then there is nothing to compute.
bool GraphRun::is_plain_view(NodeId n) const {
  const OpInfo* op = graph_.op_info(n);
  const Node& node = graph_.node(n);
  if (!op || !(op->has(kView) || op->has(kMayAlias)) || op->has(kWait) || op->has(kHigherOrder)) return false;
  // A view that is marked as writing (squeeze_) changes only the metadata of its argument, not its memory.
  if ((!alias_->writes(n).empty() && !op->has(kView)) || (node.result_count == 0 && !op->returns_list) ||
      op->name == "aten._neg_view.default")
    return false;
  for (uint32_t i = 0; i < node.result_count; ++i) {
    StorageId s = alias_->storage_of(node.result(i));
    if (s.is_none() || alias_->storage(s).def == n) return false;
  }
  return true;
}

// A number is static if it is computed from static sizes. Its captured value is not used: it may be the hint of a
// data-dependent size.
bool GraphRun::is_static_number(ValueId v) const {
  const Type& type = graph_.type(v);
  NodeId def = graph_.value(v).def;
  if (type.kind == TypeKind::floating || !type.has_value || !state_.bindings->value(type.value)) return false;
  if (def.is_none()) return true;
  const OpInfo* op = graph_.op_info(def);
  bool is_static = op && (op->has(kSize) || op->name.starts_with(kAttention));  // whose results include lengths
  for (const Arg& arg : graph_.node(def).args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::value)) is_static &= static_[a.as_value().index];
    });
  return is_static;
}

bool GraphRun::has_static_type(ValueId v) const {
  const Type& type = graph_.type(v);
  if (type.kind == TypeKind::integer || type.kind == TypeKind::boolean || type.kind == TypeKind::floating)
    return is_static_number(v);
  if (type.kind != TypeKind::tensor) return type.kind == TypeKind::opaque || !holds_number(type);
  auto known = [&](Expr e) { return e.is_none() || state_.bindings->value(e).has_value(); };
  return std::ranges::all_of(type.shape, known) && std::ranges::all_of(type.stride, known) && known(type.offset) &&
         slots_[alias_->storage_of(v).index].is_static;
}

void GraphRun::add_steps(std::vector<Unsupported>* unsupported) {
  UnsupportedList refused(graph_, unsupported);
  step_of_.resize(graph_.node_id_limit());
  static_.assign(graph_.value_id_limit(), false);
  for (const Input& input : graph_.inputs()) static_[input.value.index] = has_static_type(input.value);
  for (const Input& input : graph_.inputs())
    if (std::string why = refusal(graph_.type(input.value), true); !why.empty()) refused.add_input(why);
  for (NodeId n : graph_.nodes()) {
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
      if (ValueId v = graph_.node(n).result(i); has_static_type(v))
        static_[v.index] = true, static_values_.push_back(v);
    Step step;
    step.node = n;
    std::string reason;
    step_of_[n.index] = static_cast<uint32_t>(steps_.size());
    if (add_step(n, &step, &reason)) steps_.push_back(std::move(step));
    if (!reason.empty()) refused.add(n, reason);
  }
  steps_.shrink_to_fit();
}

// False: the node needs no step, or cannot have one (then `reason` says why).
bool GraphRun::add_step(NodeId n, Step* step, std::string* reason) {
  const OpInfo* op = graph_.op_info(n);
  const Node& node = graph_.node(n);
  if (!op) return *reason = kNoRow, false;
  bool is_static = true;
  // Random state is only passed on; operands that only attention inspects may have a type that nothing computes with.
  const bool is_view = is_plain_view(n), is_zeros = std::ranges::find(kZeros, op->name) != kZeros.end(),
             as_state = is_view || is_zeros || op->name == "sg.call" || op->name.starts_with(kAttention);
  bool holds_float8 = false;
  for (uint32_t i = 0; i < node.result_count; ++i) {
    if (*reason = refusal(graph_.type(node.result(i)), as_state); !reason->empty()) return false;
    is_static &= static_[node.result(i).index];
    holds_float8 |= is_float8(graph_.type(node.result(i)).dtype);
  }
  for (const Arg& arg : node.args)
    arg.walk([&](const Arg& a) {
      const DType dtype = a.is(ArgKind::value) ? graph_.type(a.as_value()).dtype : DType::none;
      if (dtype == DType::u64 && !as_state) *reason = "an argument of dtype u64";
      holds_float8 |= is_float8(dtype);
    });
  if (holds_float8 && !is_view && !takes_float8(*op)) *reason = kNoFloat8;
  if (!reason->empty()) return false;
  step->has_open_sizes = !op->has(kHigherOrder) && has_open_sizes(graph_, n);
  const bool has_static_results = is_static;
  for (const Arg& arg : node.args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::value)) is_static &= static_[a.as_value().index];
      if (a.is(ArgKind::expr)) is_static &= state_.bindings->value(a.as_expr()).has_value();
    });
  if (is_view) {
    step->kind = StepKind::view;
    if (is_static && step->has_open_sizes) open_views_.push_back(n);
    return !has_static_results || (!is_static && step->has_open_sizes);
  }
  step->is_static = is_static;
  step->gives_numbers = !is_static || !alias_->binds(n).empty() || has_number(n);
  if (op->has(kWait)) return step->kind = StepKind::wait, true;
  if (op->has(kCollective)) return step->kind = StepKind::launch, true;
  if (op->has(kSize)) return step->kind = StepKind::host, true;
  if (op->name == "sg.call") {
    step->kind = StepKind::call;
    NestedId body = node.args[0].as_graph();
    step->body = std::make_unique<GraphRun>(&state_, state_.program->nested[body.index]->graph, body);
    return true;
  }
  step->kernel = state_.backend ? state_.backend->find_kernel(*op) : find_cpu_kernel(op->name);
  if (op->has(kHigherOrder) && !(*reason = cpu::flex_attention_refusal(*state_.program, graph_, n)).empty())
    return false;
  if (!step->kernel) return *reason = state_.backend ? "no kernel for this backend" : "no kernel", false;
  if (state_.backend && starts_transfer(op) && is_left_alone(n)) step->kind = StepKind::copy;
  if (state_.backend && state_.backend->runs_on_host(*state_.program, graph_, n)) ++on_host_[std::string(op->name)];
  return true;
}

// Whether nothing writes to the source or result of a transfer before it is waited for. A valid graph may do so through
// a partial view or in a body; such a transfer runs in order, as a kernel.
bool GraphRun::is_left_alone(NodeId transfer) const {
  const Arg& from = graph_.node(transfer).args[0];
  if (!from.is(ArgKind::value)) return false;
  const StorageId source = alias_->storage_of(from.as_value());
  const StorageId result = alias_->storage_of(graph_.node(transfer).result(0));
  for (auto at = std::ranges::find(live_->schedule, transfer) + 1; at != live_->schedule.end(); ++at) {
    const Node& node = graph_.node(*at);
    const OpInfo* op = graph_.op_info(*at);
    if (op && op->has(kWait) && node.args[0].is(ArgKind::value) &&
        alias_->launch_of(node.args[0].as_value()) == transfer)
      return true;
    for (StorageId written : alias_->writes(*at))
      if (written == source || written == result) return false;
  }
  return true;
}

// Pool memory is released after the step of the last node that uses it.
void GraphRun::schedule_frees() {
  std::vector<uint32_t> position(graph_.node_id_limit());
  for (uint32_t i = 0; i < live_->schedule.size(); ++i) position[live_->schedule[i].index] = i;
  for (const LiveStorage& live : live_->storages) {
    if (live.is_output || slots_[live.storage.index].is_static) continue;
    auto after =
        std::ranges::upper_bound(steps_, live.last_position, {}, [&](const Step& s) { return position[s.node.index]; });
    if (after != steps_.begin()) std::prev(after)->frees.push_back(live.storage);
  }
}

}  // namespace sg
