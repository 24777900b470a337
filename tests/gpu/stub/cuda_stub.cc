// libcuda.so.1 for tests: the driver calls that the CUDA backend makes, on host memory.
//
// A stream is a thread that works on a queue, so that what is asynchronous on a device is asynchronous here: without a
// wait for the event, the data read is not there yet. Kernels are host builds of the same bodies
// (librun/cuda/kernels/block.h).
//   SG_STUB_DEVICES=N        the number of devices (1)
//   SG_STUB_VERSION=12080    the driver's version of CUDA (13000)
//   SG_STUB_ARCHITECTURE=75  the GPU's architecture (90)
//   SG_STUB_FAIL=NAME:N      the N-th call of that function fails
//   SG_STUB_MEMORY=BYTES     the memory of a device
//   SG_STUB_SLOW=NAME:MS     that kernel takes so much longer; memcpy: copies to and from the host; cuInit
//   SG_STUB_KERNELS=FILE     logs the name of each kernel launched
//   SG_STUB_LAUNCHES=FILE    logs each launch: the kernel's name and the number of blocks; "memset BYTES"
//   SG_STUB_TRANSFERS=FILE   logs each copy between host and device: "up BYTES" or "down BYTES"
//   SG_STUB_BLOCKS=down      blocks of a launch run from last to first
//   SG_STUB_LOADING=FILE     logs CUDA_MODULE_LOADING, as cuInit finds it
//   SG_STUB_GUARD=1          the host cannot access device memory (guard.h)
//   SG_STUB_CAPTURES=FILE    logs each recorded graph: its number of launches
// A call needs the context of a device as the thread's current one, and that of the stream it refers to; freeing or
// destroying without a context, or a stream or an event in another's, ends the process, as nobody reads what those
// calls return (context.h).
// Copies are between allocated blocks, those of a device by its own streams, and must not overlap. A copy from or to
// host memory that is not pinned is synchronous, and waits for all before it, as on a device.
// Modules are the built-in kernels, or libraries of the NVRTC stub. While a stream is recorded, calls that would wait
// for it, or copy what the host may change, end the recording with an error, as the driver does.
// With SG_LANE_KERNELS a block is not a loop over lanes: see lanes.h.
#define SG_HOST_KERNELS
#ifdef SG_LANE_KERNELS
#include "tests/gpu/stub/lanes.h"
#endif
#include "librun/cuda/kernels/all.h"
#include "tests/gpu/stub/guard.h"

#include <cuda.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/gpu/stub/context.h"
#include "tests/gpu/stub/stream.h"

#undef cuEventElapsedTime  // the name that every driver has (librun/cuda/driver.h)

