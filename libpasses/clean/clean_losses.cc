// Folds log-softmax and nll_loss into one op forward and one backward (sg.cross_entropy), if both serve nothing else.
//
// This removes the log-probabilities and the loss's own gradient, each as large as the scores in f32. The backward
// needs only the scores and one number per row from the forward. Casts of the scores to f32, and of the gradient to the
// type of the scores, are fused as well, and the gradient may reuse the memory of the scores.
#include <string>
#include <string_view>
#include <vector>

#include "libpasses/clean/clean_parts.h"

namespace sg::clean_parts {
namespace {

constexpr size_t kLossArgs = 5;  // self, target, weight, reduction, ignore_index

// The nodes that are folded; nothing else uses them.
struct Loss {
  NodeId softmax, forward;
  NodeId backward, softmax_backward;  // none: there is no backward
  std::vector<NodeId> views;          // of the gradient, before its cast
  NodeId cast;                        // of the gradient to the type of the scores; may be none
};

class LossFolder {
 public:
  LossFolder(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule)
      : scope_(scope), graph_(scope.graph), tally_(scope.tally), alias_(alias), schedule_(schedule) {}

  size_t run() {
    std::vector<Loss> losses;
    for (NodeId n : graph_.nodes())
      if (graph_.op_name(n) == "aten._log_softmax.default")
        if (Result<Loss> loss = loss_of(n); loss.ok()) losses.push_back(std::move(*loss));
    for (Loss& loss : losses) {
      fold_cast_into(scope_, alias_, schedule_, loss.softmax);
      find_cast(&loss);
      fold(loss);
    }
    return losses.size();
  }

  // What is left, and why: "%logs aten._log_softmax.default stays: ...".
  std::vector<std::string> left() const {
    std::vector<std::string> out;
    for (NodeId n : graph_.nodes()) {
      if (graph_.op_name(n) != "aten._log_softmax.default") continue;
      if (Result<Loss> loss = loss_of(n); !loss.ok()) out.push_back(text_of(n) + " stays: " + loss.error().message);
    }
    return out;
  }

 private:
  std::string text_of(NodeId n) const {
    return "%" + std::string(graph_.label(n)) + " " + std::string(graph_.op_name(n));
  }

  static Error stays_because(std::string why) { return {ErrorKind::cannot_apply, std::move(why), {}, {}}; }

  ValueId argument(NodeId n, size_t at) const {
    const std::vector<Arg>& args = graph_.node(n).args;
    return at < args.size() && args[at].is(ArgKind::value) ? args[at].as_value() : ValueId();
  }

  bool is_plain(NodeId n, std::string_view op, size_t args) const {
    if (graph_.op_name(n) != op || graph_.node(n).args.size() != args || is_deliberate_copy(graph_, n)) return false;
    for (const Arg& arg : graph_.node(n).args)
      if (!arg.key().is_none()) return false;
    return true;
  }

  // Whether nothing writes to the memory of `v` after `from` until `to` has read it.
  bool stays(ValueId v, NodeId from, NodeId to) const {
    const StorageId s = alias_.storage_of(v);
    if (s.is_none() || !alias_.storage(s).certain) return false;
    return schedule_.next_write(alias_.storage(s).alias_class, schedule_.position(from)) > schedule_.position(to);
  }

  // Whether it is over rows of classes: along the last of two axes, in f32 or f64.
  bool is_of_rows(NodeId softmax) const {
    const Type& logs = graph_.type(graph_.node(softmax).result(0));
    const Arg& dim = graph_.node(softmax).args[1];
    return logs.shape.size() == 2 && (logs.dtype == DType::f32 || logs.dtype == DType::f64) &&
           dim.is(ArgKind::integer) && (dim.as_int() == 1 || dim.as_int() == -1);
  }

