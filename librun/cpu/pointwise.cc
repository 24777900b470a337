#include "librun/cpu/pointwise.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "librun/cpu/fill.h"
#include "librun/cpu/pointwise_rules.h"
#include "librun/cpu/stream.h"
#include "librun/execute/memory_ranges.h"

namespace sg::cpu {
namespace {

constexpr int64_t kStreamBytes = int64_t{256} << 20;  // smaller results stay in the last-level cache until read
constexpr int64_t kPieceNanoseconds = 30000;          // work per task: enough to justify distributing it

// Element i of one is at the same address as element i of the other.
bool same_places(const Tensor& a, const Tensor& b) {
  if (a.data != b.data || dtype_bytes(a.dtype) != dtype_bytes(b.dtype) || !same_shape(a, b)) return false;
  for (int i = 0; i < a.rank; ++i)
    if (a.dim(i) > 1 && a.step(i) != b.step(i)) return false;
  return true;
}

// Whether no two elements share memory.
bool writable(const Tensor& t) {
  if (t.elements() == 0) return true;
  for (int i = 0; i < t.rank; ++i)
    if (t.dim(i) > 1 && t.step(i) == 0) return false;
  return true;
}

bool is_heavy(BlockOp op) {
  bool function = op >= BlockOp::exp && op <= BlockOp::angle && op != BlockOp::sqrt;
  bool activation = op >= BlockOp::sigmoid && op <= BlockOp::softplus_backward;
  bool special = op >= BlockOp::entr && op <= BlockOp::mish_backward;
  return function || activation || special || op == BlockOp::pow || op == BlockOp::polar;
}

int64_t nanoseconds(const Step& s) {  // of a block, roughly
  return s.kind == Step::Kind::compute && !s.converts && is_heavy(s.op) ? 1500 : 100;
}

// One thread's registers, kept between runs.
std::byte* thread_scratch(size_t bytes) {
  struct Memory {
    std::unique_ptr<std::byte, void (*)(void*)> data{nullptr, std::free};
    size_t size = 0;
  };
  thread_local Memory memory;
  if (memory.size < bytes) {
    size_t size = (bytes + 4095) / 4096 * 4096;
    memory.data.reset(static_cast<std::byte*>(std::aligned_alloc(64, size)));
    if (!memory.data) throw std::bad_alloc();
    memory.size = size;
  }
  return memory.data.get();
}

void fill_register(void* reg, const Step& s, Lane lane, int64_t n) {
  switch (lane) {
    case Lane::f32: return void(std::fill_n(static_cast<float*>(reg), n, static_cast<float>(s.number.real())));
    case Lane::f64: return void(std::fill_n(static_cast<double*>(reg), n, s.number.real()));
    case Lane::i64: return void(std::fill_n(static_cast<int64_t*>(reg), n, s.integer));
    case Lane::b8: return void(std::fill_n(static_cast<uint8_t*>(reg), n, static_cast<uint8_t>(s.integer)));
    case Lane::c64:
      std::fill_n(static_cast<float*>(reg), n, static_cast<float>(s.number.real()));
      return void(std::fill_n(static_cast<float*>(reg) + kBlock, n, static_cast<float>(s.number.imag())));
    case Lane::c128:
      std::fill_n(static_cast<double*>(reg), n, s.number.real());
      return void(std::fill_n(static_cast<double*>(reg) + kBlock, n, s.number.imag()));
  }
}

// One thread's pass over a range of blocks.
class BlockRunner {
 public:
  BlockRunner(const PointwiseCode& code, std::span<const Tensor> slots, std::span<const Layout> layouts,
              int64_t elements, bool streams)
      : code_(code),
        slots_(slots),
        layouts_(layouts),
        table_(best_block_table()),
        elements_(elements),
        streams_(streams) {
    size_t cursor_bytes = (code.steps.size() * sizeof(Cursor) + 63) / 64 * 64;
    std::byte* memory = thread_scratch(cursor_bytes + static_cast<size_t>(code.scratch_bytes) + kBlock * 16);
    cursors_ = reinterpret_cast<Cursor*>(memory);
    registers_ = memory + cursor_bytes;
    staging_ = registers_ + code.scratch_bytes;
  }

  void run(int64_t begin, int64_t end, bool* fault) {
    fault_ = fault;
    for (size_t i = 0; i < code_.steps.size(); ++i)
      if (int slot = code_.steps[i].slot; slot >= 0)
        new (cursors_ + i) Cursor(&layouts_[static_cast<size_t>(slot)], begin * kBlock);
    count_ = std::min(elements_, kBlock);
    for (const Step& s : code_.steps)
      if (s.fixed) step(s);
    for (int64_t block = begin; block < end; ++block) {
      first_ = block * kBlock;
      count_ = std::min(elements_ - first_, kBlock);
      for (const Step& s : code_.steps)
        if (!s.fixed) step(s);
    }
    if (streams_) finish_streaming();
  }

