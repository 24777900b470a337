#include "libgraph/liveness.h"

#include <algorithm>
#include <memory>

#include "libgraph/op.h"

namespace sg {
namespace {

__extension__ typedef __int128 Wide;   // sums of many 63-bit sizes

constexpr int kMaxCallDepth = 64;
constexpr uint32_t kNotInside = 0xFFFFFFFFu;

int64_t saturating_add(int64_t a, int64_t b) {
  int64_t out;
  return __builtin_add_overflow(a, b, &out) ? INT64_MAX : out;
}

// Lower bounds of the bodies of sg.call, each computed once.
struct Bodies {
  const Program& program;
  const SizeValues& values;
  struct Entry {
    bool in_progress = false, done = false;
    int64_t bytes = 0;
  };
  std::vector<Entry> entries;
  int depth = 0;

  int64_t bytes_of(NestedId id);
};

class Analysis {
 public:
  Analysis(const Program& program, const Graph& graph, const SizeValues& values, Bodies* bodies)
      : graph_(graph), values_(values), bodies_(*bodies), alias_(program, graph, {&values}) {}

  Liveness run() {
    for (NodeId n : graph_.nodes()) out_.schedule.push_back(n);
    position_.resize(graph_.node_id_limit());
    for (uint32_t i = 0; i < out_.schedule.size(); ++i) position_[out_.schedule[i].index] = i;
    collect_storages();
    extend_over_uses();
    extend_over_classes();
    find_reuse();
    sum_up();
    list_peak();
    return std::move(out_);
  }

 private:
  void collect_storages() {
    inside_.assign(alias_.storages().size(), kNotInside);
    for (uint32_t s = 0; s < inside_.size(); ++s) {
      const Storage& storage = alias_.storage(StorageId(s));
      auto bytes = storage_bytes(graph_.pool(), graph_.type(storage.owner), values_);
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
      out_.unknown_sizes += !bytes;
      inside_[s] = static_cast<uint32_t>(out_.storages.size());
      out_.storages.push_back(live);
    }
  }

  LiveStorage* inside(StorageId s) {
    return s.is_none() || inside_[s.index] == kNotInside ? nullptr : &out_.storages[inside_[s.index]];
  }

  void extend(StorageId s, uint32_t position) {
    LiveStorage* live = inside(s);
    if (live) live->last_position = std::max(live->last_position, position);
  }

  void extend_over_uses() {
    for (uint32_t i = 0; i < out_.schedule.size(); ++i) {
      NodeId n = out_.schedule[i];
      for_each_value(n, [&](ValueId v) { extend(alias_.storage_of(v), i); });
      for (StorageId s : alias_.reads(n)) extend(s, i);   // a wait: what its collective still reads
      const Node& node = graph_.node(n);                  // a result that lies in older memory needs it here
      for (uint32_t r = 0; r < node.result_count; ++r) extend(alias_.storage_of(node.result(r)), i);
    }
    uint32_t end = out_.schedule.empty() ? 0 : static_cast<uint32_t>(out_.schedule.size() - 1);
    for (LiveStorage& live : out_.storages)
      if (live.is_output) live.last_position = end;
  }

  void extend_over_classes() {
    std::vector<bool> done(alias_.storages().size(), false);   // by class
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
      if (!op || !op->has(kPointwise) || op->has(kMayAlias) || !live.bytes_known || live.bytes == 0) continue;
      for_each_value(live.def, [&](ValueId v) {
        if (live.takes_over.is_none() && may_take_over(live, v)) {
          live.takes_over = alias_.storage_of(v);
          taken_[inside_[live.takes_over.index]] = true;
        }
      });
    }
  }

  bool may_take_over(const LiveStorage& result, ValueId argument) {
    StorageId s = alias_.storage_of(argument);
    LiveStorage* dying = inside(s);
    if (!dying || dying->is_output || dying->last_position != result.first_position) return false;
    if (dying->first_position == result.first_position || taken_[inside_[s.index]]) return false;
    if (dying->bytes != result.bytes || !dying->bytes_known) return false;
    if (alias_.class_members(alias_.storage(s).alias_class).size() != 1) return false;
    const Type& want = graph_.type(result.owner);
    bool fits = true;   // every argument in that memory is laid out as the result: element i is read before i is written
    for_each_value(result.def, [&](ValueId v) {
      if (alias_.storage_of(v) == s) fits = fits && same_layout(graph_.type(v), want);
    });
    for (StorageId w : alias_.writes(result.def)) fits = fits && w != s;
    return fits && reads_directly(result.def, s);
  }

