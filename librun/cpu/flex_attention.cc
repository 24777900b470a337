// FlexAttention: attention whose scores a nested graph changes (score_mod) and another masks (mask_mod).
//
//     score = score_mod(scale * query @ key^T, batch, head, q, k, captured...)
//             where mask_mod(batch, head, q, k, captured...)
//
// Both graphs are about one score; here they run over a block of them (LaneGraph). Logarithms and maxima are returned
// in units of log2. The lists of blocks in block_mask say which scores mask_mod can let through; what counts is
// mask_mod.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "libgraph/job.h"
#include "librun/cpu/attention.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/lane_graph.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

constexpr double kLog2OfE = 1.44269504088896340736;
constexpr ptrdiff_t kOwnGradients = 5;  // of a joint graph: of the score, and four that are none; then of captures
constexpr const char* kNoCapturedGradients = "gradients of what score_mod captured are not computed";

// What a call's nested graphs are given besides the score and its place.
struct Captures {
  std::vector<LaneValue> score, mask;
};

struct Graphs {
  const Graph* score = nullptr;
  const Graph* mask = nullptr;
  const Graph* joint = nullptr;  // backward only
};

Result<const Graph*> nested_graph(const KernelCall& call, const ParamValue& p) {
  const Program* program = call.context().program;
  if (p.kind != ParamValue::Kind::graph || !program || p.graph.index >= program->nested.size())
    return call.fail("needs a nested graph");
  return &program->nested[p.graph.index]->graph;
}

Result<std::vector<LaneValue>> captured(const KernelCall& call, std::string_view name) {
  std::vector<LaneValue> out;
  for (const ParamValue& item : call.param(name).items) {
    if (item.kind != ParamValue::Kind::tensor)
      return call.fail("'" + std::string(name) + "' holds something that is no tensor");
    out.push_back({item.tensor});
  }
  return out;
}

Result<Graphs> graphs_of(const KernelCall& call, std::string_view score) {
  Graphs g;
  const std::vector<ParamValue>& mask = call.param("block_mask").items;
  if (mask.empty()) return call.fail("block_mask has no mask_mod");
  SG_ASSIGN(g.score, nested_graph(call, call.param(score)));
  SG_ASSIGN(g.mask, nested_graph(call, mask.back()));
  return g;
}

// One thread's graphs, and the inputs they get for a block.
template <class T>
class Lanes {
 public:
  Lanes(const KernelCall& call, const Graphs& graphs, const Captures& captures)
      : captures_(captures),
        graphs_(graphs),
        score_(*call.context().program, *graphs.score, call.numerics()),
        mask_(*call.context().program, *graphs.mask, call.numerics()) {
    if (graphs.joint) joint_ = std::make_unique<LaneGraph>(*call.context().program, *graphs.joint, call.numerics());
  }

  Status forward(const ScoreBlock<T>& block) {
    place(block);
    gather(block, block.scores, &scores_);
    SG_ASSIGN(std::vector<LaneValue> inputs, inputs_of(*graphs_.score, true, nullptr, captures_.score));
    SG_ASSIGN(std::vector<LaneValue> score, score_.run(lanes_, inputs));
    SG_TRY(scatter(block, score, block.scores));
    SG_ASSIGN(inputs, inputs_of(*graphs_.mask, false, nullptr, captures_.mask));
    SG_ASSIGN(std::vector<LaneValue> seen, mask_.run(lanes_, inputs));
    if (seen.size() != 1 || seen[0].tensor.dtype != DType::boolean || seen[0].tensor.elements() != 1)
      return wrong("mask_mod has to give one bool");
    seen_ = seen[0];
    where_seen(block, block.scores, -std::numeric_limits<T>::infinity());
    return ok_status();
  }

  // After `forward` of the same block: `grads` of its results become those of what it was given (`raw`).
  Status backward(const ScoreBlock<T>& raw, T* grads) {
    gather(raw, raw.scores, &scores_);
    gather(raw, grads, &grads_);
    SG_ASSIGN(std::vector<LaneValue> inputs, inputs_of(*graphs_.joint, true, &grads_, captures_.score));
    SG_ASSIGN(std::vector<LaneValue> out, joint_->run(lanes_, inputs));
    for (size_t i = kOwnGradients; i < out.size(); ++i)
      if (!out[i].tensor.is_none()) return wrong(kNoCapturedGradients);
    SG_TRY(scatter(raw, out, grads));
    where_seen(raw, grads, T(0));
    return ok_status();
  }

