#include "librun/cuda/generate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>

#include "librun/cpu/pointwise_rules.h"
#include "librun/cuda/kernels/generated.h"
#include "librun/cuda/known_ops.h"

namespace sg::cuda {
namespace {

using cpu::Lane;
using CodeStep = cpu::Step;

const char* value_type(Lane lane) {
  constexpr const char* kNames[] = {"float", "double", "int64_t", "bool", "Cx<float>", "Cx<double>"};
  return kNames[static_cast<size_t>(lane)];
}
const char* lane_name(Lane lane) {
  constexpr const char* kNames[] = {"f32", "f64", "i64", "b8", "c64", "c128"};
  return kNames[static_cast<size_t>(lane)];
}
const char* raw_type(DType t) {
  switch (t) {
    case DType::f64: return "double";
    case DType::f32: return "float";
    case DType::f16: return "F16";
    case DType::bf16: return "Bf16";
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

std::string text_of(const char* pattern, auto... values) {
  char out[160];
  std::snprintf(out, sizeof out, pattern, values...);
  return out;
}

// Exact, whatever the number is.
std::string literal(double x, bool is_float) {
  if (is_float) return text_of("number(0x%08xu /* %.9g */)", std::bit_cast<uint32_t>(static_cast<float>(x)), x);
  return text_of("math::from_bits(0x%016llxull /* %.17g */)",
                 static_cast<unsigned long long>(std::bit_cast<uint64_t>(x)), x);
}

// A slot as the text sees it.
struct SlotText {
  cpu::Layout layout;
  DType dtype = DType::none;
  bool loads = false, stores = false;
  bool packs = false;  // `width` neighbours lie side by side, aligned
  bool is_point = false;
};

class Writer {
 public:
  explicit Writer(cpu::PointwiseProgram& program) : program_(program), code_(program.code()) {}

  std::optional<GeneratedChain> write() {
    if (program_.tensors().empty() || program_.tensors().size() > static_cast<size_t>(kMostSlots)) return std::nullopt;
    for (const CodeStep& s : code_.steps)
      if (s.kind == CodeStep::Kind::compute && !s.converts && (known_op(s.op, s.lane) == KnownOp::none || s.arity > 5))
        return std::nullopt;
    find_slots();
    choose_width();
    GeneratedChain out;
    out.text = head() + body();
    out.width = width_;
    out.elements = elements_;
    for (const Tensor& t : program_.tensors()) out.data.push_back(t.data);
    return out;
  }

 private:
  void find_slots() {
    std::vector<Tensor> by_weight;
    for (const CodeStep& s : code_.steps)
      if (s.kind == CodeStep::Kind::store) by_weight.push_back(program_.tensors()[static_cast<size_t>(s.slot)]);
    by_weight.insert(by_weight.end(), program_.tensors().begin(), program_.tensors().end());
    const std::vector<int> order = cpu::visiting_order(by_weight);
    for (const Tensor& t : program_.tensors()) {
      SlotText slot;
      slot.layout = cpu::Layout(t, order);
      slot.dtype = t.dtype;
      slot.is_point = slot.layout.is_point();
      slots_.push_back(slot);
      elements_ = t.elements();
      is_wide_ |= extent_bytes(t) / dtype_bytes(t.dtype) >= INT64_C(1) << 31;
    }
    is_wide_ |= elements_ >= INT64_C(1) << 31;
    for (const CodeStep& s : code_.steps) {
      if (s.kind == CodeStep::Kind::load) slots_[static_cast<size_t>(s.slot)].loads = true;
      if (s.kind == CodeStep::Kind::store) slots_[static_cast<size_t>(s.slot)].stores = true;
    }
  }

  // Whether `width` elements from each multiple of it on lie side by side, where loads of as many are aligned.
  bool can_pack(const SlotText& slot, const Tensor& t, int width) const {
    const cpu::Layout& l = slot.layout;
    if (l.axes == 0) return false;
    const auto last = static_cast<size_t>(l.axes - 1);
    if (l.stride[last] != 1 || l.shape[last] % width != 0) return false;
    for (size_t axis = 0; axis < last; ++axis)
      if (l.stride[axis] % width != 0) return false;
    const auto bytes = std::min<uint64_t>(static_cast<uint64_t>(width * dtype_bytes(t.dtype)), 16);
    return reinterpret_cast<uintptr_t>(t.data) % bytes == 0;
  }

  // As many as fill 16 bytes of the narrowest tensor, where most tensors allow it.
  void choose_width() {
    for (int width : {8, 4, 2}) {
      if (elements_ % width != 0) continue;
      size_t packs = 0, all = 0;
      int64_t least = 16;
      for (size_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].is_point) continue;
        ++all;
        packs += can_pack(slots_[i], program_.tensors()[i], width);
        least = std::min<int64_t>(least, dtype_bytes(slots_[i].dtype));
      }
      if (all == 0 || packs * 2 < all || width * least > 16) continue;
      width_ = width;
      break;
    }
    for (size_t i = 0; i < slots_.size(); ++i)
      slots_[i].packs = width_ > 1 && can_pack(slots_[i], program_.tensors()[i], width_);
  }

  const char* index_type() const { return is_wide_ ? "int64_t" : "uint32_t"; }

  // Where element `at` lies.
  std::string offset(const SlotText& slot, const std::string& at) const {
    const cpu::Layout& l = slot.layout;
    if (slot.is_point || l.axes == 0) return "0";
    if (l.is_line()) return at;
    std::string out;
    int64_t below = 1;
    for (int axis = l.axes - 1; axis >= 0; --axis) {
      const auto k = static_cast<size_t>(axis);
      if (l.stride[k] != 0) {
        std::string part = below == 1 ? at : "(" + at + ") / " + number_text(below);
        if (axis > 0) part = "(" + part + ") % " + number_text(l.shape[k]);
        out += (out.empty() ? "" : " + ") +
               (l.stride[k] == 1 ? "(" + part + ")" : "(" + part + ") * " + number_text(l.stride[k]));
      }
      below *= l.shape[k];
    }
    return out.empty() ? "0" : out;
  }
  std::string number_text(int64_t n) const { return std::to_string(n) + (is_wide_ ? "ll" : "u"); }

  std::string head() const { return "#include \"librun/cuda/kernels/generated.h\"\n\nnamespace sg::cuda {\n\n"; }

  std::string body() {
    std::string loads, stores, locals;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const SlotText& s = slots_[i];
      const std::string k = std::to_string(i), raw = raw_type(s.dtype);
      locals += "    auto* p" + k + " = reinterpret_cast<" + raw + "*>(args.data[" + k + "]);\n";
      if (s.is_point && s.loads) locals += "    const " + raw + " x" + k + " = *p" + k + ";\n";
      if (s.packs && s.loads)
        loads += "      const auto x" + k + " = load_pack<" + std::to_string(width_) + ">(p" + k + " + (" +
                 offset(s, "i") + "));\n";
      if (s.packs && s.stores) {
        loads += "      Pack<" + raw + ", " + std::to_string(width_) + "> y" + k + ";\n";
        stores += "      store_pack(p" + k + " + (" + offset(s, "i") + "), y" + k + ");\n";
      }
    }
    const std::string width = std::to_string(width_), index = index_type();
    std::string out =
        "SG_KERNEL(" + std::string(kGeneratedKernel) + ", ChainArgs) {\n  block.each([&](int lane) {\n" + locals;
    out += "    const auto end = static_cast<" + index + ">(args.elements), step = static_cast<" + index +
           ">(block.count() * kLanes * " + width + ");\n";
    out += "    for (auto i = static_cast<" + index + ">((block.index() * kLanes + lane) * " + width +
           "); i < end; i += step) {\n";
    out += loads;
    if (width_ > 1)
      out += "#ifdef __CUDACC__\n#pragma unroll\n#endif\n      for (int j = 0; j < " + width + "; ++j) {\n";
    else out += "      {\n";
    for (const CodeStep& s : code_.steps) out += "        " + step(s) + "\n";
    out += "      }\n" + stores + "    }\n  });\n}\n\n}  // namespace sg::cuda\n";
    return out;
  }

