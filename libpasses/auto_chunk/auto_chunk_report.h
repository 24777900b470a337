// The report of sg-chunk --auto: the plan that --explain prints, as text and as JSON.
#pragma once

#include <functional>

#include "libgraph/base/json.h"
#include "libpasses/auto_chunk/amplifiers.h"
#include "libpasses/auto_chunk/auto_chunk_plan.h"

namespace sg {

class AutoChunkReport {
 public:
  using Predict = std::function<std::optional<int64_t>(int64_t chunks)>;

  void start(const Job& job, int64_t peak_bytes);
  void add_layer(const Graph& graph, const Amplifier& facts);  // not a loss head
  void add_skipped(const std::string& label, const Amplifier& facts, const std::string& why);
  // `predict` is called only if `explain`.
  void add_region(const std::string& label, const Amplifier& facts, const Job& job,
                  const std::vector<std::optional<AutoPlan>>& plans, const Predict& predict, int64_t chunks,
                  bool explain);
  // Writes the plan into `change`; `job` is the result.
  void finish(const Job& job, int64_t peak_bytes, Change* change);

 private:
  struct Work {
    double flops = 0, bytes = 0;
  };
  static Work work_of(const Job& job);

  std::string text_;
  JsonWriter regions_, skipped_;
  Work before_;
  int64_t peak_before_ = 0;
  size_t layers_ = 0, count_ = 0, skips_ = 0;
  std::string first_layer_;
};

}  // namespace sg
