#include "librun/replay.h"

#include <algorithm>
#include <array>

#include "libgraph/op.h"
#include "librun/cpu/fill.h"

namespace sg {
namespace {

// Results: the elements chosen along `dim`, and their indices.
constexpr std::array<std::string_view, 9> kChoosers = {
    "aten.topk.default",     "aten.sort.default", "aten.sort.stable", "aten.max.dim",       "aten.min.dim",
    "aten.kthvalue.default", "aten.mode.default", "aten.median.dim",  "aten.nanmedian.dim",
};

bool is_exact(const Type& type) {
  if (type.kind != TypeKind::tensor) return type.kind != TypeKind::floating;
  return !is_floating(type.dtype) && !is_complex(type.dtype);
}

// values = gather(self, dim, indices), the reduced axis put back for as long.
Status choose_again(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  Tensor values = call.results[0], indices = call.results[1];
  if (self.rank == 0) return cpu::copy(call, values, self), ok_status();
  int axis = wrap_axis(call.integer("dim"), self.rank);
  auto with_axis = [&](Tensor t) {
    if (t.rank == self.rank) return t;
    for (int i = t.rank++; i > axis; --i) {
      t.shape[static_cast<size_t>(i)] = t.shape[static_cast<size_t>(i - 1)];
      t.stride[static_cast<size_t>(i)] = t.stride[static_cast<size_t>(i - 1)];
    }
    t.shape[static_cast<size_t>(axis)] = 1;
    t.stride[static_cast<size_t>(axis)] = 0;
    return t;
  };
  const OpInfo& gather = *find_op("aten.gather.default");
  KernelCall again(gather, &call.context());
  auto set = [&](std::string_view name) -> ParamValue& {
    return again.params()[static_cast<size_t>(gather.param_index(name))];
  };
  set("self").kind = set("index").kind = ParamValue::Kind::tensor;
  set("self").tensor = self;
  set("index").tensor = with_axis(indices);
  set("dim").kind = ParamValue::Kind::scalar;
  set("dim").scalar = Scalar::integer(axis);
  again.results = {with_axis(values)};
  return find_cpu_kernel(gather.name)(again);
}

}  // namespace

Status replay_step(GraphRun& recorded, GraphRun& wide, size_t i) {
  const Graph& graph = wide.graph();
  const Node& node = graph.node(wide.step_node(i));
  size_t exact = 0;
  for (uint32_t r = 0; r < node.result_count; ++r) exact += is_exact(graph.type(node.result(r)));
  bool chooses = std::ranges::find(kChoosers, graph.op_name(wide.step_node(i))) != kChoosers.end();
  bool skip = node.result_count > 0 && (exact == node.result_count || chooses);
  SG_TRY(skip ? wide.begin_step(i) : wide.run_step(i, false));
  for (uint32_t r = 0; r < node.result_count; ++r) {
    ValueId v = node.result(r);
    if (!is_exact(graph.type(v))) continue;
    wide.values().scalars[v.index] = recorded.values().scalars[v.index];
    const Tensor& from = recorded.values().tensors[v.index];
    Tensor& to = wide.values().tensors[v.index];
    if (from.is_none() || to.is_none()) continue;
    cpu::copy(wide.team(), to, from);
  }
  return chooses && exact < node.result_count ? choose_again(*wide.step_call(i)) : ok_status();
}

}  // namespace sg
