// RematChooser: chooses values to recompute so that a graph fits into a peak, at the lowest cost it can find. Internal
// to sg-remat.
//
// What      A choice is made per unit: a piece of memory that the forward allocates; views and waits follow it.
// Few units All choices are tried, if the work limit allows.
// Many      Cuts: for a given price of recomputing, the cheapest set of values to keep is a minimum cut of the graph;
//           keeping has a price only for values that are live at a moment above the target. The price is raised as far
//           as the peak fits. Slack below the target is then used to keep the most expensive values (a knapsack
//           problem): first whole kinds of values (the same place in every layer), then single ones. Each step is
//           checked against the model's peak, never against a sum of sizes.
// Layers    Values that cross into a later layer are kept, so that each layer is recomputed independently. If that is
//           too much, only those of every second, third, ... layer are kept; the others are recomputed from there,
//           layer by layer, and the inside of each layer once more for its own backward.
// Least     Found by trying, kind by kind, whether keeping or recomputing lowers the peak: keeping one value in the
//           middle of a layer may halve what the layer needs at once; recomputing one twice may free it between two
//           uses. Then by changing what lives at the peak, since nothing else can lower it: values one by one, those
//           that cross layers too, alone or with what they are computed from; some changes may raise the peak before
//           the next lowers it. This starts also from keeping all, recomputing all, and a fixed sequence of choices.
// Work      is counted in node visits of the model, and limits the search: equal inputs give equal choices on every
//           machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "libpasses/remat/remat_model.h"

namespace sg {

// The question about a graph.
struct RematSearch {
  std::vector<uint8_t> allowed;                   // by position: may be recomputed
  std::vector<uint8_t> crossing;                  // by position, or empty: may be too, and crosses into a later layer
  std::vector<std::vector<uint8_t>> starts = {};  // by position: what policies would recompute, as starting points
  size_t work = 0;                                // node visits of the model, for each of `least` and `fit`
  bool by_tags_alone = false;                     // only decisions that tags can express: nothing is recomputed twice
  size_t threads = 1;                             // does not affect the choice
  size_t few_units = 14;                          // with at most so many, all choices are tried
};

struct RematChoice {
  RematDecision decision;
  int64_t peak_bytes = 0;  // by the model
  double cost = 0;
};

class RematChooser {
 public:
  RematChooser(RematModel* model, RematSearch search);

  RematChoice none();
  const RematChoice& least();  // the lowest peak found; among equals, the cheapest
  // None = not found. `most_work`: for a brief search, less than that of RematSearch.
  std::optional<RematChoice> fit(int64_t peak_bytes, size_t most_work = SIZE_MAX);
  // What was found on the way to the lowest peak, the lowest first.
  const std::vector<RematChoice>& nearly_least() { return wide().ends_; }
  // The decision without recomputing views of memory that is kept: that would buy nothing.
  RematDecision without_idle_views(RematDecision decision) const;
  // Keeps values after all, costly ones first, as long as the model's peak is at most `peak_bytes` and `takes` agrees.
  using Takes = std::function<bool(const RematDecision&)>;
  void recompute_less(RematDecision decision, int64_t peak_bytes, const Takes& takes);
  size_t work_done() const { return work_done_ + (wide_ ? wide_->work_done_ : 0); }

  // The decision with some kinds of values kept after all, where that lowers the peak: a layer needs less memory while
  // it is recomputed if part of it is already there. At most a few dozen runs of the model.
  RematDecision ease(RematDecision decision);

 private:
  struct Unit {
    uint32_t at = 0;                  // the node that allocates the memory
    std::vector<uint32_t> followers;  // views of it, and waits
  };

  enum class Fate : uint8_t { kept, recomputed };
  static Fate other(Fate fate) { return fate == Fate::kept ? Fate::recomputed : Fate::kept; }