 private:
  static Error wrong(std::string message) { return Error{ErrorKind::cannot_apply, std::move(message)}; }

  void place(const ScoreBlock<T>& block) {
    lanes_ = block.rows * block.columns;
    place_[0] = block.batch;
    place_[1] = block.head;
    queries_.resize(static_cast<size_t>(lanes_));
    keys_.resize(static_cast<size_t>(lanes_));
    for (int64_t i = 0, at = 0; i < block.rows; ++i)
      for (int64_t j = 0; j < block.columns; ++j, ++at) {
        queries_[static_cast<size_t>(at)] = block.q + i;
        keys_[static_cast<size_t>(at)] = block.k + j;
      }
    narrow_queries_.assign(queries_.begin(), queries_.end());
    narrow_keys_.assign(keys_.begin(), keys_.end());
    narrow_place_[0] = static_cast<int32_t>(block.batch);
    narrow_place_[1] = static_cast<int32_t>(block.head);
  }

  void gather(const ScoreBlock<T>& block, const T* from, std::vector<T>* to) {
    to->resize(static_cast<size_t>(lanes_));
    for (int64_t i = 0; i < block.rows; ++i)
      std::copy_n(from + i * kPackedRow, block.columns, to->data() + i * block.columns);
  }

  static LaneValue number(const void* data, DType dtype, int64_t lane_step) {
    LaneValue v;
    v.tensor = make_tensor(static_cast<std::byte*>(const_cast<void*>(data)), dtype, {});
    v.lane_step = lane_step;
    return v;
  }

  // [score,] batch, head, q, k [, gradient], captured...
  Result<std::vector<LaneValue>> inputs_of(const Graph& graph, bool has_score, const std::vector<T>* grads,
                                           const std::vector<LaneValue>& captures) {
    constexpr DType dtype = kTileType<T>;
    std::vector<LaneValue> out;
    if (has_score) out.push_back(number(scores_.data(), dtype, 1));
    if (graph.inputs().size() < out.size() + 4) return wrong("a nested graph has too few inputs");
    for (int i = 0; i < 4; ++i) {
      bool wide = graph.type(graph.inputs()[out.size()].value).dtype == DType::i64;
      DType index = wide ? DType::i64 : DType::i32;
      const void* lifted = i == 2 ? (wide ? static_cast<const void*>(queries_.data()) : narrow_queries_.data())
                                  : (wide ? static_cast<const void*>(keys_.data()) : narrow_keys_.data());
      const void* fixed = wide ? static_cast<const void*>(place_ + i % 2) : narrow_place_ + i % 2;
      out.push_back(number(i < 2 ? fixed : lifted, index, i < 2 ? 0 : 1));
    }
    if (grads) out.push_back(number(grads->data(), dtype, 1));
    out.insert(out.end(), captures.begin(), captures.end());
    return out;
  }

  Status scatter(const ScoreBlock<T>& block, const std::vector<LaneValue>& values, T* to) {
    if (values.empty() || values[0].tensor.is_none() || !is_floating(values[0].tensor.dtype) ||
        values[0].tensor.elements() != 1)
      return wrong("a score graph has to give one float");
    const LaneValue& v = values[0];
    visit_floating(v.tensor.dtype, [&]<class From>() {
      const From* from = v.tensor.as<From>();
      for (int64_t i = 0; i < block.rows; ++i)
        for (int64_t j = 0; j < block.columns; ++j)
          to[i * kPackedRow + j] =
              static_cast<T>(static_cast<Compute<From>>(from[(i * block.columns + j) * v.lane_step]));
    });
    return ok_status();
  }

  void where_seen(const ScoreBlock<T>& block, T* values, T otherwise) const {
    const bool* seen = seen_.tensor.as<bool>();
    for (int64_t i = 0; i < block.rows; ++i)
      for (int64_t j = 0; j < block.columns; ++j)
        if (!seen[(i * block.columns + j) * seen_.lane_step]) values[i * kPackedRow + j] = otherwise;
  }

