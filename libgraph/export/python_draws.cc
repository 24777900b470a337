#include "libgraph/export/python_draws.h"

#include <algorithm>

#include "libgraph/op.h"

namespace sg::python {
namespace {

// One draw: the nodes that perform it, in schedule order.
struct Draw {
  RandomInfo what;
  std::vector<NodeId> nodes;
  bool is_gone = true;  // the node that drew first is gone; only recomputed copies are left
  bool is_kept = false;
};

class Planner {
 public:
  explicit Planner(const Graph& graph) : graph_(graph) {}

  DrawPlan run() {
    for (NodeId n : graph_.nodes())
      if (draws_random(graph_, n) && graph_.meta(n).random.stream != 0) add(n);
    out_.count = static_cast<uint32_t>(draws_.size());
    for (uint32_t d = 0; d < draws_.size(); ++d)
      if (draws_[d].is_gone) gone_.push_back(d);
    std::ranges::stable_sort(gone_, {}, [&](uint32_t d) { return draws_[d].what.stream; });
    for (NodeId n : graph_.nodes())
      if (auto it = draw_of_.find(n); it != draw_of_.end()) visit(n, it->second);
    return std::move(out_);
  }

 private:
  void add(NodeId n) {
    const NodeMeta& meta = graph_.meta(n);
    std::vector<uint32_t>& same_stream = by_stream_[meta.random.stream];
    auto it = std::ranges::find_if(same_stream, [&](uint32_t d) { return draws_[d].what == meta.random; });
    if (it == same_stream.end()) {
      same_stream.push_back(static_cast<uint32_t>(draws_.size()));
      it = same_stream.end() - 1;
      draws_.push_back({meta.random, {}, true, false});
    }
    draws_[*it].nodes.push_back(n);
    draws_[*it].is_gone &= meta.copy.kind == CopyKind::remat;
    draw_of_[n] = *it;
  }

  void visit(NodeId n, uint32_t d) {
    Draw& draw = draws_[d];
    DrawPlan::Place place;
    place.draw = d;
    if (draw.nodes[0] == n) {
      while (next_gone_ < gone_.size() && draws_[gone_[next_gone_]].what.stream < draw.what.stream)
        skip(gone_[next_gone_++], &place);
      if (next_gone_ < gone_.size() && gone_[next_gone_] == d) ++next_gone_;
    }
    place.is_again = draw.is_kept;
    place.is_kept = !draw.is_kept && draw.nodes.size() > 1;
    draw.is_kept |= place.is_kept;
    if (place.is_again || place.is_kept || !place.skipped.empty()) out_.places.emplace(n, std::move(place));
  }

  void skip(uint32_t d, DrawPlan::Place* place) {
    place->skipped.push_back({draws_[d].nodes[0], d});
    draws_[d].is_kept = true;
  }

  const Graph& graph_;
  std::vector<Draw> draws_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> by_stream_;
  std::unordered_map<NodeId, uint32_t, IdHash> draw_of_;
  std::vector<uint32_t> gone_;  // draws that are gone, by stream
  size_t next_gone_ = 0;
  DrawPlan out_;
};

}  // namespace

DrawPlan plan_draws(const Graph& graph) { return Planner(graph).run(); }

}  // namespace sg::python
