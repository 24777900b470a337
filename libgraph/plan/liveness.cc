#include "libgraph/plan/liveness.h"

#include <algorithm>
#include <memory>

#include "libgraph/base/checked.h"
#include "libgraph/facts/in_place.h"
#include "libgraph/facts/transfer.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

__extension__ typedef __int128 Wide;  // sums of many 63-bit sizes

constexpr int kMaxCallDepth = 64;

// The bodies of sg.call, each analysed once. Recursive ones, which no valid job has, count as empty.
struct Bodies {
  const Program& program;
  const SizeValues& values;
  std::vector<std::shared_ptr<const Liveness>> done;  // by NestedId
  std::vector<bool> in_progress;
  int depth = 0;

  const Liveness* find(NestedId id);
};

class Analysis {
 public:
  Analysis(const Program& program, const Graph& graph, const SizeValues& values, Bodies* bodies)
      : graph_(graph),
        values_(values),
        bodies_(*bodies),
        is_body_(&graph != &program.graph),
        alias_(program, graph, {&values}) {}

  Liveness run() {
    for (NodeId n : graph_.nodes()) out_.schedule.push_back(n);
    position_.resize(graph_.node_id_limit());
    for (uint32_t i = 0; i < out_.schedule.size(); ++i) position_[out_.schedule[i].index] = i;
    collect_storages();
    find_calls();
    extend_over_uses();
    extend_over_flights();
    extend_over_classes();
    find_reuse();
    sum_up();
    list_peak();
    return std::move(out_);
  }

 private:
  void collect_storages() {
    out_.storage_of.resize(graph_.value_id_limit());
    for (uint32_t v = 0; v < out_.storage_of.size(); ++v) out_.storage_of[v] = alias_.storage_of(ValueId(v));
    out_.index_of.assign(alias_.storages().size(), Liveness::kOutside);
    for (uint32_t s = 0; s < out_.index_of.size(); ++s) {
      const Storage& storage = alias_.storage(StorageId(s));
      auto bytes = bytes_of(graph_.value(storage.owner).type);
      if (storage.is_input()) {
        out_.input_bytes = saturating_add(out_.input_bytes, bytes.value_or(0));
        continue;
      }
      LiveStorage live;
      live.storage = StorageId(s);
      live.owner = storage.owner;
      live.def = live.last = storage.def;
      live.first_position = live.last_position = position_[storage.def.index];
      live.bytes = bytes.value_or(0);
      live.bytes_known = bytes.has_value();
      live.is_output = storage.is_output;
      live.is_host = !is_body_ && transfer_of(graph_.op_info(storage.def)) == Transfer::to_host;
      out_.unknown_sizes += !bytes;
      out_.index_of[s] = static_cast<uint32_t>(out_.storages.size());
      out_.storages.push_back(live);
    }
  }

  std::optional<int64_t> bytes_of(TypeId type) {
    if (type.index >= type_bytes_.size()) type_bytes_.resize(type.index + 1);
    auto& known = type_bytes_[type.index];
    if (!known) known = storage_bytes(graph_.pool(), graph_.pool().types[type], values_);
    return *known;
  }

  LiveStorage* inside(StorageId s) { return const_cast<LiveStorage*>(out_.find(s)); }

  void find_calls() {
    for (uint32_t i = 0; i < out_.schedule.size(); ++i) {
      NodeId n = out_.schedule[i];
      const OpInfo* op = graph_.op_info(n);
      if (!op || op->name != "sg.call") continue;
      auto body = std::find_if(graph_.node(n).args.begin(), graph_.node(n).args.end(),
                               [](const Arg& a) { return a.is(ArgKind::graph); });
      const Liveness* live = body == graph_.node(n).args.end() ? nullptr : bodies_.find(body->as_graph());
      if (!live) continue;
      out_.calls.push_back({n, i, body->as_graph(), {}});
      tie_results(&out_.calls.back(), *live);
    }
  }

  // Ties results of the call to memory of the body: its outputs, if their sizes are known.
  void tie_results(CallSite* call, const Liveness& body) {
    const Node& node = graph_.node(call->node);
    const std::vector<Output>& outputs = bodies_.program.nested[call->body.index]->graph.outputs();
    for (uint32_t r = 0; r < node.result_count && r < outputs.size(); ++r) {
      LiveStorage* mine = inside(alias_.storage_of(node.result(r)));
      if (!mine || !mine->bytes_known || mine->owner != node.result(r) || !alias_.storage(mine->storage).certain)
        continue;
      if (outputs[r].value.is_none()) continue;
      const LiveStorage* theirs = body.find(body.storage_of[outputs[r].value.index]);
      if (theirs && theirs->bytes_known && mine->bytes > 0 && mine->bytes <= theirs->bytes)
        call->results.push_back({mine->storage, theirs->storage});
    }
  }

