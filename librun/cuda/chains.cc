// Chains of pointwise ops as machine code: alone, and with the reduction at their end.
#include <array>

#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/code.h"
#include "librun/cuda/generate.h"
#include "librun/cuda/generate_reduction.h"
#include "librun/cuda/kernels/generated.h"
#include "librun/cuda/kernels/generated_reduce.h"
#include "librun/cuda/kernels/parts.h"

namespace sg::cuda {
namespace {

class ChainProgram : public DeviceProgram {
 public:
  ChainProgram(Device& device, CUfunction function, const GeneratedChain& chain)
      : device_(device), function_(function), blocks_(blocks_for(chain.elements / chain.width)) {
    args_.elements = chain.elements;
    for (size_t i = 0; i < chain.data.size(); ++i) args_.data[i] = reinterpret_cast<unsigned char*>(chain.data[i]);
  }
  Status run() override {
    args_.report = device_.report();
    device_.launch_function(function_, blocks_, &args_, "a chain of pointwise ops");
    return device_.noted();
  }

 private:
  Device& device_;
  CUfunction function_;
  int64_t blocks_;
  ChainArgs args_;
};

class RowStagesProgram : public DeviceProgram {
 public:
  RowStagesProgram(Device& device, CUfunction function, const GeneratedRows& rows)
      : device_(device), function_(function), blocks_(rows.blocks) {
    args_.rows = rows.rows;
    for (size_t i = 0; i < rows.data.size(); ++i) args_.data[i] = reinterpret_cast<unsigned char*>(rows.data[i]);
    for (size_t i = 0; i < rows.to.size(); ++i) args_.to[i] = rows.to[i];
  }
  Status run() override {
    args_.report = device_.report();
    device_.launch_function(function_, blocks_, &args_, "chains of pointwise ops and reductions over the same rows");
    return device_.noted();
  }

 private:
  Device& device_;
  CUfunction function_;
  int64_t blocks_;
  RowStagesArgs args_;
};

// The scratch memory of a program is only valid while it runs, like that of a call.
class ReducedChainProgram : public DeviceProgram {
 public:
  ReducedChainProgram(CudaBackend& backend, CUfunction function, const GeneratedReduction& chain,
                      std::span<const Tensor> results)
      : backend_(backend), function_(function), plan_(chain.plan) {
    for (size_t i = 0; i < chain.data.size(); ++i) args_.data[i] = reinterpret_cast<unsigned char*>(chain.data[i]);
    args_.to = plan_.args.to;
    args_.parts = plan_.parts;
    if (chain.holds_back && plan_.way == ReduceWay::rows)  // parts are summed only after all blocks have finished
      for (const Tensor& result : results)
        if (!result.is_none()) held_.push_back(result);
  }

  Status run() override {
    const size_t mark = backend_.scratch_mark();
    Device& device = backend_.device();
    ReducedChainArgs args = args_;
    args.report = device.report();
    std::vector<Tensor> held;
    for (const Tensor& result : held_) held.push_back(hold_back(result, &args.to));
    if (plan_.way != ReduceWay::rows) args.parts.at = backend_.part_sums(plan_.parts);
    device.launch_function(function_, plan_.blocks, &args, "a chain of pointwise ops and its reduction");
    if (plan_.way != ReduceWay::rows)
      device.launch("finish_parts", blocks_for(args.parts.results),
                    PartsSumArgs{args.parts, args.to.to, {}, plan_.divisor, plan_.power});
    for (size_t i = 0; i < held.size(); ++i) backend_.copy(held_[i], held[i]);
    backend_.give_back_scratch(mark);
    return device.noted();
  }

 private:
  // Scratch in place of a result.
  Tensor hold_back(const Tensor& result, ReduceTo* to) {
    Tensor held = result;
    held.data = backend_.scratch(DType::u8, std::array{extent_bytes(result)}).data;
    for (View* view : {&to->to, &to->mean, &to->index})
      if (view->data == reinterpret_cast<unsigned char*>(result.data))
        view->data = reinterpret_cast<unsigned char*>(held.data);
    return held;
  }

