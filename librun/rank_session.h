// One rank's part of a session, in that rank's thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "librun/check/compare.h"
#include "librun/check/dump.h"
#include "librun/check/observer_list.h"
#include "librun/check/watch.h"
#include "librun/optimizer/optimizer.h"
#include "librun/profile.h"
#include "librun/rank_run.h"
#include "librun/session.h"
#include "librun/values/initialize.h"
#include "librun/values/inputs.h"

namespace sg {

class RankSession {
 public:
  // `init`: null = all inputs are given.
  RankSession(const Job& job, Communicator& comm, const AliasAnalysis& alias, const SessionOptions& options,
              const InitPlan* init, Profile::Clock::time_point start);

  // Prepares inputs, sizes, plan and memory. If it fails, nothing has run.
  Status prepare();
  // Runs one step; then checks expectations, and writes files under temporary names.
  Status run_step(uint64_t step);
  double last_seconds() const { return seconds_; }
  Status write_dump();
  // The inputs, and the part of --dump-nodes collected so far, for when --watch ends the run: this rank's only.
  Status keep_dump();
  void note_results();  // in the report
  OutputSet take_files();
  // Gives up the device and its memory, which belong to the rank's thread. Nothing runs after it; the report stays.
  void end_run();

  RankReport& report() { return report_; }
  const Profile* profile() const { return profile_ ? &*profile_ : nullptr; }

 private:
  Status add_observers();
  Status make_optimizer();
  Status dump_inputs();
  Status dump_state();
  Status check_state() const;
  Status take_inputs();
  void say_what_runs_on_host() const;
  bool speaks() const;
  Status bind_sizes();
  Status require_memory_together();
  Status check_not_updated() const;
  std::string settings() const;
  Status reload_inputs(uint64_t step);
  Status answer(uint64_t step);
  Status begin_update();
  Status end_update();
  void note_loss();
  std::optional<double> number_of(ValueId v) const;  // none if it has several, or is complex
  void note_memory();
  std::vector<std::string> explain() const;
  uint64_t last_step() const { return options_.first_step + options_.steps - 1; }
  bool is_due(const std::string& pattern, uint64_t step) const;
  ExpectOptions tolerance() const;
  std::string recorded_roundings() const;
  int64_t count_tokens() const;

  const Job& job_;
  Communicator& comm_;
  const SessionOptions& options_;
  const InitPlan* init_;
  std::optional<RankRun> run_;  // until end_run
  const AliasAnalysis& alias_;  // of its own program
  RunValues values_;
  std::optional<InputSet> inputs_;
  ObserverList observers_;
  std::optional<Watch> watch_;
  std::optional<Dump> dump_;
  std::optional<Optimizer> optimizer_, recorded_optimizer_;  // the second if the graph runs twice (Numerics::f64)
  std::optional<Profile> profile_;
  std::optional<Comparison> comparison_;
  RankReport report_;
  double seconds_ = 0;
  OutputSet written_, dumped_inputs_;  // not yet under their final names
};

}  // namespace sg
