// The CUDA backend of one rank: see backend.h for its contract.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "librun/backend_plugin.h"
#include "librun/cuda/copy_streams.h"
#include "librun/cuda/device.h"

namespace sg::cuda {

class Lt;
class CodeMaker;
struct Parts;
struct TwoSums;

class CudaBackend : public Backend {
 public:
  CudaBackend(std::unique_ptr<Device> device, const BackendOptions& options, std::unique_ptr<Lt> lt);
  ~CudaBackend() override;

  Device& device() { return *device_; }
  Lt& lt() { return *lt_; }

  Kernel find_kernel(const OpInfo& op) const override;
  Result<std::unique_ptr<DeviceProgram>> compile(cpu::PointwiseProgram& program) override;
  Result<std::unique_ptr<DeviceProgram>> compile_rows(std::span<const RowStage> stages) override;
  Result<std::unique_ptr<DeviceProgram>> compile_pair(const KernelCall& first, const KernelCall& second) override;
  Result<bool> run_once(cpu::PointwiseProgram& program) override;
  void begin_step(uint64_t step) override { device_->begin_step(step); }
  DeviceClock& clock() override { return device_->clock(); }
  void at(uint64_t place) override { device_->at(place); }
  MemorySource& memory() override { return device_->memory(); }
  MemorySource& host_memory() override { return device_->host_memory(); }
  Tensor scratch(DType dtype, std::span<const int64_t> shape) override;
  void reset_scratch() override { give_back_scratch(0); }
  // Releases, before the call ends, scratch taken after `scratch_mark` returned `mark`.
  size_t scratch_mark() const { return scratch_.size(); }
  void give_back_scratch(size_t mark);
  TwoSums* part_sums(const Parts& parts);  // scratch for `parts`
  Status upload(std::byte* to, const std::byte* from, int64_t bytes) override;
  Status download(std::byte* to, const std::byte* from, int64_t bytes) override;
  uint64_t begin_copy(std::byte* to, const std::byte* from, int64_t bytes, bool to_host) override;
  void end_copy(uint64_t number) override;
  void copy(const Tensor& to, const Tensor& from) override;
  void fill(const Tensor& to, Scalar value) override;
  void each(const char* kernel, const void* args, int64_t count) override;
  void sum(const Tensor& to, const Tensor& from) override;
  void row_dots(const Tensor& to, const double* x, const double* y, int64_t length) override;
  const std::byte* table(std::span<const std::byte> bytes) override;
  Report report() override { return device_->report(); }
  const uint64_t* step_counter() const override { return device_->step_counter(); }
  bool runs_on_host(const Program& program, const Graph& graph, NodeId n) const override;
  // For CPU kernels that stand in.
  ThreadTeam& host_team() { return host_team_; }
  Status multiply(KernelCall& call, const cpu::Gemm& product) override;
  Status attend(KernelCall& call, const cpu::Attention& a, const cpu::AttentionResult& result) override;
  Status attend_backward(KernelCall& call, const cpu::Attention& a, const cpu::AttentionGradients& g) override;
  void note(Status status) override { device_->note(std::move(status)); }
  bool records() const override { return records_; }
  Status begin_recording() override { return device_->begin_recording(); }
  Result<std::unique_ptr<DeviceProgram>> end_recording() override;
  uint64_t touches() const override { return device_->touches(); }
  std::vector<std::string> explain() const override;
  // Records that the current node keeps its scores in memory, a part at a time. `explain` reports the number of such
  // nodes.
  void note_dense_attention() { dense_attention_.insert(device_->place()); }
  // The same for a product of floats that our own kernel computes, a lane per element.
  void note_plain_product() { plain_products_.insert(device_->place()); }
  // Creates an interpreted program: for calls that run only once.
  Result<std::unique_ptr<DeviceProgram>> interpret(cpu::PointwiseProgram& program);
  Result<std::optional<DeviceFault>> settle() override;
  Result<std::unique_ptr<Communicator>> communicator(Communicator& host) override;

 private:
  void move(const Tensor& to, const Tensor& from);  // a copy between equal types that is not a single block of memory
  // Between host and device, timed, and done on return: `copy(driver, size, stream)` begins it.
  template <class Copy>
  Status copy_and_wait(DeviceClock::Span::Kind kind, int64_t bytes, Copy copy);

