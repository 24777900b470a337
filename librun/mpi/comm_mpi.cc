// The communicator of one process of an MPI job, and the plugin's entry point.
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "librun/comm/comm_match.h"
#include "librun/comm/comm_plugin.h"
#include "librun/comm/tickets.h"
#include "librun/mpi/host_memory.h"
#include "librun/mpi/operation.h"
#include "librun/mpi/start.h"

namespace sg {
namespace {

// How often a waiting rank polls before it yields its core, and how often before it sleeps.
constexpr int kSpins = 2000;
constexpr int kYields = 20000;
constexpr auto kNap = std::chrono::microseconds(100);
// Measured by the clock instead of by tries: if many processes share a core, a yield may take arbitrarily long.
using Clock = std::chrono::steady_clock;
constexpr auto kDescribeAgain = std::chrono::milliseconds(100);
constexpr int kClockEvery = 64;                  // tries
constexpr std::chrono::seconds kLastWord{2};     // for the process that reports a failure
constexpr std::chrono::seconds kSpeakFirst{10};  // for rank 0, where all ranks fail alike

class MpiCommunicator final : public Communicator {
 public:
  // Collective over MPI's world. REQUIRES: MPI is initialized
  static Result<std::unique_ptr<Communicator>> make(const Job& job) {
    auto comm = std::make_unique<MpiCommunicator>();
    SG_TRY(comm->open(job));
    return Result<std::unique_ptr<Communicator>>(std::move(comm));
  }

  // After a failure peers may be gone or in the middle of a call: MPI is not finalized, because the process is about to
  // end.
  ~MpiCommunicator() override {
    if (failed() || !active_.empty() || comm_ == MPI_COMM_NULL) return;
    host_.close();
    MPI_Comm_free(&comm_);
    MPI_Finalize();
  }

  uint32_t rank() const override { return rank_; }
  uint32_t world() const override { return world_; }
  const RankGroup& group(GroupId g) const override { return groups_[g.index]; }
  Heartbeat& heartbeat() override { return host_.own(); }
  std::vector<WatchedRank> in_sight() override { return host_.in_sight(); }

  Result<Ticket> launch(const CollectiveCall& call) override {
    if (failed()) return *failure();
    if (call.group.index >= groups_.size() || groups_[call.group.index].ranks.empty()) return not_in_group(call, rank_);
    const RankGroup& group = groups_[call.group.index];
    SG_TRY(check_call(call, group.ranks.size()));
    auto operation =
        std::make_unique<Operation>(call, group, comm_, channels_[call.group.index], launched_[call.group.index]++);
    SG_TRY(told(operation->start()));
    return active_.add(std::move(operation));
  }

  Status wait(Ticket ticket) override {
    if (ticket.id == 0) return ok_status();
    SG_ASSIGN(std::unique_ptr<Operation> * operation, active_.find(ticket));
    if (!(*operation)->done()) {
      heartbeat().begin_wait();
      Status status = block_in(**operation);
      heartbeat().end_wait();
      if (!status.ok()) return status;
    }
    active_.remove(ticket);
    return ok_status();
  }

  Status drain() override {
    while (!active_.empty()) SG_TRY(wait(active_.first()));
    return failed() ? Status(*failure()) : ok_status();
  }

  void progress() override { (void)advance_all().ok(); }

  Result<Texts> exchange(std::string text) override {
    heartbeat().begin_wait();
    auto out = gather_texts(text);
    heartbeat().end_wait();
    return out;
  }

  void abort(Error error) override {
    std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = host_.failed() ? host_.failure() : error;
      host_.tell(error);
    }
    failed_ = true;
  }
  std::optional<Error> failure() const override {
    std::lock_guard lock(mutex_);
    if (failure_) return failure_;
    if (host_.failed()) return host_.failure();
    return std::nullopt;
  }
  std::optional<BlockedIn> blocked_in() const override {
    std::lock_guard lock(mutex_);
    return blocked_in_;
  }
  bool speaks_of_failure() override {
    if (host_.claim_speech()) return true;
    std::this_thread::sleep_for(kLastWord);
    return false;
  }
  void end_all(int exit_code) override { MPI_Abort(MPI_COMM_WORLD, exit_code); }

 private:
  Status open(const Job& job) {
    int rank = 0, size = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank);
    MPI_Comm_size(comm_, &size);
    rank_ = static_cast<uint32_t>(rank);
    world_ = static_cast<uint32_t>(size);
    if (world_ != job.world) {
      // Rank 0 reports for all and ends, without the others; then mpirun ends them, on a busy machine after seconds.
      failed_ = true;
      if (rank_ != 0) std::this_thread::sleep_for(kSpeakFirst);
      return Error{ErrorKind::cannot_apply,
                   "the job has " + std::to_string(job.world) + " ranks, MPI started " + std::to_string(world_),
                   {},
                   "start it with: mpirun -n " + std::to_string(job.world)};
    }
    SG_TRY(host_.open(comm_));
    groups_ = groups_of_rank(job, rank_);
    launched_.resize(groups_.size());
    SG_TRY(number_groups());
    is_open_ = true;
    return ok_status();
  }

