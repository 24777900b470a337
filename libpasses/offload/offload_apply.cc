#include "libpasses/offload/offload_apply.h"

#include <algorithm>
#include <optional>

#include "libgraph/edit/rewrite.h"
#include "libgraph/facts/transfer.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libpasses/schedule.h"

namespace sg {
namespace {

// Nodes behind the forward read what came back instead of what is away, and take views of it again.
class Redirector {
 public:
  Redirector(Graph* graph, const AliasAnalysis& alias)
      : graph_(*graph), alias_(alias), back_(alias.storages().size()), again_(graph->value_id_limit()) {}

  // From now on the storage of `value`, which the forward makes, is away; `back` is what came back.
  void set_back(ValueId value, ValueId back) { back_[alias_.storage_of(value).index] = back; }

  // REQUIRES: in schedule order; what came back stands before the first that needs it. Returns whether anything
  // changed.
  bool redirect(NodeId n) {
    std::vector<ValueId> operands;
    for_used_operands(graph_, n, [&](ValueId v) {  // sizes are asked of what is away
      if (is_away(v)) operands.push_back(v);
    });
    for (ValueId v : operands) graph_.replace_uses_in(n, v, again(v, n));
    return !operands.empty();
  }

  // A value of the forward in memory that is away.
  bool is_away(ValueId v) const {
    if (v.index >= again_.size()) return false;
    const StorageId s = alias_.storage_of(v);
    const NodeId def = graph_.value(v).def;
    return !s.is_none() && !back_[s.index].is_none() && def && graph_.node(def).phase == Phase::forward;
  }

 private:
  // What `v` is in the backward: what came back, or a view of that, taken again before `user` where nobody has yet.
  // Views of views in turn, without recursion: chains may be long.
  ValueId again(ValueId v, NodeId user) {
    std::vector<NodeId> chain;
    for (ValueId at = v; again_[at.index].is_none();) {
      const NodeId def = graph_.value(at).def;
      if (!is_plain_view(graph_, def)) {
        again_[at.index] = back_[alias_.storage_of(at).index];
        break;
      }
      chain.push_back(def);
      at = shown_by(def);
    }
    for (size_t i = chain.size(); i-- > 0;) take_again(chain[i], user);
    return again_[v.index];
  }

  ValueId shown_by(NodeId view) const {
    ValueId out;
    for_operands(graph_, view, [&](ValueId v) {
      if (out.is_none() && is_away(v)) out = v;
    });
    return out;
  }

  void take_again(NodeId view, NodeId user) {
    const auto operand = [&](ValueId v) { return is_away(v) && !again_[v.index].is_none() ? again_[v.index] : v; };
    const NodeId copy = copy_node(&graph_, view, user, operand, "_back");
    graph_.set_phase(copy, graph_.node(user).phase);
    graph_.set_forward(copy, view);
    NodeMeta meta = graph_.meta(copy);
    meta.recompute = Recompute::none;
    meta.copy = {CopyKind::offload, graph_.node(view).label};
    graph_.set_meta(copy, std::move(meta));
    for (uint32_t i = 0; i < graph_.node(view).result_count; ++i)
      again_[graph_.node(view).result(i).index] = graph_.node(copy).result(i);
  }

  Graph& graph_;
  const AliasAnalysis& alias_;
  std::vector<ValueId> back_;   // by storage; none = not away
  std::vector<ValueId> again_;  // by value of the forward: what it is behind it
};

// One value's way to the host and back.
struct Way {
  const OffloadCandidate* candidate;
  NodeId leave_at, host_at, fetch_at;  // nodes before which the new ones stand
  ValueId kept, back;                  // on the host, and on the device again
};

class Applier {
 public:
  Applier(Program* program, const std::vector<OffloadCandidate>& candidates, const OffloadChoice& choice)
      : program_(*program), graph_(program->graph), pool_(graph_.pool()), alias_(*program, graph_) {
    for (const OffloadChoice::Taken& taken : choice.taken) {
      const OffloadCandidate& c = candidates[taken.candidate];
      ways_.push_back({&c,
                       graph_.next(c.start_after),
                       graph_.next(c.ways[taken.way].leave_after),
                       c.ways[taken.way].fetch_before,
                       {},
                       {}});
    }
  }

  void run() {
    std::vector<NodeId> late;
    for (NodeId n : graph_.nodes())
      if (graph_.node(n).phase != Phase::forward) late.push_back(n);
    Redirector redirector(&graph_, alias_);
    send();
    fetch();
    for (const Way& way : ways_) redirector.set_back(way.candidate->value, way.back);
    for (NodeId n : late) redirector.redirect(n);
  }

 private:
  NodeSpec spec(const Way& way, std::string_view op, ValueId operand, TypeId type) const {
    const NodeId def = graph_.value(way.candidate->value).def;
    const Node& node = graph_.node(def);
    NodeSpec out;
    out.op = pool_.op(op);
    out.args = {Arg::value(operand)};
    out.result_types = {type};
    out.module = node.module;
    out.source = node.source;
    NodeMeta meta;
    meta.copy = {CopyKind::offload, graph_.value(way.candidate->value).name};
    out.meta = pool_.metas.intern(std::move(meta));
    return out;
  }

  ValueId insert(NodeId position, NodeSpec spec, const Way& way, std::string_view suffix) {
    spec.names = {std::string(graph_.name(way.candidate->value)) + std::string(suffix)};
    return graph_.node(graph_.insert_before(position, spec)).result(0);
  }

