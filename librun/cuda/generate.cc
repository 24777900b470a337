#include "librun/cuda/generate.h"

#include <algorithm>

#include "librun/cpu/pointwise_rules.h"
#include "librun/cuda/chain_text.h"

namespace sg::cuda {
namespace {

using CodeStep = cpu::Step;

// A tensor as this kernel accesses it.
struct Slot {
  cpu::Layout layout;
  DType dtype = DType::none;
  bool loads = false, stores = false;
  bool packs = false;  // `width` elements are contiguous and aligned
  bool is_point = false;
};

class Writer {
 public:
  explicit Writer(cpu::PointwiseProgram& program) : program_(program), code_(program.code()) {}

  GeneratedChain write() {
    find_slots();
    choose_width();
    GeneratedChain out;
    out.text = "#include \"librun/cuda/kernels/generated.h\"\n\nnamespace sg::cuda {\n\n" + body();
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
      Slot slot;
      slot.layout = cpu::Layout(t, order);
      slot.dtype = t.dtype;
      slot.is_point = slot.layout.is_point();
      slots_.push_back(slot);
      elements_ = t.elements();
      is_wide_ |= needs_wide_index(t);
    }
    for (const CodeStep& s : code_.steps) {
      if (s.kind == CodeStep::Kind::load) slots_[static_cast<size_t>(s.slot)].loads = true;
      if (s.kind == CodeStep::Kind::store) slots_[static_cast<size_t>(s.slot)].stores = true;
    }
  }

  // Whether `width` elements from each multiple of it on are contiguous, and loads of that size are aligned.
  bool can_pack(const Slot& slot, const Tensor& t, int width) const {
    const cpu::Layout& l = slot.layout;
    if (l.axes == 0) return false;
    const auto last = static_cast<size_t>(l.axes - 1);
    if (l.stride[last] != 1 || l.shape[last] % width != 0) return false;
    for (size_t axis = 0; axis < last; ++axis)
      if (l.stride[axis] % width != 0) return false;
    const auto bytes = std::min<uint64_t>(static_cast<uint64_t>(width * dtype_bytes(t.dtype)), 16);
    return reinterpret_cast<uintptr_t>(t.data) % bytes == 0;
  }

  // As many as fill 16 bytes of the narrowest tensor, if most tensors allow it.
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

  std::string body() {
    std::string loads, stores, locals;
    std::vector<SlotText> elements;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const Slot& s = slots_[i];
      const std::string k = std::to_string(i), raw = raw_type(s.dtype), first = offset_text(s.layout, "i", is_wide_);
      const std::string element = "p" + k + "[" + offset_text(s.layout, width_ > 1 ? "i + j" : "i", is_wide_) + "]";
      elements.push_back({s.is_point ? "x" + k
                          : s.packs  ? "x" + k + ".of[j]"
                                     : element,
                          s.packs ? "y" + k + ".of[j]" : element});
      locals += "    auto* p" + k + " = reinterpret_cast<" + raw + "*>(args.data[" + k + "]);\n";
      if (s.is_point && s.loads) locals += "    const " + raw + " x" + k + " = *p" + k + ";\n";
      if (s.packs && s.loads)
        loads +=
            "      const auto x" + k + " = load_pack<" + std::to_string(width_) + ">(p" + k + " + (" + first + "));\n";
      if (s.packs && s.stores) {
        loads += "      Pack<" + raw + ", " + std::to_string(width_) + "> y" + k + ";\n";
        stores += "      store_pack(p" + k + " + (" + first + "), y" + k + ");\n";
      }
    }
    const std::string width = std::to_string(width_), index = is_wide_ ? "int64_t" : "uint32_t";
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
    out += steps_text(program_, elements, true, "        ");
    out += "      }\n" + stores + "    }\n  });\n}\n\n}  // namespace sg::cuda\n";
    return out;
  }

  cpu::PointwiseProgram& program_;
  const cpu::PointwiseCode& code_;
  std::vector<Slot> slots_;
  int64_t elements_ = 0;
  int width_ = 1;
  bool is_wide_ = false;
};

}  // namespace

std::optional<GeneratedChain> generate_chain(cpu::PointwiseProgram& program) {
  if (!has_text(program)) return std::nullopt;
  return Writer(program).write();
}

}  // namespace sg::cuda
