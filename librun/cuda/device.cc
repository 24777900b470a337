#include "librun/cuda/device.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <mutex>
#include <thread>

#include "libgraph/base/hex.h"
#include "librun/cuda/kernel_image.h"
#include "librun/sanitize.h"

namespace sg::cuda {
namespace {

constexpr int64_t kGrain = 512;            // granularity of memory blocks, in bytes
constexpr int64_t kMostBlocks = 132 * 16;  // limit for kernels that loop: many times what runs at once

static_assert(kMaxAxes == kMaxRank);

Element element_of(DType t) {
  switch (t) {
    case DType::f64: return Element::f64;
    case DType::f32: return Element::f32;
    case DType::f16: return Element::f16;
    case DType::bf16: return Element::bf16;
    case DType::f8e4m3fn: return Element::f8e4m3fn;
    case DType::f8e5m2: return Element::f8e5m2;
    case DType::f8e4m3fnuz: return Element::f8e4m3fnuz;
    case DType::f8e5m2fnuz: return Element::f8e5m2fnuz;
    case DType::i64:
    case DType::u64: return Element::i64;
    case DType::i32: return Element::i32;
    case DType::i16: return Element::i16;
    case DType::i8: return Element::i8;
    case DType::u8: return Element::u8;
    case DType::boolean: return Element::boolean;
    case DType::c64: return Element::c64;
    default: return Element::c128;
  }
}

// The kernels on a device, shared by the whole process: loaded once, and unloaded at exit.
Result<CUmodule> kernels_of(const Driver& driver, CUdevice device) {
  static std::mutex mutex;
  static std::map<CUdevice, CUmodule> loaded;
  std::lock_guard lock(mutex);
  CUmodule& module = loaded[device];
  if (!module) SG_CU(driver, cuModuleLoadData(&module, kernel_image()));
  return module;
}

Error too_old(const std::string& name, int architecture) {
  auto text = [](int a) { return std::to_string(a / 10) + "." + std::to_string(a % 10); };
  return Error{
      ErrorKind::missing,
      name + " has compute capability " + text(architecture) + ", and " + text(kOldestArchitecture) + " is needed",
      {},
      "a GPU of 2020 or later (A100, RTX 30, H100), or --backend cpu"};
}

}  // namespace

// --- memory ---

CachedMemory::~CachedMemory() {
  for (auto& [size, memory] : kept_free_) release(memory);
  drop_free();
  for (auto& [memory, size] : taken_) release(memory);
}

std::byte* CachedMemory::allocate(int64_t bytes) {
  auto size = static_cast<size_t>(bytes);
  if (on_host_) {
    if (!require_memory(bytes).ok()) return nullptr;  // pinned pages are allocated immediately
    void* memory = nullptr;
    const unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    return driver_.cuMemHostAlloc(&memory, size, flags) == CUDA_SUCCESS ? static_cast<std::byte*>(memory) : nullptr;
  }
  CUdeviceptr memory = 0;
  return driver_.cuMemAlloc_v2(&memory, size) == CUDA_SUCCESS ? reinterpret_cast<std::byte*>(memory) : nullptr;
}

void CachedMemory::release(std::byte* memory) {
  if (on_host_) driver_.cuMemFreeHost(memory);
  else driver_.cuMemFree_v2(reinterpret_cast<CUdeviceptr>(memory));
}

void CachedMemory::drop_free() {
  for (auto& [size, memory] : free_) release(memory);
  free_.clear();
}

std::byte* CachedMemory::take(int64_t bytes) {
  if (bytes < 0 || bytes > INT64_MAX - kGrain) return nullptr;
  const bool is_exact = kSeesAddresses && !keeps_;  // so that accesses outside requested sizes are detected
  if (!is_exact) bytes = std::max<int64_t>((bytes + kGrain - 1) / kGrain * kGrain, kGrain);
  std::byte* memory = nullptr;
  for (auto* list : {&kept_free_, &free_}) {
    if (list == &kept_free_ && !keeps_) continue;
    auto fit = list->lower_bound(bytes);
    if (memory || fit == list->end() || fit->first > bytes + bytes / 4) continue;
    bytes = fit->first;
    memory = fit->second;
    list->erase(fit);
  }
  if (!memory) {
    memory = allocate(bytes);
    if (!memory && !free_.empty()) drop_free(), memory = allocate(bytes);
  }
  if (memory) taken_.emplace(memory, bytes);
  if (memory && keeps_) kept_.insert(memory);
  return memory;
}

void CachedMemory::give(std::byte* memory) {
  auto it = taken_.find(memory);
  if (it == taken_.end()) return;
  (kept_.contains(memory) ? kept_free_ : free_).emplace(it->second, memory);
  taken_.erase(it);
  if (kSeesAddresses) drop_free();
}

int64_t CachedMemory::free_bytes() const {
  if (on_host_) return std::max<int64_t>(available_memory(), 0);
  size_t left = 0, total = 0;
  return driver_.cuMemGetInfo_v2(&left, &total) == CUDA_SUCCESS ? static_cast<int64_t>(left) : 0;
}

// --- the device ---

Result<std::unique_ptr<Device>> Device::open(const Driver& driver, int number) {
  std::unique_ptr<Device> device(new Device(driver));
  SG_TRY(device->start(number));
  return device;
}

Status Device::start(int number) {
  SG_CU(driver_, cuDeviceGet(&device_, number));
  char name[128] = {};
  SG_CU(driver_, cuDeviceGetName(name, sizeof name, device_));
  name_ = name;
  CUuuid id = {};
  SG_CU(driver_, cuDeviceGetUuid_v2(&id, device_));
  identity_ = hex(std::as_bytes(std::span(id.bytes)));
  int major = 0, minor = 0;
  SG_CU(driver_, cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_));
  SG_CU(driver_, cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_));
  architecture_ = 10 * major + minor;
  if (architecture_ < kOldestArchitecture) return too_old(name_, architecture_);
  SG_CU(driver_, cuDevicePrimaryCtxRetain(&context_, device_));
  SG_CU(driver_, cuCtxSetCurrent(context_));
  SG_ASSIGN(module_, kernels_of(driver_, device_));
  SG_CU(driver_, cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  fault_ = reinterpret_cast<Fault*>(host_memory_.take(sizeof(Fault)));
  if (!fault_) return Error{ErrorKind::missing, "no memory that host and GPU share"};
  *fault_ = Fault();
  step_on_host_ = reinterpret_cast<uint64_t*>(host_memory_.take(sizeof(uint64_t)));
  if (!step_on_host_) return Error{ErrorKind::missing, "no memory that host and GPU share"};
  step_ = reinterpret_cast<uint64_t*>(memory_.take(sizeof(uint64_t)));
  if (!step_) return Error{ErrorKind::missing, "no memory on the GPU for the number of the step"};
  begin_step(0);
  return noted_;
}

