// Steps that choose by the values of floats: that sort them, take the largest, or look for those that are not zero.
//
// In bf16 a single rounding may change a choice, and then whole rows differ from what PyTorch recorded: a mixture of
// experts sends a token elsewhere. Products that choices may depend on keep the order in which most machines sum,
// although matrix units are faster: those of the forward and their recomputation, or, if a choice depends on others
// too, all.
#pragma once

#include <vector>

#include "libgraph/facts/alias.h"
#include "librun/numerics.h"

namespace sg {

class Job;

// Whether the node chooses by floats, or by a mask, which comes from floats.
bool chooses_by_value(const Graph& graph, NodeId n);

// By value: a node that chooses by values and on which the value depends, by operands or memory; none = there is none.
std::vector<NodeId> choices_behind(const Graph& graph, const AliasAnalysis& alias);

// Of what has an effect, so that passes keep it; except where they remove a choice of unknown size that nothing uses.
SumOrder sum_order_of(const Job& job);

// Whether a product of bf16 keeps the order of k.
bool keeps_order(SumOrder order, const Graph& graph, NodeId n);

}  // namespace sg
