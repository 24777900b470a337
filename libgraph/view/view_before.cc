// The older job of a comparison: its peak, time, and course of memory.
#include <algorithm>

#include "libgraph/plan/liveness.h"
#include "libgraph/sim/simulate.h"
#include "libgraph/view/view_columns.h"

namespace sg {
namespace {

constexpr size_t kPoints = 1000;  // per curve: more than the pixels of a page

// The maximum over the stretch of time of each point; points without a node repeat the previous one.
std::vector<int64_t> curve_of(const Liveness& live, const std::vector<double>& clock, double makespan_us) {
  std::vector<int64_t> out(std::min(kPoints, std::max<size_t>(1, clock.size())), -1);
  const double last = static_cast<double>(out.size() - 1);
  for (size_t n = 0; n < clock.size(); ++n) {
    const double at = clock[n] / makespan_us * last;  // not a number where the machine's times are endless, or 0
    int64_t& point = out[static_cast<size_t>(at >= 0 ? std::min(at, last) : 0)];
    point = std::max(point, live.live_bytes[n]);
  }
  int64_t before = 0;
  for (int64_t& point : out) before = point = point < 0 ? before : point;
  return out;
}

}  // namespace

void write_before(JsonWriter* json, const ViewGraph& view, const SizeValues& values, const ProgramTimeline& timeline) {
  const Liveness live = compute_liveness(*view.program, *view.graph, values);
  const std::vector<int64_t> curve = curve_of(live, times_of(view, timeline), timeline.makespan_us);
  json->key("before").begin_object().member("nodes", view.nodes.size());
  json->member("peak_bytes", live.lower_bound_bytes);
  json->member("makespan_us", timeline.makespan_us).member("exposed_us", timeline.exposed_total_us());
  write_column(json, "live", curve.size(), [&](size_t i) { return curve[i]; });
  json->end_object();
}

}  // namespace sg