Device::~Device() {
  if (stream_) driver_.cuStreamSynchronize(stream_), driver_.cuStreamDestroy_v2(stream_);
  for (CUmodule module : loaded_) driver_.cuModuleUnload(module);
  // The memory is released with its members; the context and the kernels stay for the process.
}

void Device::note(Status status) {
  if (noted_.ok() && !status.ok()) noted_ = std::move(status);
}

void Device::launch_bytes(CUstream stream, const char* kernel, int64_t blocks, const void* args) {
  if (blocks <= 0 || !noted_.ok()) return;
  auto known = functions_.find(std::string_view(kernel));
  if (known == functions_.end()) {
    CUfunction function = nullptr;
    note(check(driver_, driver_.cuModuleGetFunction(&function, module_, kernel), kernel));
    if (!function) return;
    known = functions_.emplace(kernel, function).first;
  }
  start_kernel(stream, known->second, blocks, args, kernel);
}

void Device::start_kernel(CUstream stream, CUfunction function, int64_t blocks, const void* args, const char* what) {
  if (blocks > INT_MAX)  // maximum grid size
    return note(Error{ErrorKind::missing,
                      std::string(what) + " needs " + std::to_string(blocks) + " blocks, more than a launch has"});
  void* parameters[] = {const_cast<void*>(args)};
  note(check(driver_,
             driver_.cuLaunchKernel(function, static_cast<unsigned>(blocks), 1, 1, kLanes, 1, 1, 0, stream, parameters,
                                    nullptr),
             what));
}

