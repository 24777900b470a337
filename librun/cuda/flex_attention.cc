// FlexAttention on the device: dense, for some of the scores at a time.
//
// The scores of some heads, or of some queries of one head, are a product in memory. The nested graphs run over them
// with lanes along heads, queries and keys (cpu/lane_graph.h): pointwise nodes as programs, with batch, head, query and
// key as broadcast numbers. So a mask that depends only on query and key is computed once for all heads of the part.
// Then the attention kernels run: masked softmax, products, gradients.
//
// The host computes calls whose nested graphs contain nodes that lanes cannot run together, or that have no kernel
// here.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "librun/cpu/flex_call.h"
#include "librun/cuda/attention_heads.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/copy.h"
#include "librun/cuda/kernels/index.h"
#include "librun/cuda/kernels/matmul_args.h"

namespace sg::cuda {
namespace {

using cpu::FlexCall;
using cpu::FlexGraph;
using cpu::LaneGraph;
using cpu::LaneValue;

// Scores at a time: with their intermediate values about 256 MiB. SG_CUDA_FLEX_SCORES overrides it, for tests.
int64_t scores_at_a_time() {
  const char* given = std::getenv("SG_CUDA_FLEX_SCORES");
  const int64_t count = given ? std::atoll(given) : 0;
  return count > 0 ? count : int64_t{8} << 20;
}

class FlexRun {
 public:
  FlexRun(KernelCall& call, const FlexCall& flex)
      : call_(call),
        backend_(backend_of(call)),
        flex_(flex),
        a_(flex.attention),
        keys_(a_.key.dim(2)),
        sum_type_(a_.query.dtype == DType::f64 ? DType::f64 : DType::f32),
        score_(*flex.score, call.context()),
        mask_(*flex.mask, call.context()) {
    const std::array count = {std::max({a_.batch(), a_.heads(), a_.query.dim(2), keys_, int64_t{1}})};
    places_ = backend_.scratch(DType::i64, count);
    narrow_places_ = backend_.scratch(DType::i32, count);
    for (const Tensor& t : {places_, narrow_places_})
      backend_.device().launch("count_elements", blocks_for(count[0]), CountArgs{Device::view(t), 0, 1, 0, 1});
  }

  Status forward(const Tensor& out, const Tensor& logsumexp, const Tensor& maxima) {
    return for_parts([&](const Heads& h) -> Status {
      SG_ASSIGN(const Scores s, scores(h));
      const Tensor weights = space(h, a_.query.dtype);
      weigh(h, s, weights, part_of(logsumexp, h), part_of(maxima, h));
      return multiply_shared(call_, a_, h, part_of(out, h), weights, a_.value);
    });
  }

  Status backward(const cpu::AttentionGradients& g) {
    LaneGraph joint(*flex_.joint, call_.context());
    const Tensor key_sum = sum_for(g.key, a_.key), value_sum = sum_for(g.value, a_.value);
    SG_TRY(for_parts([&](const Heads& h) { return add_gradients(h, joint, g, key_sum, value_sum); }));
    if (!key_sum.is_none()) backend_.copy(g.key, key_sum);
    if (!value_sum.is_none()) backend_.copy(g.value, value_sum);
    return ok_status();
  }

 private:
  // For a part, [heads, queries, keys]: scaled scores, the results of score_mod, and where mask_mod lets them through.
  struct Scores {
    Tensor raw, changed, seen;
  };

  // Calls fn(heads) for runs of heads, or of one head's queries, whose scores fit; releases its scratch afterwards.
  template <class Fn>
  Status for_parts(const Fn& fn) {
    const int64_t queries = a_.query.dim(2), row = std::max<int64_t>(keys_, 1), fit = scores_at_a_time();
    const int64_t rows = std::clamp<int64_t>(fit / row, 1, std::max<int64_t>(queries, 1));
    const int64_t together = rows < queries ? 1 : std::max<int64_t>(fit / (row * rows), 1);
    const size_t mark = backend_.scratch_mark();
    for (int64_t batch = 0; batch < a_.batch(); ++batch)
      for (int64_t first = 0; first < a_.heads(); first += together)
        for (int64_t q = 0; q < queries; q += rows) {
          SG_TRY(fn(Heads{batch, first, std::min(together, a_.heads() - first), q, std::min(rows, queries - q)}));
          backend_.give_back_scratch(mark);
        }
    return ok_status();
  }

