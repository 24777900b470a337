// PointwiseProgram: pointwise calls over one shape, run block by block in one pass over memory.
//
//     PointwiseProgram program;
//     while (...) if (auto fits = program.add(call, needed_later); !fits.ok() || !*fits) break;
//     program.run(team);
//
// The bits are those of the calls run one after the other: between calls, values are rounded to the recorded result
// types. A result that is not `stored` is never written.
//
// A tensor written by an earlier call is recognised by its view (memory, shape, strides, type), so calls are passed as
// they would be run one by one. A result that is not stored needs no memory, but a unique address range. Writes in
// place, and results in the memory of an argument, are supported if the views are equal; a call that views memory
// differently from an earlier one does not fit.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "librun/cpu/pointwise_code.h"
#include "librun/kernel.h"

namespace sg::cpu {

class PointwiseProgram {
 public:
  // The maximum number of calls: the time to build a program grows quadratically, and each call holds a block of
  // registers.
  static constexpr size_t kMaxCalls = 256;

  // Whether calls of this op can be part of a program.
  static bool knows(std::string_view op);

  // Appends a call; only its tensors and numbers are kept. False, without a change: it does not fit the calls before
  // it. An error: it cannot be computed for its types.
  Result<bool> add(const KernelCall& call, bool stored = true);

  // Gives up what only `add` needs. No call can be added after that.
  void close();

  // May be called any number of times, by one thread at a time. Fails on integer division by zero.
  Status run(ThreadTeam& team);

  size_t calls() const { return calls_; }

  // The tensors read and written, in order of first appearance, in the program's shape. Data pointers may be changed
  // between runs, as long as tensors that shared memory still do, and others do not.
  std::span<Tensor> tensors() { return slots_; }

  // The value that an earlier call computed for `t`, as memory would hold it, regardless of the shape; invalid if there
  // is none, or the memory was written since.
  Value made(const Tensor& t);

  // --- for the rules (pointwise_rules.h): a value read from memory or computed earlier; invalid if it does not fit ---
  Value read(const Tensor& t);
  PointwiseCode& code() { return code_; }

 private:
  struct Known {  // contents of memory at this point of the program
    Tensor view;
    Value value;
  };
  int slot_of(const Tensor& view);
  bool may_write(const Tensor& view) const;
  void prepare();
  void run_blocks(int64_t begin, int64_t end, bool* fault) const;

  Tensor space_;  // its shape is the program's
  std::vector<Tensor> slots_;
  std::vector<Value> loaded_;  // by slot; reg < 0: not read yet
  std::vector<Known> known_;
  PointwiseCode code_;
  std::vector<Layout> layouts_;
  size_t calls_ = 0;
  int64_t elements_ = 0, grain_ = 1;
  bool fits_ = true, prepared_ = false, streams_ = false;
};

// The program of a call alone. Arguments that lie in the result's memory with another layout are read from copies,
// which `copied` makes.
Result<PointwiseProgram> pointwise_program(const KernelCall& call, const std::function<Tensor(const Tensor&)>& copied);

// Runs any op that programs support, as a kernel.
Status run_pointwise(KernelCall& call);

}  // namespace sg::cpu
