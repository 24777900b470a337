// Forms of calls that are made of others: any operator with `out=`, a pointwise one with numbers where tensors stand,
// and an index that is a mask.
#pragma once

#include <string_view>

#include "libgraph/composite/composite_call.h"

namespace sg {

// "aten.div.out" -> the row of aten.div.Tensor: what an `out` overload computes before it writes. Null where it is no
// such overload, or the table lacks what it computes.
const OpInfo* written_by_out(std::string_view op);

// Whether a call of a pointwise op has numbers alone: `torch.div(16, 2, rounding_mode="trunc")`.
bool has_numbers_only(const Graph& graph, NodeId n);

// x[mask]: how many elements that gives only the data says.
bool has_mask_index(const Graph& graph, NodeId n);

namespace composite {

// The result, then a copy into the tensor given as `out`, which has its size already.
void out_form(CompositeCall& c, const Graph& graph, NodeId n);
// The first number as a tensor without dimensions, which the others join.
void numbers_form(CompositeCall& c, const Graph& graph, NodeId n);
// The places where the mask holds, an index for each of its axes: a node that defines the number, and one that does
// not.
void mask_form(CompositeCall& c, const Graph& graph, NodeId n);

}  // namespace composite
}  // namespace sg