  Result<Loss> loss_of(NodeId softmax) const {
    if (!is_plain(softmax, "aten._log_softmax.default", 3))
      return stays_because("a pass made this copy or chunk of it");
    if (!is_of_rows(softmax)) return stays_because("it is not along the last of two axes, in f32 or f64");
    const ValueId logs = graph_.node(softmax).result(0), scores = argument(softmax, 0);
    Loss loss{softmax, {}, {}, {}, {}, {}};
    uint32_t uses = 0;
    NodeId other;
    for (NodeId n : graph_.users(logs)) {
      if (is_plain(n, "aten.nll_loss_forward.default", kLossArgs) && argument(n, 0) == logs) loss.forward = n;
      else if (is_plain(n, "aten.nll_loss_backward.default", 7) && argument(n, 1) == logs) loss.backward = n;
      else if (is_plain(n, "aten._log_softmax_backward_data.default", 4) && argument(n, 1) == logs)
        loss.softmax_backward = n;
      else if (other.is_none()) other = n;
      ++uses;
    }
    const std::string reader = other.is_none() ? "" : text_of(other) + " reads the log-probabilities";
    if (loss.forward.is_none())
      return stays_because("no nll_loss is behind it" + (other.is_none() ? "" : ": " + reader));
    if (!other.is_none()) return stays_because(reader + " as well");
    const bool has_backward = !loss.backward.is_none();
    if (loss.softmax_backward.is_none() == has_backward) return stays_because("half of its backward is missing");
    if (uses != graph_.value(logs).use_count || uses != (has_backward ? 3 : 1))
      return stays_because("the log-probabilities are read more than once, or are an output");
    if (scores.is_none() || !stays(scores, softmax, has_backward ? loss.softmax_backward : loss.forward))
      return stays_because("its scores may be written before its last use of them");
    if (has_backward && !is_its_backward(loss))
      return stays_because("its backward has other classes or weights, or its gradient is read elsewhere too");
    return loss;
  }

  // Whether the backward has the same classes and weights, and is the gradient of nothing else.
  bool is_its_backward(const Loss& loss) const {
    const std::vector<Arg>&forward = graph_.node(loss.forward).args, &backward = graph_.node(loss.backward).args;
    for (size_t i = 1; i < kLossArgs; ++i)
      if (!(forward[i] == backward[i + 1])) return false;
    for (size_t i = 1; i <= 2; ++i)  // classes and weights
      if (const ValueId v = argument(loss.forward, i); !v.is_none() && !stays(v, loss.forward, loss.softmax_backward))
        return false;
    if (!stays(argument(loss.backward, 0), loss.backward, loss.softmax_backward)) return false;
    return argument(loss.backward, 6) == graph_.node(loss.forward).result(1) &&
           graph_.only_user(graph_.node(loss.backward).result(0)) == loss.softmax_backward &&
           argument(loss.softmax_backward, 0) == graph_.node(loss.backward).result(0) &&
           graph_.node(loss.softmax_backward).args[2] == graph_.node(loss.softmax).args[1];
  }

  // Finds gradient -> views -> [cast] to the type of the scores.
  void find_cast(Loss* loss) const {
    if (loss->backward.is_none()) return;
    const ValueId scores = argument(loss->softmax, 0);
    std::vector<NodeId> views;
    for (ValueId v = graph_.node(loss->softmax_backward).result(0);;) {
      const NodeId user = graph_.only_user(v);
      if (user.is_none() || argument(user, 0) != v) return;
      if (is_cast(graph_, user) && graph_.type(graph_.node(user).result(0)).dtype == graph_.type(scores).dtype) {
        loss->views = std::move(views);
        loss->cast = user;
        return;
      }
      if (!is_typed_view(graph_, user)) return;
      views.push_back(user);
      v = graph_.node(user).result(0);
    }
  }

  NodeSpec spec_like(NodeId n, std::string_view op, std::vector<Arg> args) const {
    const Node& node = graph_.node(n);
    NodeSpec spec;
    spec.op = graph_.pool().op(op);
    spec.args = std::move(args);
    spec.phase = node.phase, spec.module = node.module, spec.source = node.source;
    spec.meta = node.meta, spec.forward = node.forward;
    return spec;
  }

  TypeId typed(Type type, DType dtype) {
    type.dtype = dtype;
    return graph_.pool().types.intern(std::move(type));
  }

  // The type of one number per row, in double.
  TypeId type_of_sums(const Type& logs) {
    Type type = logs;
    type.shape = {logs.shape[0]};
    type.stride = {graph_.pool().exprs.constant(1)};
    return typed(std::move(type), DType::f64);
  }

