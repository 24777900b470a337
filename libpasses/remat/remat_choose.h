// RematChooser: which values to recompute so that a graph fits into a peak, at the least cost that it can find.
// Internal to sg-remat.
//
// What      A choice is about pieces of memory that the forward makes (units); views and waits follow them.
// Few units all choices are tried, where that is no more work than allowed.
// Many      Where to cut: for a price of recomputing, the cheapest set of values to keep is a minimum cut of the graph;
//           only values that live through a moment above the target have a price for being kept. The price is then
//           lowered until the peak fits. What is left below the target is given back, dearest values first (the
//           knapsack), whole kinds of values first (the same place in every layer) and then single ones. Each step is
//           held against the model's peak, never against a sum of sizes.
// Layers    What crosses into a later layer is kept, so that each layer is recomputed by itself. Where that is too
//           much, only every second, third, ... layer's is: the others' are computed again from there, layer by layer,
//           and what a layer has inside is then computed once more for its own backward.
// Least     By trying, kind by kind, whether keeping or recomputing lowers the peak: keeping one value in the middle of
//           a layer may halve what the layer needs at once; computing one twice may spare it between two uses.
// Work      is counted in node visits of the model and ends the search; equal input, equal choices on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "libpasses/remat/remat_model.h"

namespace sg {

// What is asked about a graph.
struct RematSearch {
  std::vector<uint8_t> allowed;              // by position: what may be recomputed
  std::vector<uint8_t> crossing;             // by position, or empty: what may be too, and crosses into a later layer
  std::vector<std::vector<uint8_t>> starts;  // by position: what policies would recompute, for the search to begin at
  size_t work = 0;                           // node visits of the model for each of `least` and `fit`
  bool by_tags_alone = false;  // a decision that tags can carry: nothing is computed twice behind the forward
  size_t threads = 1;          // any number chooses the same
  size_t few_units = 14;       // of so many all choices are tried
};

struct RematChoice {
  RematDecision decision;
  int64_t peak_bytes = 0;  // of the model
  double cost = 0;
};

class RematChooser {
 public:
  RematChooser(RematModel* model, RematSearch search);

  RematChoice none();
  const RematChoice& least();                          // the lowest peak that was found; of those, the cheapest
  std::optional<RematChoice> fit(int64_t peak_bytes);  // none = it is below that of `least`

  // A decision with some kinds of values kept after all, where that lowers the peak: what a layer needs at once while
  // it is computed again is less when some of it need not be computed. At most a few dozen runs of the model.
  RematDecision ease(RematDecision decision);

 private:
  struct Unit {
    uint32_t at = 0;                  // the node that makes the memory
    std::vector<uint32_t> followers;  // views of it, and waits
  };

  enum class Fate : uint8_t { kept, recomputed };
  static Fate other(Fate fate) { return fate == Fate::kept ? Fate::recomputed : Fate::kept; }

  void find_units();
  bool take_crossing();
  void find_kinds();
  bool affords(size_t runs) const { return work_ >= runs * (model_.size() + 1); }
  RematChoice weigh(RematDecision decision);
  static bool is_better(const RematChoice& a, const RematChoice& b, int64_t target);
  void set(RematDecision* decision, uint32_t unit, Fate fate) const;
  Fate fate_of(const RematDecision& decision, uint32_t unit) const {
    return decision.recompute[units_[unit].at] ? Fate::recomputed : Fate::kept;
  }

  void try_starts(RematChoice* best);

  // few units
  bool try_all();
  RematChoice best_of_all(int64_t target) const;
  RematDecision of_bits(uint64_t bits) const;  // by unit; beyond 64 they repeat

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

  // layers: remat_thin.cc
  void find_layers();
  RematChoice thinned(const RematChoice& start, uint32_t keep_every);
  RematChoice thin(RematChoice best, int64_t target);

  // A layer whose values cross into later ones.
  struct Layer {
    std::vector<uint32_t> crossing, inside;  // positions
    uint32_t begin = RematModel::kNone;      // the first node behind the forward that pulls what is inside
  };

  RematModel& model_;
  RematSearch search_;
  size_t work_;                               // left
  std::vector<Layer> layers_;                 // in the order of the forward; filled when they are asked for
  std::vector<Unit> units_;                   // those that anything pulls
  std::vector<std::vector<uint32_t>> kinds_;  // units in the same place of different layers
  std::vector<uint8_t> pulled_;               // by position: copied when all is recomputed
  std::vector<int64_t> live_bytes_;           // of the graph as it is
  std::optional<RematChoice> least_;
  std::optional<RematChoice> by_layers_;         // the lowest with all that crosses layers kept
  std::vector<std::pair<int64_t, double>> all_;  // peak and cost by bits, when all were tried
};

}  // namespace sg
