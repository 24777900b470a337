#include "librun/cpu/pointwise_code.h"

#include <algorithm>
#include <cassert>
#include <optional>

#include "librun/execute/memory_ranges.h"

namespace sg::cpu {
namespace {

constexpr size_t kForever = SIZE_MAX;

// The step that rounds a value to its type; none for types as wide as their lane.
std::optional<BlockOp> rounding(DType dtype) {
  switch (dtype) {
    case DType::bf16: return BlockOp::round_bf16;
    case DType::f16: return BlockOp::round_f16;
    case DType::f8e4m3fn: return BlockOp::round_e4m3fn;
    case DType::f8e5m2: return BlockOp::round_e5m2;
    case DType::f8e4m3fnuz: return BlockOp::round_e4m3fnuz;
    case DType::f8e5m2fnuz: return BlockOp::round_e5m2fnuz;
    case DType::i32: return BlockOp::wrap_i32;
    case DType::i16: return BlockOp::wrap_i16;
    case DType::i8: return BlockOp::wrap_i8;
    case DType::u8: return BlockOp::wrap_u8;
    default: return std::nullopt;
  }
}

// Whether this type has the same form in memory as in a register of its lane.
bool same_in_memory(DType dtype) { return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i64; }

}  // namespace

int PointwiseCode::define(Lane lane) {
  lanes.push_back(lane);
  return static_cast<int>(lanes.size()) - 1;
}

Value PointwiseCode::constant(Scalar s, DType dtype) {
  Step step;
  step.kind = Step::Kind::constant;
  step.number = s.to_complex();
  step.integer = is_floating(dtype) || is_complex(dtype) ? 0 : s.to_int();
  if (dtype == DType::boolean) step.integer = s.is_integral() ? s.i != 0 : s.re != 0 || s.im != 0;
  step.out = define(lane_of(dtype));
  steps.push_back(step);
  return {step.out, dtype, !rounding(dtype)};
}

Value PointwiseCode::load(int slot, const Tensor& view) {
  Step step;
  step.kind = Step::Kind::load;
  step.slot = slot;
  step.out = define(lane_of(view.dtype));
  steps.push_back(step);
  Value v{step.out, view.dtype, true};
  return view.conjugate ? compute(BlockOp::conj, lanes.back(), {v}, view.dtype) : v;
}

Value PointwiseCode::compute(BlockOp op, Lane lane, std::initializer_list<Value> operands, DType result) {
  assert(operands.size() <= kMaxOperands);
  Step step;
  step.op = op;
  step.lane = lane;
  step.result = result;
  for (const Value& v : operands) step.in[step.arity++] = v.reg;
  step.out = define(lane_of(result));
  steps.push_back(step);
  return {step.out, result, !rounding(result)};
}

Value PointwiseCode::rounded(Value v) {
  std::optional<BlockOp> op = rounding(v.dtype);
  if (v.rounded || !op) return v;
  Value out = compute(*op, lane_of(v.dtype), {v}, v.dtype);
  out.rounded = true;
  return out;
}

Value PointwiseCode::convert(Value v, DType to, bool round) {
  bool same_type = v.dtype == to;
  if (!same_type) v = rounded(v);
  if (lanes[static_cast<size_t>(v.reg)] != lane_of(to)) {
    Step step;
    step.lane = lanes[static_cast<size_t>(v.reg)];
    step.converts = true;
    step.in[step.arity++] = v.reg;
    step.out = define(lane_of(to));
    steps.push_back(step);
    v.reg = step.out;
  }
  if (!same_type) v = {v.reg, to, !rounding(to)};
  return round ? rounded(v) : v;
}

void PointwiseCode::store(int slot, const Tensor& view, Value v) {
  std::erase_if(steps, [&](const Step& s) { return s.kind == Step::Kind::store && s.slot == slot; });
  if (view.conjugate) v = compute(BlockOp::conj, lane_of(view.dtype), {v}, view.dtype);
  Step step;
  step.kind = Step::Kind::store;
  step.slot = slot;
  step.in[step.arity++] = v.reg;
  step.lane = lane_of(view.dtype);
  steps.push_back(step);
}

void PointwiseCode::cut(size_t step_count, size_t register_count) {
  steps.resize(step_count);
  lanes.resize(register_count);
}

void PointwiseCode::place(std::span<const Layout> layouts, std::span<const Tensor> slots, bool stream) {
  places.assign(lanes.size(), Place{});
  mark_fixed(layouts);
  find_last_uses();
  place_in_memory(layouts, slots, stream);
  place_in_scratch();
}

void PointwiseCode::mark_fixed(std::span<const Layout> layouts) {
  std::vector<char> fixed(lanes.size(), 0), written(layouts.size(), 0);
  for (const Step& s : steps)
    if (s.kind == Step::Kind::store) written[static_cast<size_t>(s.slot)] = 1;
  for (Step& s : steps) {
    if (s.kind == Step::Kind::constant) s.fixed = true;
    if (s.kind == Step::Kind::load)
      s.fixed = layouts[static_cast<size_t>(s.slot)].is_point() && !written[static_cast<size_t>(s.slot)];
    if (s.kind == Step::Kind::compute)
      s.fixed =
          std::all_of(s.in.begin(), s.in.begin() + s.arity, [&](int reg) { return fixed[static_cast<size_t>(reg)]; });
    if (s.fixed) fixed[static_cast<size_t>(s.out)] = 1;
  }
}

void PointwiseCode::find_last_uses() {
  last_use_.assign(lanes.size(), 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].out >= 0) last_use_[static_cast<size_t>(steps[i].out)] = steps[i].fixed ? kForever : i;
    for (int k = 0; k < steps[i].arity; ++k) {
      size_t& last = last_use_[static_cast<size_t>(steps[i].in[static_cast<size_t>(k)])];
      last = std::max(last, i);
    }
  }
}