  void fold(const Loss& loss) {
    const ValueId scores = argument(loss.softmax, 0), logs = graph_.node(loss.softmax).result(0);
    const ValueId result = graph_.node(loss.forward).result(0), total = graph_.node(loss.forward).result(1);
    tally_.add(Kind::loss, graph_, loss.softmax, "is part of the loss after it");
    std::vector<Arg> args = graph_.node(loss.forward).args;
    args[0] = Arg::value(scores);
    NodeSpec spec = spec_like(loss.forward, "sg.cross_entropy", args);
    spec.result_types = {graph_.value(result).type, graph_.value(total).type, type_of_sums(graph_.type(logs))};
    spec.is_tuple = true;
    const std::string names[] = {std::string(graph_.name(result)), std::string(graph_.name(total)),
                                 std::string(graph_.label(loss.softmax)) + "_sums"};
    const std::string label(graph_.label(loss.forward));
    spec.names = {names[0], names[1], names[2]};
    const NodeId forward = graph_.insert_before(loss.forward, std::move(spec));
    for (uint32_t i = 0; i < 2; ++i)
      graph_.replace_uses(graph_.node(loss.forward).result(i), graph_.node(forward).result(i));
    if (!loss.backward.is_none()) fold_backward(loss, forward, std::move(args));
    for (NodeId n : graph_.nodes())
      if (graph_.node(n).forward == loss.forward || graph_.node(n).forward == loss.softmax)
        graph_.set_forward(n, forward);
    graph_.erase(loss.forward);
    graph_.erase(loss.softmax);
    for (uint32_t i = 0; i < 2; ++i) graph_.rename(graph_.node(forward).result(i), names[i]);
    graph_.relabel(forward, label);
  }

  void fold_backward(const Loss& loss, NodeId forward, std::vector<Arg> said) {
    const ValueId gradient = graph_.node(loss.softmax_backward).result(0), scores = said[0].as_value();
    const Type& type = graph_.type(gradient);
    const DType dtype = loss.cast.is_none() ? type.dtype : graph_.type(scores).dtype;
    std::vector<Arg> args = {said[0], Arg::value(graph_.node(forward).result(2)), graph_.node(loss.backward).args[0]};
    args.insert(args.end(), said.begin() + 1, said.end());
    args.push_back(Arg::value(graph_.node(forward).result(1)));
    args.push_back(Arg::dtype(dtype).set_key(graph_.pool().str("dtype")));
    NodeSpec spec = spec_like(loss.softmax_backward, "sg.cross_entropy_backward", std::move(args));
    // A loss recomputed under a checkpoint lies in the backward itself; the forward link then still points to the
    // original.
    if (graph_.node(forward).phase == Phase::forward) spec.forward = forward;
    spec.result_types = {typed(type, dtype)};
    const std::string name(graph_.name(gradient));
    spec.names = {name};
    const NodeId backward = graph_.insert_before(loss.softmax_backward, std::move(spec));
    graph_.replace_uses(gradient, graph_.node(backward).result(0));
    graph_.erase(loss.softmax_backward);
    graph_.erase(loss.backward);
    graph_.rename(graph_.node(backward).result(0), name);
    if (loss.cast.is_none()) return;
    for (NodeId view : loss.views) {
      const ValueId v = graph_.node(view).result(0);
      graph_.set_type(v, typed(graph_.type(v), dtype));
    }
    graph_.replace_uses(graph_.node(loss.cast).result(0), argument(loss.cast, 0));
    graph_.erase(loss.cast);
  }

  Scope& scope_;
  Graph& graph_;
  Tally& tally_;
  const AliasAnalysis& alias_;
  const Schedule& schedule_;
};

}  // namespace

size_t fold_losses(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule) {
  return LossFolder(scope, alias, schedule).run();
}

std::vector<std::string> losses_left(Scope& scope) {
  const AliasAnalysis alias(scope.program, scope.graph);
  const Schedule schedule(scope.graph, alias);
  return LossFolder(scope, alias, schedule).left();
}

}  // namespace sg::clean_parts
