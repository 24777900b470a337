// A pointwise program (cpu/pointwise_code.h) over its elements: every lane interprets the steps for one element at a
// time.
#pragma once

#include "librun/cuda/kernels/element_ops.h"

namespace sg::cuda {

inline constexpr int kRegisters = 48;  // of 8 bytes; a complex double takes two

struct ProgramStep {
  enum class Kind : uint8_t { constant, load, compute, convert, store };
  Kind kind = Kind::compute;
  BlockOp op = BlockOp::copy;
  Lane lane = Lane::f32, to = Lane::f32;  // of the operands; of the result
  uint8_t out = 0, in[5] = {};            // registers
  uint8_t slot = 0, is_test = 0;
  double re = 0, im = 0;  // constant
  int64_t whole = 0;
};

struct ProgramSlot {
  View view;  // its axes are the program's, merged where possible
};

struct ProgramArgs {
  const ProgramStep* steps = nullptr;
  const ProgramSlot* slots = nullptr;
  int32_t step_count = 0;
  int64_t elements = 0;
  Report report;
};

struct Registers {
  uint64_t r[kRegisters];

  SG_FN float f32(int i) const { return number(static_cast<uint32_t>(r[i])); }
  SG_FN double f64(int i) const { return __builtin_bit_cast(double, r[i]); }
  SG_FN int64_t i64(int i) const { return static_cast<int64_t>(r[i]); }
  SG_FN int b8(int i) const { return static_cast<int>(r[i]); }
  SG_FN Cx<float> c64(int i) const {
    return {number(static_cast<uint32_t>(r[i])), number(static_cast<uint32_t>(r[i] >> 32))};
  }
  SG_FN Cx<double> c128(int i) const { return {f64(i), f64(i + 1)}; }
  SG_FN void set(int i, float x) { r[i] = word(x); }
  SG_FN void set(int i, double x) { r[i] = __builtin_bit_cast(uint64_t, x); }
  SG_FN void set(int i, int64_t x) { r[i] = static_cast<uint64_t>(x); }
  SG_FN void set(int i, bool x) { r[i] = x; }
  SG_FN void set(int i, Cx<float> x) { r[i] = word(x.re) | static_cast<uint64_t>(word(x.im)) << 32; }
  SG_FN void set(int i, Cx<double> x) { set(i, x.re), set(i + 1, x.im); }
};

SG_FN void load_element(Registers& regs, int out, const View& v, int64_t offset) {
  switch (v.element) {
    case Element::f64: regs.set(out, at<double>(v, offset)); break;
    case Element::f32:
    case Element::f16:
    case Element::bf16:
    case Element::f8e4m3fn:
    case Element::f8e5m2:
    case Element::f8e4m3fnuz:
    case Element::f8e5m2fnuz: regs.set(out, read<float>(v, offset)); break;
    case Element::c64: regs.set(out, Cx<float>{at<float>(v, 2 * offset), at<float>(v, 2 * offset + 1)}); break;
    case Element::c128: regs.set(out, Cx<double>{at<double>(v, 2 * offset), at<double>(v, 2 * offset + 1)}); break;
    case Element::boolean: regs.set(out, read_whole(v, offset) != 0); break;
    default: regs.set(out, read_whole(v, offset));
  }
}

SG_FN void store_element(const Registers& regs, int in, const View& v, int64_t offset) {
  switch (v.element) {
    case Element::f64: at<double>(v, offset) = regs.f64(in); break;
    case Element::f32:
    case Element::f16:
    case Element::bf16:
    case Element::f8e4m3fn:
    case Element::f8e5m2:
    case Element::f8e4m3fnuz:
    case Element::f8e5m2fnuz: write<float>(v, offset, regs.f32(in)); break;
    case Element::c64:
      at<float>(v, 2 * offset) = regs.c64(in).re, at<float>(v, 2 * offset + 1) = regs.c64(in).im;
      break;
    case Element::c128:
      at<double>(v, 2 * offset) = regs.f64(in), at<double>(v, 2 * offset + 1) = regs.f64(in + 1);
      break;
    default: write_whole(v, offset, regs.i64(in));
  }
}

SG_FN void set_constant(Registers& regs, const ProgramStep& s) {
  switch (s.to) {
    case Lane::f32: regs.set(s.out, static_cast<float>(s.re)); break;
    case Lane::f64: regs.set(s.out, s.re); break;
    case Lane::i64: regs.set(s.out, s.whole); break;
    case Lane::b8: regs.set(s.out, s.whole != 0); break;
    case Lane::c64: regs.set(s.out, Cx<float>{static_cast<float>(s.re), static_cast<float>(s.im)}); break;
    case Lane::c128: regs.set(s.out, Cx<double>{s.re, s.im}); break;
  }
}

template <class T>
SG_FN void convert_real(Registers& regs, const ProgramStep& s, T x, T im, bool is_true) {
  switch (s.to) {
    case Lane::f32: regs.set(s.out, static_cast<float>(x)); break;
    case Lane::f64: regs.set(s.out, static_cast<double>(x)); break;
    case Lane::i64: regs.set(s.out, whole_of(x)); break;
    case Lane::b8: regs.set(s.out, is_true); break;
    case Lane::c64: regs.set(s.out, Cx<float>{static_cast<float>(x), static_cast<float>(im)}); break;
    case Lane::c128: regs.set(s.out, Cx<double>{static_cast<double>(x), static_cast<double>(im)}); break;
  }
}

SG_FN void convert(Registers& regs, const ProgramStep& s) {
  int a = s.in[0];
  switch (s.lane) {
    case Lane::f32: convert_real(regs, s, regs.f32(a), 0.0f, regs.f32(a) != 0); break;
    case Lane::f64: convert_real(regs, s, regs.f64(a), 0.0, regs.f64(a) != 0); break;
    case Lane::i64:
    case Lane::b8: convert_real<int64_t>(regs, s, regs.i64(a), 0, regs.i64(a) != 0); break;
    case Lane::c64: {
      Cx<float> x = regs.c64(a);
      convert_real(regs, s, x.re, x.im, x.re != 0 || x.im != 0);
      break;
    }
    case Lane::c128: {
      Cx<double> x = regs.c128(a);
      convert_real(regs, s, x.re, x.im, x.re != 0 || x.im != 0);
      break;
    }
  }
}

// Ops between real and complex numbers.
SG_FN bool compute_parts(Registers& regs, const ProgramStep& s) {
  const int a = s.in[0], b = s.in[1];
  if (s.op == BlockOp::complex || s.op == BlockOp::polar) {
    if (s.lane == Lane::f32) regs.set(s.out, complex_of_parts(s.op, regs.f32(a), regs.f32(b)));
    else regs.set(s.out, complex_of_parts(s.op, regs.f64(a), regs.f64(b)));
    return true;
  }
  if (s.op != BlockOp::abs && s.op != BlockOp::angle) return false;
  if (s.lane == Lane::c64) regs.set(s.out, part_of_complex(s.op, regs.c64(a)));
  else if (s.lane == Lane::c128) regs.set(s.out, part_of_complex(s.op, regs.c128(a)));
  else return false;
  return true;
}

SG_FN void compute(Registers& regs, const ProgramStep& s, const Report& report) {
  const uint8_t* in = s.in;
  if (s.op == BlockOp::where) {  // moves the selected value: one register, or two
    const int from = regs.b8(in[0]) ? in[1] : in[2];
    const uint64_t low = regs.r[from], high = s.lane == Lane::c128 ? regs.r[from + 1] : 0;
    regs.r[s.out] = low;
    if (s.lane == Lane::c128) regs.r[s.out + 1] = high;
    return;
  }
  if (compute_parts(regs, s)) return;
  switch (s.lane) {
    case Lane::f32:
      if (s.is_test)
        regs.set(s.out, real_test(s.op, regs.f32(in[0]), regs.f32(in[1]), regs.f32(in[2]), regs.f32(in[3])));
      else
        regs.set(s.out,
                 real_op(s.op, regs.f32(in[0]), regs.f32(in[1]), regs.f32(in[2]), regs.f32(in[3]), regs.f32(in[4])));
      break;
    case Lane::f64:
      if (s.is_test)
        regs.set(s.out, real_test(s.op, regs.f64(in[0]), regs.f64(in[1]), regs.f64(in[2]), regs.f64(in[3])));
      else
        regs.set(s.out,
                 real_op(s.op, regs.f64(in[0]), regs.f64(in[1]), regs.f64(in[2]), regs.f64(in[3]), regs.f64(in[4])));
      break;
    case Lane::i64:
      if (s.is_test) regs.set(s.out, whole_test(s.op, regs.i64(in[0]), regs.i64(in[1])));
      else regs.set(s.out, whole_op(s.op, regs.i64(in[0]), regs.i64(in[1]), regs.i64(in[2]), regs.i64(in[3]), report));
      break;
    case Lane::b8: regs.set(s.out, (flag_op(s.op, regs.b8(in[0]), regs.b8(in[1]), regs.b8(in[2])) & 1) != 0); break;
    case Lane::c64:
      if (s.is_test) regs.set(s.out, complex_test(s.op, regs.c64(in[0]), regs.c64(in[1])));
      else regs.set(s.out, complex_op(s.op, regs.c64(in[0]), regs.c64(in[1]), regs.c64(in[2]), regs.c64(in[3])));
      break;
    case Lane::c128:
      if (s.is_test) regs.set(s.out, complex_test(s.op, regs.c128(in[0]), regs.c128(in[1])));
      else regs.set(s.out, complex_op(s.op, regs.c128(in[0]), regs.c128(in[1]), regs.c128(in[2]), regs.c128(in[3])));
      break;
  }
}

SG_FN void run_element(const ProgramArgs& args, Registers& regs, int64_t i) {
  for (int k = 0; k < args.step_count; ++k) {
    const ProgramStep& s = args.steps[k];
    switch (s.kind) {
      case ProgramStep::Kind::constant: set_constant(regs, s); break;
      case ProgramStep::Kind::load:
        load_element(regs, s.out, args.slots[s.slot].view, offset_of(args.slots[s.slot].view, i));
        break;
      case ProgramStep::Kind::store:
        store_element(regs, s.in[0], args.slots[s.slot].view, offset_of(args.slots[s.slot].view, i));
        break;
      case ProgramStep::Kind::convert: convert(regs, s); break;
      case ProgramStep::Kind::compute: compute(regs, s, args.report); break;
    }
  }
}

SG_KERNEL(pointwise_program, ProgramArgs) {
  block.each([&](int lane) {
    Registers regs;
    for (uint64_t& r : regs.r) r = 0;
    for (int64_t i = block.index() * kLanes + lane; i < args.elements; i += block.count() * kLanes)
      run_element(args, regs, i);
  });
}

}  // namespace sg::cuda