  const Captures& captures_;
  const Graphs& graphs_;
  LaneGraph score_, mask_;
  std::unique_ptr<LaneGraph> joint_;
  int64_t lanes_ = 0;
  int64_t place_[2] = {};
  int32_t narrow_place_[2] = {};
  std::vector<int64_t> queries_, keys_;
  std::vector<int32_t> narrow_queries_, narrow_keys_;
  std::vector<T> scores_, grads_;
  LaneValue seen_;  // of the block at hand
};

Result<Attention> attention_of(const KernelCall& call) {
  Attention a{call.tensor("query"), call.tensor("key"), call.tensor("value"), {}, false, call.number("scale")};
  SG_TRY(check_attention(call, a));
  return a;
}

template <class T>
struct Flex {
  Captures captures;
  Graphs graphs;
  std::vector<std::unique_ptr<Lanes<T>>> lanes;  // by thread
  ScoreHooks<T> hooks;

  Status open(const KernelCall& call) {
    SG_ASSIGN(captures.score, captured(call, "score_mod_other_buffers"));
    SG_ASSIGN(captures.mask, captured(call, "mask_mod_other_buffers"));
    for (int i = 0; i < call.team().size(); ++i) lanes.push_back(std::make_unique<Lanes<T>>(call, graphs, captures));
    hooks.forward = [this](const ScoreBlock<T>& block) {
      return lanes[static_cast<size_t>(block.thread)]->forward(block);
    };
    if (graphs.joint)
      hooks.backward = [this](const ScoreBlock<T>& raw, T* grads) {
        return lanes[static_cast<size_t>(raw.thread)]->backward(raw, grads);
      };
    return ok_status();
  }
};

template <class T>
Status forward(KernelCall& call, const Attention& a) {
  Flex<T> flex;
  SG_ASSIGN(flex.graphs, graphs_of(call, "score_mod"));
  SG_TRY(flex.open(call));
  return attention_forward<T>(call, a, {call.result(0), call.result(1), call.result(2), kLog2OfE}, flex.hooks);
}

template <class T>
Status backward(KernelCall& call, const Attention& a) {
  Flex<T> flex;
  SG_ASSIGN(flex.graphs, graphs_of(call, "fw_graph"));
  SG_ASSIGN(flex.graphs.joint, nested_graph(call, call.param("joint_graph")));
  SG_TRY(flex.open(call));
  AttentionGradients g;
  if (call.has("grad_out")) g.grad_out = call.tensor("grad_out");
  g.out = call.tensor("out");
  g.logsumexp = call.tensor("logsumexp");
  g.log_scale = kLog2OfE;
  if (call.has("grad_logsumexp")) g.grad_logsumexp = call.tensor("grad_logsumexp");
  g.query = call.result(0);
  g.key = call.result(1);
  g.value = call.result(2);
  return attention_backward<T>(call, a, g, flex.hooks);
}

Status flex_attention(KernelCall& call) {
  SG_ASSIGN(Attention a, attention_of(call));
  return a.query.dtype == DType::f64 ? forward<double>(call, a) : forward<float>(call, a);
}

Status flex_attention_backward(KernelCall& call) {
  SG_ASSIGN(Attention a, attention_of(call));
  return a.query.dtype == DType::f64 ? backward<double>(call, a) : backward<float>(call, a);
}

constexpr KernelRow kRows[] = {
    {"higher_order.flex_attention", flex_attention},
    {"higher_order.flex_attention_backward", flex_attention_backward},
};

}  // namespace

std::span<const KernelRow> flex_attention_kernels() { return kRows; }

std::string flex_attention_refusal(const Program& program, const Graph& graph, NodeId n) {
  std::string why;
  for (const Arg& arg : graph.node(n).args)
    arg.walk([&](const Arg& a) {
      if (!why.empty() || !a.is(ArgKind::graph) || a.as_graph().index >= program.nested.size()) return;
      const Graph& nested = program.nested[a.as_graph().index]->graph;
      const std::span<const Output> outputs = nested.outputs();
      const bool wants_more = std::any_of(outputs.begin() + std::min<ptrdiff_t>(kOwnGradients, std::ssize(outputs)),
                                          outputs.end(), [](const Output& o) { return !o.value.is_none(); });
      why = wants_more ? kNoCapturedGradients : LaneGraph::refusal(nested);
    });
  return why;
}

}  // namespace sg::cpu