 private:
  std::byte* at(int reg) const {
    const Place& p = code_.places[static_cast<size_t>(reg)];
    if (p.slot < 0) return registers_ + p.offset;
    const Tensor& t = slots_[static_cast<size_t>(p.slot)];
    return t.data + first_ * dtype_bytes(t.dtype);
  }

  void step(const Step& s) {
    switch (s.kind) {
      case Step::Kind::constant: return fill_register(at(s.out), s, code_.lanes[static_cast<size_t>(s.out)], count_);
      case Step::Kind::load: return load(s);
      case Step::Kind::store: return store(s);
      case Step::Kind::compute: return compute(s);
    }
  }

  void compute(const Step& s) {
    std::array<const void*, kMaxOperands> in;
    for (size_t k = 0; k < s.arity; ++k) in[k] = at(s.in[k]);
    BlockFn fn =
        s.converts
            ? table_.convert[static_cast<size_t>(s.lane)][static_cast<size_t>(code_.lanes[static_cast<size_t>(s.out)])]
            : table_.find(s.op, s.lane);
    fn(at(s.out), in.data(), count_, fault_);
  }

  void load(const Step& s) {
    auto slot = static_cast<size_t>(s.slot);
    if (code_.places[static_cast<size_t>(s.out)].slot == s.slot && same_register(slot, s.out)) return;
    const Tensor& t = slots_[slot];
    LoadFn fn = table_.load[static_cast<size_t>(t.dtype)];
    int64_t size = dtype_bytes(t.dtype);
    std::byte* reg = at(s.out);
    auto plane = lane_plane(code_.lanes[static_cast<size_t>(s.out)]);
    cursors_[&s - code_.steps.data()].take(count_, [&](int64_t offset, int64_t n, int64_t stride) {
      fn(reg, t.data + offset * size, n, stride);
      reg += n * plane;
    });
  }

  void store(const Step& s) {
    auto slot = static_cast<size_t>(s.slot);
    const Place& from = code_.places[static_cast<size_t>(s.in[0])];
    if (from.slot == s.slot) return;  // computed in place
    const Tensor& t = slots_[slot];
    StoreFn fn = table_.store[static_cast<size_t>(t.dtype)];
    int64_t size = dtype_bytes(t.dtype);
    const std::byte* reg = at(s.in[0]);
    if (streams_ && layouts_[slot].is_line()) {
      fn(staging_, reg, count_, 1);
      return stream(t.data + first_ * size, staging_, count_ * size);
    }
    auto plane = lane_plane(s.lane);
    cursors_[&s - code_.steps.data()].take(count_, [&](int64_t offset, int64_t n, int64_t stride) {
      fn(t.data + offset * size, reg, n, stride);
      reg += n * plane;
    });
  }

  // Bytes between elements within a register; for complex ones, within a plane.
  static int64_t lane_plane(Lane lane) { return lane == Lane::c64 ? 4 : lane == Lane::c128 ? 8 : lane_bytes(lane); }
  bool same_register(size_t slot, int reg) const {
    return lane_of(slots_[slot].dtype) == code_.lanes[static_cast<size_t>(reg)];
  }

