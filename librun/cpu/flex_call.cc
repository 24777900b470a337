#include "librun/cpu/flex_call.h"

#include <algorithm>

#include "libgraph/job.h"
#include "librun/cpu/kernels.h"

namespace sg::cpu {
namespace {

constexpr size_t kOwnGradients = 5;  // of a joint graph: the score's and four none, before those of captures
constexpr const char* kNoCapturedGradients = "gradients of what score_mod captured are not computed";

Error wrong(std::string message) { return Error{ErrorKind::cannot_apply, std::move(message)}; }

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
      return call.fail("'" + std::string(name) + "' holds something that is not a tensor");
    out.push_back({item.tensor});
  }
  return out;
}

}  // namespace

Result<FlexCall> flex_call(const KernelCall& call) {
  const bool is_backward = call.op().param_index("joint_graph") >= 0;
  FlexCall out;
  out.attention = {call.tensor("query"), call.tensor("key"), call.tensor("value"), {}, false, call.number("scale"), {}};
  SG_TRY(check_attention(call, out.attention));
  const std::vector<ParamValue>& mask = call.param("block_mask").items;
  if (mask.empty()) return call.fail("block_mask has no mask_mod");
  SG_ASSIGN(out.score, nested_graph(call, call.param(is_backward ? "fw_graph" : "score_mod")));
  SG_ASSIGN(out.mask, nested_graph(call, mask.back()));
  if (is_backward) {
    SG_ASSIGN(out.joint, nested_graph(call, call.param("joint_graph")));
  }
  SG_ASSIGN(out.score_captures, captured(call, "score_mod_other_buffers"));
  SG_ASSIGN(out.mask_captures, captured(call, "mask_mod_other_buffers"));
  return out;
}

AttentionGradients FlexCall::gradients(KernelCall& call) const {
  AttentionGradients g;
  if (call.has("grad_out")) g.grad_out = call.tensor("grad_out");
  g.out = call.tensor("out");
  g.logsumexp = call.tensor("logsumexp");
  g.log_scale = kLog2OfE;
  if (call.has("grad_logsumexp")) g.grad_logsumexp = call.tensor("grad_logsumexp");
  g.query = call.result(0);
  g.key = call.result(1);
  g.value = call.result(2);
  return g;
}

Result<std::vector<LaneValue>> flex_inputs(FlexGraph which, const FlexCall& flex, const FlexLanes& lanes) {
  const Graph& graph = which == FlexGraph::score ? *flex.score : which == FlexGraph::mask ? *flex.mask : *flex.joint;
  std::vector<LaneValue> out;
  if (which != FlexGraph::mask) out.push_back(lanes.score);
  if (graph.inputs().size() < out.size() + 4) return wrong("a nested graph has too few inputs");
  for (size_t i = 0; i < 4; ++i) {
    const bool wide = graph.type(graph.inputs()[out.size()].value).dtype == DType::i64;
    out.push_back(wide ? lanes.place[i] : lanes.narrow_place[i]);
  }
  if (which == FlexGraph::joint) out.push_back(lanes.gradient);
  const std::vector<LaneValue>& captures = which == FlexGraph::mask ? flex.mask_captures : flex.score_captures;
  out.insert(out.end(), captures.begin(), captures.end());
  return out;
}

Status check_flex_results(FlexGraph which, std::span<const LaneValue> results) {
  const Tensor* first = results.empty() || results[0].tensor.is_none() ? nullptr : &results[0].tensor;
  if (which == FlexGraph::mask) {
    const bool fits = results.size() == 1 && first && first->dtype == DType::boolean && first->elements() == 1;
    return fits ? ok_status() : wrong("mask_mod has to give one bool");
  }
  if (!first || !is_floating(first->dtype) || first->elements() != 1)
    return wrong("a score graph has to give one float");
  for (size_t i = kOwnGradients; which == FlexGraph::joint && i < results.size(); ++i)
    if (!results[i].tensor.is_none()) return wrong(kNoCapturedGradients);
  return ok_status();
}

std::string flex_attention_refusal(const Program& program, const Graph& graph, NodeId n) {
  std::string why;
  for (const Arg& arg : graph.node(n).args)
    arg.walk([&](const Arg& a) {
      if (!why.empty() || !a.is(ArgKind::graph) || a.as_graph().index >= program.nested.size()) return;
      const Graph& nested = program.nested[a.as_graph().index]->graph;
      const std::span<const Output> outputs = nested.outputs();
      const auto own = static_cast<ptrdiff_t>(std::min(kOwnGradients, outputs.size()));
      const bool wants_more =
          std::any_of(outputs.begin() + own, outputs.end(), [](const Output& o) { return !o.value.is_none(); });
      why = wants_more ? kNoCapturedGradients : LaneGraph::refusal(nested);
    });
  return why;
}

}  // namespace sg::cpu
