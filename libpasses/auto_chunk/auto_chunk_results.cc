#include "libpasses/auto_chunk/auto_chunk_outliner.h"

#include <algorithm>

#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libpasses/auto_chunk/auto_chunk_rewrite.h"

namespace sg {

Status AutoOutliner::replace_results() {
  for (ValueId v : plan_.results)
    if (state(v).kind == AxisKind::size) put_number(&graph_, v);
  for (const Out& out : outs_) {
    const DType own = graph_.type(out.value).dtype;
    if (!out.is_sum || graph_.type(out.whole).dtype == own) {
      replace(out.value, out.whole);
      SG_TRY(move_views(out.value, out.whole));
      continue;
    }
    if (hand_on(out)) continue;
    SG_ASSIGN(const ValueId cast,
              main_.make("aten._to_copy.default", {Arg::value(out.whole), main_.keyword("dtype", Arg::dtype(own))},
                         std::string(graph_.name(out.value)) + "_cast", like_call(-1, "materialization")));
    replace(out.value, cast);
  }
  return ok_status();
}

// Types of views of what was a part of other memory, and has memory of its own now.
Status AutoOutliner::move_views(ValueId v, ValueId by) {
  if (graph_.type(v).offset == graph_.type(by).offset) return ok_status();
  std::vector<ValueId> moved = {by};
  while (!moved.empty()) {
    const ValueId at = moved.back();
    moved.pop_back();
    for (NodeId user : graph_.users(at)) {
      const OpInfo* op = graph_.op_info(user);
      if (op == nullptr || is_body(user) || !(op->has(kView) || op->has(kMayAlias))) continue;
      if (op->param_index("storage_offset") >= 0)
        return Error{ErrorKind::cannot_apply,
                     place_of(program_, graph_, user) +
                         ": it counts from where the memory of its operand begins, which " + "is in chunks",
                     {},
                     "clone it before"};
      const Type before = graph_.type(graph_.node(user).result(0));
      SG_TRY(main_.infer(user));
      for (uint32_t i = 0; i < graph_.node(user).result_count; ++i)
        if (graph_.node(user).result_count > 1 || !(before == graph_.type(graph_.node(user).result(0))))
          moved.push_back(graph_.node(user).result(i));
    }
  }
  return ok_status();
}

void AutoOutliner::replace(ValueId v, ValueId by) {
  for (NodeId user : graph_.users(v))
    if (!is_body(user)) graph_.replace_uses_in(user, v, by);
  for (size_t i = 0; i < graph_.outputs().size(); ++i)
    if (graph_.outputs()[i].value == v) graph_.set_output_value(i, by);
}

NodeId AutoOutliner::only_user(ValueId v) const {
  NodeId out;
  for (const Output& output : graph_.outputs())
    if (output.value == v) return NodeId();
  for (NodeId user : graph_.users(v)) {
    if (is_body(user)) continue;
    if (out) return NodeId();
    out = user;
  }
  return out;
}

bool AutoOutliner::hand_on(const Out& out) {
  std::vector<NodeId> views;
  ValueId at = out.value;
  for (;;) {
    const NodeId user = only_user(at);
    if (!user || graph_.node(user).result_count != 1 || graph_.op_info(user) == nullptr) return false;
    const ValueId result = graph_.node(user).result(0);
    if (graph_.op_name(user) == "aten._to_copy.default") {
      Type wanted = graph_.type(at);
      wanted.dtype = graph_.type(out.whole).dtype;
      if (!(wanted == graph_.type(result))) return false;
      break;
    }
    if (!graph_.op_info(user)->has(kView) || graph_.op_name(user) == "aten.view.dtype") return false;
    views.push_back(user), at = result;
  }
  const NodeId cast = only_user(at);
  if (views.empty()) {
    replace(graph_.node(cast).result(0), out.whole);
  } else {
    replace(out.value, out.whole);
    for (NodeId view : views)
      if (!main_.infer(view).ok()) return false;
    replace(graph_.node(cast).result(0), at);
  }
  dead_.push_back(cast);
  return true;
}

void AutoOutliner::erase_body() {
  std::vector<NodeId> dead;
  for (const AutoNode& body : plan_.body) dead.push_back(body.node);
  while (!dead.empty()) {
    std::ranges::sort(dead, [&](NodeId a, NodeId b) { return graph_.before(a, b); });
    std::vector<NodeId> next;
    for (size_t i = dead.size(); i-- > 0;) {
      const NodeId n = dead[i];
      if (!graph_.alive(n) || graph_.has_used_result(n)) continue;
      for_operands(graph_, n, [&](ValueId v) {
        const NodeId def = graph_.value(v).def;
        if (def && !is_body(def) && graph_.op_info(def) != nullptr && graph_.op_info(def)->has(kPure))
          next.push_back(def);
      });
      graph_.erase(n);
    }
    std::erase_if(next, [&](NodeId n) { return !graph_.alive(n) || graph_.has_used_result(n); });
    std::ranges::sort(next);
    next.erase(std::unique(next.begin(), next.end()), next.end());
    dead = std::move(next);
  }
}

}  // namespace sg
