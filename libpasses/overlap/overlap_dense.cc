// Dense-region schedule of FSDP: with token exchanges on the network, gathers and reductions are launched while dense
// compute runs.
//
// Layers    in the order of the forward, stack behind stack (layers.h): the one before decoder 0 is the last encoder.
// Dense     products, attention and normalizations of a layer; in a layer with exchanges only those in children of the
//           layer that hold a product and no node of expert parallelism. Behind the last layer and before its
//           backward: `top`.
// Owner     the layer whose parameters a collective gathers or reduces, by their names up to the first number; those of
//           no layer belong to `top` when their forward is behind the last layer, else to nobody.
// Where     forward gather of layer i: forward of i-1. Backward gather: backward of i+1, of the last layer: of top.
//           Reduction: backward of i-1. Of top: forward and backward of the last layer. What has no such neighbour
//           stays (the first gathers, the last reductions). Each goes before the first dense node there that stands
//           behind all that its launch chain needs.
// Waits     of reductions go to the end with what is made of them; those of gathers stay where they are.
// Legal     libgraph/facts/order.h for all ranks at once. What cannot be moved is refused, or left with --best-effort.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "libgraph/facts/collective_roles.h"
#include "libgraph/facts/cost.h"
#include "libgraph/modules/module_path.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libpasses/layers.h"
#include "libpasses/overlap/overlap_parts.h"

namespace sg::overlap_parts {
namespace {

constexpr int32_t kNobody = -1;

struct Traffic {
  const CollectiveChain* chain = nullptr;
  int32_t owner = kNobody;  // layer; the number of layers = top
  bool is_backward = false;
  bool is_gather = false;
};

class DenseScheduler {
 public:
  DenseScheduler(Program* program, std::vector<Error>* refused)
      : program_(*program),
        graph_(program->graph),
        names_(graph_),
        roles_(*program, graph_),
        facts_(*program, graph_, OrderScope::job),
        refused_(refused) {}

  Result<std::vector<DenseMove>> run() {
    find_layers();
    find_dense();
    find_traffic();
    SG_TRY(check_counts());
    SG_TRY(sink_waits());
    for (bool gathers : {true, false})  // of two that go to one place, the gather is first
      for (const Traffic& t : traffic_)
        if (t.is_gather == gathers) SG_TRY(place(t));
    return std::move(moves_);
  }

 private:
  std::string_view module(NodeId n) const {
    const StrId m = graph_.node(n).module;
    return m.is_none() ? std::string_view() : std::string_view(graph_.pool().strings[m]);
  }
  bool has(NodeId n, Trait trait) const {
    const OpInfo* op = graph_.op_info(n);
    return op && op->has(trait);
  }
  bool is_backward(NodeId n) const {
    return graph_.node(n).phase != Phase::forward || graph_.meta(n).copy.kind == CopyKind::remat;
  }

  // "layers.3.moe.router" -> "layers.3"; all of a name without a number.
  static std::string_view layer_name(std::string_view name) {
    const NumberedModule numbered = numbered_module(name);
    return numbered.number < 0 ? name : numbered.layer;
  }

  // "layers.3.moe.router" -> "layers.3.moe": the child of its layer that a module lies in.
  static std::string_view child_of(std::string_view module) {
    const size_t layer = layer_name(module).size();
    return module.substr(0, module.find('.', std::min(layer + 1, module.size())));
  }

  void find_layers() {
    const std::set<NodeId> exchanges(roles_.exchanges().begin(), roles_.exchanges().end());
    for (NodeId n : graph_.nodes()) {
      const int32_t layer = names_.of(graph_, n);
      if (layer >= 0) layer_by_name_.try_emplace(layer_name(module(n)), layer);
      layers_ = std::max(layers_, layer + 1);
      if (computes(n) && !is_backward(n)) first_compute_.try_emplace(module(n), n);
      if (layer >= 0 && computes(n)) {
        if (!is_backward(n)) last_forward_ = n;
        if (is_backward(n) && !first_backward_) first_backward_ = n;
      }
      if (layer < 0 || (graph_.meta(n).ep_role == EpRole::none && !exchanges.contains(n))) continue;
      moe_layers_.insert(layer);
      moe_children_.insert(child_of(module(n)));
    }
    for (NodeId n : graph_.nodes())
      if (has(n, kContraction)) children_.insert(child_of(module(n)));
  }

