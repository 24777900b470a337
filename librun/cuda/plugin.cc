// What sg-run loads the backend's library for: who makes backends, once everything that they need was found.
#include <memory>
#include <string>

#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/comm_nccl.h"
#include "librun/cuda/lt.h"

namespace sg::cuda {
namespace {

class CudaMaker : public BackendMaker {
 public:
  CudaMaker(const Driver& driver, const BackendOptions& options) : driver_(driver), options_(options) {}

  // A process may see only its own GPU, in which case that is used, whatever its index among the ranks of the machine.
  Result<std::unique_ptr<Backend>> make(uint32_t local_rank) override {
    int devices = 0;
    SG_CU(driver_, cuDeviceGetCount(&devices));
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
  SG_ASSIGN(const Driver* driver, load_driver(options.loads_all_at_once));
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
