// Strategy reference: TorchTitan's phases for chunked modules with token exchanges, for any number of chunks.
//
// Region    what sg-chunk or the capture says: module, direction, chunk. Chunks take turns: forward 0, 1, ...; backward
//           the other way round.
// Marker    the launch of a token exchange. Its closure is what must come before it: nodes of the region, and those of
//           others only as far as they lead back to nodes of the region.
// Phases    for each marker: its closure for each chunk in turn (waits of earlier exchanges included), then what is
//           ready of later closures and of the rest, but no launch and no wait. At last the rest, chunk by chunk.
// First     where the region is the module of the exchange itself, the closures of all chunks come before the launches
//           of all; copies of token counts to the host come together, and all but the last need not block.
#include <algorithm>
#include <map>

#include "libgraph/op.h"
#include "libpasses/overlap_parts.h"

namespace sg::overlap_parts {
namespace {

constexpr uint32_t kNone = 0xFFFFFFFFu;

struct Chunk {
  std::vector<uint32_t> body;  // places, ascending
  std::vector<uint32_t> markers;
  std::vector<std::vector<uint32_t>> closures;  // by marker; the marker itself left out
  std::vector<uint32_t> copies;                 // of token counts to the host
  std::vector<uint32_t> ready;                  // all that they need is in a phase, but they are not
};

struct Region {
  std::string name;
  bool is_backward = false;
  std::map<int32_t, Chunk> chunks;
};

Error refusal(const Program& program, const Graph& graph, NodeId n, std::string what) {
  Error out{ErrorKind::cannot_apply,
            std::move(what),
            {},
            "sg-overlap --strategy model needs no chunks; --best-effort leaves this region as it is"};
  out.where.path = place_of(program, graph, n);
  return out;
}

class Planner {
 public:
  Planner(const Program& program, const Precedence& precedence)
      : program_(program),
        graph_(program.graph),
        precedence_(precedence),
        owner_(precedence.size(), kNone),
        chunk_of_(precedence.size(), -1),
        seen_(precedence.size(), kNone),
        done_(precedence.size(), false) {}

  Result<ReferenceOrder> run(std::vector<Error>* refused) {
    SG_TRY(collect(refused));
    ReferenceOrder out;
    std::vector<std::pair<uint32_t, uint32_t>> edges;
    for (uint32_t r = 0; r < regions_.size(); ++r) {
      Status planned = plan(r, &out, &edges);
      if (planned.ok()) continue;
      if (!refused) return std::move(planned.error());
      out.regions.push_back({regions_[r].name, regions_[r].is_backward, {}, planned.error().message});
      refused->push_back(std::move(planned.error()));
    }
    out.order = precedence_.sorted(edges);
    if (out.order.empty())
      return Error{
          ErrorKind::cannot_apply, "the phases of two regions wait for each other", {}, "use --strategy model"};
    return out;
  }

 private:
  bool has(uint32_t place, Trait trait) const {
    const OpInfo* op = graph_.op_info(precedence_.node(place));
    return op != nullptr && op->has(trait);
  }
  const NodeMeta& meta(uint32_t place) const { return graph_.meta(precedence_.node(place)); }
  bool is_exchange(uint32_t place) const {
    return graph_.op_name(precedence_.node(place)) == "_c10d_functional.all_to_all_single.default";
  }
  bool is_marker(uint32_t place) const { return is_exchange(place) && meta(place).ep_step == EpStep::token_exchange; }
  bool is_body(uint32_t place, uint32_t region) const { return owner_[place] == region; }

  Error refuse(uint32_t place, std::string what) const {
    return refusal(program_, graph_, precedence_.node(place), std::move(what));
  }

