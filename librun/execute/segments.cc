#include "librun/execute/segments.h"

namespace sg {

const char* split_text(Split why) {
  switch (why) {
    case Split::none: return "nothing";
    case Split::collective: return "collectives";
    case Split::copy: return "copies to the host and back";
    case Split::body: return "calls of bodies";
    case Split::number: return "numbers for the host";
    case Split::data: return "numbers and sizes that the data decides";
    case Split::host: return "ops for which the host takes part";
  }
  return "?";
}

std::vector<Segment> plan_segments(std::span<const Split> items, size_t least) {
  std::vector<Segment> out;
  for (size_t first = 0; first < items.size();) {
    size_t end = first;
    while (end < items.size() && items[end] == Split::none) ++end;
    if (end - first >= least && end > first) out.push_back({first, end - first});
    first = end + 1;
  }
  return out;
}

}  // namespace sg
