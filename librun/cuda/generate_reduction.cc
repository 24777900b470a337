#include "librun/cuda/generate_reduction.h"

#include <array>

#include "librun/cuda/chain_text.h"
#include "librun/cuda/generate.h"

namespace sg::cuda {
namespace {

constexpr int64_t kFewRows = 128;   // fewer keep a device busy only if they go by parts
constexpr int64_t kLongRow = 8192;  // of numbers: shorter ones are soon done

bool overlap(const Tensor& a, const Tensor& b) {
  return a.data < b.data + extent_bytes(b) && b.data < a.data + extent_bytes(a);
}

// Whether neighbouring lanes, which take neighbours of a row, read what lies side by side.
bool lies_along_rows(const ReductionPlan& plan, const Tensor& self) {
  auto least = [&](const std::vector<int>& axes) {
    int64_t out = INT64_MAX;
    for (int axis : axes)
      if (self.dim(axis) > 1) out = std::min(out, self.step(axis));
    return out;
  };
  return least(plan.reduced) <= least(plan.kept);
}

bool is_worth_it(const ReductionPlan& plan, const Tensor& self) {
  if (plan.way != ReduceWay::rows) return true;
  const bool is_starved = plan.args.to.to.count < kFewRows && plan.args.how.count >= kLongRow;
  return !is_starved && lies_along_rows(plan, self);
}

const char* kind_name(Reduce kind) {
  constexpr const char* kNames[] = {"sum",   "mean",     "product",   "largest", "smallest",  "any",    "all",
                                    "count", "variance", "deviation", "norm",    "logsumexp", "nan_sum"};
  return kNames[static_cast<size_t>(kind)];
}

const char* element_name(Element element) {
  constexpr const char* kNames[] = {"f64", "f32", "f16", "bf16",    "i64", "i32",
                                    "i16", "i8",  "u8",  "boolean", "c64", "c128"};
  return kNames[static_cast<size_t>(element)];
}

class Writer {
 public:
  // `slots`: the chain's tensors as the reduction sees its axes. `value`: what is reduced.
  Writer(cpu::PointwiseProgram& chain, std::vector<Tensor> slots, cpu::Value value, const ReductionPlan& plan)
      : chain_(chain), slots_(std::move(slots)), value_(value), plan_(plan) {
    for (const Tensor& t : slots_) is_wide_ |= needs_wide_index(t);
  }

  std::string write() const {
    std::string out = "#include \"librun/cuda/kernels/generated_reduce.h\"\n\nnamespace sg::cuda {\n\nSG_KERNEL(" +
                      std::string(kGeneratedKernel) + ", ReducedChainArgs) {\n";
    for (size_t i = 0; i < slots_.size(); ++i) {
      const std::string k = std::to_string(i);
      out += "  auto* p" + k + " = reinterpret_cast<" + raw_type(slots_[i].dtype) + "*>(args.data[" + k + "]);\n";
    }
    const ReduceHow& how = plan_.args.how;
    const bool is_twice = plan_.way == ReduceWay::rows && takes_two_passes(how.kind);
    if (is_twice) out += element("early", false);
    out += element("last", true);
    switch (plan_.way) {
      case ReduceWay::row_parts: out += "  sum_made_run(block, args, last);\n"; break;
      case ReduceWay::column_parts: out += "  sum_made_tile(block, args, last);\n"; break;
      case ReduceWay::rows:
        out += "  const ReduceHow how{Reduce::" + std::string(kind_name(how.kind)) + ", " +
               number_text(how.parameter, false) + ", " + (how.whole ? "true" : "false") +
               ", Element::" + element_name(how.from) + ", " + std::to_string(how.count) + "ll};\n";
        out += "  reduce_made_rows(block, args, how, " + std::string(is_twice ? "early" : "last") + ", last);\n";
        break;
    }
    return out + "}\n\n}  // namespace sg::cuda\n";
  }

 private:
  // A function of the text: element `at` of row `row`.
  std::string element(const std::string& name, bool with_stores) const {
    const std::string index = is_wide_ ? "int64_t" : "uint32_t";
    std::string out = "  const auto " + name + " = [&](int64_t row_number, int64_t number_in_row) {\n";
    out += "    [[maybe_unused]] const auto row = static_cast<" + index + ">(row_number), at = static_cast<" + index +
           ">(number_in_row);\n";
    std::vector<SlotText> elements;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const std::string row = offset_text(layout(i, plan_.kept), "row", is_wide_),
                        at = offset_text(layout(i, plan_.reduced), "at", is_wide_);
      const std::string where = row == "0" ? at : at == "0" ? row : row + " + " + at;
      const std::string place = "p" + std::to_string(i) + "[" + where + "]";
      elements.push_back({place, place});
    }
    return out + steps_text(chain_, elements, with_stores, "    ") + "    return made(" + value_name(value_.reg) +
           ");\n  };\n";
  }

  // In the order in which rows, and the numbers of a row, are counted.
  cpu::Layout layout(size_t slot, const std::vector<int>& axes) const {
    std::vector<int> order;
    for (int axis : axes)
      if (slots_[slot].dim(axis) != 1) order.push_back(axis);
    return cpu::Layout(slots_[slot], order);
  }

  cpu::PointwiseProgram& chain_;
  std::vector<Tensor> slots_;
  cpu::Value value_;
  const ReductionPlan& plan_;
  bool is_wide_ = false;
};

}  // namespace

Result<std::optional<GeneratedReduction>> generate_reduction(cpu::PointwiseProgram& chain, const KernelCall& call) {
  const std::optional<GeneratedReduction> no;
  if (!has_text(chain)) return no;
  const std::optional<Reduction> reduction = find_reduction(call);
  const bool converts = reduction && reduction->first != DType::none;
  if (!reduction || converts || call.tensor("self").elements() == 0) return no;
  const Tensor& self = call.tensor("self");
  const cpu::Value value = chain.made(self);
  if (value.reg < 0) return no;
  GeneratedReduction out;
  SG_ASSIGN(out.plan, plan_reduction(call, *reduction, self));
  if (!is_worth_it(out.plan, self)) return no;
  std::vector<Tensor> slots;
  for (const Tensor& t : chain.tensors()) {
    std::optional<Tensor> slot = view_as(t, self.sizes());
    if (!slot) return no;
    slots.push_back(*slot);
    out.data.push_back(t.data);
    for (const Tensor& result : call.results) out.holds_back |= !result.is_none() && overlap(result, t);
  }
  out.text = Writer(chain, std::move(slots), value, out.plan).write();
  return std::optional(std::move(out));
}

}  // namespace sg::cuda
