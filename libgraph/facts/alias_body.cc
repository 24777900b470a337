#include "libgraph/facts/alias_body.h"

#include <algorithm>

namespace sg {
const BodySummary& BodySummaries::of(NestedId body) {
  static const BodySummary kOpaque = [] {
    BodySummary s;
    s.opaque = true;
    return s;
  }();
  if (body.index >= summaries_.size() || in_progress_[body.index]) return kOpaque;
  if (summaries_[body.index]) return *summaries_[body.index];
  if (depth_ >= kMaxDepth) return kOpaque;
  in_progress_[body.index] = true;
  ++depth_;
  summaries_[body.index] = summarize(program_.nested[body.index]->graph);
  --depth_;
  in_progress_[body.index] = false;
  return *summaries_[body.index];
}

std::unique_ptr<BodySummary> BodySummaries::summarize(const Graph& graph) {
  AliasAnalysis alias(program_, graph, options_, this);
  auto out = std::make_unique<BodySummary>();
  std::vector<uint8_t> written(alias.class_escapes_.size(), 0);  // by class
  for (NodeId n : graph.nodes()) {
    for (StorageId s : alias.writes(n)) written[alias.storage(s).alias_class] = 1;
    out->effects |= alias.effects(n);
    out->groups.insert(out->groups.end(), alias.groups(n).begin(), alias.groups(n).end());
    out->binds.insert(out->binds.end(), alias.binds(n).begin(), alias.binds(n).end());
  }
  sort_unique(&out->groups);
  sort_unique(&out->binds);
  auto place_of_value = [&](ValueId v) {
    BodySummary::Place place;
    place.storage = v ? alias.storage_of(v) : StorageId();
    if (place.storage.is_none()) return place;
    const Storage& s = alias.storage(place.storage);
    place.alias_class = s.alias_class;
    place.certain = s.certain;
    place.written = written[s.alias_class] != 0;
    return place;
  };
  for (const Input& input : graph.inputs()) {
    out->inputs.push_back(place_of_value(input.value));
    out->writes_inputs |= out->inputs.back().written;
  }
  for (const Output& output : graph.outputs()) out->results.push_back(place_of_value(output.value));
  return out;
}

}  // namespace sg
