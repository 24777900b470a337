// ProgramTarget: one program's decisions and their planned peaks. Internal to sg-remat --budget and --peak.
//
// What      The lowest peak that is found, decisions for a given peak, and what the policies recompute.
// Peaks     are those of the memory plan, which takes longer than the model and may need more (RematModel). Programs
//           with equal nodes follow it; where they take other results of these, the largest of their plans counts.
#pragma once

#include <optional>
#include <vector>

#include "libpasses/remat/remat_choose.h"
#include "libpasses/remat/remat_target.h"

namespace sg {

struct RematPlanned {
  RematDecision decision;
  int64_t bytes = 0;
};

class ProgramTarget {
 public:
  ProgramTarget(const TargetQuestion& asked, size_t which, RematPart* part);

  // Another program with equal nodes.
  void add_follower(size_t which, const RematPart* part);

  RematPart& part() { return part_; }
  // Nothing is recomputed.
  int64_t original_peak();
  RematPlanned original() { return {chooser_.none().decision, original_peak()}; }
  // The lowest of what the search for it, what that met on its way, the policies, and searches for lower and lower
  // peaks find.
  const RematPlanned& least();
  bool knows_least() const { return least_.has_value(); }
  // None: nothing that was found fits.
  std::optional<RematPlanned> search(int64_t target) { return search(target, {}); }
  std::optional<RematPlanned> search_briefly(int64_t target);
  // What the search for the lowest peak met: the lowest, what policies decide, and where descents ended.
  std::vector<RematDecision> met_on_the_way();
  // What a policy alone decides (RematPart::rules).
  const RematDecision& by_rule(size_t rule);

  // The arena under the decision, by the memory plan instead of the model. Beyond `most` it is only some number beyond.
  int64_t plan(const RematDecision& decision, int64_t most = INT64_MAX);
  // No plan of the decision needs less.
  int64_t least_plan(const RematDecision& decision) {
    return part_.model->is_exact() ? part_.model->weigh(decision).peak_bytes : 0;
  }

  // Searches for lower and lower peaks: `lowest` says which has to be undercut, `takes` whether a decision does. Ends
  // when nothing is found or after some work.
  using Takes = std::function<bool(RematPlanned)>;
  void search_lower(const std::function<int64_t()>& lowest, const Takes& takes);

  // That `bytes` are the lowest that were found.
  MissedTarget missed(int64_t target, int64_t bytes) const;

 private:
  // Node visits of the model.
  struct WorkLimit {
    size_t each = SIZE_MAX;  // of a question to the chooser
    size_t all = SIZE_MAX;   // no further question is asked after so many
  };
  std::optional<RematPlanned> search(int64_t target, WorkLimit limit);
  void recompute_less_at_least();
  bool take_as_least(RematDecision decision, int64_t most_bytes);
  const Program& program() const { return *asked_.job.programs[which_]; }
  int64_t plan_anew(size_t which, const RematPart& part, const RematDecision& decision) const;

  // A decision, and the largest plan of the program and of so many of its followers.
  struct Planned {
    RematDecision decision;
    int64_t bytes = 0;
    size_t followers = 0;
  };
  struct Follower {
    size_t which;
    const RematPart* part;
  };

  const TargetQuestion& asked_;
  size_t which_;
  RematPart& part_;
  RematChooser chooser_;
  RematBound bound_;
  std::optional<RematPlanned> least_;
  std::vector<std::optional<RematDecision>> by_rules_;
  std::vector<Follower> followers_;  // that take other results of the nodes, one of each kind
  std::vector<Planned> plans_;       // searches for one peak and another often find the same decision
};

}  // namespace sg
