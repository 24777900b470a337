// Forms of calls that are made of others: any operator with `out=`, an in-place one without a row, one of `_foreach_`
// that does the same to each tensor of lists, a pointwise one with numbers where tensors stand, an index that is a
// mask, and an exchange that nobody waits for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/composite/composite_call.h"

namespace sg {

// "aten.div.out" -> the row of aten.div.Tensor: what an `out` overload computes before it writes. Null where it is no
// such overload, or the table lacks what it computes.
const OpInfo* written_by_out(std::string_view op);
// The same of a call with so many arguments by place: aten.mean.out is of dimensions, or of all.
const OpInfo* written_by_out(std::string_view op, size_t given);

// "aten.pow_.Tensor" -> "aten.pow.Tensor", "aten.pow.Tensor_Tensor": the names under which there may be a row for what
// an in-place overload writes. None for other names, and for overloads that have a row themselves.
std::vector<std::string> names_out_of_place(std::string_view op);
// The row of the op table among them.
const OpInfo* written_in_place(std::string_view op);
// Whether what it gives can be copied into its first argument: one tensor, no view, of a tensor.
bool gives_new_tensor(const OpInfo& op);

// "aten._foreach_add_.List" -> the row of aten.add_.Tensor: what it does to each tensor of its lists. Null where it is
// none of these, or the table lacks what it does.
const OpInfo* done_to_each(std::string_view op);

// PyTorch's profiler is told where a part begins or ends (torch.profiler.record_function): nothing is computed.
bool is_profiler_mark(std::string_view op);

// Whether a call of a pointwise op has numbers alone: `torch.div(16, 2, rounding_mode="trunc")`.
bool has_numbers_only(const Graph& graph, NodeId n);

// x[mask]: how many elements that gives only the data says.
bool has_mask_index(const Graph& graph, NodeId n);

// `_dtensor.shard_dim_alltoall` without a wait behind it, as PyTorch calls it: it waits for itself.
bool is_waited_within(const Graph& graph, NodeId n);

namespace composite {

// The result, then a copy into the tensor given as `out`, which has its size already.
void out_form(CompositeCall& c, const Graph& graph, NodeId n);
// The result, then a copy into the first argument, which has its size.
void in_place_form(CompositeCall& c, const Graph& graph, NodeId n);
// One call for each place of the lists; what is no list is for all of them.
void foreach_form(CompositeCall& c, const Graph& graph, NodeId n);
// The first number as a tensor without dimensions, which the others join.
void numbers_form(CompositeCall& c, const Graph& graph, NodeId n);
// The places where the mask holds, an index for each of its axes: a node that defines the number, and one that does
// not.
void mask_form(CompositeCall& c, const Graph& graph, NodeId n);
// The exchange, and the wait.
void waited_form(CompositeCall& c, const Graph& graph, NodeId n);

}  // namespace composite
}  // namespace sg
