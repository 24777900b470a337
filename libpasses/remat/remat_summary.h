// The report of sg-remat about a job: the summary with its peaks, and the plan of --explain. Internal to sg-remat.
#pragma once

#include "libgraph/expr/sizes.h"
#include "libpasses/remat/remat_part.h"
#include "libpasses/remat/remat_tags.h"

namespace sg {

class RematSummary {
 public:
  // Examines the graphs before the outcomes are applied. All arguments are by program.
  RematSummary(const Job& job, const std::vector<SizeValues>& sizes, const std::vector<RematTags>& tags,
               const std::vector<RematPart>& parts, const RematOptions& options, bool explains);

  Change change();  // call it after they are applied

 private:
  int64_t most_planned(std::optional<int64_t> RematPart::*known) const;
  std::string text() const;
  std::string_view remedy() const;
  std::string why_nothing() const;
  void explain(Change* change);

  const Job& job_;
  const std::vector<SizeValues>& sizes_;
  const std::vector<RematTags>& tags_;
  const std::vector<RematPart>& parts_;
  const RematOptions& options_;
  const bool explains_;
  int64_t before_ = 0, after_ = 0, bound_ = 0;  // bytes
  size_t copied_ = 0, saved_ = 0;               // nodes
  std::vector<std::string> lines_;              // of the plan
};

}  // namespace sg
