// What was probably meant by an op that the table lacks.
#pragma once

#include <string>
#include <string_view>

namespace sg {

// "its overloads are aten.pow.Tensor_Scalar, ...", "did you mean `aten.mean`?" for torch.mean; empty = no idea.
std::string hint_for_unknown_op(std::string_view name);

}  // namespace sg