  Status collect(std::vector<Error>* refused) {
    std::map<std::pair<StrId, bool>, uint32_t> known;
    for (uint32_t i = 0; i < precedence_.size(); ++i) {
      const ChunkInfo& chunk = meta(i).chunk;
      if (chunk.region.is_none() || chunk.role.is_none() || chunk.index < 0 ||
          graph_.pool().strings[chunk.role] != "body")
        continue;
      const bool backward =
          chunk.is_backward == 1 || (chunk.is_backward < 0 && graph_.node(precedence_.node(i)).phase != Phase::forward);
      auto [it, added] = known.try_emplace({chunk.region, backward}, static_cast<uint32_t>(regions_.size()));
      if (added) regions_.push_back({std::string(graph_.pool().strings[chunk.region]), backward, {}});
      owner_[i] = it->second;
      chunk_of_[i] = chunk.index;
      regions_[it->second].chunks[chunk.index].body.push_back(i);
    }
    return check_labels(refused);
  }

  // What is called an exchange must be one, or the wait for one.
  Status check_labels(std::vector<Error>* refused) {
    for (uint32_t i = 0; i < precedence_.size(); ++i) {
      if (meta(i).ep_step != EpStep::token_exchange || owner_[i] == kNone || is_exchange(i)) continue;
      const OpInfo* op = graph_.op_info(precedence_.node(i));
      if (op && (op->has(kWait) || op->has(kView) || op->has(kSize))) continue;
      Error error = refuse(i, "is marked as a token exchange, but neither launches one nor waits for one");
      if (!refused) return error;
      refused->push_back(std::move(error));
      drop(owner_[i]);
    }
    return ok_status();
  }

  void drop(uint32_t region) {
    for (auto& [index, chunk] : regions_[region].chunks)
      for (uint32_t i : chunk.body) owner_[i] = kNone;
    regions_[region].chunks.clear();
  }

  std::vector<Chunk*> turns(Region& region) const {
    std::vector<Chunk*> out;
    for (auto& [index, chunk] : region.chunks) out.push_back(&chunk);
    if (region.is_backward) std::reverse(out.begin(), out.end());
    return out;
  }

  // --- markers ---

  Status find_markers(Region& region) {
    const Chunk* first = nullptr;
    for (auto& [index, chunk] : region.chunks) {
      for (uint32_t i : chunk.body)
        if (is_marker(i)) chunk.markers.push_back(i);
      for (uint32_t m : chunk.markers) SG_TRY(check_wait(m));
      if (!first) first = &chunk;
    }
    for (auto& [index, chunk] : region.chunks) {
      if (chunk.markers.size() != first->markers.size())
        return refuse(chunk.body[0], "chunk " + std::to_string(index) + " of " + region.name + " has " +
                                         std::to_string(chunk.markers.size()) + " token exchanges, another has " +
                                         std::to_string(first->markers.size()));
      for (size_t k = 0; k < chunk.markers.size(); ++k)
        if (meta(chunk.markers[k]).ep_role != meta(first->markers[k]).ep_role)
          return refuse(chunk.markers[k],
                        "chunk " + std::to_string(index) + " of " + region.name + " dispatches where another combines");
    }
    return ok_status();
  }

  Status check_wait(uint32_t marker) {
    size_t waits = 0;
    for (uint32_t s : precedence_.after(marker))
      waits += has(s, kWait) && owner_[s] == owner_[marker] && chunk_of_[s] == chunk_of_[marker] &&
               precedence_.facts().alias().launch_of(argument(s)) == precedence_.node(marker);
    if (waits != 1)
      return refuse(marker, "a token exchange needs one wait in its chunk, this one has " + std::to_string(waits));
    return ok_status();
  }

  // Of a wait or a copy: what it takes.
  ValueId argument(uint32_t place) const {
    for (const Arg& arg : graph_.node(precedence_.node(place)).args)
      if (arg.is(ArgKind::value)) return arg.as_value();
    return graph_.node(precedence_.node(place)).result(0);
  }

  // --- closures ---

