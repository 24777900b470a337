#include "librun/ranks.h"

#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

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
          "the system starts " + std::to_string(started) + " threads for " + std::to_string(wanted) + " ranks",
          {},
          "see ulimit -u and -v; sg-run under mpirun has a process a rank"};
}

}  // namespace

Status run_ranks(std::span<const std::unique_ptr<Communicator>> ranks, const std::function<Status(Communicator&)>& fn) {
  std::vector<Status> results(ranks.size(), ok_status());
  auto run = [&](size_t i) {
    results[i] = guarded(*ranks[i], fn);
    if (!results[i].ok()) ranks[i]->abort(results[i].error());
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
  for (const auto& comm : ranks)
    if (auto first = comm->failure()) return *first;
  for (Status& s : results)
    if (!s.ok()) return s;
  return ok_status();
}

}  // namespace sg
