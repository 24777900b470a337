#include "librun/cuda/generate_reduction.h"

#include <algorithm>

#include "librun/cuda/chain_text.h"
#include "librun/cuda/generate.h"
#include "librun/cuda/kernels/generated_reduce.h"
#include "librun/cuda/row_text.h"
#include "librun/execute/memory_ranges.h"

namespace sg::cuda {
namespace {

constexpr int64_t kFewRows = 128;   // fewer keep a device busy only if they go by parts
constexpr int64_t kLongRow = 8192;  // in elements; shorter ones finish quickly anyway
// For stages after a reduction, which as separate kernels would have a lane for each element.
constexpr int64_t kShortRow = 2048;  // longer ones need enough rows
constexpr int64_t kBriefRow = 16;    // shorter rows leave most lanes idle, and are allowed
constexpr int64_t kManyRows = 1024;  // only if there are at most this many

// Whether adjacent lanes, which take adjacent elements of a row, read contiguous memory.
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

// A chain with the reduction of one of its values.
struct Reduced {
  const KernelCall* call = nullptr;
  cpu::Value value;
  ReductionPlan plan;
};

Result<std::optional<Reduced>> reduced_by(cpu::PointwiseProgram& chain, const KernelCall& call) {
  const std::optional<Reduced> no;
  const std::optional<Reduction> reduction = find_reduction(call);
  const bool converts = reduction && reduction->first != DType::none;
  if (!reduction || converts || call.tensor("self").elements() == 0) return no;
  Reduced out{&call, chain.made(call.tensor("self")), {}};
  if (out.value.reg < 0) return no;
  SG_ASSIGN(out.plan, plan_reduction(call, *reduction, call.tensor("self")));
  return is_worth_it(out.plan, call.tensor("self")) ? std::optional(std::move(out)) : no;
}

std::string opening(const char* args) {
  return "#include \"librun/cuda/kernels/generated_reduce.h\"\n\nnamespace sg::cuda {\n\nSG_KERNEL(" +
         std::string(kGeneratedKernel) + ", " + args + ") {\n";
}
constexpr const char* kClosing = "}\n\n}  // namespace sg::cuda\n";

// `body` with a `team` that processes one row at a time.
std::string team_text(bool by_warps, const std::string& body) {
  if (by_warps) return "  for_warps(block, [&](const auto& team) {\n" + body + "  });\n";
  return "  const Block& team = block;\n" + body;
}

std::string text_of(const RowChain& chain, const Reduced& reduced) {
  std::string out = opening("ReducedChainArgs") + pointers_text(chain);
  const ReduceHow& how = reduced.plan.args.how;
  const bool is_twice = reduced.plan.way == ReduceWay::rows && takes_two_passes(how.kind);
  if (is_twice) out += element_text(chain, "early", false, &reduced.value);
  out += element_text(chain, "last", true, &reduced.value);
  out += how_text(how, "how");
  switch (reduced.plan.way) {
    case ReduceWay::row_parts: out += "  sum_made_run(block, args, how, last);\n"; break;
    case ReduceWay::column_parts: out += "  sum_made_tile(block, args, how, last);\n"; break;
    case ReduceWay::rows:
      out += team_text(reduced.plan.by_warps, "    reduce_made_rows(team, args, how, " +
                                                  std::string(is_twice ? "early" : "last") + ", last);\n");
      break;
  }
  return out + kClosing;
}

// --- several stages ---

// The bytes that stage `stage` reads or writes in each row.
struct Touched {
  size_t stage = 0;
  bool writes = false;
  Tensor tensor;
  std::vector<int64_t> steps;  // stride between rows, by kept axis
  int64_t span = 0;            // per row
};

Touched touched(size_t stage, bool writes, const Tensor& t, const std::vector<int>& kept,
                const std::vector<int>& reduced) {
  const int64_t bytes = dtype_bytes(t.dtype);
  Touched out{stage, writes, t, {}, bytes};
  for (int axis : kept) out.steps.push_back(t.step(axis) * bytes);
  for (int axis : reduced) out.span += (t.dim(axis) - 1) * t.step(axis) * bytes;
  return out;
}

// Whether no row of one accesses memory of a different row of the other.
bool keep_to_rows(const Touched& a, const Touched& b, const std::vector<int64_t>& rows) {
  if (!share_memory(a.tensor, b.tensor)) return true;
  std::vector<std::pair<int64_t, int64_t>> axes;  // bytes, size
  for (size_t k = 0; k < rows.size(); ++k) {
    if (rows[k] == 1) continue;
    if (a.steps[k] != b.steps[k]) return false;
    axes.emplace_back(a.steps[k], rows[k]);
  }
  int64_t reach = std::max(a.tensor.data + a.span, b.tensor.data + b.span) - std::min(a.tensor.data, b.tensor.data);
  std::sort(axes.begin(), axes.end());
  for (const auto& [step, size] : axes) {
    if (step < reach) return false;
    reach += step * (size - 1);
  }
  return true;
}

class StageWriter {
 public:
  // False: the stage is not added, and the kernel is refused.
  Result<bool> add(const RowStage& stage) {
    if (!has_text(*stage.program) || (stages_ == 0 && !stage.reduction)) return false;
    std::optional<Reduced> reduced;
    if (stage.reduction) {
      SG_ASSIGN(reduced, reduced_by(*stage.program, *stage.reduction));
      if (!reduced || reduced->plan.way != ReduceWay::rows) return false;
      if (shape_.empty() && !begin(*reduced)) return false;
      const bool is_same = std::ranges::equal(stage.reduction->tensor("self").sizes(), shape_);
      if (!is_same || reduced->plan.kept != kept_ || out_.to.size() == kMostReductions) return false;
    }
    const int64_t elements = stage.program->tensors()[0].elements();
    const bool is_by_row = elements == rows_;  // one number per row
    if (!is_by_row && elements != rows_ * count_) return false;
    auto chain = is_by_row ? RowChain::under(*stage.program, row_shape_, row_axes_, {})
                           : RowChain::under(*stage.program, shape_, kept_, reduced_);
    if (!chain || out_.data.size() + chain->slots.size() > static_cast<size_t>(kMostSlots)) return false;
    if (is_by_row && reduced) return false;
    chain->first_slot = out_.data.size();
    write(*chain, reduced ? &*reduced : nullptr, is_by_row);
    return true;
  }

