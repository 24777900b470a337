// Kernel: computes a node; KernelCall: its arguments and results.
//
// A kernel is a plain function over strided tensors. It requests arguments by their names in the op's schema
// (op.def), with defaults filled in; results are allocated, with the strides that the graph records.
//
//     Status tril(KernelCall& call) {
//       const Tensor& self = call.tensor("self");
//       int64_t diagonal = call.integer("diagonal");
//       ...
//     }
//     constexpr KernelRow kRows[] = {{"aten.tril.default", tril}};
//
// Trusted   Types: the verifier has checked the node's types against the op's rule, and every view lies in its memory.
//           Never trusted: values. An index read from data is checked before it is used.
// Views     make no call: ops whose results are always views need no kernel.
// Result    A kernel must not read a result before writing it. `out` arguments and arguments written in place are both
//           results and arguments. A result overlaps an argument only if it is the same view of the same memory (a
//           pointwise op in place), or the op writes that argument.
// Bits      must not depend on the number of threads, the address of the data, or on what ran before.
// Numerics  Tensors have the dtype that they are stored in: with --numerics f64 every float is f64 (and every complex
//           c128), whatever the graph records; kernels follow the tensors, and `stored()` for dtype arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/ids.h"
#include "libgraph/base/result.h"
#include "libgraph/op.h"
#include "libgraph/scalar.h"
#include "librun/execute/memory.h"
#include "librun/numerics.h"
#include "librun/tensor.h"
#include "librun/thread_team.h"

namespace sg {

// Memory for one call, released when the call ends and kept for the next ones: one block, as large as any call so far
// has needed. Aligned to 64 bytes.
class Scratch {
 public:
  std::byte* take(int64_t bytes);
  template <class T>
  T* take(int64_t count) {
    return reinterpret_cast<T*>(take_bytes(count, sizeof(T)));
  }
  Tensor tensor(DType dtype, std::span<const int64_t> shape);  // contiguous, not initialised
  void reset();                                                // call it between calls of kernels

 private:
  std::byte* take_bytes(int64_t count, int64_t size);
  std::vector<Arena> blocks_;
  int64_t used_ = 0;   // in the last block
  int64_t taken_ = 0;  // in all blocks, by the current call
  int64_t most_ = 0;   // the most taken by any call that needed several blocks
};

// Identifies the random numbers of one node in one step (design: reductions and random numbers).
struct RandomStream {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t stream = 0;           // the node's stream id
  uint64_t rank = 0;             // 1 + the rank where the source is rank-local, else 0
  DType recorded = DType::none;  // the first result's type in the graph: a double run draws the numbers of that type
  // A chunk of a random tensor draws the numbers of its part of the original: the original's shape, and the position of
  // the chunk's first element in it. Empty = the result is the original.
  std::vector<int64_t> origin_shape, origin_offset;
};

// Number of binary digits of a uniform random number.
int uniform_digits(const RandomStream& stream);

// The value of one parameter of the op.
struct ParamValue {
  enum class Kind : uint8_t { absent, tensor, scalar, text, dtype, list, graph, group };
  Kind kind = Kind::absent;
  DType dtype = DType::none;  // dtype
  Scalar scalar;              // scalar
  std::string_view text;      // text; also devices, layouts and memory formats
  Tensor tensor;              // tensor
  NestedId graph;
  GroupId group;
  std::vector<ParamValue> items;  // list: all items, in order
  std::vector<Tensor> tensors;    // list of tensors, absent ones as `none`: the same items
  std::vector<int64_t> integers;  // list of integers: the same items
};

// Shared by all calls of one rank.
struct KernelContext {
  ThreadTeam* team = nullptr;
  Scratch* scratch = nullptr;
  Numerics numerics = Numerics::fast;
  const Program* program = nullptr;  // for ops that take nested graphs
  uint32_t rank = 0, world = 1;
  SumOrder sum_order = SumOrder::free;
};

class KernelCall {
 public:
  KernelCall(const OpInfo& op, KernelContext* context) : op_(&op), context_(context), params_(op.params.size()) {}

  const OpInfo& op() const { return *op_; }
  ThreadTeam& team() const { return *context_->team; }
  Scratch& scratch() const { return *context_->scratch; }
  Numerics numerics() const { return context_->numerics; }
  KernelContext& context() const { return *context_; }

  // Arguments by name. REQUIRES for each: the schema has it, with that kind.
  bool has(std::string_view name) const { return param(name).kind != ParamValue::Kind::absent; }  // given, and not None
  const Tensor& tensor(std::string_view name) const { return param(name).tensor; }  // dtype none if omitted
  std::span<const Tensor> tensors(std::string_view name) const { return param(name).tensors; }
  Scalar scalar(std::string_view name) const { return param(name).scalar; }
  int64_t integer(std::string_view name) const { return param(name).scalar.to_int(); }
  double number(std::string_view name) const { return param(name).scalar.to_double(); }
  bool flag(std::string_view name) const { return param(name).scalar.i != 0; }
  std::string_view text(std::string_view name) const { return param(name).text; }
  std::span<const int64_t> integers(std::string_view name) const { return param(name).integers; }
  const ParamValue& param(std::string_view name) const;

  // An `int` or `int[]` parameter: dims of a reduction. Empty if omitted.
  std::vector<int> axes(std::string_view name, int rank) const;

  // The storage dtype for a dtype argument under these numerics; `fallback` if it is omitted.
  DType stored(std::string_view name, DType fallback) const;

  size_t result_count() const { return results.size(); }
  // Read-only: the executor binds a result once, and reuses it in every step.
  const Tensor& result(size_t i = 0) const { return results[i]; }

  // For ops whose result size depends on the data: allocates result `i` with this shape. None of its fields are set
  // before.
  Status allocate_result(size_t i, std::span<const int64_t> shape);

  // An error of the data or the run; the executor adds rank, node and source line.
  Error fail(std::string message, std::string hint = {}) const {
    return Error{ErrorKind::cannot_apply, std::move(message), {}, std::move(hint)};
  }

  // Set by the executor.
  std::vector<ParamValue>& params() { return params_; }
  std::vector<Tensor> results;
  std::vector<Scalar> scalars;  // results that are host numbers, by result
  RandomStream random;
  bool ordered_sums = false;  // products of bf16 keep the order of k
  std::function<Status(size_t, std::span<const int64_t>)> allocate;

 private:
  const OpInfo* op_;
  KernelContext* context_;
  std::vector<ParamValue> params_;  // by schema position
};

using Kernel = Status (*)(KernelCall& call);

struct KernelRow {
  std::string_view op;
  Kernel run;
};

// The CPU kernel of an op; null if there is none.
Kernel find_cpu_kernel(std::string_view op);

// The dtype in which a value of `recorded` dtype is stored.
DType stored_dtype(DType recorded, Numerics numerics);

}  // namespace sg