namespace {

using sg::cuda::HostKernel;
using stub::Event;
using stub::Mark;
using stub::Stream;

// The streams of this thread, which is one rank with a device of its own.
thread_local std::vector<Stream*> own_streams;

Stream* stream_of(CUstream s) { return reinterpret_cast<Stream*>(s); }
Event* event_of(CUevent e) { return reinterpret_cast<Event*>(e); }

// --- failing on purpose ---

bool fails(const char* name) {
  static const char* rule = std::getenv("SG_STUB_FAIL");
  if (!rule) return false;
  static std::atomic<long> calls{0};
  const std::string text(rule);
  const size_t colon = text.find(':');
  if (text.compare(0, colon, name) != 0) return false;
  return ++calls == std::atol(text.c_str() + colon + 1);
}
#define FAIL_IF_ASKED(code) \
  if (fails(__func__)) return code
#define IN_A_CONTEXT \
  if (stub_current_context() == 0) return CUDA_ERROR_INVALID_CONTEXT
#define IN_CONTEXT_OF(thing) \
  if ((thing)->context == 0 || (thing)->context != stub_current_context()) return CUDA_ERROR_INVALID_CONTEXT
#define ENDS_IN_A_CONTEXT \
  if (stub_current_context() == 0) ended_without_context(__func__)
#define ENDS_IN_CONTEXT_OF(thing) \
  if ((thing)->context != stub_current_context()) ended_without_context(__func__)
// A call that waits for a stream, or reads what may have changed by the time of a launch, cannot be recorded.
#define NOT_RECORDED(stream)                      \
  if (stream_of(stream)->is_recorded()) {         \
    stream_of(stream)->spoil();                   \
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; \
  }

void note_transfer(const char* direction, size_t bytes) {
  if (const char* file = std::getenv("SG_STUB_TRANSFERS"))
    if (std::FILE* f = std::fopen(file, "a")) std::fprintf(f, "%s %zu\n", direction, bytes), std::fclose(f);
}

// The delay added to a kernel.
std::chrono::milliseconds delay_of(const char* kernel) {
  static const char* rule = std::getenv("SG_STUB_SLOW");
  const std::string text(rule ? rule : "");
  const size_t colon = text.find(':');
  const bool is_meant = colon != std::string::npos && text.compare(0, colon, kernel) == 0;
  return std::chrono::milliseconds(is_meant ? std::atol(text.c_str() + colon + 1) : 0);
}

// --- memory ---

std::mutex memory_mutex;
struct Block {
  size_t bytes = 0;
  uintptr_t device = 0;  // the context; 0: pinned host memory
};
std::map<const unsigned char*, Block> memory;
size_t in_use = 0;

size_t memory_size() {
  static const char* text = std::getenv("SG_STUB_MEMORY");
  return text ? static_cast<size_t>(std::atoll(text)) : size_t{8} << 30;
}

CUresult allocate(void** out, size_t bytes, bool counts) {
  std::lock_guard guard(memory_mutex);
  if (counts && in_use + bytes > memory_size()) return CUDA_ERROR_OUT_OF_MEMORY;
  // Device memory is not zeroed. It ends where it was asked to end, so that sanitizers see accesses past it.
  Guard* own = counts ? Guard::find() : nullptr;
  void* block = own ? own->take(bytes) : nullptr;
  if (!own && posix_memalign(&block, 512, std::max<size_t>(bytes, 1)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(block, 0xCB, std::min<size_t>(bytes, 1 << 20));
  if (own) own->close(block);
  memory[static_cast<unsigned char*>(block)] = {bytes, counts ? stub_current_context() : 0};
  if (counts) in_use += bytes;
  *out = block;
  return CUDA_SUCCESS;
}

CUresult release(void* block) {
  std::lock_guard guard(memory_mutex);
  auto it = memory.find(static_cast<unsigned char*>(block));
  if (it == memory.end()) return CUDA_ERROR_INVALID_VALUE;
  if (it->second.device != 0) in_use -= it->second.bytes;
  memory.erase(it);
  if (!Guard::find() || !Guard::find()->give(block)) std::free(block);
  return CUDA_SUCCESS;
}

// Whether a copy in a stream of `context` may access these bytes: device memory of the context, or pinned host memory,
// which has the same address on a device.
bool is_held(const void* at, size_t bytes, uintptr_t context) {
  if (bytes == 0) return true;
  std::lock_guard guard(memory_mutex);
  const auto* first = static_cast<const unsigned char*>(at);
  auto it = memory.upper_bound(first);
  if (it == memory.begin()) return false;
  const auto& [begin, block] = *--it;
  if (first + bytes > begin + block.bytes) return false;
  return block.device == 0 || block.device == context;
}
bool are_apart(CUdeviceptr a, CUdeviceptr b, size_t bytes) { return a + bytes <= b || b + bytes <= a; }

}  // namespace

#define STUB extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI

STUB cuInit(unsigned) {
  std::this_thread::sleep_for(delay_of("cuInit"));
  FAIL_IF_ASKED(CUDA_ERROR_NO_DEVICE);
  if (const char* file = std::getenv("SG_STUB_LOADING"))
    if (std::FILE* f = std::fopen(file, "w")) {
      const char* how = std::getenv("CUDA_MODULE_LOADING");
      std::fprintf(f, "%s", how ? how : ""), std::fclose(f);
    }
  return CUDA_SUCCESS;
}
STUB cuDriverGetVersion(int* version) {
  const char* text = std::getenv("SG_STUB_VERSION");
  *version = text ? std::atoi(text) : 13000;
  return CUDA_SUCCESS;
}
STUB cuDeviceGetCount(int* count) {
  const char* text = std::getenv("SG_STUB_DEVICES");
  *count = text ? std::atoi(text) : 1;
  return CUDA_SUCCESS;
}
STUB cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return CUDA_SUCCESS;
}
STUB cuDeviceGetName(char* name, int length, CUdevice) {
  std::snprintf(name, static_cast<size_t>(length), "stand-in for a GPU (on the host)");
  return CUDA_SUCCESS;
}
// SG_STUB_FIRST_DEVICE: which of the machine's devices is the first that this process sees, as with
// CUDA_VISIBLE_DEVICES.
STUB cuDeviceGetUuid_v2(CUuuid* id, CUdevice device) {
  FAIL_IF_ASKED(CUDA_ERROR_INVALID_DEVICE);
  const char* first = std::getenv("SG_STUB_FIRST_DEVICE");
  *id = {};
  id->bytes[0] = static_cast<char>(device + (first ? std::atoi(first) : 0));
  return CUDA_SUCCESS;
}
STUB cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  const char* text = std::getenv("SG_STUB_ARCHITECTURE");
  const int architecture = text ? std::atoi(text) : 90;
  *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? architecture / 10 : architecture % 10;
  return CUDA_SUCCESS;
}
STUB cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FAIL_IF_ASKED(CUDA_ERROR_OUT_OF_MEMORY);
  *context = reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device) + 1);
  return CUDA_SUCCESS;
}
STUB cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }

