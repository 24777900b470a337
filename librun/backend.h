// Backend: computes the nodes of one rank on a device other than the CPU, and owns the memory of their tensors.
//
// Order      Kernels, copies and transfers of one backend happen in the order in which they are requested; only
//            `download` and `settle` wait for them. Memory that is returned may therefore be reused immediately.
// Memory     Tensors of the graph are in device memory: the host accesses it only through `download`. Both may read and
//            write memory from `host_memory`.
// Failure    An error on the device, such as an index out of range, is known once `settle` returns, with the last place
//            given to `at` before the kernel was launched. Later kernels have run by then, on undefined data.
// Threads    A backend belongs to its rank's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "librun/comm/comm.h"
#include "librun/device_clock.h"
#include "librun/execute/memory.h"
#include "librun/kernel.h"
#include "librun/work/work.h"

namespace sg {

namespace cpu {
class PointwiseProgram;
struct Gemm;
struct Attention;
struct AttentionResult;
struct AttentionGradients;
}  // namespace cpu

// A pointwise program compiled for the device.
class DeviceProgram {
 public:
  virtual ~DeviceProgram() = default;
  virtual Status run() = 0;
};

// Pointwise calls, optionally followed by a reduction of one of their results; null = none.
struct RowStage {
  cpu::PointwiseProgram* program = nullptr;
  const KernelCall* reduction = nullptr;
};

// An error that a kernel found in the data.
struct DeviceFault {
  uint64_t place = 0;  // as given to `at`
  std::string message;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // The kernel of an op: takes tensors in device memory, and transfers numbers for the host itself. Null = none.
  virtual Kernel find_kernel(const OpInfo& op) const = 0;
  // Compiles the calls of a program to one kernel; null = too many for one.
  virtual Result<std::unique_ptr<DeviceProgram>> compile(cpu::PointwiseProgram& program) = 0;
  // The same for several stages; the first has a reduction. Values that a later stage reads are stored; null = not
  // possible as one kernel.
  virtual Result<std::unique_ptr<DeviceProgram>> compile_rows(std::span<const RowStage> stages) = 0;
  // Compiles two consecutive calls to one kernel: the second is the only reader of the first's result, which is never
  // stored. Null = there is no such kernel.
  virtual Result<std::unique_ptr<DeviceProgram>> compile_pair(const KernelCall& first, const KernelCall& second) = 0;
  // Runs the calls of a program once, without keeping it. False = too many for one kernel; nothing was done.
  virtual Result<bool> run_once(cpu::PointwiseProgram& program) = 0;
  // Begins a step. REQUIRES: nothing of the previous step is still running.
  virtual void begin_step(uint64_t step) = 0;
  virtual DeviceClock& clock() = 0;
  // Kernels launched from now on belong to this node (Heartbeat::place).
  virtual void at(uint64_t place) = 0;

  virtual MemorySource& memory() = 0;       // on the device, aligned to 256 bytes
  virtual MemorySource& host_memory() = 0;  // host memory that the device can also read and write
  // Device memory for one call: a contiguous tensor, not initialised. `reset_scratch` ends the call.
  virtual Tensor scratch(DType dtype, std::span<const int64_t> shape) = 0;
  virtual void reset_scratch() = 0;

  virtual Status upload(std::byte* to, const std::byte* from, int64_t bytes) = 0;    // `from` may be reused on return
  virtual Status download(std::byte* to, const std::byte* from, int64_t bytes) = 0;  // `to` is complete on return
  // Copies between views of the same shape, converting to the dtype of `to`. REQUIRES: no overlap, or the same view
  virtual void copy(const Tensor& to, const Tensor& from) = 0;
  virtual void fill(const Tensor& to, Scalar value) = 0;  // converts as PyTorch does

