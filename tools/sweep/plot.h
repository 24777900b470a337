// Time against peak, as a picture: the points, the front as a line of steps, the limit. SVG alone, or an HTML page with
// the table below it; both need no network.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/sweep/point.h"

namespace sg::sweep {

struct PlotOptions {
  std::string title;  // the recipe
  std::string about;  // how points were scored
  std::optional<double> limit_bytes;
};

std::string plot_svg(const std::vector<Point>& points, const PlotOptions& options);
std::string plot_html(const std::vector<Point>& points, const PlotOptions& options);

}  // namespace sg::sweep