  // A wait or a body may go on reading what is no argument of the node: never the case for pointwise ops, but cheap to
  // hold them to.
  bool reads_directly(NodeId n, StorageId s) const {
    auto reads = alias_.reads(n);
    return std::binary_search(reads.begin(), reads.end(), s);
  }

  static bool same_layout(const Type& a, const Type& b) {
    return a.kind == TypeKind::tensor && b.kind == TypeKind::tensor && a.shape == b.shape && a.stride == b.stride &&
           a.offset == b.offset && a.device == b.device && dtype_bytes(a.dtype) == dtype_bytes(b.dtype);
  }

  void sum_up() {
    size_t count = out_.schedule.size();
    std::vector<int64_t> begins(count, 0), ends(count, 0), saved(count, 0);
    for (const LiveStorage& live : out_.storages) {
      begins[live.first_position] = saturating_add(begins[live.first_position], live.bytes);
      ends[live.last_position] = saturating_add(ends[live.last_position], live.bytes);
      if (live.takes_over) saved[live.first_position] = saturating_add(saved[live.first_position], live.bytes);
    }
    out_.live_bytes.resize(count);
    call_bytes_.assign(count, 0);
    Wide live = 0;
    for (size_t i = 0; i < count; ++i) {
      live += begins[i];
      call_bytes_[i] = call_extra(out_.schedule[i], begins[i]);
      Wide now = std::max<Wide>(live - saved[i], 0) + call_bytes_[i];
      out_.live_bytes[i] = static_cast<int64_t>(std::min<Wide>(now, INT64_MAX));
      if (out_.live_bytes[i] > out_.lower_bound_bytes) {
        out_.lower_bound_bytes = out_.live_bytes[i];
        out_.peak_position = static_cast<uint32_t>(i);
      }
      live -= ends[i];
    }
    if (count) out_.call_bytes_at_peak = call_bytes_[out_.peak_position];
  }

  // What the body of a call needs beyond the results of the call, which it has among its own outputs.
  int64_t call_extra(NodeId n, int64_t result_bytes) {
    const OpInfo* op = graph_.op_info(n);
    if (!op || op->name != "sg.call") return 0;
    for (const Arg& arg : graph_.node(n).args)
      if (arg.is(ArgKind::graph)) return std::max<int64_t>(bodies_.bytes_of(arg.as_graph()) - result_bytes, 0);
    return 0;
  }

  void list_peak() {
    if (out_.schedule.empty()) return;
    uint32_t peak = out_.peak_position;
    std::vector<bool> gone(out_.storages.size(), false);
    for (const LiveStorage& live : out_.storages)
      if (live.takes_over && live.first_position == peak) gone[inside_[live.takes_over.index]] = true;
    for (uint32_t i = 0; i < out_.storages.size(); ++i) {
      const LiveStorage& live = out_.storages[i];
      if (live.first_position <= peak && live.last_position >= peak && !gone[i] && live.bytes > 0)
        out_.live_at_peak.push_back(i);
    }
    std::stable_sort(out_.live_at_peak.begin(), out_.live_at_peak.end(),
                     [&](uint32_t a, uint32_t b) { return out_.storages[a].bytes > out_.storages[b].bytes; });
  }

  template <class Fn>
  void for_each_value(NodeId n, const Fn& fn) const {
    for (const Arg& arg : graph_.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::value)) fn(a.as_value());
      });
  }

  const Graph& graph_;
  const SizeValues& values_;
  Bodies& bodies_;
  AliasAnalysis alias_;
  Liveness out_;
  std::vector<uint32_t> position_;      // by node
  std::vector<uint32_t> inside_;        // by storage: index into out_.storages
  std::vector<bool> taken_;             // by out_.storages: a result takes its memory over
  std::vector<int64_t> call_bytes_;     // by position
};

int64_t Bodies::bytes_of(NestedId id) {
  if (id.index >= entries.size() || entries[id.index].in_progress || depth >= kMaxCallDepth) return 0;
  if (entries[id.index].done) return entries[id.index].bytes;
  entries[id.index].in_progress = true;
  ++depth;
  entries[id.index].bytes = Analysis(program, program.nested[id.index]->graph, values, this).run().lower_bound_bytes;
  --depth;
  entries[id.index].in_progress = false;
  entries[id.index].done = true;
  return entries[id.index].bytes;
}

}  // namespace

Liveness compute_liveness(const Program& program, const Graph& graph, const SizeValues& values) {
  Bodies bodies{program, values, std::vector<Bodies::Entry>(program.nested.size())};
  return Analysis(program, graph, values, &bodies).run();
}

}  // namespace sg
