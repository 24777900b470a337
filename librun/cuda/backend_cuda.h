// The CUDA backend of one rank: see backend.h for what it promises.
#pragma once

#include <memory>

#include "librun/backend_plugin.h"
#include "librun/cuda/device.h"

namespace sg::cuda {

class Lt;

class CudaBackend : public Backend {
 public:
  CudaBackend(std::unique_ptr<Device> device, const BackendOptions& options, std::unique_ptr<Lt> lt);
  ~CudaBackend() override;

  Device& device() { return *device_; }
  Lt& lt() { return *lt_; }

  Kernel find_kernel(const OpInfo& op) const override;
  Result<std::unique_ptr<DeviceProgram>> compile(cpu::PointwiseProgram& program) override;
  void at(uint64_t place) override { device_->at(place); }
  MemorySource& memory() override { return device_->memory(); }
  MemorySource& host_memory() override { return device_->host_memory(); }
  Tensor scratch(DType dtype, std::span<const int64_t> shape) override;
  void reset_scratch() override;
  Status upload(std::byte* to, const std::byte* from, int64_t bytes) override;
  Status download(std::byte* to, const std::byte* from, int64_t bytes) override;
  void copy(const Tensor& to, const Tensor& from) override;
  void fill(const Tensor& to, Scalar value) override;
  Status multiply(KernelCall& call, const cpu::Gemm& product) override;
  Status attend(KernelCall& call, const cpu::Attention& a, const cpu::AttentionResult& result) override;
  Status attend_backward(KernelCall& call, const cpu::Attention& a, const cpu::AttentionGradients& g) override;
  void note(Status status) override { device_->note(std::move(status)); }
  Result<std::optional<DeviceFault>> settle() override;
  Result<std::unique_ptr<Communicator>> communicator(Communicator& host) override;

 private:
  std::unique_ptr<Device> device_;
  BackendOptions options_;
  std::unique_ptr<Lt> lt_;
  std::vector<std::byte*> scratch_;     // of this call
};

// The backend that a call runs on.
inline CudaBackend& backend_of(const KernelCall& call) { return static_cast<CudaBackend&>(*sg::backend_of(call.context())); }
inline Device& device_of(const KernelCall& call) { return backend_of(call).device(); }

// Kernels by family, for the table in kernels.cc.
std::span<const KernelRow> matmul_kernels();     // grouped; the others come by Backend::multiply
std::span<const KernelRow> row_kernels();
std::span<const KernelRow> index_kernels();
std::span<const KernelRow> other_kernels();

// A pointwise call alone.
Status run_pointwise(KernelCall& call);
// Whether every step that the op is lowered to has a row in element_ops.def, as far as the op alone says.
bool knows_pointwise(std::string_view op);

}  // namespace sg::cuda