  // All that must come before `marker` and is in no earlier closure; nodes of other chunks included, where one depends
  // on them. One walk over the region for all of its markers: what was met before has all that is behind it in a
  // closure.
  std::vector<uint32_t> closure_of(uint32_t region, uint32_t marker) {
    std::vector<uint32_t> stack = {marker}, out;
    seen_[marker] = stamp_;
    while (!stack.empty()) {
      const uint32_t at = stack.back();
      stack.pop_back();
      for (uint32_t b : precedence_.before(at)) {
        if (b < begin_ || seen_[b] == stamp_) continue;  // before the region there is nothing of it
        seen_[b] = stamp_;
        stack.push_back(b);
        if (is_body(b, region)) out.push_back(b);
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  Status find_closures(uint32_t r) {
    Region& region = regions_[r];
    begin_ = kNone, end_ = 0, ++stamp_;
    for (const auto& [index, chunk] : region.chunks)
      begin_ = std::min(begin_, chunk.body.front()), end_ = std::max(end_, chunk.body.back() + 1);
    const size_t markers = region.chunks.begin()->second.markers.size();
    for (size_t k = 0; k < markers; ++k)
      for (Chunk* chunk : turns(region)) {
        std::vector<uint32_t> closure = closure_of(r, chunk->markers[k]);
        for (size_t later = k + 1; later < markers; ++later)
          if (std::binary_search(closure.begin(), closure.end(), chunk->markers[later]))
            return refuse(chunk->markers[k], "a token exchange depends on a later one of its chunk");
        chunk->closures.push_back(std::move(closure));
      }
    return find_copies(region);
  }

  // Copies of token counts to the host: those that a device makes, all before the first exchange, as many in each
  // chunk.
  Status find_copies(Region& region) {
    size_t count = kNone;
    for (auto& [index, chunk] : region.chunks) {
      for (uint32_t i : chunk.body) {
        if (meta(i).ep_step != EpStep::count_sync || graph_.op_name(precedence_.node(i)) != "aten._to_copy.default" ||
            lies_on_host(argument(i)))
          continue;
        if (!lies_on_host(graph_.node(precedence_.node(i)).result(0)))
          return refuse(i, "a copy of token counts must go to the CPU");
        const auto& closure = chunk.closures[0];
        if (!std::binary_search(closure.begin(), closure.end(), i))
          return refuse(i, "token counts are copied to the host behind the exchange that needs them");
        chunk.copies.push_back(i);
      }
      if (count != kNone && chunk.copies.size() != count)
        return refuse(chunk.body[0], "chunk " + std::to_string(index) + " of " + region.name + " copies " +
                                         std::to_string(chunk.copies.size()) +
                                         " token counts to the host, another copies " + std::to_string(count));
      if (chunk.copies.size() != 0 && chunk.copies.size() != 2)
        return refuse(chunk.copies[0],
                      "chunk " + std::to_string(index) + " of " + region.name + " copies " +
                          std::to_string(chunk.copies.size()) +
                          " token counts to the host; there are two, what it sends and what it receives");
      count = chunk.copies.size();
    }
    return ok_status();
  }

  bool lies_on_host(ValueId v) const {
    const Type& type = graph_.type(v);
    return type.kind == TypeKind::tensor && !type.device.is_none() &&
           graph_.pool().strings[type.device].starts_with("cpu");
  }

  // The module of the exchange itself: all that comes before its first exchange has a part in expert parallelism.
  // Around it (a whole block) the chunk's own compute hides the other chunk's exchange.
  bool is_module_of_exchange(const Region& region) const {
    if (region.is_backward) return pairs_.contains(region.name) ? pairs_.at(region.name) : true;
    for (const auto& [index, chunk] : region.chunks)
      for (uint32_t i : chunk.closures[0])
        if (has(i, kContraction) && meta(i).ep_role == EpRole::none) return false;
    return true;
  }

  // --- phases ---

  class Phases {
   public:
    void open() { lists_.emplace_back(); }
    void add(uint32_t place) { lists_.back().push_back(place); }
    const std::vector<std::vector<uint32_t>>& lists() const { return lists_; }

   private:
    std::vector<std::vector<uint32_t>> lists_;
  };

  Status plan(uint32_t r, ReferenceOrder* out, std::vector<std::pair<uint32_t, uint32_t>>* edges) {
    Region& region = regions_[r];
    if (region.chunks.empty()) return ok_status();
    if (region.chunks.size() < 2)
      return refuse(region.chunks.begin()->second.body[0], "the region " + region.name + " has only one chunk");
    SG_TRY(find_markers(region));
    if (region.chunks.begin()->second.markers.empty()) {
      out->regions.push_back({region.name, region.is_backward, {}, "no token exchanges"});
      return ok_status();
    }
    SG_TRY(find_closures(r));
    const bool pairs = is_module_of_exchange(region);
    pairs_[region.name] = pairs;
    phases_ = Phases();
    count_waits(r);
    build(pairs, out);
    SG_TRY(drain());
    uint32_t last = kNone;
    for (const auto& phase : phases_.lists())
      for (uint32_t i : phase) {
        if (last != kNone) edges->emplace_back(last, i);
        last = i;
      }
    for (auto& [index, chunk] : region.chunks)
      for (uint32_t i : chunk.body)
        if (has(i, kWait) && meta(i).ep_step == EpStep::token_exchange) out->exchange_waits.push_back(i);
    out->regions.push_back({region.name, region.is_backward, describe(region), {}});
    return ok_status();
  }

  void build(bool pairs, ReferenceOrder* out) {
    const std::vector<Chunk*> chunks = turns(*region_);
    const bool copies = !chunks[0]->copies.empty();
    for (size_t k = 0; k < chunks[0]->markers.size(); ++k) {
      phases_.open();
      if (k == 0 && copies && pairs) {
        for (Chunk* chunk : chunks) emit(before_copies(*chunk));
        for (Chunk* chunk : chunks)
          for (uint32_t copy : chunk->copies)
            emit(copy), out->copies.emplace_back(copy, !(chunk == chunks.back() && copy == chunk->copies.back()));
        for (Chunk* chunk : chunks) emit(chunk->closures[0]);
        for (Chunk* chunk : chunks) emit(chunk->markers[0]);
      } else if (k == 0 && pairs) {
        for (Chunk* chunk : chunks) emit(chunk->closures[0]);
        for (Chunk* chunk : chunks) emit(chunk->markers[0]);
      } else {
        for (Chunk* chunk : chunks) {
          if (k == 0) {
            emit(before_copies(*chunk));
            for (uint32_t copy : chunk->copies)
              emit(copy), out->copies.emplace_back(copy, copy != chunk->copies.back());
          }
          emit(chunk->closures[k]);
          emit(chunk->markers[k]);
        }
      }
      fill(chunks);
    }
  }

  // What the copies need, in the first closure.
  std::vector<uint32_t> before_copies(const Chunk& chunk) {
    std::vector<uint32_t> stack = chunk.copies, out;
    ++stamp_;
    while (!stack.empty()) {
      const uint32_t at = stack.back();
      stack.pop_back();
      for (uint32_t b : precedence_.before(at)) {
        if (b < begin_ || seen_[b] == stamp_) continue;
        seen_[b] = stamp_;
        stack.push_back(b);
        if (owner_[b] == at_) out.push_back(b);
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  // How many nodes, from the first of the region to its last, are still to come before each. Nodes of others are taken
  // to come as soon as they can.
  void count_waits(uint32_t r) {
    at_ = r, region_ = &regions_[r];
    waits_.assign(end_ - begin_, 0);
    for (uint32_t i = begin_; i < end_; ++i) {
      done_[i] = false;
      for (uint32_t b : precedence_.before(i)) waits_[i - begin_] += b >= begin_;
    }
    for (uint32_t i = begin_; i < end_; ++i)
      if (waits_[i - begin_] == 0) release(i);
  }

  // Nothing is in the way of `place` any more.
  void release(uint32_t place) {
    std::vector<uint32_t> stack = {place};
    while (!stack.empty()) {
      const uint32_t at = stack.back();
      stack.pop_back();
      if (owner_[at] == at_ && !done_[at]) {
        region_->chunks[chunk_of_[at]].ready.push_back(at);
        continue;
      }
      if (owner_[at] != at_) {
        if (done_[at]) continue;
        done_[at] = true;
      }
      for (uint32_t s : precedence_.after(at))
        if (s < end_ && --waits_[s - begin_] == 0) stack.push_back(s);
    }
  }

  void emit(uint32_t place) {
    if (done_[place]) return;
    done_[place] = true;
    phases_.add(place);
    for (uint32_t s : precedence_.after(place))
      if (s < end_ && --waits_[s - begin_] == 0) release(s);
  }
  void emit(const std::vector<uint32_t>& places) {
    for (uint32_t i : places) emit(i);
  }

  // Takes the ready nodes of a chunk as they stand in the schedule, launches and waits only where they are asked for.
  std::vector<uint32_t> take_ready(Chunk& chunk, bool with_exchanges) {
    std::vector<uint32_t> out, kept;
    for (uint32_t i : chunk.ready)
      if (!done_[i]) (!with_exchanges && (has(i, kWait) || has(i, kCollective)) ? kept : out).push_back(i);
    chunk.ready = std::move(kept);
    std::sort(out.begin(), out.end());
    return out;
  }

  // What is ready of later closures and the rest, in all chunks at once; again and again, until nothing is.
  void fill(const std::vector<Chunk*>& chunks) {
    phases_.open();
    for (bool any = true; any;) {
      any = false;
      std::vector<std::vector<uint32_t>> ready;
      for (Chunk* chunk : chunks) ready.push_back(take_ready(*chunk, false));
      for (const auto& list : ready) emit(list), any |= !list.empty();
    }
  }

  // The rest, a chunk as far as it goes, then the next.
  Status drain() {
    const std::vector<Chunk*> chunks = turns(*region_);
    phases_.open();
    for (bool any = true; any;) {
      any = false;
      for (Chunk* chunk : chunks)
        for (std::vector<uint32_t> ready = take_ready(*chunk, true); !ready.empty(); ready = take_ready(*chunk, true))
          emit(ready), any = true;
    }
    for (Chunk* chunk : chunks)
      for (uint32_t i : chunk->body)
        if (!done_[i]) return refuse(i, "cannot be placed in the phases of " + region_->name);
    return ok_status();
  }

  // "D0 D1 | Cw0 C0 ...": launches and waits by chunk; what else a phase holds is counted.
  std::string describe(const Region& region) const {
    std::map<uint32_t, std::string> names;
    for (const auto& [index, chunk] : region.chunks)
      for (size_t k = 0; k < chunk.markers.size(); ++k) {
        const std::string letter = meta(chunk.markers[k]).ep_role == EpRole::combine ? "C" : "D";
        names[chunk.markers[k]] = letter + std::to_string(index);
        for (uint32_t s : precedence_.after(chunk.markers[k]))
          if (has(s, kWait)) names[s] = letter + "w" + std::to_string(index);
      }
    std::string out;
    for (const auto& phase : phases_.lists()) {
      if (phase.empty()) continue;
      std::string line;
      size_t nodes = 0;
      auto flush = [&] {
        if (nodes) line += (line.empty() ? "" : " ") + std::to_string(nodes);
        nodes = 0;
      };
      for (uint32_t i : phase) {
        auto it = names.find(i);
        if (it == names.end()) {
          ++nodes;
          continue;
        }
        flush();
        line += (line.empty() ? "" : " ") + it->second;
      }
      flush();
      out += (out.empty() ? "" : " | ") + line;
    }
    return out;
  }

  const Program& program_;
  const Graph& graph_;
  const Precedence& precedence_;
  std::vector<Region> regions_;
  std::vector<uint32_t> owner_;    // by place: its region
  std::vector<int32_t> chunk_of_;  // by place
  std::vector<uint32_t> seen_;     // by place: the last walk that has met it
  std::vector<bool> done_;         // by place: in a phase; of other nodes: nothing is in their way
  uint32_t stamp_ = 0;
  uint32_t begin_ = 0, end_ = 0;  // places of the region at hand
  uint32_t at_ = kNone;           // its number
  Region* region_ = nullptr;
  std::vector<uint32_t> waits_;  // by place from begin_ on: nodes to come before it
  Phases phases_;
  std::map<std::string, bool> pairs_;  // by region: its first exchanges go together
};

}  // namespace

Result<ReferenceOrder> reference_order(const Program& program, const Precedence& precedence,
                                       std::vector<Error>* refused) {
  return Planner(program, precedence).run(refused);
}

}  // namespace sg::overlap_parts