  Tensor space(const Heads& h, DType dtype) { return backend_.scratch(dtype, std::array{h.count, h.rows, keys_}); }

  Tensor sum_for(const Tensor& wanted, const Tensor& like) {
    if (wanted.is_none()) return {};
    const Tensor sum = backend_.scratch(sum_type_, like.sizes());
    backend_.fill(sum, Scalar::integer(0));
    return sum;
  }

  static Tensor over(const Heads& h, int64_t keys, const LaneValue& v) {  // one number per lane, as one tensor
    Tensor out = make_tensor(v.tensor.data, v.tensor.dtype, std::array{h.count, h.rows, keys});
    std::ranges::copy(v.step, out.stride.begin());
    return out;
  }
  static LaneValue lanes_of(const Tensor& scores) {
    return {make_tensor(scores.data, scores.dtype, {}), {scores.step(0), scores.step(1), scores.step(2)}};
  }

  void set_places(const Heads& h) {
    const std::array<int64_t, 4> first = {h.batch, h.first, h.row, 0};
    for (size_t i = 0; i < 4; ++i)
      for (const Tensor& t : {places_, narrow_places_}) {
        LaneValue v{make_tensor(t.data + first[i] * dtype_bytes(t.dtype), t.dtype, {})};
        if (i > 0) v.step[i - 1] = 1;
        (t.dtype == DType::i64 ? lanes_.place : lanes_.narrow_place)[i] = v;
      }
  }

  // The first result of a nested graph, for all lanes.
  Result<Tensor> run(const Heads& h, LaneGraph& graph, FlexGraph which) {
    SG_ASSIGN(std::vector<LaneValue> inputs, flex_inputs(which, flex_, lanes_));
    SG_ASSIGN(std::vector<LaneValue> results, graph.run({h.count, h.rows, keys_}, inputs));
    SG_TRY(check_flex_results(which, results));
    return over(h, keys_, results[0]);
  }

  Result<Scores> scores(const Heads& h) {
    Scores out;
    out.raw = space(h, sum_type_);
    SG_TRY(multiply_shared(call_, a_, h, out.raw, part_of(a_.query, h), swap_axes(a_.key, 2, 3), a_.scale));
    set_places(h);
    lanes_.score = lanes_of(out.raw);
    SG_ASSIGN(out.changed, run(h, score_, FlexGraph::score));
    SG_ASSIGN(out.seen, run(h, mask_, FlexGraph::mask));
    return out;
  }

  void weigh(const Heads& h, const Scores& s, const Tensor& weights, const Tensor& sums, const Tensor& maxima) {
    ScoreArgs args;
    args.scores = Device::view(s.changed);
    args.mask = Device::view(s.seen);
    args.weights = Device::view(weights);
    if (!sums.is_none()) args.sums = Device::view(sums);
    if (!maxima.is_none()) args.maxima = Device::view(maxima);
    args.log_scale = cpu::kLog2OfE;
    backend_.device().launch("attention_weights", h.count * h.rows, args);
  }

  Status add_gradients(const Heads& h, LaneGraph& joint, const cpu::AttentionGradients& g, const Tensor& key_sum,
                       const Tensor& value_sum) {
    SG_ASSIGN(const Scores s, scores(h));
    const Tensor weights = space(h, sum_type_), delta = space(h, sum_type_), grad_out = part_of(g.grad_out, h);
    weigh(h, s, weights, {}, {});
    if (grad_out.is_none()) backend_.fill(delta, Scalar::integer(0));
    else SG_TRY(multiply_shared(call_, a_, h, delta, grad_out, swap_axes(a_.value, 2, 3)));
    if (!value_sum.is_none() && !grad_out.is_none())
      SG_TRY(add_to_shared(call_, a_, h, value_sum, narrow(h, weights), grad_out));
    ScoreArgs args;
    args.scores = Device::view(weights);
    args.delta = Device::view(delta);
    if (!g.grad_logsumexp.is_none()) args.sums = Device::view(part_of(g.grad_logsumexp, h));
    args.log_scale = g.log_scale;
    backend_.device().launch("attention_score_gradients", h.count * h.rows, args);
    lanes_.gradient = lanes_of(delta);
    SG_ASSIGN(const Tensor changed, run(h, joint, FlexGraph::joint));
    const Tensor grads = space(h, a_.query.dtype);  // gradient of query @ key^T
    const SeenArgs seen{Device::view(grads), Device::view(changed), Device::view(s.seen), a_.scale};
    backend_.device().launch("attention_seen", blocks_for(grads.elements()), seen);
    if (!g.query.is_none()) SG_TRY(multiply_shared(call_, a_, h, part_of(g.query, h), grads, a_.key));
    if (!key_sum.is_none()) SG_TRY(add_to_shared(call_, a_, h, key_sum, grads, part_of(a_.query, h)));
    return ok_status();
  }

