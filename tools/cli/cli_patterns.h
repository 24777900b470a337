// Names that stand for several files: `{r}` is a rank's number, `{step}` that of a step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sg::cli {

bool is_pattern(std::string_view name);

// The files there are that a name stands for; steps are those below `steps`. First the name itself: a file may be
// called so.
std::vector<std::string> files_for(const std::string& name, uint64_t steps = UINT64_MAX);

// Where a file is or would be, through links. Its name may be a pattern.
std::string final_place(const std::string& file);

// Whether two places are one file for some rank and step.
bool may_be_one(const std::string& a, const std::string& b);

}  // namespace sg::cli
