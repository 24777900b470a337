#include "librun/cuda/backend_cuda.h"

#include <complex>
#include <new>

#include "librun/cuda/comm_host.h"
#include "librun/cuda/comm_nccl.h"
#include "librun/cuda/kernels/copy.h"
#include "librun/cuda/lt.h"

namespace sg::cuda {

CudaBackend::CudaBackend(std::unique_ptr<Device> device, const BackendOptions& options, std::unique_ptr<Lt> lt)
    : device_(std::move(device)), options_(options), lt_(std::move(lt)) {}

CudaBackend::~CudaBackend() { reset_scratch(); }

Tensor CudaBackend::scratch(DType dtype, std::span<const int64_t> shape) {
  Tensor t = make_tensor(nullptr, dtype, shape);
  t.data = device_->memory().take(t.bytes());
  if (!t.data) throw std::bad_alloc();
  scratch_.push_back(t.data);
  return t;
}

void CudaBackend::reset_scratch() {
  for (std::byte* memory : scratch_) device_->memory().give(memory);
  scratch_.clear();
}

Status CudaBackend::upload(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes == 0) return ok_status();
  const Driver& driver = device_->driver();
  SG_CU(driver,
        cuMemcpyHtoDAsync_v2(reinterpret_cast<CUdeviceptr>(to), from, static_cast<size_t>(bytes), device_->stream()));
  return device_->synchronize();
}

Status CudaBackend::download(std::byte* to, const std::byte* from, int64_t bytes) {
  SG_TRY(device_->noted());
  if (bytes == 0) return ok_status();
  const Driver& driver = device_->driver();
  SG_CU(driver,
        cuMemcpyDtoHAsync_v2(to, reinterpret_cast<CUdeviceptr>(from), static_cast<size_t>(bytes), device_->stream()));
  return device_->synchronize();
}

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
  device_->launch("copy_elements", blocks_for(to.elements()), CopyArgs{Device::view(to), Device::view(from)});
}

void CudaBackend::fill(const Tensor& to, Scalar value) {
  const std::complex<double> number = value.to_complex();
  FillArgs args{Device::view(to), number.real(), number.imag(), value.is_integral() ? value.i : 0, value.is_integral()};
  device_->launch("fill_elements", blocks_for(to.elements()), args);
}

namespace {

std::string fault_text(const Fault& fault) {
  switch (fault.kind) {
    case Fault::Kind::index:
      return "index " + std::to_string(fault.value) + " is out of range for size " + std::to_string(fault.limit);
    case Fault::Kind::division: return "an integer is divided by zero";
    case Fault::Kind::assertion: return "the assertion does not hold";
    case Fault::Kind::none: break;
  }
  return "a fault without a name";
}

}  // namespace

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
  if (options_.nccl) return make_nccl_communicator(*device_, host, options_);
  return make_host_communicator(*this, host);
}

// --- the plugin ---

namespace {

class CudaMaker : public BackendMaker {
 public:
  CudaMaker(const Driver& driver, const BackendOptions& options) : driver_(driver), options_(options) {}

  Result<std::unique_ptr<Backend>> make(uint32_t /*rank*/, uint32_t local_rank, uint32_t local_ranks) override {
    int devices = 0;
    SG_CU(driver_, cuDeviceGetCount(&devices));
    if (options_.nccl && static_cast<uint32_t>(devices) < local_ranks)
      return Error{ErrorKind::missing,
                   "NCCL needs a GPU a rank: this machine has " + std::to_string(devices) + " for " +
                       std::to_string(local_ranks) + " ranks",
                   {},
                   "--comm local lets ranks share a GPU"};
    SG_ASSIGN(std::unique_ptr<Device> device,
              Device::open(driver_, static_cast<int>(local_rank % static_cast<uint32_t>(devices))));
    SG_ASSIGN(std::unique_ptr<Lt> lt, Lt::open(*device));
    return std::unique_ptr<Backend>(new CudaBackend(std::move(device), options_, std::move(lt)));
  }

  std::string describe() const override {
    CUdevice device = 0;
    char name[128] = "?";
    int devices = 0;
    driver_.cuDeviceGetCount(&devices);
    if (driver_.cuDeviceGet(&device, 0) == CUDA_SUCCESS) driver_.cuDeviceGetName(name, sizeof name, device);
    return std::to_string(devices) + " x " + name + ", driver for CUDA " + std::to_string(driver_.version / 1000) +
           "." + std::to_string(driver_.version % 1000 / 10);
  }

 private:
  const Driver& driver_;
  BackendOptions options_;
};

Result<std::unique_ptr<BackendMaker>> make_maker(const BackendOptions& options) {
  SG_ASSIGN(const Driver* driver, load_driver());
  SG_TRY(Lt::require());
  if (options.nccl) SG_TRY(require_nccl());
  return std::unique_ptr<BackendMaker>(new CudaMaker(*driver, options));
}

}  // namespace
}  // namespace sg::cuda

extern "C" __attribute__((visibility("default"))) const char* sg_backend_abi() { return SG_BACKEND_ABI; }

extern "C" __attribute__((visibility("default"))) sg::BackendMaker* sg_backend_make(const sg::BackendOptions& options,
                                                                                    sg::Error& error) {
  auto maker = sg::cuda::make_maker(options);
  if (maker.ok()) return maker.value().release();
  error = maker.error();
  return nullptr;
}
