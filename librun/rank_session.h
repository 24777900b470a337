// One rank's share of a session, in that rank's thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "librun/initialize.h"
#include "librun/inputs.h"
#include "librun/profile.h"
#include "librun/session.h"
#include "librun/watch.h"

namespace sg {

class RankSession {
 public:
  // `init`: null = every input is given.
  RankSession(const Job& job, Communicator& comm, const AliasAnalysis& alias, const SessionOptions& options,
              const InitPlan* init, Profile::Clock::time_point start);

  // Inputs, sizes, plan, memory. Nothing has run when it fails.
  Status prepare();
  // One step; then its expectations are met or not, and its files lie beside their names.
  Status run_step(uint64_t step);
  double last_seconds() const { return seconds_; }
  Status write_dump();
  // What --dump-nodes has kept so far, when --watch ends the run: of this rank alone.
  Status keep_dump();
  // Gives what was written its name. REQUIRES: all ranks have written theirs
  Status rename_files();
  void remove_files();

  RankReport& report() { return report_; }
  const Profile* profile() const { return profile_ ? &*profile_ : nullptr; }

 private:
  Status add_observers();
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
  void note_memory();
  std::vector<std::string> explain() const;
  bool is_due(const std::string& pattern, uint64_t step) const;
  ExpectOptions tolerance() const;

  const Job& job_;
  Communicator& comm_;
  const SessionOptions& options_;
  const InitPlan* init_;
  RankRun run_;
  const AliasAnalysis& alias_;  // of its program
  RunValues values_;
  std::optional<InputSet> inputs_;
  ObserverList observers_;
  std::optional<Watch> watch_;
  std::optional<Dump> dump_;
  std::optional<Optimizer> optimizer_, recorded_optimizer_;  // the second where the graph runs twice (Numerics::f64)
  std::optional<Profile> profile_;
  std::optional<Comparison> comparison_;
  RankReport report_;
  double seconds_ = 0;
  std::vector<OutputFile> written_;  // not yet in their places
};

}  // namespace sg
