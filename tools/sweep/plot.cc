#include "tools/sweep/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "libgraph/base/escape.h"
#include "libgraph/base/human.h"
#include "libgraph/base/size_units.h"
#include "tools/sweep/front.h"

namespace sg::sweep {
namespace {

constexpr double kWidth = 960, kHeight = 560, kLeft = 92, kRight = 28, kTop = 64, kBottom = 62;
constexpr double kLetter = 7.2;  // approximate width of a letter in a label

constexpr std::string_view kStyle = R"(<style>
  .plot { --ink: #1b1f24; --soft: #667085; --line: #d0d5dd; --back: #ffffff }
  .plot { --front: #0b63ce; --other: #98a2b3; --limit: #b42318 }
  @media (prefers-color-scheme: dark) {
    .plot { --ink: #f2f4f7; --soft: #98a2b3; --line: #344054; --back: #101418 }
    .plot { --front: #6cb2ff; --other: #667085; --limit: #fda29b }
  }
  .plot { background: var(--back) }
  .plot text { fill: var(--ink); font: 12px system-ui, sans-serif }
  .plot .title { font-size: 16px; font-weight: 600 }
  .plot .soft { fill: var(--soft) }
  .plot .grid { stroke: var(--line) }
  .plot .other { fill: var(--other); fill-opacity: .75 }
  .plot .front { fill: var(--front) }
  .plot .steps { fill: none; stroke: var(--front); stroke-width: 1.5 }
  .plot .limit { stroke: var(--limit); stroke-dasharray: 6 4 }
  .plot .limit-text { fill: var(--limit) }
</style>
)";

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", std::round(value * 100) / 100);
  return text;
}

// An axis of the picture: the range of values, with ticks at round numbers.
struct Scale {
  double low = 0, high = 1, unit = 1;  // `unit`: one on the axis, in seconds or bytes
  std::string name;
  double from = 0, to = 1;  // position on the page

  double at(double value) const { return from + (value / unit - low) / (high - low) * (to - from); }

  std::vector<double> ticks() const {  // in units
    const double rough = (high - low) / 6, power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (double nice : {1.0, 2.0, 5.0})
      if (nice * power >= rough) {
        step = nice * power;
        break;
      }
    std::vector<double> out;
    for (double t = std::ceil(low / step) * step; t <= high + step * 1e-9; t += step)
      out.push_back(std::abs(t) < step / 2 ? 0 : t);
    return out;
  }
};

struct UnitName {
  std::string_view name;
  double size;
};
constexpr UnitName kTimes[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

// `units`: the smallest first.
template <class Units>
Scale scale_of(std::vector<double> values, const Units& units, const std::string& name, double from, double to) {
  Scale out;
  out.from = from, out.to = to;
  const auto [least, most] = std::ranges::minmax(values);
  auto [unit, size] = units[0];
  for (const auto& [larger, its_size] : units)
    if (most >= its_size) unit = larger, size = its_size;
  out.unit = size;
  out.name = name + ", " + std::string(unit);
  const double room = most > least ? (most - least) * 0.08 : std::max(most * 0.1, out.unit);
  out.low = std::max(0.0, least - room) / out.unit;
  out.high = (most + room) / out.unit;
  return out;
}

struct Box {
  double x1, y1, x2, y2;
  bool meets(const Box& o) const { return x1 < o.x2 && o.x1 < x2 && y1 < o.y2 && o.y1 < y2; }
};

class Picture {
 public:
  Picture(const std::vector<Point>& points, const PlotOptions& options) : points_(points), options_(options) {
    std::vector<double> times, peaks;
    for (const Point& p : points)
      if (p.measured) times.push_back(p.step_seconds), peaks.push_back(p.peak_bytes);
    if (times.empty()) times = {0}, peaks = {0};
    y_ = scale_of(times, kTimes, "step", kHeight - kBottom, kTop);
    x_ = scale_of(peaks, kBinarySizeUnits, "peak", kLeft, kWidth - kRight);
  }

  std::string draw() {
    out_ =
        "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 560\" role=\"img\" aria-label=\"" +
        escaped_markup(options_.title) + ": time of a step against its peak memory\">\n" + std::string(kStyle);
    text(kLeft, 26, "title", "start", options_.title);
    text(kLeft, 46, "soft", "start", options_.about);
    grid();
    limit();
    const std::vector<const Point*> front = front_of(points_);
    steps(front);
    for (const Point& p : points_)
      if (p.measured && !p.on_front) dot(p);
    for (const Point* p : front) dot(*p);
    for (const Point* p : front) label(*p);
    return out_ + "</svg>\n";
  }

 private:
  void text(double x, double y, std::string_view kind, std::string_view anchor, std::string_view words) {
    out_ += "<text class=\"" + std::string(kind) + "\" x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" +
            std::string(anchor) + "\">" + escaped_markup(words) + "</text>\n";
  }

  void line(std::string_view kind, double x1, double y1, double x2, double y2) {
    out_ += "<line class=\"" + std::string(kind) + "\" x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" +
            number(x2) + "\" y2=\"" + number(y2) + "\"/>\n";
  }

  void grid() {
    for (double t : x_.ticks()) {
      line("grid", x_.at(t * x_.unit), kTop, x_.at(t * x_.unit), kHeight - kBottom);
      text(x_.at(t * x_.unit), kHeight - kBottom + 20, "soft", "middle", number(t));
    }
    for (double t : y_.ticks()) {
      line("grid", kLeft, y_.at(t * y_.unit), kWidth - kRight, y_.at(t * y_.unit));
      text(kLeft - 10, y_.at(t * y_.unit) + 4, "soft", "end", number(t));
    }
    text((kLeft + kWidth - kRight) / 2, kHeight - 16, "axis", "middle", x_.name);
    text(kLeft - 10, kTop - 12, "axis", "end", y_.name);
  }

  void limit() {
    if (!options_.limit_bytes) return;
    const double x = x_.at(*options_.limit_bytes);
    if (x < kLeft || x > kWidth - kRight) return;
    line("limit", x, kTop, x, kHeight - kBottom);
    taken_.push_back({x - 1, kTop, x + 110, kTop + 18});
    text(x + 6, kTop + 14, "limit-text", "start", "limit " + human_bytes(*options_.limit_bytes));
  }

  // Between two neighbouring points of the front, the slower one is the best known.
  void steps(const std::vector<const Point*>& front) {
    if (front.empty()) return;
    std::string path;
    double last_x = 0, last_y = 0;
    for (const Point* p : front) {
      const double x = x_.at(p->peak_bytes), y = y_.at(p->step_seconds);
      path += path.empty() ? "M" + number(x) + " " + number(y) : "H" + number(x) + "V" + number(y);
      if (p != front[0]) {
        taken_.push_back({last_x, last_y - 1, x, last_y + 1});
        taken_.push_back({x - 1, last_y, x + 1, y});
      }
      last_x = x, last_y = y;
    }
    out_ += "<path class=\"steps\" d=\"" + path + "\"/>\n";
  }

  void dot(const Point& p) {
    out_ += std::string("<circle class=\"") + (p.on_front ? "front" : "other") + "\" cx=\"" +
            number(x_.at(p.peak_bytes)) + "\" cy=\"" + number(y_.at(p.step_seconds)) + "\" r=\"" +
            (p.on_front ? "5" : "4") + "\"><title>" +
            escaped_markup(p.name() + ": " + human_time(p.step_seconds) + ", " + human_bytes(p.peak_bytes)) +
            "</title></circle>\n";
  }

  // Places a label where there is room: above right, right, below right, below left, left; else omits it, as the table
  // and the tooltip have it.
  void label(const Point& p) {
    const std::string words = p.name();
    const double x = x_.at(p.peak_bytes), y = y_.at(p.step_seconds),
                 width = kLetter * static_cast<double>(words.size());
    struct Place {
      double x, y;
    };
    for (auto [left, base] : {Place{x + 8, y - 8}, Place{x + 9, y + 4}, Place{x + 8, y + 18},
                              Place{x - 8 - width, y + 18}, Place{x - 9 - width, y + 4}}) {
      const Box box{left, base - 12, left + width, base + 3};
      const Box page{kLeft, kTop - 6, kWidth, kHeight - kBottom};
      if (box.x1 < page.x1 || box.x2 > page.x2 || box.y1 < page.y1 || box.y2 > page.y2) continue;
      if (std::ranges::any_of(taken_, [&](const Box& b) { return b.meets(box); })) continue;
      if (std::ranges::any_of(points_, [&](const Point& q) { return &q != &p && q.measured && box.meets(around(q)); }))
        continue;
      taken_.push_back(box);
      return text(left, base, "label", "start", words);
    }
  }

  Box around(const Point& p) const {
    const double x = x_.at(p.peak_bytes), y = y_.at(p.step_seconds);
    return {x - 5, y - 5, x + 5, y + 5};
  }

  const std::vector<Point>& points_;
  const PlotOptions& options_;
  Scale x_, y_;
  std::vector<Box> taken_;
  std::string out_;
};

constexpr std::string_view kPage = R"(<style>
  body { margin: 2rem auto; max-width: 960px; padding: 0 1rem; font: 14px/1.5 system-ui, sans-serif }
  body { color: #1b1f24; background: #fff }
  table { border-collapse: collapse; width: 100%; margin-top: 1rem }
  th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #d0d5dd; vertical-align: top }
  td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
  tr.front td:first-child { font-weight: 600; color: #0b63ce }
  td.why { color: #b42318; white-space: pre-wrap; overflow-wrap: anywhere }
  @media (prefers-color-scheme: dark) {
    body { color: #f2f4f7; background: #101418 }
    th, td { border-color: #344054 }
    tr.front td:first-child { color: #6cb2ff }
    td.why { color: #fda29b }
  }
</style>
)";

}  // namespace

std::string plot_svg(const std::vector<Point>& points, const PlotOptions& options) {
  return Picture(points, options).draw();
}

std::string plot_html(const std::vector<Point>& points, const PlotOptions& options) {
  std::vector<const Point*> sorted;
  for (const Point& p : points) sorted.push_back(&p);
  std::ranges::stable_sort(sorted, {}, [](const Point* p) { return std::pair(!p->measured, p->step_seconds); });
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>" +
      escaped_markup(options.title) + "</title>\n" + std::string(kPage) + "</head>\n<body>\n" +
      plot_svg(points, options);
  out += "<table>\n<tr><th>point</th><th class=\"n\">step</th><th class=\"n\">peak</th><th></th></tr>\n";
  for (const Point* p : sorted) {
    out += std::string("<tr") + (p->on_front ? " class=\"front\"" : "") + "><td>" + escaped_markup(p->name()) + "</td>";
    if (p->measured)
      out += "<td class=\"n\">" + human_time(p->step_seconds) + "</td><td class=\"n\">" + human_bytes(p->peak_bytes) +
             "</td><td>" + (p->on_front ? "front" : "") + "</td></tr>\n";
    else
      out +=
          "<td class=\"why\" colspan=\"3\">" + escaped_markup(p->failure ? p->failure->message : "") + "</td></tr>\n";
  }
  return out + "</table>\n</body>\n</html>\n";
}

}  // namespace sg::sweep