  TypeId on_host(TypeId type) {
    Type out = pool_.types[type];
    out.device = pool_.str("cpu");
    return pool_.types.intern(std::move(out));
  }

  // In the forward: the copy begins where the value is complete.
  void send() {
    std::vector<ValueId> sent;
    for (Way& way : ways_) {
      const ValueId v = way.candidate->value;
      sent.push_back(insert(way.leave_at, spec(way, "sg.offload", v, on_host(graph_.value(v).type)), way, "_offload"));
    }
    for (size_t i = 0; i < ways_.size(); ++i)
      ways_[i].kept =
          insert(ways_[i].host_at, spec(ways_[i], "sg.wait", sent[i], graph_.value(sent[i]).type), ways_[i], "_host");
  }

  // In the backward; those that begin at one place in the order in which they are needed.
  void fetch() {
    std::vector<Way*> order;
    for (Way& way : ways_) order.push_back(&way);
    std::ranges::stable_sort(order, [&](const Way* a, const Way* b) {
      return graph_.before(a->candidate->first_use, b->candidate->first_use);
    });
    std::vector<ValueId> fetched;
    for (Way* way : order) {
      NodeSpec s = spec(*way, "sg.reload", way->kept, graph_.value(way->candidate->value).type);
      Arg device = Arg::text(ArgKind::device, graph_.type(way->candidate->value).device);
      device.set_key(pool_.str("device"));
      s.args.push_back(std::move(device));
      fetched.push_back(insert(way->fetch_at, in_backward(std::move(s), *way), *way, "_reload"));
    }
    for (size_t i = 0; i < order.size(); ++i) {
      const Way& way = *order[i];
      NodeSpec s = in_backward(spec(way, "sg.wait", fetched[i], graph_.value(fetched[i]).type), way);
      order[i]->back = insert(way.candidate->first_use, std::move(s), way, "_back");
    }
  }

  NodeSpec in_backward(NodeSpec s, const Way& way) const {
    s.phase = graph_.node(way.candidate->first_use).phase;
    s.forward = graph_.value(way.candidate->value).def;
    return s;
  }

  Program& program_;
  Graph& graph_;
  Pool& pool_;
  AliasAnalysis alias_;
  std::vector<Way> ways_;
};

// The four nodes of a value that is away already.
struct Found {
  ValueId value;
  NodeId kept, reload, back;  // the waits, and what starts the copy back; none = nobody fetches it
};

class Settler {
 public:
  explicit Settler(Program* program) : graph_(program->graph), alias_(*program, graph_), schedule_(graph_, alias_) {}

  size_t run() {
    std::vector<NodeId> late;
    std::vector<Found> found;
    for (NodeId n : graph_.nodes()) {
      if (graph_.node(n).phase != Phase::forward) late.push_back(n);
      else if (const auto way = way_of(n)) found.push_back(*way);
    }
    if (found.empty()) return 0;
    Redirector redirector(&graph_, alias_);
    std::vector<NodeId> first(alias_.storages().size());  // that takes a value of the forward in it
    for (size_t i = late.size(); i-- > 0;) note_uses(late[i], &first);
    for (const Found& f : found)
      if (const NodeId use = first[alias_.storage_of(f.value).index]; use && bring_before(f, use))
        redirector.set_back(f.value, graph_.node(f.back).result(0));
    size_t redirected = 0;
    for (NodeId n : late) redirected += redirector.redirect(n);
    return redirected;
  }

 private:
  // Of a copy that sg-offload has begun, when it is fetched.
  std::optional<Found> way_of(NodeId n) const {
    if (transfer_of(graph_.op_info(n)) != Transfer::to_host || graph_.meta(n).copy.kind != CopyKind::offload)
      return std::nullopt;
    const ValueId v = graph_.node(n).args[0].as_value();
    if (alias_.storage_of(v).is_none() || schedule_.is_written_after(class_of(alias_, v), schedule_.position(n)))
      return std::nullopt;
    Found out{v, graph_.only_user(graph_.node(n).result(0)), {}, {}};
    if (out.kept) out.reload = graph_.only_user(graph_.node(out.kept).result(0));
    if (!out.reload || transfer_of(graph_.op_info(out.reload)) != Transfer::to_device) return std::nullopt;
    out.back = graph_.only_user(graph_.node(out.reload).result(0));
    return out.back ? std::optional(out) : std::nullopt;
  }

  void note_uses(NodeId n, std::vector<NodeId>* first) const {
    for_operands(graph_, n, [&](ValueId v) {
      const StorageId s = alias_.storage_of(v);
      const NodeId def = graph_.value(v).def;
      if (!s.is_none() && def && graph_.node(def).phase == Phase::forward) (*first)[s.index] = n;
    });
  }

  // Whether it is on the device before `use`, moved there if need be.
  bool bring_before(const Found& f, NodeId use) {
    if (graph_.before(use, f.kept)) return false;
    if (graph_.before(f.back, use)) return true;
    if (graph_.before(use, f.reload)) graph_.move_before(f.reload, use);
    graph_.move_before(f.back, use);
    return true;
  }

  Graph& graph_;
  AliasAnalysis alias_;
  Schedule schedule_;
};

}  // namespace

void apply_offloads(Program* program, const std::vector<OffloadCandidate>& candidates, const OffloadChoice& choice) {
  Applier(program, candidates, choice).run();
}

size_t settle_offloads(Program* program) { return Settler(program).run(); }

}  // namespace sg
