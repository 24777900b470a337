#include "libgraph/plan/plan.h"

#include <algorithm>

#include "libgraph/facts/in_place.h"
#include "libgraph/plan/pack_once.h"

namespace sg {
namespace {

constexpr uint32_t kNoItem = 0xFFFFFFFFu;

// Plans one graph: forms packing items of storages with fixed distances, and reads their places back.
class Planner {
 public:
  Planner(const Liveness& live, const std::vector<MemoryPlan>& bodies, const std::vector<int64_t>& scratch,
          const PackOptions& packing, bool is_body)
      : live_(live), bodies_(bodies), scratch_(scratch), packing_(packing), is_body_(is_body) {}

  MemoryPlan run() {
    out_.offsets.assign(live_.index_of.size(), MemoryPlan::kNoOffset);
    place_of_.resize(live_.storages.size());
    make_frames();
    make_storages();
    make_scratch();
    fill_input();
    read_out(pack_once(std::move(input_), packing_));
    place_host();
    return std::move(out_);
  }

 private:
  struct Place {
    uint32_t item = kNoItem;
    int64_t at = 0;  // byte offset into the item
  };
  struct ItemRect {
    uint32_t item;
    PackRect rect;
  };

  Place new_item(uint32_t first, uint32_t last, int64_t bytes, int64_t alignment) {
    Place place{static_cast<uint32_t>(input_.items.size()), 0};
    input_.items.push_back({0, 0, alignment, false});
    rects_.push_back({place.item, {first, last, 0, bytes}});
    return place;
  }

  // A call's frame: the body's whole arena while the call runs; its results keep their offsets in it afterwards.
  void make_frames() {
    frames_.resize(live_.calls.size());
    for (size_t c = 0; c < live_.calls.size(); ++c) {
      const CallSite& call = live_.calls[c];
      const MemoryPlan& body = bodies_[call.body.index];
      out_.overflow |= body.overflow;
      if (body.arena_bytes == 0 || body.overflow) continue;
      frames_[c] = new_item(call.position, call.position, body.arena_bytes, kPlanAlignment);
      for (const CallSite::Result& r : call.results)
        place_of_[live_.index_of[r.storage.index]] = {frames_[c].item, body.offset_of(r.in_body)};
    }
  }

  void make_storages() {
    for (size_t i = 0; i < live_.storages.size(); ++i) {
      const LiveStorage& s = live_.storages[i];
      if (!s.bytes_known) out_.pooled.push_back(s.storage);
      if (s.bytes == 0 || s.is_host) continue;
      if (s.takes_over) {
        const Place& old = place_of_[live_.index_of[s.takes_over.index]];
        place_of_[i] = {old.item, old.at + s.takes_over_at};
      }
      if (place_of_[i].item == kNoItem) place_of_[i] = new_item(s.first_position, s.last_position, s.bytes, 1);
      else rects_.push_back({place_of_[i].item, {s.first_position, s.last_position, place_of_[i].at, s.bytes}});
      int64_t& alignment = input_.items[place_of_[i].item].alignment;
      alignment = std::max(alignment, plan_alignment(s.bytes));
      input_.items[place_of_[i].item].low |= is_body_ && s.is_output;
    }
  }

  void make_scratch() {
    out_.scratch_offsets.assign(live_.schedule.size(), MemoryPlan::kNoOffset);
    scratch_place_.resize(live_.schedule.size());
    for (uint32_t i = 0; i < live_.schedule.size() && i < scratch_.size(); ++i)
      if (scratch_[i] > 0) scratch_place_[i] = new_item(i, i, scratch_[i], kPlanAlignment);
  }

  // Groups the rectangles by item and merges consecutive ones at the same place.
  void fill_input() {
    std::stable_sort(rects_.begin(), rects_.end(),
                     [](const ItemRect& a, const ItemRect& b) { return a.item < b.item; });
    for (const ItemRect& r : rects_) {
      PackItem& item = input_.items[r.item];
      if (item.rect_count == 0) item.rect_begin = static_cast<uint32_t>(input_.rects.size());
      PackRect* last = item.rect_count == 0 ? nullptr : &input_.rects.back();
      if (last && last->offset == r.rect.offset && last->bytes == r.rect.bytes && last->last == r.rect.first) {
        last->last = r.rect.last;
        continue;
      }
      input_.rects.push_back(r.rect);
      ++item.rect_count;
    }
    input_.steps = static_cast<uint32_t>(live_.schedule.size());
  }

