// WriteAhead: the bytes of a job's binary form, made on a second thread while the verifier looks at the job.
//
// Nothing is written anywhere before take(): a job that the verifier refuses leaves no trace. The bytes are those that
// write_binary gives.
#pragma once

#include <future>
#include <optional>
#include <string>

#include "libgraph/base/result.h"
#include "libgraph/job.h"
#include "libgraph/pool.h"

namespace sg::cli {

class WriteAhead {
 public:
  // Begins at once, where there is a thread to be had and the job is worth one; else take() gives nothing. The job
  // outlives this and changes in nothing but what its pool holds besides.
  WriteAhead(const Job& job, size_t threads);
  WriteAhead(const WriteAhead&) = delete;
  WriteAhead& operator=(const WriteAhead&) = delete;

  std::optional<Result<std::string>> take();  // waits; once

 private:
  std::optional<Pool> pool_;
  std::future<Result<std::string>> bytes_;  // its destructor waits for the thread
};

}  // namespace sg::cli
