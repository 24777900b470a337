#include "librun/cuda/chain_text.h"

#include <bit>
#include <cstdio>
#include <vector>

#include "libgraph/base/joined.h"
#include "librun/cuda/kernels/generated.h"
#include "librun/cuda/known_ops.h"

namespace sg::cuda {
namespace {

using cpu::Lane;
using CodeStep = cpu::Step;

const char* lane_name(Lane lane) {
  constexpr const char* kNames[] = {"f32", "f64", "i64", "b8", "c64", "c128"};
  return kNames[static_cast<size_t>(lane)];
}

std::string text_of(const char* pattern, auto... values) {
  char out[160];
  std::snprintf(out, sizeof out, pattern, values...);
  return out;
}

bool is_half(DType type) { return type == DType::bf16 || type == DType::f16; }

// By register: all that uses it rounds it to bf16 or f16. `result` is used behind the steps, as it is.
std::vector<bool> only_rounded(cpu::PointwiseProgram& program, int result) {
  std::vector<bool> out(program.code().lanes.size(), true);
  if (result >= 0) out[static_cast<size_t>(result)] = false;
  for (const CodeStep& s : program.code().steps) {
    const bool rounds = s.kind == CodeStep::Kind::store
                            ? is_half(program.tensors()[static_cast<size_t>(s.slot)].dtype)
                            : s.op == cpu::BlockOp::round_bf16 || s.op == cpu::BlockOp::round_f16;
    if (!rounds)
      for (size_t i = 0; i < s.arity; ++i) out[static_cast<size_t>(s.in[i])] = false;
  }
  return out;
}

class StepWriter {
 public:
  StepWriter(cpu::PointwiseProgram& program, std::span<const SlotText> slots, int result)
      : code_(program.code()),
        tensors_(program.tensors()),
        slots_(slots),
        only_rounded_(only_rounded(program, result)) {}

  std::string step(const CodeStep& s) const {
    switch (s.kind) {
      case CodeStep::Kind::constant: return define(s, constant(s));
      case CodeStep::Kind::load: return define(s, "value_of(" + slots_[static_cast<size_t>(s.slot)].from + ")");
      case CodeStep::Kind::store: {
        const auto i = static_cast<size_t>(s.slot);
        return slots_[i].to + " = stored_as<" + raw_type(tensors_[i].dtype) + ">(" + value_name(s.in[0]) + ");";
      }
      case CodeStep::Kind::compute: break;
    }
    if (s.converts) return define(s, std::string("to_") + lane_name(lane_of(s.out)) + "(" + value_name(s.in[0]) + ")");
    return define(s, call(s));
  }

 private:
  std::string constant(const CodeStep& s) const {
    switch (lane_of(s.out)) {
      case Lane::f32: return number_text(s.number.real(), true);
      case Lane::f64: return number_text(s.number.real(), false);
      case Lane::i64: return s.integer == INT64_MIN ? "INT64_MIN" : "int64_t{" + std::to_string(s.integer) + "ll}";
      case Lane::b8: return s.integer != 0 ? "true" : "false";
      case Lane::c64:
        return "Cx<float>{" + number_text(s.number.real(), true) + ", " + number_text(s.number.imag(), true) + "}";
      case Lane::c128:
        return "Cx<double>{" + number_text(s.number.real(), false) + ", " + number_text(s.number.imag(), false) + "}";
    }
    return "0";
  }

  std::string operands(const CodeStep& s) const { return joined(std::span(s.in).first(s.arity), ", ", value_name); }

  std::string call(const CodeStep& s) const {
    const bool is_complex = s.lane == Lane::c64 || s.lane == Lane::c128;
    if (s.op == cpu::BlockOp::where)
      return value_name(s.in[0]) + " ? " + value_name(s.in[1]) + " : " + value_name(s.in[2]);
    const std::string name = op_name(s.op);
    if (is_complex) return "complex_" + name + "(" + operands(s) + ")";
    if (s.lane == Lane::i64) return "whole_" + name + "(args.report, " + operands(s) + ")";
    if (s.lane == Lane::b8) return "flag_" + name + "(" + operands(s) + ")";
    if (can_be_near(s)) return "near_" + name + "(" + operands(s) + ")";
    return "real_" + name + "<" + value_type(s.lane) + ">(" + operands(s) + ")";
  }

