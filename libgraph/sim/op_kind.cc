#include "libgraph/sim/op_kind.h"

#include "libgraph/facts/cost.h"

namespace sg {

std::string_view name_of(OpKind kind) {
  constexpr std::string_view kNames[] = {"matmul", "grouped_matmul", "convolution", "attention", "attention_backward",
                                         "memory", "irregular"};
  return kNames[static_cast<size_t>(kind)];
}

OpKind op_kind(const OpInfo* op) {
  if (!op) return OpKind::memory;
  const CostRule rule = op->cost;
  if (op->has(kContraction)) {
    if (rule == cost::attention) return OpKind::attention;
    if (rule == cost::attention_backward) return OpKind::attention_backward;
    if (rule == cost::convolution || rule == cost::convolution_backward) return OpKind::convolution;
    return rule == cost::grouped_mm ? OpKind::grouped_matmul : OpKind::matmul;
  }
  bool by_index = rule == cost::gather || rule == cost::scatter || rule == cost::sort;
  return by_index ? OpKind::irregular : OpKind::memory;
}

double& efficiency_of(Machine::Efficiency& e, OpKind kind) {
  switch (kind) {
    case OpKind::matmul: return e.matmul;
    case OpKind::grouped_matmul: return e.grouped_matmul;
    case OpKind::convolution: return e.convolution;
    case OpKind::attention: return e.attention;
    case OpKind::attention_backward: return e.attention_backward;
    case OpKind::memory: return e.memory;
    case OpKind::irregular: break;
  }
  return e.irregular;
}

}  // namespace sg