  const PointwiseCode& code_;
  std::span<const Tensor> slots_;
  std::span<const Layout> layouts_;
  const BlockTable& table_;
  int64_t elements_, first_ = 0, count_ = 0;
  bool streams_;
  bool* fault_ = nullptr;
  Cursor* cursors_;
  std::byte *registers_, *staging_;
};

}  // namespace

bool PointwiseProgram::knows(std::string_view op) { return find_pointwise_rule(op) != nullptr; }

int PointwiseProgram::slot_of(const Tensor& view) {
  for (size_t i = 0; i < slots_.size(); ++i)
    if (same_view(slots_[i], view)) return static_cast<int>(i);
  slots_.push_back(view);
  loaded_.emplace_back();
  return static_cast<int>(slots_.size()) - 1;
}

Value PointwiseProgram::read(const Tensor& t) {
  Tensor view = broadcast_to(t, space_.sizes());
  for (auto known = known_.rbegin(); known != known_.rend(); ++known) {
    if (same_view(known->view, view)) return known->value = code_.rounded(known->value);
    if (share_memory(known->view, view)) fits_ = false;
    if (!fits_) return code_.constant(Scalar::integer(0), t.dtype);
  }
  int slot = slot_of(view);
  Value& loaded = loaded_[static_cast<size_t>(slot)];
  if (loaded.reg < 0) loaded = code_.load(slot, view);
  return loaded;
}

Value PointwiseProgram::made(const Tensor& t) {
  for (auto known = known_.rbegin(); known != known_.rend(); ++known) {
    const std::optional<Tensor> view = view_as(known->view, t.sizes());
    prepared_ = false;
    if (view && same_view(*view, t)) return known->value = code_.rounded(known->value);
    if (share_memory(known->view, t)) break;
  }
  return {};
}

bool PointwiseProgram::may_write(const Tensor& view) const {
  if (!writable(view)) return false;
  return std::all_of(slots_.begin(), slots_.end(),
                     [&](const Tensor& s) { return !share_memory(s, view) || same_places(s, view); });
}

Result<bool> PointwiseProgram::add(const KernelCall& call, bool stored) {
  const PointwiseRule* rule = find_pointwise_rule(call.op().name);
  if (!rule) return call.fail(std::string(call.op().name) + " is not pointwise");
  if (calls_ == kMaxCalls) return false;
  const Tensor& result = call.results[0];
  if (calls_ > 0 && !same_shape(result, space_)) return false;
  if (calls_ == 0) space_ = result;
  size_t steps = code_.steps.size(), registers = code_.lanes.size(), slots = slots_.size();
  std::vector<Known> known = known_;
  auto undo = [&] {
    code_.cut(steps, registers);
    slots_.resize(slots);
    loaded_.resize(slots);
    for (Value& v : loaded_)
      if (v.reg >= static_cast<int>(registers)) v = {};
    known_ = std::move(known);
    fits_ = true;
  };
  PointwiseCall lowering(*this, call, *rule);
  Value v = rule->lower(lowering);
  if (v.reg >= 0) v = code_.convert(v, result.dtype, false);
  for (size_t i = steps; i < code_.steps.size(); ++i) {
    const Step& s = code_.steps[i];
    if (v.reg < 0 || s.kind != Step::Kind::compute || s.converts || best_block_table().find(s.op, s.lane)) continue;
    v.reg = -1;
  }
  if (v.reg < 0)
    return undo(),
           call.fail(std::string(call.op().name) + " is not computed for " + std::string(dtype_name(result.dtype)));
  if (!fits_ || (stored && !may_write(result))) return undo(), false;
  known_.push_back({result, v});
  if (stored) code_.store(slot_of(result), result, v);
  ++calls_;
  prepared_ = false;
  return true;
}

void PointwiseProgram::close() {
  known_ = {};
  loaded_ = {};
  slots_.shrink_to_fit();
  code_.steps.shrink_to_fit();
}

void PointwiseProgram::prepare() {
  std::vector<Tensor> by_weight;  // results first: their axis order decides
  for (const Step& s : code_.steps)
    if (s.kind == Step::Kind::store) by_weight.push_back(slots_[static_cast<size_t>(s.slot)]);
  int64_t written = 0;
  for (const Tensor& t : by_weight) written += t.bytes();
  by_weight.insert(by_weight.end(), slots_.begin(), slots_.end());
  by_weight.push_back(space_);
  std::vector<int> order = visiting_order(by_weight);
  layouts_.clear();
  for (const Tensor& t : slots_) layouts_.emplace_back(t, order);
  elements_ = space_.elements();
  streams_ = written >= kStreamBytes;
  code_.place(layouts_, slots_, streams_);
  int64_t cost = 0;
  for (const Step& s : code_.steps) cost += s.fixed ? 0 : nanoseconds(s);
  grain_ = std::max<int64_t>(1, kPieceNanoseconds / std::max<int64_t>(cost, 1));
  prepared_ = true;
}

Status PointwiseProgram::run(ThreadTeam& team) {
  if (!prepared_) prepare();
  std::atomic<bool> fault{false};
  team.parallel_for((elements_ + kBlock - 1) / kBlock, grain_, [&](int64_t begin, int64_t end) {
    bool own_fault = false;
    run_blocks(begin, end, &own_fault);
    if (own_fault) fault.store(true, std::memory_order_relaxed);
  });
  if (fault) return Error{ErrorKind::cannot_apply, "an integer is divided by zero"};
  return ok_status();
}

void PointwiseProgram::run_blocks(int64_t begin, int64_t end, bool* fault) const {
  BlockRunner(code_, slots_, layouts_, elements_, streams_).run(begin, end, fault);
}

Result<PointwiseProgram> pointwise_program(const KernelCall& call, const std::function<Tensor(const Tensor&)>& copied) {
  PointwiseProgram program;
  SG_ASSIGN(bool fits, program.add(call));
  if (!fits) {
    KernelCall apart = call;  // a copy, because the call is reused, as bound, in the next step
    for (ParamValue& p : apart.params())
      if (p.kind == ParamValue::Kind::tensor && share_memory(p.tensor, call.results[0]) &&
          !same_view(p.tensor, call.results[0]))
        p.tensor = copied(p.tensor);
    SG_ASSIGN(fits, program.add(apart));
  }
  if (!fits) return call.fail("the result's elements share memory");
  return program;
}

Status run_pointwise(KernelCall& call) {
  auto program = pointwise_program(call, [&](const Tensor& t) {
    Tensor held = call.scratch().tensor(t.dtype, t.sizes());
    copy(call, held, t);
    return held;
  });
  if (!program.ok()) return program.error();
  return program->run(call.team());
}

}  // namespace sg::cpu
