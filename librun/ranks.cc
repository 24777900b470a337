#include "librun/ranks.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "libgraph/base/human.h"

namespace sg {
namespace {

Status guarded(Communicator& comm, const std::function<Status(Communicator&)>& fn) {
  std::string rank = "rank " + std::to_string(comm.rank());
  try {
    return fn(comm);
  } catch (const std::bad_alloc&) {
    return Error{ErrorKind::missing, rank + " ran out of memory", {}, "see sg-run --plan and --memory-limit"};
  } catch (const std::exception& e) {
    return Error{ErrorKind::internal, rank + ": " + e.what()};
  }
}

Error no_thread(size_t started, size_t wanted) {
  return {ErrorKind::missing,
          "only " + plural(started, "thread") + " for " + plural(wanted, "rank") + " could be started",
          {},
          "see ulimit -u and -v; under mpirun each rank is its own process"};
}

// The error of the lowest rank that has one of its own, rather than the job's failure, of which it was told; the rank
// `failed_first` was told by nobody. None where communication failed: what ranks say after that follows from it.
const Status* first_own(const std::vector<Status>& results, size_t failed_first, const std::optional<Error>& failure) {
  if (failure && failure->kind == ErrorKind::rank_failed) return nullptr;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].ok() || results[i].error().kind == ErrorKind::rank_failed) continue;
    if (i == failed_first || !failure || results[i].error().message != failure->message) return &results[i];
  }
  return nullptr;
}

// Threads begin their work when all have been started. What the system refuses it so refuses at once: threads that work
// would take the time of the one that starts them.
class Start {
 public:
  void give(bool go) {
    state_ = go ? kGo : kStop;
    state_.notify_all();
  }
  bool wait() const {
    state_.wait(kWait);
    return state_ == kGo;
  }

 private:
  static constexpr int kWait = 0, kGo = 1, kStop = 2;
  std::atomic<int> state_{kWait};
};

}  // namespace

Status run_ranks(std::span<const std::unique_ptr<Communicator>> ranks, const std::function<Status(Communicator&)>& fn,
                 const std::function<void(Communicator&)>& end) {
  std::vector<Status> results(ranks.size(), ok_status());
  std::mutex failing;
  size_t first = ranks.size();  // the rank that failed first
  auto fail = [&](size_t i) {
    std::lock_guard lock(failing);  // a rank that hears of a failure comes after the one that has it
    if (first == ranks.size()) first = i;
    ranks[i]->abort(results[i].error());
  };
  auto run = [&](size_t i) {
    results[i] = guarded(*ranks[i], fn);
    if (!results[i].ok()) fail(i);
    if (end) end(*ranks[i]);
  };
  Start start;
  auto run_when_told = [&](size_t i) {
    if (start.wait()) run(i);
  };
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  try {
    while (threads.size() + 1 < ranks.size()) threads.emplace_back(run_when_told, threads.size() + 1);
  } catch (const std::system_error&) {
    // told below
  }
  const bool has_all = ranks.empty() || threads.size() + 1 == ranks.size();
  start.give(has_all);
  if (has_all && !ranks.empty()) run(0);
  for (std::thread& t : threads) t.join();
  if (!has_all) return no_thread(threads.size() + 1, ranks.size());
  if (ranks.size() > 1)
    if (const Status* own = first_own(results, first, ranks[0]->failure())) return *own;
  for (const auto& comm : ranks)
    if (auto failure = comm->failure()) return *failure;
  for (Status& s : results)
    if (!s.ok()) return s;
  return ok_status();
}

}  // namespace sg
