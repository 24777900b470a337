// RematChooser: which values to recompute so that a graph fits into a peak, at the least cost that it can find.
// Internal to sg-remat.
//
// What      A choice is about pieces of memory that the forward makes (units); views and waits follow them.
// Few units all choices are tried, where that is no more work than allowed.
// Many      Where to cut: for a price of recomputing, the cheapest set of values to keep is a minimum cut of the graph; only
//           values that live through a moment above the target have a price for being kept. The price is then lowered
//           until the peak fits. What is left below the target is given back, dearest values first (the knapsack), whole
//           kinds of values first (the same place in every layer) and then single ones. Each step is held against the model's
//           peak, never against a sum of sizes.
// Least     By trying, kind by kind, whether keeping or recomputing lowers the peak: keeping one value in the middle of a
//           layer may halve what the layer needs at once; computing one twice may spare it between two uses.
// Work      is counted in node visits of the model and ends the search; equal input, equal choices on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "libpasses/remat_model.h"

namespace sg {

struct RematChoice {
  RematDecision decision;
  int64_t peak_bytes = 0;         // of the model
  double cost = 0;
};

class RematChooser {
 public:
  // `allowed`, by position: what may be recomputed. `work`: node visits of the model for each of `least` and `fit`.
  RematChooser(RematModel* model, std::vector<uint8_t> allowed, size_t work, size_t few_units = 14);

  size_t work_left() const { return work_; }
  RematChoice none();
  const RematChoice& least();                              // the lowest peak that was found; of those, the cheapest
  std::optional<RematChoice> fit(int64_t peak_bytes);      // none = it is below that of `least`

  // A decision with some kinds of values kept after all, where that lowers the peak: what a layer needs at once while it
  // is computed again is less when some of it need not be computed. At most a few dozen runs of the model.
  RematDecision ease(RematDecision decision);

 private:
  struct Unit {
    uint32_t at = 0;                                       // the node that makes the memory
    std::vector<uint32_t> followers;                       // views of it, and waits
  };

  void find_units();
  void find_kinds();
  bool affords(size_t runs) const { return work_ >= runs * (model_.size() + 1); }
  RematChoice weigh(RematDecision decision);
  static bool is_better(const RematChoice& a, const RematChoice& b, int64_t target);
  void set(RematDecision* decision, uint32_t unit, bool on) const;
  bool is_on(const RematDecision& decision, uint32_t unit) const { return decision.recompute[units_[unit].at]; }

  void try_starts(RematChoice* best);

  // few units
  bool try_all();
  RematChoice best_of_all(int64_t target) const;
  RematDecision of_bits(uint64_t bits) const;

  // many: remat_cut.cc
  RematDecision cut(double price, int64_t target);
  void cut_to(int64_t target, std::optional<RematChoice>* best);

  // many: remat_search.cc
  RematChoice with(const RematChoice& start, std::span<const uint32_t> units, bool on);
  bool take_if_better(RematChoice* best, RematChoice choice, int64_t target) const;
  std::vector<uint32_t> largest_kinds() const;
  RematChoice lower(RematChoice best);
  RematChoice give_back(RematChoice best, int64_t target);
  RematChoice give_back_part(const RematChoice& start, const std::vector<uint32_t>& members, int64_t target);
  RematChoice exchange(RematChoice best, int64_t target);
  RematChoice renew(RematChoice best, int64_t target);
  std::vector<uint8_t> copied_near(const RematOutcome& outcome) const;

  RematModel& model_;
  std::vector<uint8_t> allowed_;
  size_t work_, most_work_;                                // left, and of each question
  size_t few_units_;                                       // of which all choices are tried
  std::vector<Unit> units_;                                // those that anything pulls
  std::vector<std::vector<uint32_t>> kinds_;               // units in the same place of different layers
  std::vector<uint8_t> pulled_;                            // by position: copied when all is recomputed
  std::vector<int64_t> live_bytes_;                        // of the graph as it is
  std::optional<RematChoice> least_;
  std::vector<std::pair<int64_t, double>> all_;            // peak and cost by bits, when all were tried
};

}  // namespace sg
