// sg-import --check: recorded types against those that the rules infer.
#pragma once

#include <cstddef>
#include <string>

#include "libgraph/job.h"

namespace sg::cli {

// Recorded types that our rules contradict. `count` leaves out those that are known to be the recorder's fault.
struct TypeReport {
  std::string text, json;
  size_t count = 0;
};
TypeReport type_report(const Job& job, const std::string& name);

}  // namespace sg::cli