  std::unique_ptr<Device> device_;
  BackendOptions options_;
  std::unique_ptr<Lt> lt_;
  CopyStreams copies_;
  std::vector<std::byte*> scratch_;  // of the current call
  std::map<std::vector<std::byte>, std::byte*> tables_;
  std::set<uint64_t> dense_attention_, plain_products_;  // places of nodes
  ThreadTeam host_team_{1};
  bool records_ = true;        // unless SG_CUDA_RECORD=0
  std::string communicators_;  // how those of NCCL were created; empty: there are none

  // Chains compiled to machine code (code.h).
  struct Chains {
    const CodeMaker* maker = nullptr;  // null = chains are interpreted; `why` says why
    std::string why;
    std::map<std::string, CUfunction> by_text;  // null: does not compile
    size_t generated = 0, interpreted = 0;
    size_t reduced = 0, behind = 0;  // reductions fused with the preceding chain; chains that continue after one
  };
  Result<CUfunction> chain_code(const std::string& text);
  Result<std::unique_ptr<DeviceProgram>> generate(cpu::PointwiseProgram& program);
  Result<std::unique_ptr<DeviceProgram>> generate(const RowStage& stage);
  Chains chains_;
  size_t pairs_ = 0;  // pairs of calls that are one kernel
};

// The backend that runs a call.
inline CudaBackend& backend_of(const KernelCall& call) {
  return static_cast<CudaBackend&>(*sg::backend_of(call.context()));
}
inline Device& device_of(const KernelCall& call) { return backend_of(call).device(); }

// `t` if it is contiguous, else a contiguous copy.
inline Tensor in_rows(KernelCall& call, const Tensor& t) {
  if (t.is_contiguous()) return t;
  Tensor out = backend_of(call).scratch(t.dtype, t.sizes());
  backend_of(call).copy(out, t);
  return out;
}

// The same, converted to a type.
inline Tensor in_rows_as(KernelCall& call, const Tensor& t, DType dtype) {
  if (t.is_contiguous() && t.dtype == dtype && !t.conjugate) return t;
  Tensor out = backend_of(call).scratch(dtype, t.sizes());
  backend_of(call).copy(out, t);
  return out;
}

// Kernels by family, for the table in kernels.cc.
std::span<const KernelRow> scaled_kernels();   // products of float8
std::span<const KernelRow> grouped_kernels();  // products of groups; other products use Backend::multiply
std::span<const KernelRow> flex_attention_kernels();
std::span<const KernelRow> loss_kernels();  // of classes
std::span<const KernelRow> ctc_kernels();
std::span<const KernelRow> row_kernels();
std::span<const KernelRow> reduction_kernels();
std::span<const KernelRow> index_kernels();
std::span<const KernelRow> other_kernels();
std::span<const KernelRow> random_kernels();
std::span<const KernelRow> channel_kernels();  // batch norm and its kin
std::span<const KernelRow> convolution_kernels();
std::span<const KernelRow> search_kernels();  // positions of flags
std::span<const KernelRow> grid_kernels();
std::span<const KernelRow> segment_kernels();
std::span<const KernelRow> set_kernels();   // distinct values, and their counts
std::span<const KernelRow> sort_kernels();  // sorting, largest elements, one element of a sorted row
// `values` sorted stably, and their original positions (i64). [count] each; one may be none.
void sort_line(KernelCall& call, const Tensor& values, const Tensor& sorted, const Tensor& order);
// The positions of nonzero elements, in order, [count]: the host waits for their number.
Result<Tensor> places_of(KernelCall& call, const Tensor& flags);

// Runs any call that has a CPU kernel on the host.
Status run_by_host(KernelCall& call);
// Whether a FlexAttention's nested graph contains nodes that the device cannot run for all scores at once.
bool flex_runs_on_host(const Backend& backend, const Program& program, const Graph& graph, NodeId n);

// Runs a single pointwise call.
Status run_pointwise(KernelCall& call);
// Whether every step that the op is lowered to has a row in element_ops.def, as far as the op alone determines.
bool knows_pointwise(std::string_view op);

}  // namespace sg::cuda
