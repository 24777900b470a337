// How a process comes to MPI.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "libgraph/result.h"

namespace sg {

// Brings MPI up. The process ends with its parent: a killed mpirun leaves no ranks behind.
Status start_mpi();

// While it lives, the process has `timeout_s` seconds (15 at least; 0 = for ever): MPI's own start waits for all ranks
// without end and cannot be called off, so what is late ends the process, with one line and exit code 6, and mpirun the
// others.
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