  bool computes(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    return op && (op->has(kContraction) || op->cost == cost::normalization);
  }

  // Dense nodes by (layer, direction), as they stand.
  void find_dense() {
    for (NodeId n : graph_.nodes()) {
      if (!computes(n)) continue;
      const int32_t layer = names_.of(graph_, n);
      const bool backward = is_backward(n);
      if (layer < 0) {
        const bool top = backward ? first_backward_ && graph_.before(n, first_backward_)
                                  : last_forward_ && graph_.before(last_forward_, n);
        if (top) dense_[{layers_, backward}].push_back(n);
        continue;
      }
      const std::string_view child = child_of(module(n));
      const bool of_layer_itself = child == layer_name(module(n));
      if (moe_layers_.contains(layer) &&
          (moe_children_.contains(child) || !children_.contains(child) || of_layer_itself))
        continue;
      dense_[{layer, backward}].push_back(n);
    }
  }

  int32_t owner_of(const CollectiveChain& chain) const {
    std::set<int32_t> owners;
    for (uint32_t p : chain.parameters) {
      const StrId name = graph_.inputs()[p].fqn;
      owners.insert(name.is_none() ? kNobody : owner_of(graph_.pool().strings[name]));
    }
    if (owners.size() == 2 && owners.contains(kNobody)) owners.erase(kNobody);
    return owners.size() == 1 ? *owners.begin() : owners.empty() ? kNobody : kSeveral;
  }

  // A parameter outside of layers is of the top where its module's forward is behind the last layer.
  int32_t owner_of(std::string_view parameter) const {
    if (auto it = layer_by_name_.find(layer_name(parameter)); it != layer_by_name_.end()) return it->second;
    const size_t dot = parameter.rfind('.');
    const auto module = first_compute_.find(dot == parameter.npos ? std::string_view() : parameter.substr(0, dot));
    const bool top = last_forward_ && module != first_compute_.end() && graph_.before(last_forward_, module->second);
    return top ? layers_ : kNobody;
  }

  // The direction of a gather is that of the first node that takes it, its unpacking left out.
  bool is_backward(const CollectiveChain& chain) const {
    const BucketDirection said = graph_.meta(chain.launch).collective.direction;
    if (said != BucketDirection::none) return said == BucketDirection::backward;
    std::set<NodeId> own(chain.after.begin(), chain.after.end());
    own.insert(chain.wait);
    NodeId first;
    for (NodeId n : own)
      for (uint32_t r = 0; r < graph_.node(n).result_count; ++r)
        for (NodeId user : graph_.users(graph_.node(n).result(r)))
          if (!own.contains(user) && (!first || graph_.before(user, first))) first = user;
    return first && is_backward(first);
  }

  void find_traffic() {
    for (const CollectiveChain& chain : roles_.chains()) {
      if (!chain.wait || chain.depth != 0) continue;
      const bool gather = chain.role == CollectiveRole::unshard;
      traffic_.push_back({&chain, owner_of(chain), gather ? is_backward(chain) : true, gather});
    }
  }

  Status refuse(NodeId n, std::string what) {
    Error error{ErrorKind::cannot_apply, std::move(what), {}, "--best-effort leaves it where it is"};
    error.where.path = place_of(program_, graph_, n);
    if (!refused_) return error;
    refused_->push_back(std::move(error));
    return ok_status();
  }

