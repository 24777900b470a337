// Starts MPI in this process.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "libgraph/base/result.h"

namespace sg {

// Initializes MPI. The process ends with its parent, so a killed mpirun leaves no ranks behind.
Status start_mpi();

// Limits MPI's start to `timeout_s` seconds (at least 15; 0 = unlimited) while this object lives. The start waits for
// all ranks indefinitely and cannot be cancelled, so on timeout the process ends, with one line and exit code 6, and
// mpirun ends the others.
class StartGuard {
 public:
  explicit StartGuard(double timeout_s);
  ~StartGuard();

 private:
  void watch(double timeout_s);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace sg
