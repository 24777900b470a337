#include "librun/execute/unsupported.h"

#include "libgraph/infer/missing_type.h"
#include "libgraph/op.h"
#include "libgraph/op_hint.h"
#include "libgraph/story/source_text.h"

namespace sg {
namespace {

// What the model's author can do about it.
std::string remedy_of(const Unsupported& u) {
  if (u.op.starts_with("higher_order.flex_attention"))
    return "its nested graphs run on the kernels of docs/ops.md; a learned bias has its gradient as attn_mask of "
           "scaled_dot_product_attention";
  if (u.op.starts_with("higher_order.run_"))  // run_and_save_rng_state, run_with_rng_state
    return "these draw a recomputed step's random numbers again: import the joint graph (aot_joint_graph), which draws "
           "them once, and recompute with sg-remat";
  if (u.op.starts_with("higher_order.with_effects"))
    return "an operator that is not PyTorch's own, or prints, has effects that the graph keeps in order; sg-run does "
           "not know it: leave it out of what is compiled";
  if (u.op.starts_with("higher_order."))
    return "sg-run runs no loops and no bodies that an operator calls: write the model with a loop of Python's, which "
           "tracing unrolls, or put what it computes in plain tensor operations";
  const bool has_row = u.reason != kNoRow;
  if (!has_row && (u.op.starts_with("_c10d_functional.") || u.op.starts_with("symm_mem.")))
    return "messages between two ranks and memory that ranks share do not run: write the exchange as a collective of "
           "all ranks of its group (all_to_all_single, permute_tensor)";
  if (const std::string meant = has_row ? "" : hint_for_unknown_op(u.op); !meant.empty()) return meant;
  if (!u.op.starts_with("aten.") && !u.op.starts_with("prims.") && !has_row)
    return "this operator is not PyTorch's own: write what it computes in plain PyTorch, choose such an implementation "
           "of the model (an option such as `attn_implementation` or `experts_implementation`), run "
           "program.run_decompositions() before torch.export.save, or add the op (docs/tasks/add-an-op.md)";
  if (u.reason == kNoType && u.binds_symbol) return std::string(kDeclareDataSize);
  return "sg-stat --by op counts what the graph holds; docs/ops.md lists what runs";
}

}  // namespace

Unsupported& UnsupportedList::kind(std::string_view op, const std::string& reason) {
  auto [it, is_new] = index_.emplace(std::pair(std::string(op), reason), out_.size());
  if (is_new) out_.push_back({.op = std::string(op), .reason = reason});
  ++out_[it->second].count;
  return out_[it->second];
}

void UnsupportedList::add(NodeId n, const std::string& reason) {
  Unsupported& kept = kind(graph_.op_name(n), reason);
  if (kept.count > 1) return;
  const std::string source = source_of(graph_, n);
  kept.first = "%" + std::string(graph_.label(n)) + (source.empty() ? "" : ", " + source);
  const OpInfo* op = graph_.op_info(n);
  kept.binds_symbol = op != nullptr && op->has(kBindsSymbol);
}

void UnsupportedList::add_input(const std::string& reason) { kind("input", reason); }

Error refusal_of(std::span<const Unsupported> list) {
  std::string message = "cannot run:";
  for (const Unsupported& u : list) {
    message += std::string(&u == list.data() ? " " : "; ") + u.op + " (" + u.reason;
    if (u.count > 1) message += ", " + std::to_string(u.count) + " nodes";
    if (!u.first.empty()) message += ", first " + u.first;
    message += ")";
  }
  return Error{ErrorKind::cannot_apply, message, {}, remedy_of(list[0])};
}

}  // namespace sg