  // Each layer has as many reductions as forward gathers, and as many gathers in the backward, or none there at all.
  Status check_counts() {
    std::map<int32_t, std::array<size_t, 3>> counts;  // forward gathers, backward gathers, reductions
    bool again = false;
    for (const Traffic& t : traffic_) {
      if (t.owner == kSeveral) {
        SG_TRY(refuse(t.chain->launch, "serves several layers: its place is in none of them"));
        continue;
      }
      if (t.owner < 0 || t.owner >= layers_) continue;
      ++counts[t.owner][!t.is_gather ? 2 : t.is_backward ? 1 : 0];
      again |= t.is_gather && t.is_backward;
    }
    for (const auto& [layer, c] : counts) {
      if (c[0] == c[2] && (!again || c[1] == c[0])) continue;
      const Traffic* first = nullptr;
      for (const Traffic& t : traffic_)
        if (!first && t.owner == layer) first = &t;
      SG_TRY(refuse(first->chain->launch, "layer " + std::to_string(layer) + " has " + std::to_string(c[0]) +
                                              " gathers in the forward, " + std::to_string(c[1]) +
                                              " in the backward and " + std::to_string(c[2]) +
                                              " reductions; a bucket has one of each"));
      unfit_.insert(layer);
    }
    return ok_status();
  }

  // The region that a collective belongs into; null with `stays` when it has none.
  const std::vector<NodeId>* region_of(const Traffic& t, std::string* name) {
    int32_t layer = t.owner;
    if (layer < 0 || unfit_.contains(layer)) return nullptr;
    if (t.is_gather && t.is_backward) {
      if (layer == layers_) return nullptr;
      ++layer;
    } else if (--layer < 0) {
      return nullptr;
    }
    *name = layer == layers_ ? "the head" : "layer " + std::to_string(layer);
    auto it = dense_.find({layer, t.is_backward});
    return it == dense_.end() ? nullptr : &it->second;
  }

  // The launch, and what prepares its input: all that a gather is made of; packing, casts and views of a reduction.
  std::vector<NodeId> chain_of(const Traffic& t) const {
    std::vector<NodeId> out(t.chain->before);
    std::set<NodeId> known(out.begin(), out.end());
    std::vector<NodeId> stack = {t.chain->launch};
    while (!t.is_gather && !stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      for_operands(graph_, at, [&](ValueId v) {
        const NodeId def = graph_.value(v).def;
        if (def && packs(def) && known.insert(def).second) out.push_back(def), stack.push_back(def);
      });
    }
    out.push_back(t.chain->launch);
    std::ranges::sort(out, [&](NodeId a, NodeId b) { return graph_.before(a, b); });
    return out;
  }
  bool packs(NodeId n) const {
    const std::string_view op = graph_.op_name(n);
    return op == "sg.pack" || op.starts_with("bucketing.") || op == "aten.slice.Tensor";
  }

  NodeId latest_input(const std::vector<NodeId>& chain) const {
    const std::set<NodeId> own(chain.begin(), chain.end());
    NodeId latest;
    for (NodeId n : chain)
      for_operands(graph_, n, [&](ValueId v) {
        const NodeId def = graph_.value(v).def;
        if (def && !own.contains(def) && (!latest || graph_.before(latest, def))) latest = def;
      });
    return latest;
  }

  Status place(const Traffic& t) {
    std::string where;
    const std::vector<NodeId>* region = region_of(t, &where);
    if (!region) {
      if (t.owner == layers_ && !unfit_.contains(t.owner) && !(t.is_gather && t.is_backward) && layers_ > 0)
        return refuse(t.chain->launch, "there is no dense compute in " + where + " to launch it in");
      return ok_status();
    }
    const std::vector<NodeId> chain = chain_of(t);
    const NodeId latest = latest_input(chain);
    auto target = std::ranges::find_if(*region, [&](NodeId n) { return !latest || graph_.before(latest, n); });
    if (target == region->end())
      return refuse(t.chain->launch, "all dense compute of " + where + " is over when its input is there");
    if (!graph_.before(*target, t.chain->wait))
      return refuse(t.chain->launch, "is waited for before there is dense compute in " + where);
    const bool down = graph_.before(t.chain->launch, *target);
    const size_t moved = down ? move_down(chain, *target) : move_up(chain, *target);
    if (moved == 0 && !(down && graph_.next(t.chain->launch) == *target))
      return refuse(t.chain->launch, "cannot be moved to %" + std::string(graph_.label(*target)));
    moves_.push_back({t.chain->launch, std::string(t.is_gather ? "gather" : "reduction") + " %" +
                                           std::string(graph_.label(t.chain->launch)) + " of " + name_of(t) +
                                           (t.is_backward ? ", backward" : ", forward") + ": at %" +
                                           std::string(graph_.label(*target)) + " of " + where});
    return ok_status();
  }