  std::string element(size_t i) const {
    const std::string at = width_ > 1 ? std::string("i + j") : std::string("i");
    return "p" + std::to_string(i) + "[" + offset(slots_[i], at) + "]";
  }

  std::string step(const CodeStep& s) {
    switch (s.kind) {
      case CodeStep::Kind::constant: return define(s, constant(s));
      case CodeStep::Kind::load: {
        const auto i = static_cast<size_t>(s.slot);
        const std::string k = std::to_string(i);
        return define(s, "value_of(" +
                             (slots_[i].is_point ? "x" + k
                              : slots_[i].packs  ? "x" + k + ".of[j]"
                                                 : element(i)) +
                             ")");
      }
      case CodeStep::Kind::store: {
        const auto i = static_cast<size_t>(s.slot);
        const std::string to = slots_[i].packs ? "y" + std::to_string(i) + ".of[j]" : element(i);
        return to + " = stored_as<" + raw_type(slots_[i].dtype) + ">(" + reg(s.in[0]) + ");";
      }
      case CodeStep::Kind::compute: break;
    }
    if (s.converts) return define(s, std::string("to_") + lane_name(lane_of(s.out)) + "(" + reg(s.in[0]) + ")");
    return define(s, call(s));
  }

  std::string constant(const CodeStep& s) const {
    switch (lane_of(s.out)) {
      case Lane::f32: return literal(s.number.real(), true);
      case Lane::f64: return literal(s.number.real(), false);
      case Lane::i64: return s.integer == INT64_MIN ? "INT64_MIN" : "int64_t{" + std::to_string(s.integer) + "ll}";
      case Lane::b8: return s.integer != 0 ? "true" : "false";
      case Lane::c64:
        return "Cx<float>{" + literal(s.number.real(), true) + ", " + literal(s.number.imag(), true) + "}";
      case Lane::c128:
        return "Cx<double>{" + literal(s.number.real(), false) + ", " + literal(s.number.imag(), false) + "}";
    }
    return "0";
  }

