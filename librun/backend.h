// Backend: computes the nodes of one rank on a device other than the CPU, and owns the memory of its tensors.
//
// Order      Kernels, copies and transfers of one backend happen in the order in which they are requested; only
//            `download` and `settle` wait for them. So memory that is returned may be handed out again at once.
// Memory     Tensors of the graph lie in memory of the device: the host accesses it only through `download`.
//            Memory of `host_memory` may be read and written by both.
// Failure    An error on the device, such as an index out of range, is known when `settle` returns: with the place that
//            `at` named last before the kernel was launched. Later kernels have run by then, on whatever memory held.
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

#include "librun/comm.h"
#include "librun/device_clock.h"
#include "librun/kernel.h"
#include "librun/memory.h"
#include "librun/work/work.h"

namespace sg {

namespace cpu {
class PointwiseProgram;
struct Gemm;
struct Attention;
struct AttentionResult;
struct AttentionGradients;
}  // namespace cpu

// A pointwise program as the device runs it.
class DeviceProgram {
 public:
  virtual ~DeviceProgram() = default;
  virtual Status run() = 0;
};

// Pointwise calls, and one behind them that reduces a value which they make; null = none.
struct RowStage {
  cpu::PointwiseProgram* program = nullptr;
  const KernelCall* reduction = nullptr;
};

// What a kernel found wrong with the data.
struct DeviceFault {
  uint64_t place = 0;  // as given to `at`
  std::string message;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // The kernel of an op: takes tensors in device memory, and gives numbers for the host by itself. Null = there is
  // none.
  virtual Kernel find_kernel(const OpInfo& op) const = 0;
  // The calls of a program as one kernel; null = it is too long for one.
  virtual Result<std::unique_ptr<DeviceProgram>> compile(cpu::PointwiseProgram& program) = 0;
  // The same for several, of which the first has a reduction. Values that a later one reads are stored; null = not as
  // one kernel.
  virtual Result<std::unique_ptr<DeviceProgram>> compile_rows(std::span<const RowStage> stages) = 0;
  // Two calls in a row as one kernel, where there is one: the second reads what the first gives, which nobody else
  // does, so that it is written nowhere. Null = there is none.
  virtual Result<std::unique_ptr<DeviceProgram>> compile_pair(const KernelCall& first, const KernelCall& second) = 0;
  // The calls of a program, now and not again. False, and nothing is done: it is too long for one.
  virtual Result<bool> run_once(cpu::PointwiseProgram& program) = 0;
  // The step that runs from now on: nothing of the last one is under way.
  virtual void begin_step(uint64_t step) = 0;
  virtual DeviceClock& clock() = 0;
  // Kernels launched from now on are for this node (Heartbeat::place).
  virtual void at(uint64_t place) = 0;

  virtual MemorySource& memory() = 0;       // of the device, aligned to 256 bytes
  virtual MemorySource& host_memory() = 0;  // of the host, that the device reads and writes too
  // Memory of the device for the time of one call: a contiguous tensor, not initialised. `reset_scratch` ends the call.
  virtual Tensor scratch(DType dtype, std::span<const int64_t> shape) = 0;
  virtual void reset_scratch() = 0;

  virtual Status upload(std::byte* to, const std::byte* from, int64_t bytes) = 0;  // `from` may change when it returns
  virtual Status download(std::byte* to, const std::byte* from, int64_t bytes) = 0;  // `to` is complete when it returns
  // Between views of one shape, converted to the dtype of `to`. REQUIRES: no overlap, or the same view
  virtual void copy(const Tensor& to, const Tensor& from) = 0;
  virtual void fill(const Tensor& to, Scalar value) = 0;  // as PyTorch converts a number to the dtype

  // A copy between the device's memory and the host's that runs beside the kernels, from those asked for before it to
  // those asked for after its end. Its number, never 0. What goes wrong is noted.
  virtual uint64_t begin_copy(std::byte* to, const std::byte* from, int64_t bytes, bool to_host) = 0;
  virtual void end_copy(uint64_t number) = 0;

  // The kernel `kernel` of work by element, whose arguments are an EachArgs (work/run.h).
  virtual void each(const char* kernel, const void* args, int64_t count) = 0;
  virtual void sum(const Tensor& to, const Tensor& from) = 0;  // of contiguous doubles, into one
  // to [rows]: the sums of x * y over rows of `length` doubles.
  virtual void row_dots(const Tensor& to, const double* x, const double* y, int64_t length) = 0;
  // Bytes of the host as the device sees them, for as long as the backend is there; equal bytes are kept once.
  virtual const std::byte* table(std::span<const std::byte> bytes) = 0;
  virtual work::Report report() = 0;                 // of the node at hand
  virtual const uint64_t* step_counter() const = 0;  // the number of the step, where kernels read it
  // Whether the node is computed by the host, which waits for what it reads.
  virtual bool runs_on_host(const Program& program, const Graph& graph, NodeId n) const = 0;

  // What cpu/gemm.h and cpu/attention.h promise of the values, on tensors of the device.
  virtual Status multiply(KernelCall& call, const cpu::Gemm& product) = 0;
  virtual Status attend(KernelCall& call, const cpu::Attention& a, const cpu::AttentionResult& result) = 0;
  virtual Status attend_backward(KernelCall& call, const cpu::Attention& a, const cpu::AttentionGradients& g) = 0;
  // What a call without an answer has met: `settle` gives it.
  virtual void note(Status status) = 0;

  // What is launched between the two is kept, not done: running what `end_recording` gives does all of it, any number
  // of times. The host may take no part in it: `touches` counts how often it did so far, by transfers and waits.
  // REQUIRES: memory that is named stays where it is.
  virtual Status begin_recording() = 0;
  virtual Result<std::unique_ptr<DeviceProgram>> end_recording() = 0;
  virtual uint64_t touches() const = 0;

  // How it computes what it was given so far: a line each, for people.
  virtual std::vector<std::string> explain() const = 0;

  // Waits for everything. An error: the device has failed as a whole, in whatever call. A fault: the data of a node.
  virtual Result<std::optional<DeviceFault>> settle() = 0;

  // The communicator for tensors of this backend, over one for tensors of the host; that one itself, if it can take
  // them.
  virtual Result<std::unique_ptr<Communicator>> communicator(Communicator& host) = 0;
};

// What the calls of a rank share where a backend runs them. There is no team of threads: its place has a mark that is
// never looked at, by which program and plugin know such a context.
struct BackendContext : KernelContext {
  BackendContext(const KernelContext& of, Backend* by) : KernelContext(of), backend(by) { team = no_team(); }
  static ThreadTeam* no_team() { return reinterpret_cast<ThreadTeam*>(uintptr_t{alignof(std::max_align_t)}); }
  Backend* backend;
};

// The backend that a call runs on; null = the processor. Kernels that touch data by `fill`, `copy` and `contiguous`
// (cpu/fill.h), `gemm` and `attention_*` of a call alone run on either: those ask here.
inline Backend* backend_of(const KernelContext& context) {
  const bool is_backend = context.team == BackendContext::no_team();
  return is_backend ? static_cast<const BackendContext&>(context).backend : nullptr;
}

// Makes the backends of this process's ranks.
class BackendMaker {
 public:
  virtual ~BackendMaker() = default;
  // `local_rank`: among the ranks of this host, which share its devices.
  virtual Result<std::unique_ptr<Backend>> make(uint32_t local_rank) = 0;
  // What it found: "NVIDIA H100, driver 13.0, cuBLASLt 13.1". For people
  virtual std::string describe() const = 0;
};

}  // namespace sg