  void extend(StorageId s, uint32_t position) {
    LiveStorage* live = inside(s);
    if (live) live->last_position = std::max(live->last_position, position);
  }

  void extend_over_uses() {
    for (uint32_t i = 0; i < out_.schedule.size(); ++i) {
      NodeId n = out_.schedule[i];
      for_used_operands(graph_, n, [&](ValueId v) { extend(alias_.storage_of(v), i); });
      const Node& node = graph_.node(n);  // a result in older memory extends its life
      for (uint32_t r = 0; r < node.result_count; ++r) extend(alias_.storage_of(node.result(r)), i);
    }
    for (LiveStorage& live : out_.storages)
      if (live.is_output) live.last_position = last_position();
  }

  // A collective or a transfer may run until its wait: until then no other storage may use the memory it reads and
  // writes.
  void extend_over_flights() {
    std::vector<uint32_t> landing(graph_.node_id_limit(), 0);  // by launch: position of its last wait
    std::vector<bool> waited(graph_.value_id_limit(), false);
    uint32_t end = last_position();
    for (uint32_t i = 0; i < out_.schedule.size(); ++i) {
      if ((alias_.effects(out_.schedule[i]) & kEffectWait) == 0) continue;
      const OpInfo* op = graph_.op_info(out_.schedule[i]);
      const bool is_wait = op && op->has(kWait);  // else a call that waits inside
      for_operands(graph_, out_.schedule[i], [&](ValueId v) {
        NodeId launch = alias_.launch_of(v);
        if (launch.is_none() || (is_wait && !is_first_argument(out_.schedule[i], v))) return;
        landing[launch.index] = i;
        const Node& node = graph_.node(launch);
        if (graph_.value(v).def == launch) waited[v.index] = true;
        else
          for (uint32_t r = 0; r < node.result_count; ++r) waited[node.result(r).index] = true;  // view of a result
      });
    }
    for (NodeId n : out_.schedule) {
      const OpInfo* op = graph_.op_info(n);
      if (!op || !(op->has(kCollective) || starts_transfer(op))) continue;
      const Node& node = graph_.node(n);
      uint32_t until = node.result_count == 0 ? end : landing[n.index];
      for (uint32_t r = 0; r < node.result_count; ++r)
        if (!waited[node.result(r).index]) until = end;
      for (StorageId s : alias_.reads(n)) extend(s, until);
      for (StorageId s : alias_.writes(n)) extend(s, until);
      for (uint32_t r = 0; r < node.result_count; ++r) extend(alias_.storage_of(node.result(r)), until);
    }
  }

  // Whether a wait waits for v; its other arguments it only keeps alive.
  bool is_first_argument(NodeId n, ValueId v) const {
    const std::vector<Arg>& args = graph_.node(n).args;
    return !args.empty() && args[0].is(ArgKind::value) && args[0].as_value() == v;
  }

  uint32_t last_position() const { return out_.schedule.empty() ? 0 : static_cast<uint32_t>(out_.schedule.size() - 1); }

  void extend_over_classes() {
    std::vector<bool> done(alias_.storages().size(), false);  // by class
    for (LiveStorage& live : out_.storages) {
      uint32_t alias_class = alias_.storage(live.storage).alias_class;
      auto members = alias_.class_members(alias_class);
      if (members.size() < 2 || done[alias_class]) continue;
      done[alias_class] = true;
      uint32_t last = 0;
      for (StorageId s : members)
        if (inside(s)) last = std::max(last, inside(s)->last_position);
      for (StorageId s : members) extend(s, last);
    }
    for (LiveStorage& live : out_.storages) live.last = out_.schedule[live.last_position];
  }

  void find_reuse() {
    taken_.assign(out_.storages.size(), false);
    for (LiveStorage& live : out_.storages) {
      const OpInfo* op = graph_.op_info(live.def);
      if (!op || !reuses_in_place(*op) || !live.bytes_known || live.bytes == 0) continue;
      for (bool whole : {true, false})  // prefer an argument of equal size
        for_operands(graph_, live.def, [&](ValueId v) {
          if (live.takes_over.is_none()) take_over(&live, v, whole);
        });
    }
  }

  void take_over(LiveStorage* result, ValueId argument, bool whole) {
    LiveStorage* dying = inside(alias_.storage_of(argument));
    if (!dying || dying->is_output || dying->is_host != result->is_host ||
        dying->last_position != result->first_position)
      return;
    if (dying->first_position == result->first_position || taken_[out_.index_of[dying->storage.index]]) return;
    if (!dying->bytes_known || (dying->bytes == result->bytes) != whole || dying->bytes < result->bytes) return;
    if (alias_.class_members(alias_.storage(dying->storage).alias_class).size() != 1) return;
    if (!reads_directly(result->def, dying->storage)) return;
    auto at =
        in_place_offset(graph_, alias_, values_, result->def, {result->owner, result->bytes}, {argument, dying->bytes});
    if (!at) return;
    result->takes_over = dying->storage;
    result->takes_over_at = *at;
    taken_[out_.index_of[dying->storage.index]] = true;
  }

