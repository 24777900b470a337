// How an op is written in Python: as an operator, as a helper of the written module, or as a name under torch.ops.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sg::python {

enum class Spelling : uint8_t {
  infix,   // a + b
  prefix,  // -a
  call,    // max(a, b)
  index,   // a[i]
};

// python.*: arithmetic on sizes.
struct SizeOp {
  std::string_view name;
  Spelling spelling;
  std::string_view text;      // as code
  std::string_view function;  // as a function, for torch.fx
  int arity;                  // arguments that it needs
  int optional = 0;           // and that it may have beyond
};
const SizeOp* find_size_op(std::string_view name);  // null = none of them

// Ops that torch.ops does not have, or not without an import.
struct HelperOp {
  std::string_view name;
  std::string_view function;  // in the module; empty = torch.ops has it once `source` is executed
  std::string_view source;    // its definition
};
const HelperOp* find_helper_op(std::string_view name);

// What a name under torch.ops is made of: "aten.add.Tensor" is namespace "aten", rest "add.Tensor".
struct QualifiedOp {
  std::string_view space, rest;
};
// False when `name` is not made of Python identifiers, or belongs to a namespace that is not PyTorch's to have.
bool split_op_name(std::string_view name, QualifiedOp* out);

}  // namespace sg::python