void Device::launch_function(CUfunction function, int64_t blocks, const void* args, const char* what) {
  if (blocks > 0 && noted_.ok()) start_kernel(stream_, function, blocks, args, what);
}

Result<CUfunction> Device::load_function(const std::string& code, const char* name) {
  CUmodule module = nullptr;
  SG_CU(driver_, cuModuleLoadData(&module, code.data()));
  loaded_.push_back(module);
  CUfunction function = nullptr;
  SG_CU(driver_, cuModuleGetFunction(&function, module, name));
  return function;
}

// Nothing of the previous step runs, so the last copy has been made. Recordings read what this one brings.
void Device::begin_step(uint64_t step) {
  *step_on_host_ = step;
  note(check(driver_,
             driver_.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(step_), reinterpret_cast<CUdeviceptr>(step_on_host_),
                                   sizeof(uint64_t), stream_),
             "cuMemcpyAsync"));
}

// --- recording ---

Status Device::touch() {
  ++touches_;
  if (!is_recording_) return ok_status();
  return Error{ErrorKind::internal, "the host took part in kernels that were being recorded"};
}

Status Device::begin_recording() {
  // Relaxed: other threads, and allocations of scratch, are not captured.
  SG_CU(driver_, cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  is_recording_ = true;
  memory_.keep(true);
  return ok_status();
}

Result<CUgraphExec> Device::end_recording() {
  is_recording_ = false;
  memory_.keep(false);
  CUgraph graph = nullptr;
  SG_CU(driver_, cuStreamEndCapture(stream_, &graph));
  CUgraphExec ready = nullptr;
  const CUresult code = driver_.cuGraphInstantiateWithFlags(&ready, graph, 0);
  driver_.cuGraphDestroy(graph);
  SG_TRY(check(driver_, code, "cuGraphInstantiate"));
  return ready;
}

Status Device::make_urgent_stream(CUstream* stream) {
  int least = 0, greatest = 0;
  SG_CU(driver_, cuCtxGetStreamPriorityRange(&least, &greatest));
  SG_CU(driver_, cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, greatest));
  return ok_status();
}

Status Device::synchronize() {
  SG_TRY(touch());
  if (!watch_) return check(driver_, driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  using Clock = std::chrono::steady_clock;
  constexpr auto kPatience = std::chrono::microseconds(500);  // most waits are shorter; a busy machine's yields are not
  for (const auto begin = Clock::now();;) {
    const CUresult code = driver_.cuStreamQuery(stream_);
    if (code != CUDA_ERROR_NOT_READY) return check(driver_, code, "cuStreamQuery");
    if (Clock::now() - begin < kPatience) {
      std::this_thread::yield();
      continue;
    }
    SG_TRY(watch_());
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

View Device::view(const Tensor& t) {
  View out;
  out.data = reinterpret_cast<unsigned char*>(t.data);
  out.element = element_of(t.dtype);
  out.conjugate = t.conjugate;
  out.axes = t.rank;
  out.count = t.elements();
  for (int axis = 0; axis < t.rank; ++axis) {
    out.shape[axis] = t.dim(axis);
    out.stride[axis] = t.step(axis);
  }
  return out;
}

int merge_axes(View* view, int first, int end) {
  int to = first;
  auto put = [&](int axis) {
    view->shape[to] = view->shape[axis];
    view->stride[to++] = view->stride[axis];
  };
  for (int axis = first; axis < end; ++axis) {
    if (view->shape[axis] == 1) continue;
    if (to > first && view->stride[to - 1] == view->stride[axis] * view->shape[axis]) {
      view->shape[to - 1] *= view->shape[axis];
      view->stride[to - 1] = view->stride[axis];
    } else {
      put(axis);
    }
  }
  const int left = to;
  for (int axis = end; axis < view->axes; ++axis) put(axis);
  view->axes = to;
  return left;
}

View element_view(const Tensor& t) {
  View view = Device::view(t);
  merge_axes(&view, 0, view.axes);
  return view;
}

View row_view(const Tensor& t) {
  View view = Device::view(t);
  if (view.axes > 0) merge_axes(&view, 0, view.axes - 1);
  return view;
}

int64_t blocks_for(int64_t elements) { return std::min((elements + kLanes - 1) / kLanes, kMostBlocks); }

}  // namespace sg::cuda
