// AutoChunker: finds the amplifiers of a job, and chunks them one after the other. Internal to auto_chunk.
//
// auto_chunker.cc      which amplifiers, in which order, with which outcome
// auto_chunk_count.cc  in how many chunks
#pragma once

#include <set>

#include "libpasses/auto_chunk/amplifiers.h"
#include "libpasses/auto_chunk/auto_chunk_outline.h"
#include "libpasses/auto_chunk/auto_chunk_plan.h"
#include "libpasses/auto_chunk/auto_chunk_report.h"

namespace sg {

class AutoChunker {
 public:
  // `together`: use this many chunks for each amplifier that sets the peak; otherwise choose a number for each.
  AutoChunker(Job* job, const AutoChunkOptions& options, PassContext& context, std::optional<int64_t> together = {})
      : job_(*job), options_(options), context_(context), together_(together) {}

  // If the requested peak is not reached, the job keeps what was chunked so far.
  Result<Change> run();

  // After run():
  int64_t peak_bytes() const { return measured(job_).bytes; }
  size_t found() const { return seen_.size(); }  // amplifiers
  int64_t most_chunks() const { return most_; }  // the most that any of them can be cut into
  // Whether an amplifier still sets the peak: by its chunks' own memory, or because others use as much.
  bool is_set_by_amplifier() const { return stuck_ || peak_of(job_).at_call; }

 private:
  // Peak live bytes of a job: the maximum over its programs.
  struct Peak {
    int64_t bytes = 0;
    std::string node;
    bool at_call = false;  // the peak is inside a call of a chunk
  };

  struct Next {
    std::string label;
    Amplifier facts;
  };

  // An amplifier planned in each program that has it, and a job prepared with its rewrites.
  struct Prepared {
    Job job;
    std::vector<std::optional<AutoPlan>> plans;  // by program
    int64_t rows = 0, most_chunks = 0;           // at the captured sizes
  };

  struct Trial {
    Job job;
    int64_t chunks = 0;
    AutoCounts counts;
  };

  bool is_counted() const { return options_.chunks || options_.rows_per_chunk; }
  Change unchanged(std::string why);
  std::string why_nothing(int64_t planned) const;

  std::optional<Next> next_amplifier();
  Status take(const Next& next);
  void skip(const Next& next, const std::string& why);
  Status refused(const Next& next, Error error);
  void say_fewer(const Next& next, const Prepared& prepared, int64_t chunks) const;
  bool is_asked_for(const Next& next) const;

  Result<Prepared> prepare(const Next& next) const;
  Result<AutoPlan> plan_at_some_axis(std::unique_ptr<Program>* program, NodeId amplifier) const;
  int64_t rows_of_chunk(const AutoPlan& plan, const Program& program) const;
  bool sets_peak(const Prepared& prepared) const;
  std::optional<Error> why_ranks_part(const Next& next, const Prepared& prepared, Job* trial) const;
  Result<Trial> outline(const Prepared& prepared, int64_t chunks) const;

  Result<int64_t> choose(const Next& next, const Prepared& prepared) const;
  Result<int64_t> chunks_by_rows(const Next& next, const Prepared& prepared) const;
  Result<int64_t> fewest(const Prepared& prepared) const;
  std::optional<int64_t> predicted(const Prepared& prepared, int64_t chunks) const;
  Peak measured(const Job& job) const;
  bool is_enough(const Peak& peak) const;
  static Peak peak_of(const Job& job);

  Job& job_;
  const AutoChunkOptions& options_;
  PassContext& context_;
  std::optional<int64_t> together_;
  AutoChunkReport report_;
  std::set<std::string> seen_;
  std::vector<Next> waiting_;  // not taken while another amplifier sets the peak
  size_t done_ = 0;
  int64_t most_ = 0;
  bool stuck_ = false;
  std::string summary_, reasons_;
};

}  // namespace sg
