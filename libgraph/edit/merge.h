// Rank sets: one job a rank joined into one, and one job taken apart by rank.
//
// merge_ranks  takes jobs that each hold some ranks of one world: same world, groups and meshes. The header (title,
//              producer, provenance, extra) is the first job's. Programs that are equal share one; when all ranks of
//              the world are there and equal the job is SPMD. So explode and merge give back an equal job.
// job_of_rank  is the job with the program of that rank only, as if it were that rank's own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/base/result.h"
#include "libgraph/job.h"

namespace sg {

// `files`: a name for each job, for messages. Notes (which ranks differ and where, histories that differ) go to
// `notes`, which may be null. REQUIRES: not empty, same length
Result<Job> merge_ranks(std::vector<Job> jobs, const std::vector<std::string>& files, Diagnostics* notes = nullptr);

// REQUIRES: the job holds the rank
Job job_of_rank(const Job& job, uint32_t rank);

// The ranks whose programs the job holds, ascending.
std::vector<uint32_t> ranks_held(const Job& job);

// Programs that are equal (program_compare.h) become one that lists all their ranks, each as soon as it is there, so
// that a job never holds more than it keeps.
//
//     ProgramSharer sharer(&job);
//     for (...) add the program to the job, sharer.share_last();
//     sharer.finish(notes);
class ProgramSharer {
 public:
  explicit ProgramSharer(Job* job) : job_(*job) {}

  // Drops the job's last program where an earlier one equals it; that one lists its ranks, too.
  // REQUIRES: it lists its ranks, and this was called for all before it
  void share_last();
  // Orders the programs by rank; one that holds the whole world becomes SPMD. A note says how many remain and where the
  // first two differ.
  void finish(Diagnostics* notes);

 private:
  Job& job_;
  std::unordered_multimap<uint64_t, size_t> by_fingerprint_;  // into the job's programs
  std::string difference_;
};

}  // namespace sg
