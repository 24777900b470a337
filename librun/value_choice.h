// Steps that choose by the values of floats: that sort them, take the largest, or look for those that are not zero.
//
// In bf16 a single rounding may change a choice, and then whole rows differ from what PyTorch recorded: a mixture of
// experts sends a token elsewhere. Products of such steps keep the order in which most machines sum, although matrix
// units are faster (RankOptions::ordered_sums).
#pragma once

namespace sg {

class Job;

bool chooses_by_value(const Job& job);

}  // namespace sg
