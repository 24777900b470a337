// Compiles a pointwise program (cpu/pointwise.h) to one kernel: the same steps, with registers of a lane.
#include <algorithm>
#include <array>
#include <cstring>

#include "librun/cpu/pointwise.h"
#include "librun/cpu/pointwise_rules.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/pointwise.h"
#include "librun/cuda/known_ops.h"

namespace sg::cuda {
namespace {

using CodeStep = cpu::Step;

bool is_wide(Lane lane) { return lane == Lane::c128; }

// Registers of 8 bytes, reused after their last use.
class RegisterFile {
 public:
  explicit RegisterFile(const cpu::PointwiseCode& code)
      : code_(code), place_(code.lanes.size(), -1), last_(code.lanes.size(), 0) {
    for (size_t i = 0; i < code.steps.size(); ++i)
      for (int k = 0; k < code.steps[i].arity; ++k)
        last_[static_cast<size_t>(code.steps[i].in[static_cast<size_t>(k)])] = i;
  }
  int place(int reg) const { return place_[static_cast<size_t>(reg)]; }
  // -1: none is left.
  int take(int reg) {
    const int width = width_of(reg);
    for (int at = 0; at + width <= kRegisters; ++at)
      if (!used_[static_cast<size_t>(at)] && (width == 1 || !used_[static_cast<size_t>(at) + 1])) {
        mark(at, width, true);
        return place_[static_cast<size_t>(reg)] = at;
      }
    return -1;
  }
  void end_of(size_t step) {
    for (int k = 0; k < code_.steps[step].arity; ++k) {
      const int reg = code_.steps[step].in[static_cast<size_t>(k)];
      if (last_[static_cast<size_t>(reg)] == step) mark(place(reg), width_of(reg), false);
    }
  }

 private:
  int width_of(int reg) const { return is_wide(code_.lanes[static_cast<size_t>(reg)]) ? 2 : 1; }
  void mark(int at, int width, bool used) {
    for (int i = at; i < at + width; ++i) used_[static_cast<size_t>(i)] = used;
  }
  const cpu::PointwiseCode& code_;
  std::vector<int> place_;
  std::vector<size_t> last_;
  std::array<bool, kRegisters> used_{};
};

struct Compiled {
  std::vector<ProgramStep> steps;
  std::vector<ProgramSlot> slots;
  int64_t elements = 0;
};

// Translates one step; false if there are not enough registers.
bool translate(const cpu::PointwiseCode& code, size_t i, RegisterFile& file, ProgramStep* out) {
  const CodeStep& s = code.steps[i];
  out->op = s.op;
  out->lane = s.lane;
  out->re = s.number.real();
  out->im = s.number.imag();
  out->whole = s.integer;
  if (s.slot >= 0) out->slot = static_cast<uint8_t>(s.slot);
  for (int k = 0; k < s.arity; ++k) out->in[k] = static_cast<uint8_t>(file.place(s.in[static_cast<size_t>(k)]));
  file.end_of(i);  // a result may reuse an operand's register: operands are read first
  if (s.out >= 0) {
    const int at = file.take(s.out);
    if (at < 0) return false;
    out->out = static_cast<uint8_t>(at);
    out->to = code.lanes[static_cast<size_t>(s.out)];
  }
  switch (s.kind) {
    case CodeStep::Kind::constant: out->kind = ProgramStep::Kind::constant; break;
    case CodeStep::Kind::load: out->kind = ProgramStep::Kind::load; break;
    case CodeStep::Kind::store: out->kind = ProgramStep::Kind::store; break;
    case CodeStep::Kind::compute:
      out->kind = s.converts ? ProgramStep::Kind::convert : ProgramStep::Kind::compute;
      break;
  }
  out->is_test = known_op(s.op, s.lane) == KnownOp::test;
  return true;
}

// Lays tensors out as lines of elements, in memory order.
void lay_out(cpu::PointwiseProgram& program, Compiled* out) {
  std::vector<Tensor> by_weight;
  for (const CodeStep& s : program.code().steps)
    if (s.kind == CodeStep::Kind::store) by_weight.push_back(program.tensors()[static_cast<size_t>(s.slot)]);
  by_weight.insert(by_weight.end(), program.tensors().begin(), program.tensors().end());
  const std::vector<int> order = cpu::visiting_order(by_weight);
  for (const Tensor& t : program.tensors()) {
    const cpu::Layout layout(t, order);
    View view = Device::view(t);
    view.axes = layout.axes;
    for (int axis = 0; axis < layout.axes; ++axis) {
      view.shape[axis] = layout.shape[static_cast<size_t>(axis)];
      view.stride[axis] = layout.stride[static_cast<size_t>(axis)];
    }
    out->slots.push_back({view});
    out->elements = t.elements();
  }
}

Result<bool> compile_steps(cpu::PointwiseProgram& program, Compiled* out) {
  const cpu::PointwiseCode& code = program.code();
  if (program.tensors().size() > 255) return false;
  RegisterFile file(code);
  for (size_t i = 0; i < code.steps.size(); ++i) {
    const CodeStep& s = code.steps[i];
    const bool computes = s.kind == CodeStep::Kind::compute && !s.converts;
    if (computes && (known_op(s.op, s.lane) == KnownOp::none || s.arity > 5)) return false;
    ProgramStep step;
    if (!translate(code, i, file, &step)) return false;
    out->steps.push_back(step);
  }
  lay_out(program, out);
  return true;
}

// The steps and tensors of a program in device memory.
class Program : public DeviceProgram {
 public:
  explicit Program(CudaBackend& backend) : backend_(backend) {}
  ~Program() override {
    if (memory_) backend_.memory().give(memory_);
  }

