#include <algorithm>
#include <cstdio>
#include <map>

#include "libgraph/base/escape.h"
#include "libgraph/base/human.h"
#include "libgraph/plan/liveness.h"
#include "libgraph/sim/critical_path.h"
#include "libgraph/view/view_columns.h"
#include "libgraph/view/view_formats.h"

namespace sg {
namespace {

constexpr double kLeft = 150, kWidth = 1200, kLane = 26, kMemory = 140, kTop = 40;

std::string format(const char* pattern, double a, double b = 0, double c = 0, double d = 0) {
  char buffer[160];
  std::snprintf(buffer, sizeof buffer, pattern, a, b, c, d);
  return buffer;
}

void put_text(std::string* out, double x, double y, const std::string& s, const char* anchor = "start") {
  *out += format("<text x=\"%.1f\" y=\"%.1f\"", x, y) + " text-anchor=\"" + anchor + "\">" + escaped_markup(s) +
          "</text>\n";
}

const char* color_of(const SimEvent& e) {
  if (e.resource == Resource::communicator) return "#d97706";
  if (e.resource != Resource::compute) return "#6b7280";
  return e.graph->node(e.node).phase == Phase::forward ? "#2563eb" : "#7c3aed";
}

// Events of one colour on one lane that are less than a third of a pixel apart become one bar: the picture is
// approximate.
class Lanes {
 public:
  Lanes(const Job& job, const ProgramTimeline& t) : scale_(kWidth / std::max(t.makespan_us, 1e-9)) {
    for (const SimEvent& e : t.events) {
      auto [at, is_new] = lanes_.try_emplace(lane_name(job, e), names_.size());
      if (is_new) names_.push_back(at->first), open_.push_back({});
      add(at->second, e);
    }
    for (size_t lane = 0; lane < open_.size(); ++lane) close(lane);
  }
  const std::vector<std::string>& names() const { return names_; }
  const std::string& bars() const { return bars_; }

 private:
  struct Bar {
    double begin = 0, end = -1;
    const char* color = nullptr;
  };

  void add(size_t lane, const SimEvent& e) {
    Bar& bar = open_[lane];
    double begin = kLeft + e.begin_us * scale_, end = kLeft + e.end_us * scale_;
    if (bar.color == color_of(e) && begin - bar.end < 0.34) {
      bar.end = std::max(bar.end, end);
      return;
    }
    close(lane);
    bar = {begin, end, color_of(e)};
  }

  void close(size_t lane) {
    const Bar& bar = open_[lane];
    if (!bar.color) return;
    bars_ += format("<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"", bar.begin,
                    kTop + kLane * static_cast<double>(lane), std::max(bar.end - bar.begin, 0.2), kLane - 6) +
             " fill=\"" + bar.color + "\"/>\n";
  }

  double scale_;
  std::map<std::string, size_t> lanes_;
  std::vector<std::string> names_;
  std::vector<Bar> open_;
  std::string bars_;
};

std::string memory_curve(const ViewGraph& view, const Liveness& live, const ProgramTimeline& t, double top) {
  std::vector<double> times = times_of(view, t);
  double peak = std::max<double>(1, static_cast<double>(live.lower_bound_bytes));
  double scale = kWidth / std::max(t.makespan_us, 1e-9), last_x = kLeft, highest = 0;
  std::string points = format("%.1f,%.1f", kLeft, top + kMemory);
  for (size_t i = 0; i < times.size(); ++i) {
    double x = kLeft + times[i] * scale;
    highest = std::max(highest, static_cast<double>(live.live_bytes[i]));
    if (x - last_x < 0.5 && i + 1 != times.size()) continue;
    points += format(" %.1f,%.1f %.1f,%.1f", last_x, top + kMemory * (1 - highest / peak), x,
                     top + kMemory * (1 - highest / peak));
    last_x = x, highest = 0;
  }
  points += format(" %.1f,%.1f", last_x, top + kMemory);
  return "<polygon points=\"" + points + "\" fill=\"#bbdefb\" stroke=\"#1d4ed8\" stroke-width=\"0.7\"/>\n";
}

}  // namespace

std::string view_svg(const Job& job, const ViewSources& from) {
  size_t slowest = from.simulation->slowest;
  const Program& program = *job.programs[slowest];
  const ProgramTimeline& t = from.simulation->programs[slowest];
  const SymbolValues& values = (*from.values)[slowest];
  ViewGraph view(job, program, program.graph);
  Liveness live = compute_liveness(program, program.graph, [&values](StrId s) { return values.value(s); });
  Lanes lanes(job, t);
  double memory_top = kTop + kLane * static_cast<double>(lanes.names().size()) + 20, height = memory_top + kMemory + 40;

  std::string out =
      format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\"", kLeft + kWidth + 20, height) +
      " font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n";
  put_text(&out, kLeft, 24,
           from.name + " on " + from.machine + ": " + human_time(t.makespan_us * 1e-6) + ", peak " +
               human_bytes(static_cast<double>(live.lower_bound_bytes)) + " live");
  for (size_t i = 0; i < lanes.names().size(); ++i)
    put_text(&out, kLeft - 10, kTop + kLane * static_cast<double>(i) + 15, lanes.names()[i], "end");
  out += lanes.bars();
  put_text(&out, kLeft - 10, memory_top + kMemory / 2, "live memory", "end");
  out += memory_curve(view, live, t, memory_top);
  for (int tick = 0; tick <= 10; ++tick)
    put_text(&out, kLeft + kWidth * tick / 10, height - 16, format("%.2f ms", t.makespan_us * tick / 10000), "middle");
  return out + "</svg>\n";
}

}  // namespace sg