  // An asynchronous copy between device and host memory that runs beside the kernels: it starts after those requested
  // before it, and `end_copy` makes later kernels wait for it. Returns its number, never 0. Errors are reported through
  // `note`.
  virtual uint64_t begin_copy(std::byte* to, const std::byte* from, int64_t bytes, bool to_host) = 0;
  virtual void end_copy(uint64_t number) = 0;

  // Launches `kernel` over the elements; its arguments are an EachArgs (work/run.h).
  virtual void each(const char* kernel, const void* args, int64_t count) = 0;
  virtual void sum(const Tensor& to, const Tensor& from) = 0;  // sums contiguous doubles into one element
  // to [rows]: dot products of rows of `length` doubles of x and y.
  virtual void row_dots(const Tensor& to, const double* x, const double* y, int64_t length) = 0;
  // A device copy of host bytes, valid for the backend's lifetime; equal bytes are stored once.
  virtual const std::byte* table(std::span<const std::byte> bytes) = 0;
  virtual work::Report report() = 0;                 // of the current node
  virtual const uint64_t* step_counter() const = 0;  // where kernels read the step number
  // Whether the host computes the node, after waiting for its operands.
  virtual bool runs_on_host(const Program& program, const Graph& graph, NodeId n) const = 0;

  // The operations of cpu/gemm.h and cpu/attention.h, on device tensors.
  virtual Status multiply(KernelCall& call, const cpu::Gemm& product) = 0;
  virtual Status attend(KernelCall& call, const cpu::Attention& a, const cpu::AttentionResult& result) = 0;
  virtual Status attend_backward(KernelCall& call, const cpu::Attention& a, const cpu::AttentionGradients& g) = 0;
  // Records the status of a call that returns none; `settle` returns it.
  virtual void note(Status status) = 0;

  // What is launched between the two is recorded, not executed: running the program that `end_recording` returns
  // executes it, any number of times. The host may not take part: `touches` counts how often it has, by transfers and
  // waits. REQUIRES: recorded memory is not moved or freed.
  virtual bool records() const = 0;  // false: nobody may ask for it
  virtual Status begin_recording() = 0;
  virtual Result<std::unique_ptr<DeviceProgram>> end_recording() = 0;
  virtual uint64_t touches() const = 0;

  // How it computes what it was given so far, one line each, for people.
  virtual std::vector<std::string> explain() const = 0;

  // Waits for everything. An error: the device failed as a whole, in some call. A fault: bad data of one node.
  virtual Result<std::optional<DeviceFault>> settle() = 0;

  // A communicator for this backend's tensors, on top of one for host tensors.
  virtual Result<std::unique_ptr<Communicator>> communicator(Communicator& host) = 0;
};

// The shared context of a rank's calls on a backend. It has no thread team: `team` holds a marker that is never
// dereferenced, by which the program and plugins recognize such a context.
struct BackendContext : KernelContext {
  BackendContext(const KernelContext& of, Backend* by) : KernelContext(of), backend(by) { team = no_team(); }
  static ThreadTeam* no_team() { return reinterpret_cast<ThreadTeam*>(uintptr_t{alignof(std::max_align_t)}); }
  Backend* backend;
};

// The backend that runs a call; null = the CPU. Kernels that touch data only through `fill`, `copy` and `contiguous`
// (cpu/fill.h), `gemm` and `attention_*` run on both; those functions call this one.
inline Backend* backend_of(const KernelContext& context) {
  const bool is_backend = context.team == BackendContext::no_team();
  return is_backend ? static_cast<const BackendContext&>(context).backend : nullptr;
}

// Creates the backends of this process's ranks.
class BackendMaker {
 public:
  virtual ~BackendMaker() = default;
  // `local_rank`: index among the ranks of this host, which share its devices.
  virtual Result<std::unique_ptr<Backend>> make(uint32_t local_rank) = 0;
  // Describes the hardware and libraries found: "NVIDIA H100, driver 13.0, cuBLASLt 13.1". For people
  virtual std::string describe() const = 0;
};

}  // namespace sg
