#include "libgraph/sim/measured.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "libgraph/facts/cost.h"
#include "libgraph/facts/transfer.h"
#include "libgraph/import/capture_json.h"
#include "libgraph/sim/measured_parts.h"
#include "libgraph/sim/op_kind.h"

namespace sg {
namespace {

constexpr int64_t kNodeTrack = 1;  // of `sg-run --profile`
constexpr double kTick = 1e-3;     // us: clock resolution; an event this close after another's end follows it

std::string_view string_at(simdjson::dom::object o, std::string_view key) {
  std::string_view out;
  return o[key].get(out) == simdjson::SUCCESS ? out : std::string_view();
}

double number_at(simdjson::dom::object o, std::string_view key) {
  double out = 0;
  return o[key].get(out) == simdjson::SUCCESS && std::isfinite(out) ? out : 0;
}

bool is_free(const OpInfo& op) {
  return op.has(kView) || op.has(kSize) || op.has(kAssert) || op.has(kWait) || op.has(kHigherOrder);
}

// The number of steps in one rank's nodes, ordered by start, and their total length. A step begins where the first
// outermost node recurs.
struct Steps {
  size_t count = 0;
  double length_us = 0;
};

Steps steps_of(const std::vector<const TraceEvent*>& nodes) {
  Steps out;
  std::string_view first;
  double begin = 0, end = -1;
  for (const TraceEvent* e : nodes) {
    if (e->begin_us < end && e->end_us() <= end) continue;  // in a call's body; device clocks may overlap slightly
    std::string_view node = e->text("node").value_or("");
    if (out.count == 0) first = node;
    if (node == first) {
      if (out.count++ > 0) out.length_us += end - begin;
      begin = e->begin_us;
    }
    end = e->end_us();
  }
  out.length_us += out.count > 0 ? end - begin : 0;
  return out;
}

}  // namespace

std::optional<int64_t> TraceEvent::number(std::string_view key) const {
  int64_t out;
  return args && (*args)[key].get(out) == simdjson::SUCCESS ? std::optional(out) : std::nullopt;
}

std::optional<double> TraceEvent::real(std::string_view key) const {
  double out;
  return args && (*args)[key].get(out) == simdjson::SUCCESS ? std::optional(out) : std::nullopt;
}

std::optional<std::string_view> TraceEvent::text(std::string_view key) const {
  std::string_view out;
  return args && (*args)[key].get(out) == simdjson::SUCCESS ? std::optional(out) : std::nullopt;
}

std::vector<TraceEvent> complete_events(simdjson::dom::array events) {
  std::vector<TraceEvent> out;
  for (simdjson::dom::element value : events) {
    simdjson::dom::object e;
    if (value.get(e) != simdjson::SUCCESS || string_at(e, "ph") != "X") continue;
    TraceEvent event{
        string_at(e, "name"), string_at(e, "cat"), 0, 0, number_at(e, "ts"), std::max(0.0, number_at(e, "dur")), {}};
    event.process = static_cast<int64_t>(std::clamp(number_at(e, "pid"), -1e15, 1e15));
    event.track = static_cast<int64_t>(std::clamp(number_at(e, "tid"), -1e15, 1e15));
    if (simdjson::dom::object args; e["args"].get(args) == simdjson::SUCCESS) event.args = args;
    out.push_back(event);
  }
  return out;
}

std::vector<double> own_times(std::vector<TraceEvent>* events) {
  std::ranges::stable_sort(
      *events, {}, [](const TraceEvent& e) { return std::tuple(e.process, e.track, e.begin_us, -e.length_us); });
  std::vector<double> own;
  std::vector<size_t> open;  // events that enclose the current one
  for (size_t i = 0; i < events->size(); ++i) {
    const TraceEvent& e = (*events)[i];
    auto holds = [&](const TraceEvent& outer) {
      return outer.process == e.process && outer.track == e.track && e.begin_us + kTick < outer.end_us();
    };
    while (!open.empty() && !holds((*events)[open.back()])) open.pop_back();
    if (!open.empty()) own[open.back()] = std::max(0.0, own[open.back()] - e.length_us);
    own.push_back(e.length_us);
    open.push_back(i);
  }
  return own;
}

void add_compute(MeasuredStep* out, const OpInfo* op, std::string_view name, double us) {
  if (!op || is_free(*op)) {
    out->unknown_us[std::string(name)] += us;
    return;
  }
  MeasuredStep::Part& part = out->compute[std::string(name_of(op_kind(op)))];
  part.us += us;
  ++part.count;
}

void divide(MeasuredStep* step, double by) {
  for (auto* parts : {&step->compute, &step->under_way, &step->exposed})
    for (auto& [kind, part] : *parts) part.us /= by, part.count /= by;
  for (auto& [name, us] : step->unknown_us) us /= by;
}

namespace {

// Copies to the host and back. A device has a track for them, beside which its nodes only start and await them; the
// processor copies in the node that starts, and computes nothing meanwhile.
struct MeasuredCopies {
  double held_us = 0, under_way_us = 0, waits_us = 0;  // waits_us: for copies and collectives
  size_t starts = 0, flights = 0;