  // None: rows would conflict.
  std::optional<GeneratedRows> finish() {
    for (size_t i = 0; i < touched_.size(); ++i)
      for (size_t j = i + 1; j < touched_.size(); ++j) {
        const Touched &a = touched_[i], &b = touched_[j];
        const bool is_apart = a.stage == b.stage || !(a.writes || b.writes);
        if (!is_apart && !keep_to_rows(a, b, row_shape_)) return std::nullopt;
      }
    out_.rows = rows_;
    out_.blocks = blocks_;
    out_.text = opening("RowStagesArgs") + functions_ +
                team_text(by_warps_, "  for (int64_t row = team.index(); row < args.rows; row += team.count()) {\n" +
                                         body_ + "  }\n") +
                kClosing;
    return std::move(out_);
  }

 private:
  bool begin(const Reduced& first) {
    const Tensor& self = first.call->tensor("self");
    rows_ = first.plan.args.to.to.count;
    count_ = first.plan.args.how.count;
    blocks_ = first.plan.blocks;
    by_warps_ = first.plan.by_warps;
    shape_.assign(self.sizes().begin(), self.sizes().end());
    kept_ = first.plan.kept;
    reduced_ = first.plan.reduced;
    for (int axis : kept_) {
      row_axes_.push_back(static_cast<int>(row_axes_.size()));
      row_shape_.push_back(self.dim(axis));
    }
    const bool is_worth_it = (rows_ >= kFewRows || count_ <= kShortRow) && (rows_ <= kManyRows || count_ >= kBriefRow);
    return count_ > 1 && is_worth_it;
  }