namespace {
thread_local uintptr_t current_context = 0;
}
STUB cuCtxSetCurrent(CUcontext context) {
  current_context = reinterpret_cast<uintptr_t>(context);
  return CUDA_SUCCESS;
}
extern "C" __attribute__((visibility("default"))) uintptr_t stub_current_context() { return current_context; }

STUB cuMemGetInfo_v2(size_t* left, size_t* total) {
  IN_A_CONTEXT;
  std::lock_guard guard(memory_mutex);
  *total = memory_size();
  *left = *total - in_use;
  return CUDA_SUCCESS;
}
STUB cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  IN_A_CONTEXT;
  FAIL_IF_ASKED(CUDA_ERROR_OUT_OF_MEMORY);
  return allocate(reinterpret_cast<void**>(out), bytes, true);
}
STUB cuMemFree_v2(CUdeviceptr block) {
  ENDS_IN_A_CONTEXT;
  for (Stream* s : own_streams) s->wait();  // as the driver does
  return release(reinterpret_cast<void*>(block));
}
STUB cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  IN_A_CONTEXT;
  FAIL_IF_ASKED(CUDA_ERROR_OUT_OF_MEMORY);
  return allocate(out, bytes, false);
}
STUB cuMemFreeHost(void* block) {
  ENDS_IN_A_CONTEXT;
  for (Stream* s : own_streams) s->wait();
  return release(block);
}