  // A result of f32 that is converted is none: whether that is in the same chain would change it.
  bool can_be_near(const CodeStep& s) const {
    return s.lane == Lane::f32 && is_half(s.result) && has_near_op(s.op) && only_rounded_[static_cast<size_t>(s.out)];
  }

  std::string define(const CodeStep& s, const std::string& value) const {
    return std::string("const ") + value_type(lane_of(s.out)) + " " + value_name(s.out) + " = " + value + ";";
  }
  Lane lane_of(int i) const { return code_.lanes[static_cast<size_t>(i)]; }

  const cpu::PointwiseCode& code_;
  std::span<const Tensor> tensors_;
  std::span<const SlotText> slots_;
  const std::vector<bool> only_rounded_;
};

}  // namespace

bool has_text(cpu::PointwiseProgram& program) {
  if (program.tensors().empty() || program.tensors().size() > static_cast<size_t>(kMostSlots)) return false;
  for (const CodeStep& s : program.code().steps)
    if (s.kind == CodeStep::Kind::compute && !s.converts && (known_op(s.op, s.lane) == KnownOp::none || s.arity > 5))
      return false;
  return true;
}

std::string steps_text(cpu::PointwiseProgram& program, std::span<const SlotText> slots, bool with_stores,
                       const std::string& indent, int result) {
  const StepWriter writer(program, slots, result);
  std::string out;
  for (const CodeStep& s : program.code().steps)
    if (with_stores || s.kind != CodeStep::Kind::store) out += indent + writer.step(s) + "\n";
  return out;
}

std::string value_name(int reg) { return "r" + std::to_string(reg); }

const char* value_type(Lane lane) {
  constexpr const char* kNames[] = {"float", "double", "int64_t", "bool", "Cx<float>", "Cx<double>"};
  return kNames[static_cast<size_t>(lane)];
}

const char* raw_type(DType type) {
  switch (type) {
    case DType::f64: return "double";
    case DType::f32: return "float";
    case DType::f16: return "F16";
    case DType::bf16: return "Bf16";
    case DType::f8e4m3fn: return "F8E4m3fn";
    case DType::f8e5m2: return "F8E5m2";
    case DType::f8e4m3fnuz: return "F8E4m3fnuz";
    case DType::f8e5m2fnuz: return "F8E5m2fnuz";
    case DType::i64: return "int64_t";
    case DType::i32: return "int32_t";
    case DType::i16: return "int16_t";
    case DType::i8: return "int8_t";
    case DType::u8: return "uint8_t";
    case DType::boolean: return "Flag";
    case DType::c64: return "Cx<float>";
    default: return "Cx<double>";
  }
}

std::string number_text(double x, bool is_float) {
  if (is_float) return text_of("number(0x%08xu /* %.9g */)", std::bit_cast<uint32_t>(static_cast<float>(x)), x);
  return text_of("math::from_bits(0x%016llxull /* %.17g */)",
                 static_cast<unsigned long long>(std::bit_cast<uint64_t>(x)), x);
}

std::string offset_text(const cpu::Layout& layout, const std::string& at, bool is_wide) {
  if (layout.is_point() || layout.axes == 0) return "0";
  if (layout.is_line()) return at;
  auto number = [&](int64_t n) { return std::to_string(n) + (is_wide ? "ll" : "u"); };
  std::string out;
  int64_t below = 1;
  for (int axis = layout.axes - 1; axis >= 0; --axis) {
    const auto k = static_cast<size_t>(axis);
    if (layout.stride[k] != 0) {
      std::string part = below == 1 ? at : "(" + at + ") / " + number(below);
      if (axis > 0) part = "(" + part + ") % " + number(layout.shape[k]);
      out += (out.empty() ? "" : " + ") +
             (layout.stride[k] == 1 ? "(" + part + ")" : "(" + part + ") * " + number(layout.stride[k]));
    }
    below *= layout.shape[k];
  }
  return out.empty() ? "0" : out;
}

bool needs_wide_index(const Tensor& t) {
  return extent_bytes(t) / dtype_bytes(t.dtype) >= INT64_C(1) << 31 || t.elements() >= INT64_C(1) << 31;
}

}  // namespace sg::cuda
