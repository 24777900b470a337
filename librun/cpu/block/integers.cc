// Arithmetic on integers, which wraps, and on bools. Integers of all widths are held as i64; the caller wraps results.
#include "librun/cpu/block/map.h"

namespace sg::cpu::SG_ISA {
namespace {

SG_INLINE int64_t wrap(uint64_t v) { return static_cast<int64_t>(v); }
SG_INLINE uint64_t bits(int64_t v) { return static_cast<uint64_t>(v); }

template <int N, class F>
void whole(BlockTable& t, BlockOp op, F f) {
  one<int64_t, N>(t, op, f);
}
template <int N, class F>
void flag(BlockTable& t, BlockOp op, F f) {
  one<uint8_t, N>(t, op, f);
}

// Quotients: division by 0 is a fault; division by -1 is computed as negation, which cannot trap.
template <class F>
struct Divide {
  static void run(void* out, const void* const* in, int64_t n, bool* fault) {
    auto* o = static_cast<int64_t*>(out);
    auto *a = static_cast<const int64_t*>(in[0]), *b = static_cast<const int64_t*>(in[1]);
    for (int64_t i = 0; i < n; ++i) {
      int64_t x = a[i], y = b[i];
      if (y == 0) *fault = true;
      o[i] = F{}(x, y == 0 ? 1 : y);
    }
  }
};

template <class F>
void divide(BlockTable& t, BlockOp op, F) {
  place(t, op, Lane::i64) = &Divide<F>::run;
}

SG_INLINE int64_t quotient(int64_t a, int64_t b) { return b == -1 ? wrap(0 - bits(a)) : a / b; }
SG_INLINE int64_t rest(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }

void add_quotients(BlockTable& t) {
  divide(t, BlockOp::div_trunc, [](int64_t a, int64_t b) { return quotient(a, b); });
  divide(t, BlockOp::fmod, [](int64_t a, int64_t b) { return rest(a, b); });
  divide(t, BlockOp::div_floor,
         [](int64_t a, int64_t b) { return quotient(a, b) - (rest(a, b) != 0 && (a < 0) != (b < 0)); });
  divide(t, BlockOp::remainder, [](int64_t a, int64_t b) {
    int64_t r = rest(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  });
}

// Exponentiation by squaring, wrapping. A negative exponent gives 0, except for bases 1 and -1.
SG_INLINE int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t out = 1, b = bits(base);
  for (auto e = bits(exponent); e != 0; e >>= 1, b *= b)
    if (e & 1) out *= b;
  return wrap(out);
}

void add_bits(BlockTable& t) {
  whole<2>(t, BlockOp::bit_and, [](int64_t a, int64_t b) { return a & b; });
  whole<2>(t, BlockOp::bit_or, [](int64_t a, int64_t b) { return a | b; });
  whole<2>(t, BlockOp::bit_xor, [](int64_t a, int64_t b) { return a ^ b; });
  whole<1>(t, BlockOp::bit_not, [](int64_t a) { return ~a; });
  // The third operand: the shift from which on no bits (or only the sign) remain.
  whole<3>(t, BlockOp::shift_left,
           [](int64_t a, int64_t b, int64_t width) { return b < 0 || b >= width ? 0 : wrap(bits(a) << (b & 63)); });
  whole<3>(t, BlockOp::shift_right,
           [](int64_t a, int64_t b, int64_t most) { return a >> ((b < 0 || b >= most ? most : b) & 63); });
}

void add_flags(BlockTable& t) {
  flag<2>(t, BlockOp::add, [](uint8_t a, uint8_t b) { return a | b; });
  flag<2>(t, BlockOp::mul, [](uint8_t a, uint8_t b) { return a & b; });
  flag<2>(t, BlockOp::maximum, [](uint8_t a, uint8_t b) { return a | b; });
  flag<2>(t, BlockOp::minimum, [](uint8_t a, uint8_t b) { return a & b; });
  flag<2>(t, BlockOp::fmax, [](uint8_t a, uint8_t b) { return a | b; });
  flag<2>(t, BlockOp::fmin, [](uint8_t a, uint8_t b) { return a & b; });
  flag<2>(t, BlockOp::bit_and, [](uint8_t a, uint8_t b) { return a & b; });
  flag<2>(t, BlockOp::bit_or, [](uint8_t a, uint8_t b) { return a | b; });
  flag<2>(t, BlockOp::bit_xor, [](uint8_t a, uint8_t b) { return a ^ b; });
  flag<1>(t, BlockOp::bit_not, [](uint8_t a) { return a ^ 1; });
  flag<1>(t, BlockOp::abs, [](uint8_t a) { return a; });
  flag<1>(t, BlockOp::sign, [](uint8_t a) { return a; });
  flag<1>(t, BlockOp::relu, [](uint8_t a) { return a; });
  flag<4>(t, BlockOp::nan_to_num, [](uint8_t a, uint8_t, uint8_t, uint8_t) { return a; });
  flag<3>(t, BlockOp::add_scaled, [](uint8_t a, uint8_t b, uint8_t alpha) { return a | (alpha & b); });
}

void add_unary(BlockTable& t) {
  whole<1>(t, BlockOp::neg, [](int64_t a) { return wrap(0 - bits(a)); });
  whole<1>(t, BlockOp::abs, [](int64_t a) { return a < 0 ? wrap(0 - bits(a)) : a; });
  whole<1>(t, BlockOp::sign, [](int64_t a) { return static_cast<int64_t>(a > 0) - static_cast<int64_t>(a < 0); });
  whole<1>(t, BlockOp::relu, [](int64_t a) { return a > 0 ? a : 0; });
  for (BlockOp op : {BlockOp::trunc, BlockOp::round, BlockOp::floor, BlockOp::ceil})
    whole<1>(t, op, [](int64_t a) { return a; });
  whole<4>(t, BlockOp::nan_to_num, [](int64_t a, int64_t, int64_t, int64_t) { return a; });
  whole<3>(t, BlockOp::threshold_backward,
           [](int64_t g, int64_t a, int64_t threshold) { return a <= threshold ? 0 : g; });
  whole<1>(t, BlockOp::wrap_i32, [](int64_t a) { return static_cast<int64_t>(static_cast<int32_t>(a)); });
  whole<1>(t, BlockOp::wrap_i16, [](int64_t a) { return static_cast<int64_t>(static_cast<int16_t>(a)); });
  whole<1>(t, BlockOp::wrap_i8, [](int64_t a) { return static_cast<int64_t>(static_cast<int8_t>(a)); });
  whole<1>(t, BlockOp::wrap_u8, [](int64_t a) { return static_cast<int64_t>(static_cast<uint8_t>(a)); });
}

}  // namespace

void add_integers(BlockTable& t) {
  whole<2>(t, BlockOp::add, [](int64_t a, int64_t b) { return wrap(bits(a) + bits(b)); });
  whole<2>(t, BlockOp::sub, [](int64_t a, int64_t b) { return wrap(bits(a) - bits(b)); });
  whole<2>(t, BlockOp::mul, [](int64_t a, int64_t b) { return wrap(bits(a) * bits(b)); });
  whole<3>(t, BlockOp::add_scaled, [](int64_t a, int64_t b, int64_t s) { return wrap(bits(a) + bits(s) * bits(b)); });
  whole<3>(t, BlockOp::sub_scaled, [](int64_t a, int64_t b, int64_t s) { return wrap(bits(a) - bits(s) * bits(b)); });
  whole<4>(t, BlockOp::addcmul,
           [](int64_t a, int64_t b, int64_t c, int64_t s) { return wrap(bits(a) + bits(s) * bits(b) * bits(c)); });
  whole<2>(t, BlockOp::maximum, [](int64_t a, int64_t b) { return a < b ? b : a; });
  whole<2>(t, BlockOp::minimum, [](int64_t a, int64_t b) { return b < a ? b : a; });
  whole<2>(t, BlockOp::fmax, [](int64_t a, int64_t b) { return a < b ? b : a; });
  whole<2>(t, BlockOp::fmin, [](int64_t a, int64_t b) { return b < a ? b : a; });
  whole<2>(t, BlockOp::pow, [](int64_t a, int64_t b) { return power(a, b); });
  add_quotients(t);
  add_bits(t);
  add_unary(t);
  add_flags(t);
}

}  // namespace sg::cpu::SG_ISA
