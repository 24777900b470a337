#include "librun/profile.h"

#include <algorithm>
#include <map>

#include "libgraph/group_name.h"
#include "libgraph/names.h"
#include "libgraph/op.h"
#include "libgraph/story/source_text.h"

namespace sg {
namespace {

constexpr size_t kNodeTrack = 1, kFirstGroupTrack = 2;

const Arg* group_argument(const Node& node) {
  for (const Arg& a : node.args)
    if (a.is(ArgKind::group)) return &a;
  return nullptr;
}

}  // namespace

void Profile::before(const Graph&, NodeId) {
  if (clock_) begun_at_.push_back(clock_->mark());
  else began_.push_back(now());
}

void Profile::ran(const Graph& graph, NodeId n, size_t steps) {
  if (clock_) {
    marks_.push_back({&graph, n, steps, begun_at_.back(), clock_->mark()});
    begun_at_.pop_back();
  } else {
    slices_.push_back({&graph, n, steps, began_.back(), now()});
    began_.pop_back();
  }
}

// --- on a device ---

Status Profile::begin_step(DeviceClock* clock) {
  clock_ = clock;
  marks_.clear();
  step_begin_ = now();      // the device is idle: it reaches the first mark immediately
  return clock->restart();  // after that time, so that no step ends after the next has begun
}

// The innermost node that requested it, as an index into `marks_`; marks_.size() if there is none.
size_t Profile::node_of(const DeviceClock::Span& span) const {
  auto at = std::ranges::upper_bound(marks_, span.end, {}, &Marks::end);
  while (at != marks_.end() && at->begin > span.begin) ++at;  // began later, within the same call
  return static_cast<size_t>(at - marks_.begin());
}

Status Profile::end_step() {
  if (!clock_) return ok_status();
  SG_ASSIGN(std::vector<double> times, clock_->times());
  auto at = [&](uint64_t mark) { return step_begin_ + times[mark]; };
  const size_t first = slices_.size();
  for (const Marks& m : marks_) slices_.push_back({m.graph, m.node, m.steps, at(m.begin), at(m.end)});
  for (const DeviceClock::Span& span : clock_->spans()) {
    const Stretch time{at(span.begin), at(span.end)};
    const size_t i = node_of(span);
    const bool has_node = i < marks_.size();
    if (span.kind == DeviceClock::Span::Kind::collective) {
      if (has_node) slices_[first + i].flights.push_back(time);
    } else {
      copies_.push_back({span.kind, span.bytes, time,
                         has_node ? std::string(marks_[i].graph->label(marks_[i].node)) : std::string()});
    }
  }
  return ok_status();
}

void Profile::set_memory(const GraphRun& graph, int64_t pool_bytes) {
  const Liveness& liveness = graph.liveness();
  outermost_ = &graph.graph();
  for (size_t i = 0; i < liveness.schedule.size(); ++i)
    live_bytes_.emplace_back(liveness.schedule[i], liveness.live_bytes[i] + pool_bytes);
}

void Profile::begin_event(JsonWriter* json, std::string_view phase, std::string_view name, size_t track,
                          double at) const {
  json->begin_object().member("ph", phase).member("name", name).member("pid", rank_);
  json->member("tid", track).member("ts", at);
}

void Profile::write_slice(JsonWriter* json, const Slice& s) const {
  const Node& node = s.graph->node(s.node);
  const Pool& pool = s.graph->pool();
  begin_event(json, "X", s.graph->op_name(s.node), kNodeTrack, s.begin);
  json->member("dur", s.end - s.begin).member("cat", name_of(node.phase));
  json->key("args").begin_object().member("node", s.graph->label(s.node));
  if (s.steps > 1) json->member("fused", s.steps);
  if (!node.module.is_none()) json->member("module", pool.strings[node.module]);
  if (!node.source.is_none()) json->member("source", source_text(pool, node.source));
  json->end_object().end_object();
}

// The flight of the collective waited for: as the device measured it, else from the end of its launch to that of its
// wait.
Profile::Stretch Profile::flight_of(const Slice& launch, const Slice& wait) const {
  if (launch.flights.empty()) return {launch.end, wait.end};
  const ValueId result = wait.graph->node(wait.node).args[0].as_value();
  return launch.flights[std::min<size_t>(wait.graph->value(result).index, launch.flights.size() - 1)];
}

// Writes a slice from each launch to the next wait for a value in its memory.
void Profile::write_collectives(JsonWriter* json) const {
  std::map<std::pair<const Graph*, uint32_t>, const Slice*> launches;  // by node
  uint64_t arrow = static_cast<uint64_t>(rank_) << 32;
  for (const Slice& s : slices_) {
    const OpInfo* op = s.graph->op_info(s.node);
    if (op->has(kCollective)) launches[{s.graph, s.node.index}] = &s;
    const Node& node = s.graph->node(s.node);
    if (!op->has(kWait) || node.args.empty() || !node.args[0].is(ArgKind::value)) continue;
    auto launch = launches.find({s.graph, s.graph->value(node.args[0].as_value()).def.index});
    if (launch == launches.end()) continue;
    const Slice& from = *launch->second;
    const Arg* group = group_argument(from.graph->node(from.node));
    size_t track = kFirstGroupTrack + (group ? group->as_group().index : 0);
    const Stretch flight = flight_of(from, s);
    begin_event(json, "X", from.graph->op_name(from.node), track, flight.begin);
    json->member("dur", flight.end - flight.begin)
        .key("args")
        .begin_object()
        .member("node", from.graph->label(from.node));
    json->member("waited_us", s.end - s.begin);
    json->end_object().end_object();
    begin_event(json, "s", "launch", kNodeTrack, from.begin);
    json->member("id", arrow).member("cat", "collective").end_object();
    begin_event(json, "f", "launch", kNodeTrack, s.begin);
    json->member("id", arrow++).member("cat", "collective").member("bp", "e").end_object();
  }
}

size_t Profile::copy_track() const { return kFirstGroupTrack + job_.groups.size(); }

void Profile::write_copies(JsonWriter* json) const {
  for (const Copy& copy : copies_) {
    const bool is_up = copy.kind == DeviceClock::Span::Kind::upload;
    begin_event(json, "X", is_up ? "upload" : "download", copy_track(), copy.time.begin);
    json->member("dur", copy.time.end - copy.time.begin).member("cat", "copy");
    json->key("args").begin_object().member("bytes", copy.bytes);
    if (!copy.node.empty()) json->member("node", copy.node);
    json->end_object().end_object();
  }
}

void Profile::write_events(JsonWriter* json) const {
  auto name_track = [&](std::string_view what, size_t track, std::string_view name) {
    begin_event(json, "M", what, track, 0);
    json->key("args").begin_object().member("name", name).end_object().end_object();
  };
  name_track("process_name", 0, "rank " + std::to_string(rank_));
  name_track("thread_name", kNodeTrack, "nodes");
  for (size_t g = 0; g < job_.groups.size(); ++g)
    name_track("thread_name", kFirstGroupTrack + g, "group " + group_name(job_, GroupId(static_cast<uint32_t>(g))));
  if (!copies_.empty()) name_track("thread_name", copy_track(), "copies");
  for (const Slice& s : slices_) write_slice(json, s);
  write_collectives(json);
  write_copies(json);
  std::map<uint32_t, double> at;
  for (const Slice& s : slices_)
    if (s.graph == outermost_) at.emplace(s.node.index, s.begin);
  for (auto& [node, bytes] : live_bytes_) {
    auto it = at.find(node.index);
    if (it == at.end()) continue;
    begin_event(json, "C", "memory", 0, it->second);
    json->key("args").begin_object().member("bytes", bytes).end_object().end_object();
  }
}

std::string profile_json(std::span<const Profile* const> profiles) {
  JsonWriter json;
  json.begin_object().member("displayTimeUnit", "ms").key("traceEvents").begin_array();
  for (const Profile* p : profiles) p->write_events(&json);
  return json.end_array().end_object().take();
}

}  // namespace sg