  std::string operands(const CodeStep& s) const {
    std::string out;
    for (size_t k = 0; k < s.arity; ++k) out += (k ? ", " : "") + reg(s.in[k]);
    return out;
  }

  std::string call(const CodeStep& s) const {
    const bool is_complex = s.lane == Lane::c64 || s.lane == Lane::c128;
    if (s.op == cpu::BlockOp::where) return reg(s.in[0]) + " ? " + reg(s.in[1]) + " : " + reg(s.in[2]);
    if (s.op == cpu::BlockOp::complex) return "make_complex(" + operands(s) + ")";
    if (s.op == cpu::BlockOp::abs && is_complex) return "complex_size(" + operands(s) + ")";
    const std::string name = op_name(s.op);
    if (is_complex) return "complex_" + name + "(" + operands(s) + ")";
    if (s.lane == Lane::i64) return "whole_" + name + "(args.report, " + operands(s) + ")";
    if (s.lane == Lane::b8) return "flag_" + name + "(" + operands(s) + ")";
    return "real_" + name + "<" + value_type(s.lane) + ">(" + operands(s) + ")";
  }

  std::string define(const CodeStep& s, const std::string& value) const {
    return std::string("const ") + value_type(lane_of(s.out)) + " " + reg(s.out) + " = " + value + ";";
  }
  static std::string reg(int i) { return "r" + std::to_string(i); }
  Lane lane_of(int i) const { return code_.lanes[static_cast<size_t>(i)]; }

  cpu::PointwiseProgram& program_;
  const cpu::PointwiseCode& code_;
  std::vector<SlotText> slots_;
  int64_t elements_ = 0;
  int width_ = 1;
  bool is_wide_ = false;
};

}  // namespace

std::optional<GeneratedChain> generate_chain(cpu::PointwiseProgram& program) { return Writer(program).write(); }

}  // namespace sg::cuda