  Status load(const Compiled& compiled) {
    const size_t steps = compiled.steps.size() * sizeof(ProgramStep),
                 slots = compiled.slots.size() * sizeof(ProgramSlot);
    memory_ = backend_.memory().take(static_cast<int64_t>(steps + slots));
    if (!memory_)
      return Error{ErrorKind::missing,
                   "no memory on the GPU for a program of " + std::to_string(compiled.steps.size()) + " steps"};
    std::vector<std::byte> image(steps + slots);
    std::memcpy(image.data(), compiled.steps.data(), steps);
    std::memcpy(image.data() + steps, static_cast<const void*>(compiled.slots.data()), slots);
    SG_TRY(backend_.upload(memory_, image.data(), static_cast<int64_t>(image.size())));
    args_.steps = reinterpret_cast<const ProgramStep*>(memory_);
    args_.slots = reinterpret_cast<const ProgramSlot*>(memory_ + steps);
    args_.step_count = static_cast<int32_t>(compiled.steps.size());
    args_.elements = compiled.elements;
    return ok_status();
  }

  Status run() override {
    args_.report = backend_.device().report();
    backend_.device().launch("pointwise_program", blocks_for(args_.elements), args_);
    return backend_.device().noted();
  }

 private:
  CudaBackend& backend_;
  std::byte* memory_ = nullptr;
  ProgramArgs args_;
};

}  // namespace

Result<std::unique_ptr<DeviceProgram>> CudaBackend::interpret(cpu::PointwiseProgram& program) {
  Compiled compiled;
  SG_ASSIGN(bool fits, compile_steps(program, &compiled));
  if (!fits) return std::unique_ptr<DeviceProgram>();
  auto out = std::make_unique<Program>(*this);
  SG_TRY(out->load(compiled));
  return std::unique_ptr<DeviceProgram>(std::move(out));
}

bool knows_pointwise(std::string_view op) {
  const cpu::PointwiseRule* rule = cpu::find_pointwise_rule(op);
  if (!rule) return false;
  if (rule->block == BlockOp::copy)
    return !op.starts_with("aten.polar") && !op.starts_with("aten.special") && !op.starts_with("aten.gcd");
  for (Lane lane : {Lane::f32, Lane::i64, Lane::b8, Lane::c64})
    if (known_op(rule->block, lane) != KnownOp::none) return true;
  return false;
}

Status run_pointwise(KernelCall& call) {
  CudaBackend& backend = backend_of(call);
  SG_ASSIGN(cpu::PointwiseProgram program, cpu::pointwise_program(call, [&](const Tensor& t) {
              Tensor held = backend.scratch(t.dtype, t.sizes());
              backend.copy(held, t);
              return held;
            }));
  SG_ASSIGN(std::unique_ptr<DeviceProgram> on_device, backend.interpret(program));
  if (!on_device) return run_by_host(call);  // a step has no row for these types
  return on_device->run();
}

}  // namespace sg::cuda
