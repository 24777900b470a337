// Minimum cuts: which values to keep so that everything the backward needs can be computed from them.
#include <algorithm>
#include <cmath>
#include <utility>

#include "libpasses/min_cut.h"
#include "libpasses/remat/remat_choose.h"

namespace sg {
namespace {

constexpr int kPrices = 8;  // number of cuts in the search for the price
constexpr double kLowestPrice = 1.0 / 4096, kHighestPrice = 64;
constexpr double kScale = 16;  // capacities are integers

// By position: the first later node that runs above the target.
std::vector<uint32_t> next_above(const std::vector<int64_t>& live_bytes, int64_t target) {
  std::vector<uint32_t> out(live_bytes.size() + 1, RematModel::kNone);
  for (size_t at = live_bytes.size(); at-- > 0;)
    out[at] = live_bytes[at] > target ? static_cast<uint32_t>(at) : out[at + 1];
  return out;
}

}  // namespace

// Each node is two vertices joined by an edge with the cost of keeping it. Beyond the cut lies what is recomputed (its
// cost is the edge from the source) and what needs it.
class RematCut {
 public:
  RematCut(const RematModel& model, const std::vector<uint8_t>& pulled, const std::vector<int64_t>& live_bytes,
           int64_t target)
      : model_(model), pulled_(pulled), above_(next_above(live_bytes, target)) {}

  std::vector<uint8_t> find(double price) {
    MinCut net(2 * model_.size() + 2);
    const uint32_t source = 2 * model_.size(), sink = source + 1;
    std::vector<uint8_t> entered(model_.size(), 0);
    auto enter = [&](uint32_t at) {
      if (std::exchange(entered[at], 1)) return;
      const double redo = pulled_[at] ? price * model_.node_cost(at) * kScale + 1 : 0;
      net.add_edge(source, 2 * at, pulled_[at] ? static_cast<int64_t>(std::min(redo, 0x1p60)) : MinCut::kInfinite);
      net.add_edge(2 * at, 2 * at + 1, 1 + keeping(at));
    };
    for (uint32_t at = 0; at < model_.size(); ++at) {
      if (model_.is_forward(at) && !pulled_[at]) continue;
      const uint32_t to = model_.is_forward(at) ? 2 * at : sink;
      model_.for_each_source(at, [&](uint32_t from) {
        if (!model_.is_forward(from)) return;
        enter(from);
        net.add_edge(2 * from + 1, to, MinCut::kInfinite);
      });
      if (pulled_[at]) enter(at);
    }
    net.run(source, sink);
    std::vector<uint8_t> recomputed(model_.size(), 0);
    for (uint32_t at = 0; at < model_.size(); ++at) recomputed[at] = pulled_[at] && net.is_behind(2 * at);
    // Keeping a view keeps the memory it views.
    for (uint32_t at = 0; at < model_.size(); ++at)
      if (const uint32_t maker = model_.maker(at);
          pulled_[at] && maker != RematModel::kNone && net.is_behind(2 * at + 1) && !net.is_behind(2 * at))
        recomputed[maker] = 0;
    return recomputed;
  }

 private:
  // Keeping costs nothing for values that are live at no moment above the target, and for those that stay anyway.
  int64_t keeping(uint32_t at) const {
    const uint32_t maker = model_.maker(at);
    if (maker == RematModel::kNone || model_.is_output(maker) ||
        (!pulled_[maker] && model_.first_later_use(maker) != RematModel::kNone))
      return 0;
    const uint32_t from = model_.last_forward_use(maker) == RematModel::kNone ? maker : model_.last_forward_use(maker);
    const uint32_t until = model_.first_later_use(maker);
    if (above_[from + 1] >= until && until != RematModel::kNone) return 0;
    return static_cast<int64_t>(static_cast<double>(model_.made_bytes(maker)) * kScale);
  }

  const RematModel& model_;
  const std::vector<uint8_t>& pulled_;
  std::vector<uint32_t> above_;
};

RematDecision RematChooser::cut(double price, int64_t target) {
  if (live_bytes_.empty()) live_bytes_ = model_.simulate(of_bits(0)).live_bytes;
  spend(10 * model_.size());
  const std::vector<uint8_t> recomputed = RematCut(model_, pulled_, live_bytes_, target).find(price);
  RematDecision out = of_bits(0);
  for (uint32_t u = 0; u < units_.size(); ++u)
    if (recomputed[units_[u].at]) set(&out, u, Fate::recomputed);
  return out;
}

// Searches for the highest price of recomputing at which the graph fits; at price 0 everything that helps is
// recomputed.
void RematChooser::cut_to(int64_t target, std::optional<RematChoice>* best) {
  auto fits = [&](double price) {
    RematChoice choice = weigh(cut(price, target));
    const bool does = choice.peak_bytes <= target;
    if (does && (!*best || is_better(choice, **best, target))) *best = std::move(choice);
    return does;
  };
  if (!fits(0)) return;
  double low = std::log2(kLowestPrice), high = std::log2(kHighestPrice);
  for (int i = 0; i < kPrices && affords(20); ++i) {
    const double middle = (low + high) / 2;
    (fits(std::exp2(middle)) ? low : high) = middle;
  }
}

}  // namespace sg