  // Reads it itself: does not write it, nor read it in a body.
  bool reads_directly(NodeId n, StorageId s) const {
    auto reads = alias_.reads(n);
    return std::binary_search(reads.begin(), reads.end(), s);
  }

  void sum_up() {
    size_t count = out_.schedule.size();
    std::vector<int64_t> begins(count, 0), ends(count, 0), saved(count, 0);
    call_bytes_.assign(count, 0);
    for (const CallSite& call : out_.calls)
      call_bytes_[call.position] = bodies_.done[call.body.index]->lower_bound_bytes;
    for (const LiveStorage& live : out_.storages) {
      if (live.is_host) continue;
      begins[live.first_position] = saturating_add(begins[live.first_position], live.bytes);
      ends[live.last_position] = saturating_add(ends[live.last_position], live.bytes);
      if (live.takes_over) saved[live.first_position] = saturating_add(saved[live.first_position], live.bytes);
    }
    out_.live_bytes.resize(count);
    Wide live = 0;
    for (size_t i = 0; i < count; ++i) {
      live += begins[i];
      // What a body needs beyond the call's results, which are among its own outputs.
      call_bytes_[i] = std::max<int64_t>(call_bytes_[i] - begins[i], 0);
      Wide now = std::max<Wide>(live - saved[i], 0) + call_bytes_[i];
      out_.live_bytes[i] = static_cast<int64_t>(std::min<Wide>(now, INT64_MAX));
      if (out_.live_bytes[i] > out_.lower_bound_bytes) {
        out_.lower_bound_bytes = out_.live_bytes[i];
        out_.peak_position = static_cast<uint32_t>(i);
      }
      live -= ends[i];
    }
    if (count) out_.call_bytes_at_peak = call_bytes_[out_.peak_position];
    sum_up_host();
  }

  void sum_up_host() {
    std::vector<Wide> change(out_.schedule.size() + 1, 0);
    for (const LiveStorage& live : out_.storages) {
      if (!live.is_host) continue;
      change[live.first_position] += live.bytes;
      change[live.last_position + 1] -= live.bytes;
    }
    Wide now = 0, most = 0;
    for (Wide c : change) most = std::max(most, now += c);
    out_.host_bound_bytes = static_cast<int64_t>(std::min<Wide>(most, INT64_MAX));
  }

  void list_peak() {
    if (out_.schedule.empty()) return;
    uint32_t peak = out_.peak_position;
    std::vector<bool> gone(out_.storages.size(), false);
    for (const LiveStorage& live : out_.storages)
      if (live.takes_over && live.first_position == peak) gone[smaller_of_both(live)] = true;
    for (uint32_t i = 0; i < out_.storages.size(); ++i) {
      const LiveStorage& live = out_.storages[i];
      if (live.first_position <= peak && live.last_position >= peak && !gone[i] && live.bytes > 0 && !live.is_host)
        out_.live_at_peak.push_back(i);
    }
    std::stable_sort(out_.live_at_peak.begin(), out_.live_at_peak.end(),
                     [&](uint32_t a, uint32_t b) { return out_.storages[a].bytes > out_.storages[b].bytes; });
  }

  uint32_t smaller_of_both(const LiveStorage& result) const {
    uint32_t taken = out_.index_of[result.takes_over.index];
    return out_.storages[taken].bytes > result.bytes ? out_.index_of[result.storage.index] : taken;
  }

  const Graph& graph_;
  const SizeValues& values_;
  Bodies& bodies_;
  bool is_body_;
  AliasAnalysis alias_;
  Liveness out_;
  std::vector<uint32_t> position_;                                 // by node
  std::vector<std::optional<std::optional<int64_t>>> type_bytes_;  // by type; those requested so far
  std::vector<bool> taken_;                                        // by out_.storages: a result takes its memory over
  std::vector<int64_t> call_bytes_;                                // by position
};

const Liveness* Bodies::find(NestedId id) {
  if (id.index >= done.size() || in_progress[id.index] || depth >= kMaxCallDepth) return nullptr;
  if (done[id.index]) return done[id.index].get();
  in_progress[id.index] = true;
  ++depth;
  done[id.index] =
      std::make_shared<const Liveness>(Analysis(program, program.nested[id.index]->graph, values, this).run());
  --depth;
  in_progress[id.index] = false;
  return done[id.index].get();
}

}  // namespace

Liveness compute_liveness(const Program& program, const Graph& graph, const SizeValues& values) {
  Bodies bodies{program, values, {}, std::vector<bool>(program.nested.size(), false)};
  bodies.done.resize(program.nested.size());
  Liveness out = Analysis(program, graph, values, &bodies).run();
  out.bodies = std::move(bodies.done);
  return out;
}

}  // namespace sg