  CudaBackend& backend_;
  CUfunction function_;
  ReductionPlan plan_;
  ReducedChainArgs args_;
  std::vector<Tensor> held_;  // results that are first written elsewhere
};

}  // namespace

// Null: compilation failed; `explain` says why. It would fail again, so that is remembered, too.
Result<CUfunction> CudaBackend::chain_code(const std::string& text) {
  auto known = chains_.by_text.find(text);
  if (known != chains_.by_text.end()) return known->second;
  auto code = chains_.maker->compile(text, device_->architecture());
  if (!code.ok()) {
    chains_.why = code.error().message;
    return chains_.by_text.emplace(text, nullptr).first->second;
  }
  SG_ASSIGN(CUfunction function, device_->load_function(*code, kGeneratedKernel));
  return chains_.by_text.emplace(text, function).first->second;
}

// Null: there is no code, because a step cannot be generated or NVRTC rejects it; the program is then interpreted.
Result<std::unique_ptr<DeviceProgram>> CudaBackend::generate(cpu::PointwiseProgram& program) {
  if (!chains_.maker) return std::unique_ptr<DeviceProgram>();
  std::optional<GeneratedChain> chain = generate_chain(program);
  if (!chain) return std::unique_ptr<DeviceProgram>();
  SG_ASSIGN(CUfunction function, chain_code(chain->text));
  if (!function) return std::unique_ptr<DeviceProgram>();
  return std::unique_ptr<DeviceProgram>(new ChainProgram(*device_, function, *chain));
}

Result<std::unique_ptr<DeviceProgram>> CudaBackend::compile(cpu::PointwiseProgram& program) {
  SG_ASSIGN(std::unique_ptr<DeviceProgram> generated, generate(program));
  chains_.generated += generated != nullptr;
  if (generated) return generated;
  SG_ASSIGN(std::unique_ptr<DeviceProgram> interpreted, interpret(program));
  chains_.interpreted += interpreted != nullptr;
  return interpreted;
}

// Null: not possible as one kernel.
Result<std::unique_ptr<DeviceProgram>> CudaBackend::generate(const RowStage& stage) {
  SG_ASSIGN(std::optional<GeneratedReduction> chain, generate_reduction(*stage.program, *stage.reduction));
  if (!chain) return std::unique_ptr<DeviceProgram>();
  SG_ASSIGN(CUfunction function, chain_code(chain->text));
  if (!function) return std::unique_ptr<DeviceProgram>();
  return std::unique_ptr<DeviceProgram>(new ReducedChainProgram(*this, function, *chain, stage.reduction->results));
}

Result<std::unique_ptr<DeviceProgram>> CudaBackend::compile_rows(std::span<const RowStage> stages) {
  std::unique_ptr<DeviceProgram> out;
  if (!chains_.maker) return out;
  if (stages.size() == 1) {
    SG_ASSIGN(out, generate(stages[0]));
  } else {
    SG_ASSIGN(std::optional<GeneratedRows> rows, generate_rows(stages));
    if (!rows) return out;
    SG_ASSIGN(CUfunction function, chain_code(rows->text));
    if (function) out = std::make_unique<RowStagesProgram>(*device_, function, *rows);
  }
  if (!out) return out;
  chains_.generated += stages.size();
  chains_.behind += stages.size() - 1;
  for (const RowStage& stage : stages) chains_.reduced += stage.reduction != nullptr;
  return out;
}

Result<bool> CudaBackend::run_once(cpu::PointwiseProgram& program) {
  SG_ASSIGN(std::unique_ptr<DeviceProgram> made, generate(program));
  if (!made) {
    SG_ASSIGN(made, interpret(program));
  }
  if (!made) return false;
  SG_TRY(made->run());
  return true;
}

}  // namespace sg::cuda
