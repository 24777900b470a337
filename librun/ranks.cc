#include "librun/ranks.h"

#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "libgraph/human.h"

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
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  try {
    for (size_t i = 1; i < ranks.size(); ++i) threads.emplace_back(run, i);
    if (!ranks.empty()) run(0);
  } catch (const std::system_error&) {
    const Error none = no_thread(threads.size() + 1, ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i)
      if (i == 0 || i > threads.size()) results[i] = none, ranks[i]->abort(none);
  }
  for (std::thread& t : threads) t.join();
  if (ranks.size() > 1)
    if (const Status* own = first_own(results, first, ranks[0]->failure())) return *own;
  for (const auto& comm : ranks)
    if (auto failure = comm->failure()) return *failure;
  for (Status& s : results)
    if (!s.ok()) return s;
  return ok_status();
}

}  // namespace sg