  Tensor narrow(const Heads& h, const Tensor& t) {  // products need operands of one type
    if (t.dtype == a_.query.dtype) return t;
    const Tensor out = space(h, a_.query.dtype);
    backend_.copy(out, t);
    return out;
  }

  KernelCall& call_;
  CudaBackend& backend_;
  const FlexCall& flex_;
  const cpu::Attention& a_;
  int64_t keys_;
  DType sum_type_;
  LaneGraph score_, mask_;
  cpu::FlexLanes lanes_;
  Tensor places_, narrow_places_;  // 0, 1, 2, ...
};

// --- which calls ---

constexpr size_t kScoreInputs = 5, kMaskInputs = 4, kJointInputs = 6;  // that differ between lanes

// Whether a node has more indices than are supported: those of the op, plus one for each axis that `self` is lifted
// along.
bool has_many_indices(const Graph& graph, NodeId n, const std::vector<bool>& lifted) {
  const std::vector<Arg>& args = graph.node(n).args;
  if (graph.op_name(n) != "aten.index.Tensor" || args.size() != 2 || !args[1].is(ArgKind::list)) return false;
  const bool is_lifted = args[0].is(ArgKind::value) && lifted[args[0].as_value().index];
  return args[1].items().size() + (is_lifted ? cpu::kLaneAxes : 0) > static_cast<size_t>(kMaxIndexed);
}

bool needs_host(const Backend& backend, const Graph& nested, size_t lifted_inputs) {
  const std::vector<bool> lifted = LaneGraph::lifted_values(nested, lifted_inputs);
  for (NodeId n : nested.nodes()) {
    const OpInfo* op = nested.op_info(n);
    if (!op || op->has(kView)) continue;
    const bool gives_lifted = nested.node(n).result_count > 0 && lifted[nested.node(n).result(0).index];
    if (gives_lifted && !LaneGraph::runs_together(nested, n)) return true;
    if (has_many_indices(nested, n, lifted) || backend.find_kernel(*op) == run_by_host) return true;
  }
  return false;
}

Status flex_attention(KernelCall& call) {
  SG_ASSIGN(const FlexCall flex, cpu::flex_call(call));
  CudaBackend& backend = backend_of(call);
  if (needs_host(backend, *flex.score, kScoreInputs) || needs_host(backend, *flex.mask, kMaskInputs) ||
      (flex.joint && needs_host(backend, *flex.joint, kJointInputs)))
    return run_by_host(call);
  backend.note_dense_attention();
  if (flex.joint) return FlexRun(call, flex).backward(flex.gradients(call));
  return FlexRun(call, flex).forward(call.result(0), call.result(1), call.result(2));
}

constexpr KernelRow kFlexRows[] = {
    {"higher_order.flex_attention", flex_attention},
    {"higher_order.flex_attention_backward", flex_attention},
};

}  // namespace

std::span<const KernelRow> flex_attention_kernels() { return kFlexRows; }

bool flex_runs_on_host(const Backend& backend, const Program& program, const Graph& graph, NodeId n) {
  const bool is_backward = graph.op_info(n)->param_index("joint_graph") >= 0;
  std::vector<size_t> lifted = is_backward ? std::vector{kScoreInputs, kJointInputs, kMaskInputs}
                                           : std::vector{kScoreInputs, kMaskInputs};  // in the order of the graphs
  size_t i = 0;
  bool host = false;
  for (const Arg& arg : graph.node(n).args)
    arg.walk([&](const Arg& a) {
      if (!a.is(ArgKind::graph) || i == lifted.size()) return;
      host |= needs_host(backend, program.nested[a.as_graph().index]->graph, lifted[i++]);
    });
  return host;
}

}  // namespace sg::cuda
