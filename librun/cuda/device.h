// One device from the point of view of one rank: a stream, memory, kernels by name, and their reports of bad data.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "librun/cuda/clock.h"
#include "librun/cuda/driver.h"
#include "librun/cuda/kernels/view.h"
#include "librun/execute/memory.h"
#include "librun/kernel.h"

namespace sg::cuda {

// Device memory, or host memory that both can access. Released blocks are kept for later requests of about the same
// size.
class CachedMemory : public MemorySource {
 public:
  CachedMemory(const Driver& driver, bool on_host) : driver_(driver), on_host_(on_host) {}
  ~CachedMemory() override;
  std::byte* take(int64_t bytes) override;
  void give(std::byte* memory) override;
  int64_t free_bytes() const override;
  std::string title() const override { return on_host_ ? "the host" : "the GPU"; }
  // While this is set, blocks taken are reserved for recordings from then on: after release, only other recordings may
  // get them, because a recording writes to its blocks whenever it runs.
  void keep(bool keeps) { keeps_ = keeps; }

 private:
  std::byte* allocate(int64_t bytes);
  void release(std::byte* memory);
  void drop_free();

  const Driver& driver_;
  bool on_host_;
  bool keeps_ = false;
  std::set<std::byte*> kept_;                     // used by recordings
  std::multimap<int64_t, std::byte*> kept_free_;  // the released ones of these, by size
  std::multimap<int64_t, std::byte*> free_;       // by size
  std::map<std::byte*, int64_t> taken_;
};

class Device {
 public:
  static Result<std::unique_ptr<Device>> open(const Driver& driver, int number);
  ~Device();

  const Driver& driver() const { return driver_; }
  CUstream stream() const { return stream_; }
  MemorySource& memory() { return memory_; }
  MemorySource& host_memory() { return host_memory_; }
  std::string name() const { return name_; }
  std::string identity() const { return identity_; }  // equal for one GPU, whichever process sees it
  StreamClock& clock() { return clock_; }

  // Launches `blocks` blocks of a kernel (kernels/block.h) on the stream; does nothing if `blocks` is 0.
  template <class Args>
  void launch(const char* kernel, int64_t blocks, const Args& args) {
    launch_bytes(stream_, kernel, blocks, &args);
  }
  template <class Args>
  void launch_on(CUstream stream, const char* kernel, int64_t blocks, const Args& args) {
    launch_bytes(stream, kernel, blocks, &args);
  }
  void launch_raw(const char* kernel, int64_t blocks, const void* args) { launch_bytes(stream_, kernel, blocks, args); }
  void launch_function(CUfunction function, int64_t blocks, const void* args, const char* what);
  // A function in a module of its own, which stays loaded.
  Result<CUfunction> load_function(const std::string& code, const char* name);
  int architecture() const { return architecture_; }  // 90 = sm_90

  // See backend.h.
  Status begin_recording();
  Result<CUgraphExec> end_recording();
  uint64_t touches() const { return touches_; }
  // Notes that the host takes part; an error during a recording.
  Status touch();

  // A stream whose blocks start before any that wait in the compute stream: else a collective would begin only when a
  // grid that fills the device has ended.
  Status make_urgent_stream(CUstream* stream);

  // Waits for the stream. `watch` is called meanwhile; an error from it ends the wait.
  Status synchronize();
  // A copy from or to unpinned host memory makes the driver wait for the stream within the call, during which `watch`
  // would not be called. If there is a `watch`, this waits first.
  Status before_pageable_copy() { return watch_ ? synchronize() : ok_status(); }
  void set_watch(std::function<Status()> watch) { watch_ = std::move(watch); }
  // Notes an error for the next `settle`; only the first one is kept.
  void note(Status status);
  Status noted() const { return noted_; }

  Report report() const { return {fault_, place_}; }
  void at(uint64_t place) { place_ = place; }
  uint64_t place() const { return place_; }
  Fault* fault() { return fault_; }
  // Where kernels read the step number: on the device, as each lane that draws reads it.
  const uint64_t* step_counter() const { return step_; }
  void begin_step(uint64_t step);

  // A view of a tensor on this device; the host never reads it.
  static View view(const Tensor& t);

 private:
  explicit Device(const Driver& driver) : driver_(driver), memory_(driver, false), host_memory_(driver, true) {}
  Status start(int number);
  void start_kernel(CUstream stream, CUfunction function, int64_t blocks, const void* args, const char* what);
  void launch_bytes(CUstream stream, const char* kernel, int64_t blocks, const void* args);

  const Driver& driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;  // shared by the process (kernels_of)
  CUstream stream_ = nullptr;
  StreamClock clock_{*this};
  CachedMemory memory_, host_memory_;
  Fault* fault_ = nullptr;  // in memory that both can access
  uint64_t *step_ = nullptr, *step_on_host_ = nullptr;
  uint64_t place_ = 0, touches_ = 0;
  bool is_recording_ = false;
  int architecture_ = 0;
  std::vector<CUmodule> loaded_;
  std::string name_, identity_;
  Status noted_ = ok_status();
  std::function<Status()> watch_;
  std::map<std::string, CUfunction, std::less<>> functions_;
};

// Enough blocks to give every element a lane, up to what a device runs at once.
int64_t blocks_for(int64_t elements);

// Merges axes in [first, end) of a view that continue each other, and drops axes of size 1. The order of elements is
// unchanged, and kernels need fewer divisions. Returns the end of the remaining axes.
int merge_axes(View* view, int first, int end);
// Views for kernels that number all elements of a tensor, and for those that number rows and positions along the last
// axis.
View element_view(const Tensor& t);
View row_view(const Tensor& t);

}  // namespace sg::cuda