  void read_out(const Packing& packing) {
    out_.overflow |= packing.overflow;
    out_.frame_offsets.assign(live_.calls.size(), out_.overflow ? MemoryPlan::kNoOffset : 0);
    out_.arena_bytes = out_.overflow ? INT64_MAX : packing.bytes;
    out_.lower_bound_bytes = lower_bound();
    if (out_.overflow) {
      std::fill(scratch_place_.begin(), scratch_place_.end(), Place{});
      std::fill(out_.offsets.begin(), out_.offsets.end(), MemoryPlan::kNoOffset);
      return;
    }
    auto offset = [&](const Place& p) { return packing.places[p.item] + p.at; };
    for (size_t i = 0; i < live_.storages.size(); ++i) {
      const LiveStorage& s = live_.storages[i];
      if (s.is_host) continue;
      if (s.bytes_known) out_.offsets[s.storage.index] = s.bytes == 0 ? 0 : offset(place_of_[i]);
      if (s.is_output) out_.output_bytes += s.bytes;
    }
    for (size_t c = 0; c < frames_.size(); ++c)
      if (frames_[c].item != kNoItem) out_.frame_offsets[c] = offset(frames_[c]);
    for (size_t i = 0; i < scratch_place_.size(); ++i)
      if (scratch_place_[i].item != kNoItem) out_.scratch_offsets[i] = offset(scratch_place_[i]);
  }

  // Packs host storages separately: they share no items, and nothing takes over their memory.
  void place_host() {
    PackInput input;
    std::vector<uint32_t> storages;  // by item
    for (uint32_t i = 0; i < live_.storages.size(); ++i) {
      const LiveStorage& s = live_.storages[i];
      if (!s.is_host || !s.bytes_known) continue;
      out_.offsets[s.storage.index] = out_.overflow ? MemoryPlan::kNoOffset : 0;
      if (s.bytes == 0 || out_.overflow) continue;
      input.items.push_back({static_cast<uint32_t>(input.rects.size()), 1, plan_alignment(s.bytes), false});
      input.rects.push_back({s.first_position, s.last_position, 0, s.bytes});
      storages.push_back(i);
    }
    if (out_.overflow) out_.host_bytes = INT64_MAX;
    if (storages.empty()) return;
    input.steps = static_cast<uint32_t>(live_.schedule.size());
    const Packing packing = pack(input, packing_);
    if (packing.overflow) return give_up();
    out_.host_bytes = packing.bytes;
    for (size_t item = 0; item < storages.size(); ++item)
      out_.offsets[live_.storages[storages[item]].storage.index] = packing.places[item];
  }

  void give_up() {
    out_.overflow = true;
    out_.arena_bytes = out_.host_bytes = INT64_MAX;
    for (auto* list : {&out_.offsets, &out_.frame_offsets, &out_.scratch_offsets})
      std::fill(list->begin(), list->end(), MemoryPlan::kNoOffset);
  }

  int64_t lower_bound() const {
    int64_t out = live_.lower_bound_bytes, sum;
    for (size_t i = 0; i < live_.schedule.size() && i < scratch_.size(); ++i) {
      if (scratch_[i] <= 0) continue;
      out = std::max(out, __builtin_add_overflow(live_.live_bytes[i], scratch_[i], &sum) ? INT64_MAX : sum);
    }
    return out;
  }

  const Liveness& live_;
  const std::vector<MemoryPlan>& bodies_;
  const std::vector<int64_t>& scratch_;
  const PackOptions& packing_;
  bool is_body_;  // its outputs outlive its frame: at an edge of it, consecutive calls fit best
  PackInput input_;
  std::vector<ItemRect> rects_;
  std::vector<Place> place_of_;       // by live_.storages
  std::vector<Place> frames_;         // by live_.calls
  std::vector<Place> scratch_place_;  // by position
  MemoryPlan out_;
};

// Plans bodies before their callers. Calls cannot be cyclic: recursive ones are not in the list of calls.
class BodyPlans {
 public:
  BodyPlans(const Liveness& live, const PlanOptions& options)
      : live_(live), options_(options), done_(live.bodies.size(), false), plans_(live.bodies.size()) {}

  void plan_callees(const Liveness& caller) {
    for (const CallSite& call : caller.calls) {
      uint32_t b = call.body.index;
      if (done_[b]) continue;
      done_[b] = true;
      plan_callees(*live_.bodies[b]);  // depth is bounded by liveness: 64
      plans_[b] = Planner(*live_.bodies[b], plans_, scratch_of(b), options_.packing, true).run();
    }
  }
  std::vector<MemoryPlan>& plans() { return plans_; }

 private:
  const std::vector<int64_t>& scratch_of(uint32_t body) const {
    static const std::vector<int64_t> kNone;
    return body < options_.body_scratch.size() ? options_.body_scratch[body] : kNone;
  }

  const Liveness& live_;
  const PlanOptions& options_;
  std::vector<bool> done_;
  std::vector<MemoryPlan> plans_;
};

}  // namespace

MemoryPlan plan_memory(const Liveness& liveness, const PlanOptions& options) {
  BodyPlans bodies(liveness, options);
  bodies.plan_callees(liveness);
  MemoryPlan out = Planner(liveness, bodies.plans(), options.scratch_bytes, options.packing, false).run();
  out.bodies = std::move(bodies.plans());
  return out;
}

}  // namespace sg