  void add_to(MeasuredStep* out, double waits_for_collectives_us) const {
    if (starts == 0) return;
    const double waits = std::max(0.0, waits_us - waits_for_collectives_us);
    out->exposed["copy"] = {held_us + waits, static_cast<double>(starts)};
    out->under_way["copy"] = {flights > 0 ? under_way_us : held_us,
                              static_cast<double>(flights > 0 ? flights : starts)};
  }
};

}  // namespace

MeasuredStep measure_run(std::vector<TraceEvent> events) {
  MeasuredStep out;
  out.source = "sg-run";
  std::vector<double> own = own_times(&events);
  std::map<int64_t, std::vector<const TraceEvent*>> nodes;  // by rank
  std::set<std::string_view> starts;                        // of transfers, by name
  for (const TraceEvent& e : events)
    if (e.track == kNodeTrack && starts_transfer(find_op(e.name))) starts.insert(e.text("node").value_or(""));
  MeasuredCopies copies;
  double waits_for_collectives_us = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    const TraceEvent& e = events[i];
    if (e.category == "copy") {  // else part of its node
      if (starts.contains(e.text("node").value_or(""))) copies.under_way_us += e.length_us, ++copies.flights;
      continue;
    }
    const OpInfo* op = find_op(e.name);
    if (e.track != kNodeTrack) {  // a group's track: from launch to wait
      std::string kind(op ? communication_kind(op->name) : e.name);
      MeasuredStep::Part &way = out.under_way[kind], &exposed = out.exposed[kind];
      way.us += e.length_us, ++way.count;
      const double waited_us = e.real("waited_us").value_or(0);
      exposed.us += waited_us, ++exposed.count;
      waits_for_collectives_us += waited_us;
      continue;
    }
    nodes[e.process].push_back(&e);
    if (const auto node = e.text("node")) out.nodes.emplace(*node);
    if (op && op->has(kWait)) copies.waits_us += own[i];  // of a collective: in its group's track
    else if (starts_transfer(op)) copies.held_us += own[i], ++copies.starts;
    else if (op && op->has(kCollective)) out.exposed[std::string(communication_kind(op->name))].us += own[i];
    else add_compute(&out, op, e.name, own[i]);
  }
  copies.add_to(&out, waits_for_collectives_us);
  out.ranks = std::max<size_t>(nodes.size(), 1);
  for (const auto& [rank, list] : nodes) {
    Steps steps = steps_of(list);
    out.steps = std::max<size_t>(steps.count, 1);
    out.step_us = std::max(out.step_us, steps.length_us / static_cast<double>(out.steps));
    out.begin_us =
        rank == nodes.begin()->first ? list.front()->begin_us : std::min(out.begin_us, list.front()->begin_us);
  }
  divide(&out, static_cast<double>(out.steps * out.ranks));
  return out;
}

MeasuredTrace::MeasuredTrace() = default;
MeasuredTrace::~MeasuredTrace() = default;
MeasuredTrace::MeasuredTrace(MeasuredTrace&&) noexcept = default;
MeasuredTrace& MeasuredTrace::operator=(MeasuredTrace&&) noexcept = default;

namespace {

Result<simdjson::dom::array> events_of(const CaptureText& text) {
  simdjson::dom::array events;
  if (text.root()["traceEvents"].get(events) == simdjson::SUCCESS || text.root().get(events) == simdjson::SUCCESS)
    return events;
  return Error{ErrorKind::unreadable,
               "not a trace: it has no `traceEvents`",
               {text.name(), 0, 0, {}, {}},
               "sg-run --profile writes one, and PyTorch's profiler (export_chrome_trace)"};
}

}  // namespace

Result<MeasuredTrace> MeasuredTrace::read(const std::string& file, std::string bytes) {
  MeasuredTrace out;
  out.text_ = std::make_unique<CaptureText>(file, std::move(bytes));
  SG_TRY(out.text_->parse());
  SG_ASSIGN(simdjson::dom::array all, events_of(*out.text_));
  std::vector<TraceEvent> events = complete_events(all);
  auto has = [&](auto&& test) { return std::ranges::any_of(events, test); };
  if (has([](const TraceEvent& e) { return e.category == "cpu_op" || e.category == "kernel"; })) {
    out.step_ = measure_kineto(events);
  } else if (has([](const TraceEvent& e) { return e.track == kNodeTrack && e.text("node"); })) {
    out.step_ = measure_run(std::move(events));
  } else {
    return Error{ErrorKind::unreadable,
                 "neither a profile of sg-run nor one of PyTorch: it has no nodes, ops or kernels",
                 {file, 0, 0, {}, {}},
                 {}};
  }
  return out;
}

void MeasuredTrace::write_events(JsonWriter* json) const {
  Result<simdjson::dom::array> all = events_of(*text_);
  if (!all.ok()) return;
  for (simdjson::dom::element e : *all) json->raw(canonical_json(e));
}

}  // namespace sg