  // Gives each group the same number on all its members, regardless of the order of groups in their files.
  Status number_groups() {
    std::string mine;
    for (const RankGroup& g : groups_) mine += g.digest + "\n";
    SG_ASSIGN(const Texts texts, gather_texts(mine));
    std::set<std::string> all;
    for (const std::string& text : texts)
      for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
        all.insert(text.substr(at, end - at));
    if (all.size() >= kMostChannels)
      return Error{ErrorKind::cannot_apply, "the job has too many groups for MPI", {}, {}};
    for (const RankGroup& g : groups_)
      channels_.push_back(static_cast<uint32_t>(std::distance(all.begin(), all.find(g.digest))));
    return ok_status();
  }
  static constexpr size_t kMostChannels = 1u << 20;

  // Gathers all ranks' texts, watching for failures of others while it waits.
  Result<Texts> gather_texts(const std::string& mine) {
    std::vector<int> sizes(world_), starts(world_);
    int size = static_cast<int>(mine.size());
    if (mine.size() > (1u << 28))
      return Error{ErrorKind::cannot_apply, "what the ranks have to tell each other is too long", {}, {}};
    MPI_Request request;
    MPI_Iallgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, comm_, &request);
    SG_TRY(complete(request));
    int64_t total = 0;
    for (uint32_t r = 0; r < world_; ++r) starts[r] = static_cast<int>(total), total += sizes[r];
    if (total > (1 << 30))
      return Error{ErrorKind::cannot_apply, "what the ranks have to tell each other is too long", {}, {}};
    std::string all(static_cast<size_t>(total), '\0');
    MPI_Iallgatherv(mine.data(), size, MPI_CHAR, all.data(), sizes.data(), starts.data(), MPI_CHAR, comm_, &request);
    SG_TRY(complete(request));
    std::vector<std::string> out;
    for (uint32_t r = 0; r < world_; ++r)
      out.push_back(all.substr(static_cast<size_t>(starts[r]), static_cast<size_t>(sizes[r])));
    return Texts(std::move(out));
  }

  Status complete(MPI_Request& request) {
    for (int tries = 0;; ++tries) {
      int done = 0;
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return told(lost());
      if (done) return ok_status();
      if (is_open_ && failed()) return *failure();  // before that, a rank that fails does so together with all others
      rest(tries);
    }
  }
  static Status lost() { return Error{ErrorKind::rank_failed, "MPI lost the other ranks", {}, {}}; }

  static void rest(int tries) {
    if (tries > kYields) std::this_thread::sleep_for(kNap);
    else if (tries > kSpins) std::this_thread::yield();
  }

  // A failure that this rank sees first becomes the failure of all.
  Status told(Status status) {
    if (!status.ok()) abort(status.error());
    return status;
  }

  bool failed() const { return failed_ || host_.failed(); }

  Status advance_all() {
    for (auto& [id, operation] : active_)
      if (!operation->done()) SG_TRY(told(operation->progress()));
    return ok_status();
  }

  Status block_in(Operation& wanted) {
    std::optional<Clock::time_point> described;
    for (int tries = 0;; ++tries) {
      SG_TRY(advance_all());
      if (wanted.done()) break;
      if (failed()) return *failure();
      if (tries > kSpins && tries % kClockEvery == 0)
        if (const Clock::time_point now = Clock::now(); !described || now - *described > kDescribeAgain)
          describe(wanted), described = now;
      rest(tries);
    }
    if (described) {
      std::lock_guard lock(mutex_);
      blocked_in_.reset();
    }
    return ok_status();
  }

  void describe(const Operation& o) {
    std::lock_guard lock(mutex_);
    blocked_in_ = {o.call().kind, std::string(o.call().label), o.group().name, o.missing()};
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  uint32_t rank_ = 0, world_ = 1;
  bool is_open_ = false;  // all ranks have met
  HostMemory host_;
  std::vector<RankGroup> groups_;  // by GroupId, like the next two
  std::vector<uint32_t> channels_;
  std::vector<uint64_t> launched_;
  Tickets<std::unique_ptr<Operation>> active_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::optional<Error> failure_;  // protected by the mutex, like the next one
  std::optional<BlockedIn> blocked_in_;
};

}  // namespace
}  // namespace sg

extern "C" __attribute__((visibility("default"))) const char* sg_comm_abi() { return SG_COMM_ABI; }

extern "C" __attribute__((visibility("default"))) sg::Communicator* sg_comm_make(const sg::Job& job, double timeout_s,
                                                                                 sg::Error& error) {
  sg::StartGuard guard(timeout_s);
  if (sg::Status status = sg::start_mpi(); !status.ok()) return error = status.error(), nullptr;
  auto comm = sg::MpiCommunicator::make(job);
  if (!comm.ok()) return error = comm.error(), nullptr;
  return comm.value().release();
}
