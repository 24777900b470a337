#include "librun/cuda/row_text.h"

#include "librun/cuda/chain_text.h"

namespace sg::cuda {
namespace {

const char* kind_name(Reduce kind) {
  constexpr const char* kNames[] = {"sum",   "mean",     "product",   "largest", "smallest",  "any",    "all",
                                    "count", "variance", "deviation", "norm",    "logsumexp", "nan_sum"};
  return kNames[static_cast<size_t>(kind)];
}

const char* element_name(Element element) {
  constexpr const char* kNames[] = {"f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2",  "f8e4m3fnuz", "f8e5m2fnuz",
                                    "i64", "i32", "i16", "i8",   "u8",       "boolean", "c64",        "c128"};
  return kNames[static_cast<size_t>(element)];
}

cpu::Layout layout(const Tensor& t, const std::vector<int>& axes) {
  std::vector<int> order;
  for (int axis : axes)
    if (t.dim(axis) != 1) order.push_back(axis);
  return cpu::Layout(t, order);
}

std::string pointer(const RowChain& chain, size_t slot) { return "p" + std::to_string(chain.first_slot + slot); }

}  // namespace

std::optional<RowChain> RowChain::under(cpu::PointwiseProgram& program, std::span<const int64_t> shape,
                                        std::vector<int> kept, std::vector<int> reduced) {
  RowChain out{&program, {}, std::move(kept), std::move(reduced), 0};
  for (const Tensor& t : program.tensors()) {
    const std::optional<Tensor> slot = view_as(t, shape);
    if (!slot) return std::nullopt;
    out.slots.push_back(*slot);
  }
  return out;
}

std::string pointers_text(const RowChain& chain) {
  std::string out;
  for (size_t i = 0; i < chain.slots.size(); ++i)
    out += "  auto* " + pointer(chain, i) + " = reinterpret_cast<" + raw_type(chain.slots[i].dtype) + "*>(args.data[" +
           std::to_string(chain.first_slot + i) + "]);\n";
  return out;
}

std::string element_text(const RowChain& chain, const std::string& name, bool with_stores, const cpu::Value* value) {
  bool is_wide = false;
  for (const Tensor& t : chain.slots) is_wide |= needs_wide_index(t);
  const std::string index = is_wide ? "int64_t" : "uint32_t";
  std::string out = "  const auto " + name + " = [&](int64_t row_number, int64_t number_in_row) {\n";
  out += "    [[maybe_unused]] const auto row = static_cast<" + index + ">(row_number), at = static_cast<" + index +
         ">(number_in_row);\n";
  std::vector<SlotText> elements;
  for (size_t i = 0; i < chain.slots.size(); ++i) {
    const std::string row = offset_text(layout(chain.slots[i], chain.kept), "row", is_wide),
                      at = offset_text(layout(chain.slots[i], chain.reduced), "at", is_wide);
    const std::string place = pointer(chain, i) + "[" + (row == "0" ? at : at == "0" ? row : row + " + " + at) + "]";
    elements.push_back({place, place});
  }
  out += steps_text(*chain.program, elements, with_stores, "    ", value ? value->reg : -1);
  if (value) out += "    return made(" + value_name(value->reg) + ");\n";
  return out + "  };\n";
}

std::string how_text(const ReduceHow& how, const std::string& name) {
  return "  const ReduceHow " + name + "{Reduce::" + kind_name(how.kind) + ", " + number_text(how.parameter, false) +
         ", " + (how.whole ? "true" : "false") + ", Element::" + element_name(how.from) + ", " +
         std::to_string(how.count) + "ll};\n";
}

}  // namespace sg::cuda
