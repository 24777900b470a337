#include "librun/session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "libgraph/expr/input_sizes.h"
#include "librun/check/dump.h"
#include "librun/check/value_choice.h"
#include "librun/comm/watchdog.h"
#include "librun/execute/bit_casts.h"
#include "librun/execute/even_rows.h"
#include "librun/rank_session.h"
#include "librun/ranks.h"
#include "librun/values/data_name.h"

namespace sg {
namespace {

class Session {
 public:
  Session(const Job& job, std::span<const std::unique_ptr<Communicator>> comms, const SessionOptions& options)
      : job_(job), comms_(comms), options_(options), ranks_(comms.size()) {
    if (options.init_seed && options.compared_to) like_.emplace(*options.compared_to);
    if (options.init_seed) init_.emplace(job, like_ ? &*like_ : nullptr);
    for (const auto& comm : comms) {
      const Program* program = job.program_of(comm->rank());
      if (auto& alias = alias_[program]; !alias) alias = std::make_unique<AliasAnalysis>(*program, program->graph);
    }
  }

  Result<SessionReport> run() {
    std::optional<WatchdogThread> watchdog;
    try {
      if (options_.timeout_s > 0)
        watchdog.emplace(job_, pointers(), options_.timeout_s, [&](Error e) { end_stuck(std::move(e)); });
    } catch (const std::system_error&) {
      return Error{ErrorKind::missing,
                   "cannot start the watchdog thread",
                   {},
                   "see ulimit -u and -v; --timeout 0 runs without it"};
    }
    Status status = run_ranks(
        comms_, [&](Communicator& comm) { return run_rank(comm); },
        [&](Communicator& comm) {
          if (++returned_ == comms_.size()) finished_ = true;
          if (auto& rank = session_of(comm)) rank->end_run();
        });
    finished_ = true;
    if (!status.ok()) return std::move(status.error());
    report_.first_step = options_.first_step;
    std::vector<const Profile*> profiles;
    for (const auto& rank : ranks_) {
      report_.ranks.push_back(std::move(rank->report()));
      report_.written.add(rank->take_files());
      if (rank->profile()) profiles.push_back(rank->profile());
    }
    if (!profiles.empty()) report_.profile = profile_json(profiles);
    return std::move(report_);
  }

 private:
  std::unique_ptr<RankSession>& session_of(const Communicator& comm) {
    auto at = std::ranges::find(comms_, &comm, &std::unique_ptr<Communicator>::get);
    return ranks_[static_cast<size_t>(at - comms_.begin())];
  }

  Status run_rank(Communicator& comm) {
    std::unique_ptr<RankSession>& rank = session_of(comm);
    rank = std::make_unique<RankSession>(job_, comm, *alias_.at(job_.program_of(comm.rank())), options_,
                                         init_ ? &*init_ : nullptr, start_);
    SG_TRY(rank->prepare());
    SG_TRY(comm.exchange("ready"));
    if (options_.inputs_known) SG_TRY(options_.inputs_known());
    comm.heartbeat().enter(Heartbeat::running);
    for (uint64_t i = 0; i < options_.steps; ++i) {
      const uint64_t step = options_.first_step + i;
      if (Status status = rank->run_step(step); !status.ok()) {
        if (status.error().kind == ErrorKind::negative) SG_TRY(rank->keep_dump());
        return status;
      }
      note_time(comm, i, rank->last_seconds());
    }
    comm.heartbeat().enter(Heartbeat::idle);
    SG_TRY(rank->write_dump());
    SG_TRY(comm.exchange("written"));
    rank->note_results();
    return ok_status();
  }

  std::vector<Communicator*> pointers() const {
    std::vector<Communicator*> out;
    for (const auto& comm : comms_) out.push_back(comm.get());
    return out;
  }

  // Runs in the watchdog's thread: tells the ranks to stop, and ends the process if one does not.
  void end_stuck(Error error) {
    for (const auto& comm : comms_) comm->abort(error);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    if (finished_) return;
    if (options_.last_words && comms_[0]->speaks_of_failure()) options_.last_words(error);
    remove_pending_outputs();
    for (const auto& comm : comms_) comm->end_all(static_cast<int>(error.kind));
    std::_Exit(static_cast<int>(error.kind));
  }

  void note_time(Communicator& comm, uint64_t i, double seconds) {
    std::lock_guard guard(lock_);
    if (report_.step_seconds.size() <= i) report_.step_seconds.resize(i + 1);
    report_.step_seconds[i] = std::max(report_.step_seconds[i], seconds);
    if (&comm == comms_[0].get() && options_.progress) options_.progress(options_.first_step + i, seconds);
  }

  const Job& job_;
  std::span<const std::unique_ptr<Communicator>> comms_;
  const SessionOptions& options_;
  Profile::Clock::time_point start_ = Profile::Clock::now();
  std::vector<std::unique_ptr<RankSession>> ranks_;
  std::optional<InitPlan> like_, init_;
  // Created before ranks run concurrently, because it may add expressions to the pool that all share.
  std::map<const Program*, std::unique_ptr<AliasAnalysis>> alias_;
  std::atomic<size_t> returned_{0};  // number of ranks that have
  std::atomic<bool> finished_{false};
  std::mutex lock_;
  SessionReport report_;
};

}  // namespace

bool SessionReport::passed() const {
  return std::ranges::all_of(ranks, [](const RankReport& r) {
    return std::ranges::all_of(r.expected, [](const auto& e) { return e.second.passed(); });
  });
}

namespace {

// Checks file names before anything is read.
Status check_names(const Job& job, size_t ranks_here, const SessionOptions& options) {
  SG_TRY(check_output_pattern(options.outputs, options.outputs.empty() ? 1 : job.world, 1, "--outputs"));
  SG_TRY(check_output_pattern(options.dump_inputs, options.dump_inputs.empty() ? 1 : job.world, 1, "--dump-inputs"));
  SG_TRY(check_output_pattern(options.dump_state, options.dump_state.empty() ? 1 : job.world, 1, "--dump-state"));
  SG_TRY(check_output_pattern(options.dump, options.dump.empty() ? 1 : job.world, 1, "--dump-nodes"));
  if (ranks_here != job.world) return ok_status();  // other ranks' files are on their machines
  for (const std::string& inputs : options.inputs) SG_TRY(check_input_files(inputs, job.world, "--inputs"));
  SG_TRY(check_input_files(options.state, job.world, "--state"));
  return check_input_files(options.expect, job.world, "--expect");
}

}  // namespace

Result<SessionReport> run_session(const Job& job, std::span<const std::unique_ptr<Communicator>> comms,
                                  const SessionOptions& options) {
  SG_TRY(check_names(job, comms.size(), options));
  SG_TRY(check_bindings(job, options.bindings));
  if (!options.dump.empty()) SG_TRY(check_dump_patterns(job, options.dump_names));
  std::unique_ptr<Job> copied;
  if (options.rank.numerics == Numerics::f64) {
    SG_ASSIGN(copied, with_copied_bits(job));
  } else if (options.rank.backends) {
    copied = with_even_rows(job);
  }
  SessionOptions of_job = options;
  of_job.rank.sum_order = options.sum_order ? *options.sum_order : sum_order_of(job);
  return Session(copied ? *copied : job, comms, of_job).run();
}

}  // namespace sg
