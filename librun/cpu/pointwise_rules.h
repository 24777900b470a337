// How each pointwise op is computed: rules that turn a call into steps of a program.
#pragma once

#include <initializer_list>
#include <string_view>

#include "librun/cpu/pointwise.h"

namespace sg::cpu {

class PointwiseCall;

// How the common type of operands follows from their types.
enum class Common : uint8_t {
  promoted,  // PyTorch's promotion
  floating,  // the same, but integers become the default float
  flag,      // bool
};

// How a number becomes one of a whole type that does not hold it.
enum class Number : uint8_t {
  wrapped,   // as PyTorch casts it: 300 is 44 for u8
  as_given,  // it stays: a bound that no element reaches
};

struct PointwiseRule {
  using Lower = Value (*)(PointwiseCall& call);
  std::string_view op;
  Lower lower = nullptr;
  // For lower_plain, and as other lowerings need: the block function; its operands by parameter name, with "~" before
  // those that are numbers (or tensors of rank 0) not rounded to the common type if it is a float; the common type.
  BlockOp block = BlockOp::copy;
  std::string_view operands;
  Common common = Common::promoted;
};

const PointwiseRule* find_pointwise_rule(std::string_view op);  // in-place forms use the rule of the functional op

// A call that is being added to a program.
class PointwiseCall {
 public:
  PointwiseCall(PointwiseProgram& program, const KernelCall& call, const PointwiseRule& rule)
      : program_(program), call_(call), rule_(rule) {}

  const KernelCall& call() const { return call_; }
  const PointwiseRule& rule() const { return rule_; }
  const Tensor& result() const { return call_.results[0]; }
  PointwiseCode& code() { return program_.code(); }

  // The type in which the named operands (as in PointwiseRule) are computed.
  DType common(std::string_view operands, Common how) const;
  DType common() const { return common(rule_.operands, rule_.common); }

  // An argument, tensor or number, as a value of `type`; "~" before the name as in PointwiseRule.
  Value operand(std::string_view name, DType type, Number how = Number::wrapped);
  Value number(double v, DType type) { return code().constant(Scalar::floating(v), type); }
  bool has(std::string_view name) const;

  Value compute(BlockOp op, std::initializer_list<Value> operands, DType type);  // operands and result of one type
  Value test(BlockOp op, std::initializer_list<Value> operands, DType type);     // operands of that type, bool result

 private:
  PointwiseProgram& program_;
  const KernelCall& call_;
  const PointwiseRule& rule_;
};

}  // namespace sg::cpu