  void write(const RowChain& chain, const Reduced* reduced, bool is_by_row) {
    const std::string number = std::to_string(stages_), last = "last" + number;
    const cpu::Value* value = reduced ? &reduced->value : nullptr;
    functions_ += pointers_text(chain);
    // Lane 0 reads back what it has written for the row itself; other lanes must synchronize first.
    if (stages_ > 0 && !(is_by_row && is_by_first_)) body_ += "    team.sync();\n";
    functions_ += element_text(chain, last, true, value);
    if (reduced) {
      const ReduceHow& how = reduced->plan.args.how;
      const std::string early = takes_two_passes(how.kind) ? "early" + number : last;
      if (early != last) functions_ += element_text(chain, early, false, value);
      functions_ += how_text(how, "how" + number);
      body_ += "    reduce_made_row(team, how" + number + ", args.to[" + std::to_string(out_.to.size()) + "], row, " +
               early + ", " + last + ");\n";
      out_.to.push_back(reduced->plan.args.to);
      for (const Tensor& result : reduced->call->results)  // one number per row, regardless of axes of size 1
        touched_.push_back(touched(stages_ + kBehind, true, *view_as(result, row_shape_), row_axes_, {}));
    } else if (is_by_row) {
      body_ += "    by_first_lane(team, row, " + last + ");\n";
    } else {
      body_ += "    by_each_lane(team, row, " + std::to_string(count_) + "ll, " + last + ");\n";
    }
    is_by_first_ = reduced || is_by_row;
    std::vector<bool> writes(chain.slots.size());
    for (const cpu::Step& s : chain.program->code().steps)
      if (s.kind == cpu::Step::Kind::store) writes[static_cast<size_t>(s.slot)] = true;
    for (size_t i = 0; i < chain.slots.size(); ++i) {
      touched_.push_back(touched(stages_, writes[i], chain.slots[i], chain.kept, chain.reduced));
      out_.data.push_back(chain.slots[i].data);
    }
    ++stages_;
  }

  static constexpr size_t kBehind = 1000;  // writes of a reduction count as a separate stage

  GeneratedRows out_;
  std::vector<int64_t> shape_, row_shape_;
  std::vector<int> kept_, reduced_, row_axes_;
  int64_t rows_ = 0, count_ = 0, blocks_ = 0;
  bool by_warps_ = false;
  size_t stages_ = 0;
  bool is_by_first_ = false;  // lane 0 made the last write
  std::vector<Touched> touched_;
  std::string functions_, body_;
};

}  // namespace

Result<std::optional<GeneratedReduction>> generate_reduction(cpu::PointwiseProgram& chain, const KernelCall& call) {
  const std::optional<GeneratedReduction> no;
  if (!has_text(chain)) return no;
  SG_ASSIGN(std::optional<Reduced> reduced, reduced_by(chain, call));
  if (!reduced) return no;
  const auto rows = RowChain::under(chain, call.tensor("self").sizes(), reduced->plan.kept, reduced->plan.reduced);
  if (!rows) return no;
  GeneratedReduction out;
  for (const Tensor& t : chain.tensors()) {
    out.data.push_back(t.data);
    for (const Tensor& result : call.results) out.holds_back |= !result.is_none() && share_memory(result, t);
  }
  out.text = text_of(*rows, *reduced);
  out.plan = std::move(reduced->plan);
  return std::optional(std::move(out));
}

Result<std::optional<GeneratedRows>> generate_rows(std::span<const RowStage> stages) {
  StageWriter writer;
  for (const RowStage& stage : stages) {
    SG_ASSIGN(bool fits, writer.add(stage));
    if (!fits) return std::optional<GeneratedRows>();
  }
  return writer.finish();
}

}  // namespace sg::cuda
