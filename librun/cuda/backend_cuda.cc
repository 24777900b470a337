#include "librun/cuda/backend_cuda.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <new>

#include "libgraph/base/human.h"
#include "librun/cpu/move.h"
#include "librun/cuda/code.h"
#include "librun/cuda/comm_host.h"
#include "librun/cuda/comm_nccl.h"
#include "librun/cuda/kernels/copy.h"
#include "librun/cuda/kernels/reduce.h"
#include "librun/cuda/kernels/sum_parts.h"
#include "librun/cuda/lt.h"

namespace sg::cuda {

CudaBackend::CudaBackend(std::unique_ptr<Device> device, const BackendOptions& options, std::unique_ptr<Lt> lt)
    : device_(std::move(device)), options_(options), lt_(std::move(lt)), copies_(*device_) {
  const char* record = std::getenv("SG_CUDA_RECORD");
  records_ = !record || *record != '0';
  const char* interpret = std::getenv("SG_CUDA_INTERPRET");
  if (interpret && *interpret == '1') chains_.why = "SG_CUDA_INTERPRET says so";
  else chains_.maker = CodeMaker::find(&chains_.why);
}

CudaBackend::~CudaBackend() {
  reset_scratch();
  for (auto& [bytes, memory] : tables_)
    if (memory) device_->memory().give(memory);
}

Tensor CudaBackend::scratch(DType dtype, std::span<const int64_t> shape) {
  Tensor t = make_tensor(nullptr, dtype, shape);
  t.data = device_->memory().take(t.bytes());
  if (!t.data) throw std::bad_alloc();
  scratch_.push_back(t.data);
  return t;
}

TwoSums* CudaBackend::part_sums(const Parts& parts) {
  return reinterpret_cast<TwoSums*>(scratch(DType::f64, std::array<int64_t, 3>{parts.count, parts.results, 2}).data);
}

void CudaBackend::give_back_scratch(size_t mark) {
  for (size_t i = mark; i < scratch_.size(); ++i) device_->memory().give(scratch_[i]);
  scratch_.resize(mark);
}

template <class Copy>
Status CudaBackend::copy_and_wait(DeviceClock::Span::Kind kind, int64_t bytes, Copy copy) {
  SG_TRY(device_->touch());
  if (bytes == 0) return ok_status();
  SG_TRY(device_->before_pageable_copy());
  const uint64_t begin = device_->clock().mark();
  SG_TRY(copy(device_->driver(), static_cast<size_t>(bytes), device_->stream()));
  device_->clock().add({kind, bytes, begin, device_->clock().mark()});
  return device_->synchronize();
}

Status CudaBackend::upload(std::byte* to, const std::byte* from, int64_t bytes) {
  return copy_and_wait(DeviceClock::Span::Kind::upload, bytes, [&](const Driver& driver, size_t size, CUstream stream) {
    const auto target = reinterpret_cast<CUdeviceptr>(to);
    return check(driver, driver.cuMemcpyHtoDAsync_v2(target, from, size, stream), "cuMemcpyHtoDAsync_v2");
  });
}

Status CudaBackend::download(std::byte* to, const std::byte* from, int64_t bytes) {
  SG_TRY(device_->noted());
  return copy_and_wait(
      DeviceClock::Span::Kind::download, bytes, [&](const Driver& driver, size_t size, CUstream stream) {
        const auto source = reinterpret_cast<CUdeviceptr>(from);
        return check(driver, driver.cuMemcpyDtoHAsync_v2(to, source, size, stream), "cuMemcpyDtoHAsync_v2");
      });
}

uint64_t CudaBackend::begin_copy(std::byte* to, const std::byte* from, int64_t bytes, bool to_host) {
  Result<uint64_t> number = copies_.begin(to, from, bytes, to_host);
  if (number.ok()) return *number;
  device_->note(number.error());
  return copies_.begun();
}

void CudaBackend::end_copy(uint64_t number) { device_->note(copies_.end(number)); }

void CudaBackend::copy(const Tensor& to, const Tensor& from) {
  if (to.elements() == 0) return;
  const bool plain =
      to.dtype == from.dtype && to.conjugate == from.conjugate && to.is_contiguous() && from.is_contiguous();
  if (plain) {
    const Driver& driver = device_->driver();
    device_->note(check(
        driver,
        driver.cuMemcpyDtoDAsync_v2(reinterpret_cast<CUdeviceptr>(to.data), reinterpret_cast<CUdeviceptr>(from.data),
                                    static_cast<size_t>(to.bytes()), device_->stream()),
        "cuMemcpyDtoDAsync"));
    return;
  }
  if (to.dtype == from.dtype && to.conjugate == from.conjugate) return move(to, from);
  device_->launch("copy_elements", blocks_for(to.elements()), CopyArgs{element_view(to), element_view(from)});
}

void CudaBackend::move(const Tensor& to, const Tensor& from) {
  const cpu::MovePlan plan = cpu::plan_move(to, from);
  cpu::with_move(plan, to, from, [&]<class Work>(const Work& work) {
    const EachArgs<Work> args{plan.words, work};
    each(Work::kName, &args, args.count);
  });
}

namespace {

// Whether all bytes of an element of this value are zero, in every type.
bool is_all_zeros(std::complex<double> number) {
  return number == 0.0 && !std::signbit(number.real()) && !std::signbit(number.imag());
}

}  // namespace

void CudaBackend::fill(const Tensor& to, Scalar value) {
  const std::complex<double> number = value.to_complex();
  if (is_all_zeros(number) && to.is_dense() && to.elements() > 0) {
    const Driver& driver = device_->driver();
    device_->note(check(driver,
                        driver.cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(to.data), 0,
                                               static_cast<size_t>(to.bytes()), device_->stream()),
                        "cuMemsetD8Async"));
    return;
  }
  FillArgs args{element_view(to), number.real(), number.imag(), value.is_integral() ? value.i : 0, value.is_integral()};
  device_->launch("fill_elements", blocks_for(to.elements()), args);
}