// Whether the slot's memory is written after step `after` while `reg`, which is to be placed there, is still needed.
bool PointwiseCode::overwritten(int slot, size_t after, std::span<const Tensor> slots, int reg) const {
  for (size_t i = after + 1; i < steps.size() && i < last_use_[static_cast<size_t>(reg)]; ++i)
    if (steps[i].kind == Step::Kind::store &&
        share_memory(slots[static_cast<size_t>(steps[i].slot)], slots[static_cast<size_t>(slot)]))
      return true;
  return false;
}

bool PointwiseCode::lies_as_is(int slot, std::span<const Layout> layouts, std::span<const Tensor> slots) const {
  auto s = static_cast<size_t>(slot);
  return layouts[s].is_line() && same_in_memory(slots[s].dtype);
}

void PointwiseCode::place_in_memory(std::span<const Layout> layouts, std::span<const Tensor> slots, bool stream) {
  for (size_t i = 0; i < steps.size(); ++i) {
    Step& s = steps[i];
    if (s.kind == Step::Kind::load && !s.fixed && lies_as_is(s.slot, layouts, slots) &&
        !overwritten(s.slot, i, slots, s.out))
      places[static_cast<size_t>(s.out)].slot = s.slot;
    if (s.kind != Step::Kind::store || i == 0 || stream) continue;
    const Step& before = steps[i - 1];
    int reg = s.in[0];
    bool flag =
        slots[static_cast<size_t>(s.slot)].dtype == DType::boolean && layouts[static_cast<size_t>(s.slot)].is_line();
    bool made_just_now = before.out == reg && !before.fixed && places[static_cast<size_t>(reg)].slot < 0;
    if (made_just_now && (flag || lies_as_is(s.slot, layouts, slots)) && !overwritten(s.slot, i, slots, reg))
      places[static_cast<size_t>(reg)].slot = s.slot;
  }
}

void PointwiseCode::place_in_scratch() {
  std::array<std::vector<int64_t>, kLanes> free;
  scratch_bytes = 0;
  auto give = [&](int reg) {
    free[static_cast<size_t>(lanes[static_cast<size_t>(reg)])].push_back(places[static_cast<size_t>(reg)].offset);
  };
  auto take = [&](int reg) {
    auto lane = static_cast<size_t>(lanes[static_cast<size_t>(reg)]);
    Place& p = places[static_cast<size_t>(reg)];
    if (free[lane].empty()) {
      p.offset = scratch_bytes;
      scratch_bytes += kBlock * lane_bytes(static_cast<Lane>(lane));
    } else {
      p.offset = free[lane].back();
      free[lane].pop_back();
    }
  };
  for (const Step& s : steps)  // first those that stay live: the others share the rest
    if (s.fixed) take(s.out);
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& s = steps[i];
    if (s.fixed) continue;
    auto ends_here = [&](int reg) {
      return last_use_[static_cast<size_t>(reg)] == i && places[static_cast<size_t>(reg)].slot < 0;
    };
    for (int k = 0; k < s.arity; ++k) {  // a result may reuse the place of an operand of its lane
      int reg = s.in[static_cast<size_t>(k)];
      bool again = std::find(s.in.begin(), s.in.begin() + k, reg) != s.in.begin() + k;
      if (!again && ends_here(reg)) give(reg);
    }
    if (s.out >= 0 && places[static_cast<size_t>(s.out)].slot < 0) {
      take(s.out);
      if (ends_here(s.out)) give(s.out);
    }
  }
}

}  // namespace sg::cpu