STUB cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  IN_CONTEXT_OF(stream_of(stream));
  FAIL_IF_ASKED(CUDA_ERROR_LAUNCH_FAILED);
  for (CUdeviceptr side : {to, from})
    if (!is_held(reinterpret_cast<void*>(side), bytes, stream_of(stream)->context)) return CUDA_ERROR_INVALID_VALUE;
  if (!are_apart(to, from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  stream_of(stream)->add([=] {
    std::this_thread::sleep_for(delay_of("memcpy"));
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  });
  return CUDA_SUCCESS;
}
STUB cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  IN_CONTEXT_OF(stream_of(stream));
  FAIL_IF_ASKED(CUDA_ERROR_LAUNCH_FAILED);
  NOT_RECORDED(stream);
  note_transfer("up", bytes);
  const uintptr_t context = stream_of(stream)->context;
  if (!is_held(reinterpret_cast<void*>(to), bytes, context)) return CUDA_ERROR_INVALID_VALUE;
  stream_of(stream)->add([=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
  if (!is_held(from, bytes, context)) stream_of(stream)->wait();
  return CUDA_SUCCESS;
}
STUB cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  IN_CONTEXT_OF(stream_of(stream));
  FAIL_IF_ASKED(CUDA_ERROR_LAUNCH_FAILED);
  NOT_RECORDED(stream);
  note_transfer("down", bytes);
  const uintptr_t context = stream_of(stream)->context;
  if (!is_held(reinterpret_cast<void*>(from), bytes, context)) return CUDA_ERROR_INVALID_VALUE;
  stream_of(stream)->add([=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
  if (!is_held(to, bytes, context)) stream_of(stream)->wait();
  return CUDA_SUCCESS;
}
STUB cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  IN_CONTEXT_OF(stream_of(stream));
  FAIL_IF_ASKED(CUDA_ERROR_LAUNCH_FAILED);
  for (CUdeviceptr side : {to, from})
    if (!is_held(reinterpret_cast<void*>(side), bytes, stream_of(stream)->context)) return CUDA_ERROR_INVALID_VALUE;
  if (!are_apart(to, from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  stream_of(stream)->add([=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
  return CUDA_SUCCESS;
}

STUB cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  IN_CONTEXT_OF(stream_of(stream));
  FAIL_IF_ASKED(CUDA_ERROR_LAUNCH_FAILED);
  if (!is_held(reinterpret_cast<void*>(to), bytes, stream_of(stream)->context)) return CUDA_ERROR_INVALID_VALUE;
  if (const char* file = std::getenv("SG_STUB_LAUNCHES"))
    if (std::FILE* f = std::fopen(file, "a")) std::fprintf(f, "memset %zu\n", bytes), std::fclose(f);
  stream_of(stream)->add([=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
  return CUDA_SUCCESS;
}

// A stream that waits for the default stream would wait for whatever a library does there.
static CUresult new_stream(CUstream* stream, unsigned flags, int priority) {
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = reinterpret_cast<CUstream>(new Stream(current_context, priority));
  own_streams.push_back(stream_of(*stream));
  return CUDA_SUCCESS;
}
STUB cuStreamCreate(CUstream* stream, unsigned flags) {
  IN_A_CONTEXT;
  FAIL_IF_ASKED(CUDA_ERROR_OUT_OF_MEMORY);
  return new_stream(stream, flags, 0);
}
STUB cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  IN_A_CONTEXT;
  FAIL_IF_ASKED(CUDA_ERROR_OUT_OF_MEMORY);
  return new_stream(stream, flags, priority);
}
STUB cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  IN_A_CONTEXT;
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}
extern "C" __attribute__((visibility("default"))) int stub_stream_priority(CUstream stream) {
  return stream_of(stream)->priority;
}
STUB cuStreamDestroy_v2(CUstream stream) {
  ENDS_IN_CONTEXT_OF(stream_of(stream));
  std::erase(own_streams, stream_of(stream));
  delete stream_of(stream);
  return CUDA_SUCCESS;
}
STUB cuStreamSynchronize(CUstream stream) {
  IN_CONTEXT_OF(stream_of(stream));
  FAIL_IF_ASKED(CUDA_ERROR_LAUNCH_FAILED);
  NOT_RECORDED(stream);
  stream_of(stream)->wait();
  return CUDA_SUCCESS;
}
STUB cuStreamQuery(CUstream stream) {
  IN_CONTEXT_OF(stream_of(stream));
  NOT_RECORDED(stream);
  return stream_of(stream)->idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
STUB cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  IN_CONTEXT_OF(stream_of(stream));
  FAIL_IF_ASKED(CUDA_ERROR_LAUNCH_FAILED);
  NOT_RECORDED(stream);
  std::shared_ptr<Mark> mark = event_of(event)->mark;
  if (mark) stream_of(stream)->add([mark] { mark->wait(); });
  return CUDA_SUCCESS;
}
STUB cuLaunchHostFunc(CUstream stream, CUhostFn fn, void* data) {
  IN_CONTEXT_OF(stream_of(stream));
  stream_of(stream)->add([=] { fn(data); });
  return CUDA_SUCCESS;
}

STUB cuEventCreate(CUevent* event, unsigned flags) {
  IN_A_CONTEXT;
  FAIL_IF_ASKED(CUDA_ERROR_OUT_OF_MEMORY);
  *event = reinterpret_cast<CUevent>(new Event{(flags & CU_EVENT_DISABLE_TIMING) == 0, current_context, nullptr});
  return CUDA_SUCCESS;
}
STUB cuEventDestroy_v2(CUevent event) {
  ENDS_IN_CONTEXT_OF(event_of(event));
  delete event_of(event);
  return CUDA_SUCCESS;
}
STUB cuEventRecord(CUevent event, CUstream stream) {
  IN_CONTEXT_OF(stream_of(stream));
  FAIL_IF_ASKED(CUDA_ERROR_LAUNCH_FAILED);
  NOT_RECORDED(stream);
  if (event_of(event)->context != stream_of(stream)->context) return CUDA_ERROR_INVALID_HANDLE;
  auto mark = std::make_shared<Mark>();
  event_of(event)->mark = mark;
  stream_of(stream)->add([mark] { mark->reach(); });
  return CUDA_SUCCESS;
}
STUB cuEventQuery(CUevent event) {
  IN_CONTEXT_OF(event_of(event));
  const auto& mark = event_of(event)->mark;
  return !mark || mark->is_reached() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

STUB cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  IN_A_CONTEXT;
  FAIL_IF_ASKED(CUDA_ERROR_LAUNCH_FAILED);
  const Event &from = *event_of(begin), &to = *event_of(end);
  if (!from.is_timed || !to.is_timed || !from.mark || !to.mark) return CUDA_ERROR_INVALID_HANDLE;
  if (!from.mark->is_reached() || !to.mark->is_reached()) return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(to.mark->at - from.mark->at).count();
  return CUDA_SUCCESS;
}

STUB cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  IN_CONTEXT_OF(stream_of(stream));
  FAIL_IF_ASKED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return stream_of(stream)->record() ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}
STUB cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  IN_CONTEXT_OF(stream_of(stream));
  FAIL_IF_ASKED(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  auto recorded = stream_of(stream)->end_recording();
  if (!recorded) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *graph = reinterpret_cast<CUgraph>(recorded.release());
  return CUDA_SUCCESS;
}
STUB cuGraphInstantiateWithFlags(CUgraphExec* ready, CUgraph graph, unsigned long long) {
  IN_A_CONTEXT;
  FAIL_IF_ASKED(CUDA_ERROR_OUT_OF_MEMORY);
  const auto& jobs = *reinterpret_cast<Stream::Graph*>(graph);
  *ready = reinterpret_cast<CUgraphExec>(new Stream::Graph(jobs));
  if (const char* file = std::getenv("SG_STUB_CAPTURES"))
    if (std::FILE* f = std::fopen(file, "a")) std::fprintf(f, "%zu\n", jobs.size()), std::fclose(f);
  return CUDA_SUCCESS;
}
STUB cuGraphDestroy(CUgraph graph) {
  delete reinterpret_cast<Stream::Graph*>(graph);
  return CUDA_SUCCESS;
}
STUB cuGraphExecDestroy(CUgraphExec graph) {
  delete reinterpret_cast<Stream::Graph*>(graph);
  return CUDA_SUCCESS;
}
STUB cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  IN_CONTEXT_OF(stream_of(stream));
  FAIL_IF_ASKED(CUDA_ERROR_LAUNCH_FAILED);
  NOT_RECORDED(stream);
  for (const auto& job : *reinterpret_cast<Stream::Graph*>(graph)) stream_of(stream)->add(job);
  return CUDA_SUCCESS;
}

namespace {

using Kernels = std::vector<HostKernel>;

// A library made by the NVRTC stub: ELF, like the driver's own code.
const Kernels* load_library(const void* image) {
  uint64_t size;
  std::memcpy(&size, static_cast<const char*>(image) + 8, sizeof size);
  const int file = memfd_create("chain", 0);
  if (file < 0 || write(file, static_cast<const char*>(image) + 16, size) != static_cast<ssize_t>(size)) return nullptr;
  void* library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), nullptr;
  auto* kernels = reinterpret_cast<const void* (*)()>(dlsym(library, "sg_generated_kernels"));
  return kernels ? static_cast<const Kernels*>(kernels()) : nullptr;
}

}  // namespace

STUB cuModuleLoadData(CUmodule* module, const void* image) {
  IN_A_CONTEXT;
  FAIL_IF_ASKED(CUDA_ERROR_NO_BINARY_FOR_GPU);
  if (std::memcmp(image, "SG_STUB_", 8) == 0) {
    *module = reinterpret_cast<CUmodule>(const_cast<Kernels*>(load_library(image)));
    return *module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
  }
  constexpr unsigned kFatbin = 0xBA55ED50;  // the magic number of a file from nvcc
  unsigned magic;
  std::memcpy(&magic, image, sizeof magic);
  if (magic != kFatbin) return CUDA_ERROR_INVALID_IMAGE;
  *module = reinterpret_cast<CUmodule>(&sg::cuda::host_kernels());
  return CUDA_SUCCESS;
}
STUB cuModuleUnload(CUmodule) {
  ENDS_IN_A_CONTEXT;
  return CUDA_SUCCESS;
}
STUB cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  IN_A_CONTEXT;
  for (const HostKernel& kernel : *reinterpret_cast<const Kernels*>(module))
    if (std::string(kernel.name) == name) {
      *function = reinterpret_cast<CUfunction>(const_cast<HostKernel*>(&kernel));
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_NOT_FOUND;
}
STUB cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned lanes, unsigned lanes_y,
                    unsigned lanes_z, unsigned, CUstream stream, void** parameters, void** extra) {
  IN_CONTEXT_OF(stream_of(stream));
  FAIL_IF_ASKED(CUDA_ERROR_LAUNCH_FAILED);
  if (x == 0 || y != 1 || z != 1 || lanes != sg::cuda::kLanes || lanes_y != 1 || lanes_z != 1 || extra)
    return CUDA_ERROR_INVALID_VALUE;
  const auto* kernel = reinterpret_cast<const HostKernel*>(function);
  if (const char* file = std::getenv("SG_STUB_KERNELS"))
    if (std::FILE* f = std::fopen(file, "a")) std::fprintf(f, "%s\n", kernel->name), std::fclose(f);
  if (const char* file = std::getenv("SG_STUB_LAUNCHES"))
    if (std::FILE* f = std::fopen(file, "a")) std::fprintf(f, "%s %u\n", kernel->name, x), std::fclose(f);
  auto args = std::make_shared<std::vector<unsigned char>>(kernel->args_bytes);
  std::memcpy(args->data(), parameters[0], kernel->args_bytes);  // a launch has its own copy
  const auto delay = delay_of(kernel->name);
  stream_of(stream)->add([kernel, x, args, delay] {
    std::this_thread::sleep_for(delay);
    kernel->run(x, args->data());
  });
  return CUDA_SUCCESS;
}

STUB cuGetErrorName(CUresult code, const char** name) {
  *name = code == CUDA_ERROR_OUT_OF_MEMORY                ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == CUDA_ERROR_LAUNCH_FAILED              ? "CUDA_ERROR_LAUNCH_FAILED"
          : code == CUDA_ERROR_NO_DEVICE                  ? "CUDA_ERROR_NO_DEVICE"
          : code == CUDA_ERROR_INVALID_CONTEXT            ? "CUDA_ERROR_INVALID_CONTEXT"
          : code == CUDA_ERROR_INVALID_VALUE              ? "CUDA_ERROR_INVALID_VALUE"
          : code == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
          : code == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ? "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
                                                          : "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}
STUB cuGetErrorString(CUresult, const char** text) {
  *text = "on purpose, or by mistake";
  return CUDA_SUCCESS;
}