  std::string name_of(const Traffic& t) const {
    return t.owner == layers_ ? "the head" : "layer " + std::to_string(t.owner);
  }

  size_t move_up(const std::vector<NodeId>& chain, NodeId target) {
    size_t moved = 0;
    for (NodeId n : chain) {
      if (!graph_.before(target, n) || !facts_.may_move_before(n, target)) continue;
      graph_.move_before(n, target);
      ++moved;
    }
    return moved;
  }

  size_t move_down(const std::vector<NodeId>& chain, NodeId target) {
    size_t moved = 0;
    NodeId at = graph_.previous(target);
    for (size_t i = chain.size(); i-- > 0;) {
      if (chain[i] == at) {
        at = graph_.previous(at);
        continue;
      }
      if (!graph_.before(chain[i], at) || !facts_.may_move_after(chain[i], at)) break;
      graph_.move_after(chain[i], at);
      ++moved;
      at = graph_.previous(chain[i]);
    }
    return moved;
  }

  // Waits for reductions and what is made of their results, behind all else or in front of their consumers. Any pair
  // that must keep its order is implied by constraints of single nodes (order.h): who has none that stays in front of
  // the place may go there.
  Status sink_waits() {
    std::set<NodeId> sunk;
    NodeId consumer;
    for (const Traffic& t : traffic_) {
      if (t.is_gather) continue;
      sunk.insert(t.chain->wait);
      sunk.insert(t.chain->after.begin(), t.chain->after.end());
      const NodeId by = t.chain->consumer;
      if (by && (!consumer || graph_.before(by, consumer))) consumer = by;
    }
    NodeId place = consumer ? graph_.previous(consumer) : graph_.last();
    while (place && sunk.contains(place)) place = graph_.previous(place);
    if (!place) return ok_status();
    std::map<NodeId, std::vector<NodeId>> followers;
    for (NodeId n : graph_.nodes())
      for (const Constraint& c : facts_.constraints_into(n))
        if (sunk.contains(c.before)) followers[c.before].push_back(n);
    std::vector<NodeId> list(sunk.begin(), sunk.end());
    // The last first: each lands in front of those behind it.
    std::ranges::sort(list, [&](NodeId a, NodeId b) { return graph_.before(b, a); });
    for (NodeId n : list) {
      if (graph_.before(place, n)) continue;
      const auto stays = [&](NodeId f) { return !graph_.before(place, f); };
      const std::vector<NodeId>& behind = followers[n];
      if (const auto way = std::ranges::find_if(behind, stays); way != behind.end()) {
        SG_TRY(refuse(
            n, "the result of a reduction is needed by %" + std::string(graph_.label(*way)) + " before the end"));
        continue;
      }
      graph_.move_after(n, place);
    }
    return ok_status();
  }

  static constexpr int32_t kSeveral = -2;

  Program& program_;
  Graph& graph_;
  Layers names_;
  CollectiveRoles roles_;
  OrderFacts facts_;
  std::vector<Error>* refused_;
  int32_t layers_ = 0;
  NodeId last_forward_, first_backward_;               // that compute, in layers
  std::map<std::string_view, int32_t> layer_by_name_;  // "encoder.3"
  std::map<std::string_view, NodeId> first_compute_;   // of the forward, by module
  std::set<int32_t> moe_layers_, unfit_;
  std::set<std::string_view> moe_children_, children_;
  std::map<std::pair<int32_t, bool>, std::vector<NodeId>> dense_;
  std::vector<Traffic> traffic_;
  std::vector<DenseMove> moves_;
};

}  // namespace

Result<std::vector<DenseMove>> schedule_dense(Job* job, std::vector<Error>* refused) {
  std::vector<DenseMove> out;
  for (auto& program : job->programs) {
    SG_ASSIGN(std::vector<DenseMove> moves, DenseScheduler(program.get(), refused).run());
    if (program == job->programs[0]) out = std::move(moves);
  }
  return out;
}

}  // namespace sg::overlap_parts
