// Events of a trace as both readers see them. Internal to measured*.cc.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string_view>
#include <vector>

#include "libgraph/op.h"
#include "libgraph/sim/measured.h"

namespace sg {

struct TraceEvent {
  std::string_view name, category;
  int64_t process = 0, track = 0;
  double begin_us = 0, length_us = 0;
  std::optional<simdjson::dom::object> args;

  double end_us() const { return begin_us + length_us; }
  std::optional<int64_t> number(std::string_view key) const;
  std::optional<double> real(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
};

// Those with a length, as the file has them.
std::vector<TraceEvent> complete_events(simdjson::dom::array events);

// Each event's own time: less that of the events of its track that lie inside of it. Sorts by process, track and
// beginning.
std::vector<double> own_times(std::vector<TraceEvent>* events);

// Adds what belongs to the kind of this op, or to the unknown by its name. `op`: null = not in the table.
void add_compute(MeasuredStep* out, const OpInfo* op, std::string_view name, double us);

MeasuredStep measure_run(std::vector<TraceEvent> events);  // of sg-run
MeasuredStep measure_kineto(const std::vector<TraceEvent>& events);
void divide(MeasuredStep* step, double by);

}  // namespace sg