  void find_units();
  bool take_crossing();
  void find_kinds();
  void spend(size_t visits) {
    work_ -= std::min(work_, visits);
    work_done_ += visits;
  }
  bool affords(size_t runs) const { return work_ >= runs * (model_.size() + 1); }
  RematChoice weigh(RematDecision decision);
  static bool is_better(const RematChoice& a, const RematChoice& b, int64_t target);
  void set(RematDecision* decision, uint32_t unit, Fate fate) const { set(decision, std::span(&unit, 1), fate); }
  void set(RematDecision* decision, std::span<const uint32_t> units, Fate fate) const;
  Fate fate_of(const RematDecision& decision, uint32_t unit) const {
    return decision.recompute[units_[unit].at] ? Fate::recomputed : Fate::kept;
  }

  // few units
  bool try_all();
  RematChoice best_of_all(int64_t target) const;
  RematDecision of_bits(uint64_t bits) const;  // by unit; the bits repeat beyond 64

  // many: remat_cut.cc
  RematDecision cut(double price, int64_t target);
  void cut_to(int64_t target, std::optional<RematChoice>* best);

  // many: remat_search.cc
  std::vector<uint32_t> recomputed_of(const RematDecision& decision, const std::vector<uint32_t>& units) const;
  RematChoice with(const RematChoice& start, std::span<const uint32_t> units, Fate fate);
  double cost_with(const RematChoice& start, std::span<const uint32_t> units, Fate fate);
  bool take_if_better(RematChoice* best, RematChoice choice, int64_t target) const;
  std::vector<uint32_t> largest_kinds() const;
  RematChoice lower(RematChoice best);
  RematChoice give_back(RematChoice best, int64_t target);
  RematChoice give_back_part(const RematChoice& start, const std::vector<uint32_t>& members, int64_t target);
  RematChoice exchange(RematChoice best, int64_t target);
  RematChoice renew(RematChoice best, int64_t target);
  std::vector<uint8_t> copied_near(const RematOutcome& outcome) const;
  std::vector<int64_t> peaks_without(const RematDecision& decision, const std::vector<uint32_t>& kinds);

  // many: remat_descend.cc
  struct Move;
  RematChoice descend(RematChoice best, int64_t target);
  RematChoice descend_briefly(RematChoice best);
  bool take_lower_at_peak(RematChoice* best, int64_t target);
  std::vector<Move> moves_at_peak(const RematChoice& from, const std::vector<uint8_t>& moved);
  Move with_sources(uint32_t unit, const RematChoice& from, const std::vector<uint8_t>& is_at_peak,
                    std::vector<uint32_t>* reached_from) const;
  Move users_of(uint32_t unit, const RematChoice& from) const;
  void find_users();
  RematChoice descend_from_starts(RematChoice best);
  RematChooser& wide();

  // layers: remat_thin.cc
  void find_layers();
  RematChoice thinned(const RematChoice& start, uint32_t keep_every);
  RematChoice thin(RematChoice best, int64_t target);

  // A layer with values that cross into later ones.
  struct Layer {
    std::vector<uint32_t> crossing, inside;  // positions
    uint32_t begin = RematModel::kNone;      // the first node after the forward that pulls from `inside`
  };

  RematModel& model_;
  RematSearch search_;
  size_t work_;  // what is left
  size_t work_done_ = 0;
  std::vector<Layer> layers_;                 // in the order of the forward; filled on first use
  std::vector<Unit> units_;                   // those that anything pulls
  std::vector<std::vector<uint32_t>> kinds_;  // units in the same place of different layers
  std::vector<uint8_t> pulled_;               // by position: copied if everything is recomputed
  std::vector<uint32_t> unit_at_;             // by position of the node that allocates; kNone = no unit
  std::vector<int64_t> live_bytes_;           // of the original graph
  std::vector<std::vector<uint32_t>> users_;  // by unit; filled on first use
  std::vector<RematChoice> ends_;             // of descents
  std::unique_ptr<RematChooser> wide_;        // where values that cross into later layers are units too
  std::optional<RematChoice> least_;
  std::optional<RematChoice> by_layers_;         // the lowest with all crossing values kept
  std::vector<std::pair<int64_t, double>> all_;  // peak and cost by bits, if all were tried
};

}  // namespace sg
