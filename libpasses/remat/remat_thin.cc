// Chains of layers: keeps the values that cross layer boundaries only at every n-th layer.
#include <algorithm>
#include <map>

#include "libpasses/layers.h"
#include "libpasses/remat/remat_choose.h"

namespace sg {
namespace {

constexpr int64_t kLeastWin = 50;  // gaining less than a fiftieth of the peak does not justify recomputing more layers

}  // namespace

void RematChooser::find_layers() {
  if (!layers_.empty() || search_.crossing.empty()) return;
  const Layers names(model_.graph());
  auto layer_at = [&](uint32_t at) { return names.of(model_.graph(), model_.node(at)); };
  std::map<int32_t, Layer> by_number;
  for (uint32_t at = 0; at < model_.size(); ++at)
    if (search_.crossing[at]) by_number[layer_at(at)].crossing.push_back(at);
  std::vector<uint32_t> begin(model_.size(), RematModel::kNone);
  for (const RematCopy& copy : model_.place({search_.allowed, {}}).copies)
    if (begin[copy.node] == RematModel::kNone) begin[copy.node] = copy.before;
  for (uint32_t at = 0; at < model_.size(); ++at) {
    if (!search_.allowed[at]) continue;
    const auto it = by_number.find(layer_at(at));
    if (it == by_number.end()) continue;
    it->second.inside.push_back(at);
    it->second.begin = std::min(it->second.begin, begin[at]);
  }
  for (auto& [number, layer] : by_number) layers_.push_back(std::move(layer));
  std::ranges::sort(layers_, {}, [](const Layer& layer) { return layer.crossing.front(); });
}

// Keeps what leaves a layer if the layer's index is a multiple of `keep_every`. The inside of other layers is computed
// twice more: on the way to later layers, and when the layer's own backward begins.
RematChoice RematChooser::thinned(const RematChoice& start, uint32_t keep_every) {
  RematDecision decision = start.decision;
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    if (i % keep_every == 0 || layer.begin == RematModel::kNone) continue;
    for (uint32_t at : layer.crossing) decision.recompute[at] = 1;
    for (uint32_t at : layer.inside) {
      if (!pulled_[at]) decision.recompute[at] = 1;  // needed only by the next layers
      else if (decision.recompute[at]) decision.renew.push_back({at, layer.begin});
    }
  }
  std::ranges::stable_sort(decision.renew, {}, &RematCopy::before);
  return weigh(std::move(decision));
}

// Tries distances: at the best one, the memory kept is about that of what is recomputed at once.
RematChoice RematChooser::thin(RematChoice best, int64_t target) {
  find_layers();
  const RematChoice start = best;
  for (uint32_t keep_every = 2; keep_every < 2 * layers_.size() && affords(2); keep_every += keep_every / 2) {
    RematChoice choice = thinned(start, std::min(keep_every, static_cast<uint32_t>(layers_.size())));
    const bool fits = choice.peak_bytes <= target,
               wins = choice.peak_bytes < start.peak_bytes - start.peak_bytes / kLeastWin;
    if (fits || wins) take_if_better(&best, std::move(choice), target);
    if (fits) break;  // farther apart costs more
  }
  return best;
}

}  // namespace sg
