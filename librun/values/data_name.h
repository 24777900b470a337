// Names of data files: `{r}` stands for the rank, `{step}` for the step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "libgraph/base/result.h"

namespace sg {

// "rank{r}/step{step}.safetensors" -> "rank3/step0.safetensors"
std::string data_file_name(std::string_view pattern, uint32_t rank, uint64_t step);

bool has_step(std::string_view pattern);  // whether it names a file for each step

// Where a capture that has its inputs in this file says what they give: expected.safetensors in the same folder.
std::string recorded_beside(std::string_view inputs);

// An input file must exist for every rank of the world and for none beyond; without `{r}` one file serves all ranks.
// `option` names it in messages: "--inputs". Checks step 0.
Status check_input_files(std::string_view pattern, uint32_t world, std::string_view option);

// Output files: several ranks, or several steps, may not write the same one.
Status check_output_pattern(std::string_view pattern, uint32_t world, uint64_t steps, std::string_view option);

}  // namespace sg