void CudaBackend::each(const char* kernel, const void* args, int64_t count) {
  device_->launch_raw(kernel, blocks_for(count), args);
}

void CudaBackend::sum(const Tensor& to, const Tensor& from) {
  const int64_t blocks = std::clamp<int64_t>(from.elements() / (16 * kLanes), 1, 512);
  const Tensor parts = scratch(DType::f64, std::array{blocks});
  device_->launch("sum_parts", blocks, SumArgs{from.as<double>(), parts.as<double>(), from.elements()});
  device_->launch("sum_parts", 1, SumArgs{parts.as<double>(), to.as<double>(), blocks});
}

void CudaBackend::row_dots(const Tensor& to, const double* x, const double* y, int64_t length) {
  device_->launch("row_dots", to.elements(), RowDotArgs{x, y, to.as<double>(), to.elements(), length});
}

const std::byte* CudaBackend::table(std::span<const std::byte> bytes) {
  auto [it, is_new] = tables_.try_emplace({bytes.begin(), bytes.end()}, nullptr);
  if (!is_new) return it->second;
  it->second = device_->memory().take(std::max<int64_t>(static_cast<int64_t>(bytes.size()), 1));
  if (!it->second) throw std::bad_alloc();
  device_->note(upload(it->second, bytes.data(), static_cast<int64_t>(bytes.size())));
  return it->second;
}

namespace {

std::string fault_text(const Fault& fault) {
  switch (fault.kind) {
    case Fault::Kind::index:
      return "index " + std::to_string(fault.value) + " is out of range for size " + std::to_string(fault.limit);
    case Fault::Kind::division: return "an integer is divided by zero";
    case Fault::Kind::assertion: return "the assertion does not hold";
    case Fault::Kind::value: return std::to_string(fault.number) + " is not a value that the op takes";
    case Fault::Kind::none: break;
  }
  return "a fault without a name";
}

}  // namespace

// --- recording ---

namespace {

class Recorded : public DeviceProgram {
 public:
  Recorded(Device& device, CUgraphExec graph) : device_(device), graph_(graph) {}
  ~Recorded() override { device_.driver().cuGraphExecDestroy(graph_); }
  Status run() override {
    SG_TRY(device_.noted());
    return check(device_.driver(), device_.driver().cuGraphLaunch(graph_, device_.stream()), "cuGraphLaunch");
  }

 private:
  Device& device_;
  CUgraphExec graph_;
};

}  // namespace

Result<std::unique_ptr<DeviceProgram>> CudaBackend::end_recording() {
  SG_ASSIGN(CUgraphExec graph, device_->end_recording());
  return std::unique_ptr<DeviceProgram>(new Recorded(*device_, graph));
}

std::vector<std::string> CudaBackend::explain() const {
  const auto kernels = std::ranges::count_if(chains_.by_text, [](const auto& one) { return one.second != nullptr; });
  std::string chains = "chains of pointwise ops: " + std::to_string(chains_.generated) + " compiled (" +
                       std::to_string(kernels) + " kernels), " + std::to_string(chains_.interpreted) + " interpreted";
  if (!chains_.why.empty()) chains += ": " + chains_.why;
  std::vector<std::string> out{std::move(chains)};
  out.push_back("reductions fused with the chains before them: " + std::to_string(chains_.reduced) +
                ", and chains behind them: " + std::to_string(chains_.behind));
  if (pairs_ > 0)
    out.push_back("gradients of losses that the softmax before them makes itself: " + std::to_string(pairs_));
  if (const size_t nodes = dense_attention_.size(); nodes > 0)
    out.push_back("attention with its scores in memory, a part of them at a time: " + plural(nodes, "node"));
  if (const size_t nodes = plain_products_.size(); nodes > 0)
    out.push_back("products of floats without cuBLASLt, a lane for each element: " + plural(nodes, "node"));
  if (std::string refused = lt_->refused(); !refused.empty())
    out.push_back("products that cuBLASLt has no algorithm for: " + refused);
  if (!communicators_.empty()) out.push_back(communicators_);
  return out;
}

Result<std::optional<DeviceFault>> CudaBackend::settle() {
  SG_TRY(device_->noted());
  SG_TRY(device_->synchronize());
  Fault& fault = *device_->fault();
  if (fault.claimed == 0) return std::optional<DeviceFault>();
  DeviceFault out{fault.place, fault_text(fault)};
  fault = Fault();
  return std::optional(std::move(out));
}

Result<std::unique_ptr<Communicator>> CudaBackend::communicator(Communicator& host) {
  if (options_.nccl) return make_nccl_communicator(*device_, host, options_, &communicators_);
  return make_host_communicator(*this, host);
}

}  // namespace sg::cuda
