// Live memory: bytes per node, and each piece with its lifetime.
#include "libgraph/plan/liveness.h"
#include "libgraph/view/view_columns.h"

namespace sg {

void write_memory(JsonWriter* json, const ViewGraph& view, const SizeValues& values) {
  Liveness live = compute_liveness(*view.program, *view.graph, values);
  std::vector<const LiveStorage*> pieces;
  for (const LiveStorage& s : live.storages)
    if (s.bytes > 0 && !s.is_host) pieces.push_back(&s);
  json->key("memory").begin_object();
  json->member("peak_bytes", live.lower_bound_bytes).member("peak_at", live.peak_position);
  json->member("input_bytes", live.input_bytes).member("unknown", live.unknown_sizes);
  write_column(json, "live", live.live_bytes.size(), [&](size_t i) { return live.live_bytes[i]; });
  write_column(json, "owner", pieces.size(), [&](size_t i) { return view.maker_of(pieces[i]->owner); });
  write_column(json, "first", pieces.size(), [&](size_t i) { return pieces[i]->first_position; });
  write_column(json, "last", pieces.size(), [&](size_t i) { return pieces[i]->last_position; });
  write_column(json, "bytes", pieces.size(), [&](size_t i) { return pieces[i]->bytes; });
  write_column(json, "in_place", pieces.size(), [&](size_t i) { return pieces[i]->takes_over.is_none() ? 0 : 1; });
  json->end_object();
}

}  // namespace sg
