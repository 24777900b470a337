#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <limits>

#include "librun/cuda/kernels/near.h"
#include "librun/work/activations.h"
#include "librun/work/bessel.h"
#include "librun/work/math.h"
#include "librun/work/orthogonal.h"
#include "librun/work/special.h"

using namespace sg;

namespace {

constexpr uint32_t kBitStep = 9973;  // a prime: reaches every exponent and many mantissas

// The distance in units of the last place of the float nearest to `truth`; 0 for equal infinities, zeros of the same
// sign and NaNs, huge if only one is special.
double ulps(float got, long double truth) {
  auto nearest = static_cast<float>(truth);
  if (std::isnan(got) || std::isnan(nearest)) return std::isnan(got) == std::isnan(nearest) ? 0 : 1e9;
  if (std::isinf(got) || std::isinf(nearest)) return got == nearest ? 0 : 1e9;
  if (nearest == 0 && got == 0) return std::signbit(got) == std::signbit(nearest) ? 0 : 1e9;
  float next = std::nextafter(std::fabs(nearest), std::numeric_limits<float>::infinity());
  long double unit = static_cast<long double>(next) - static_cast<long double>(std::fabs(nearest));
  return static_cast<double>(std::fabs(static_cast<long double>(got) - truth) / unit);
}

// Differences below `tiny` count as none: results so small are products of subnormal numbers.
template <class Fn, class Truth>
void check_unary(const char* name, Fn fn, Truth truth, double limit = 0.51, long double tiny = 0) {
  double worst = 0;
  float where = 0;
  auto look = [&](float x) {
    float got = fn(x);
    long double wanted = truth(static_cast<long double>(x));
    if (std::fabs(static_cast<long double>(got) - wanted) <= tiny) return;
    double error = ulps(got, wanted);
    if (error > worst) worst = error, where = x;
  };
  for (uint64_t u = 0; u <= 0xFFFFFFFF; u += kBitStep) look(std::bit_cast<float>(static_cast<uint32_t>(u)));
  for (float x :
       {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 0x1p-149f, -0x1p-149f, 88.7f, 89.0f, -103.9f, -104.5f})
    look(x);
  INFO(name << " at " << where << " (" << std::hexfloat << where << ")");
  CHECK(worst <= limit);
}

#define CHECK_WIDE(name, truth)                                                      \
  check_unary(                                                                       \
      #name, [](float x) { return static_cast<float>(math::Wide<float>::name(x)); }, \
      [](long double x) { return truth; })

}  // namespace

TEST_CASE("float functions are correctly rounded but for ties too close to call") {
  CHECK_WIDE(exp, expl(x));
  CHECK_WIDE(exp2, exp2l(x));
  CHECK_WIDE(expm1, expm1l(x));
  CHECK_WIDE(log, logl(x));
  CHECK_WIDE(log2, log2l(x));
  CHECK_WIDE(log10, log10l(x));
  CHECK_WIDE(log1p, log1pl(x));
  CHECK_WIDE(erf, erfl(x));
  CHECK_WIDE(erfc, erfcl(x));
  CHECK_WIDE(tanh, tanhl(x));
  CHECK_WIDE(sinh, sinhl(x));
  CHECK_WIDE(cosh, coshl(x));
  CHECK_WIDE(asinh, asinhl(x));
  CHECK_WIDE(acosh, acoshl(x));
  CHECK_WIDE(atanh, atanhl(x));
  CHECK_WIDE(asin, asinl(x));
  CHECK_WIDE(acos, acosl(x));
  CHECK_WIDE(atan, atanl(x));
}

// PyTorch rounds the root and the quotient. These are four of its results, each next to the correctly rounded one.
TEST_CASE("rsqrt has PyTorch's bits") {
  constexpr std::pair<uint32_t, uint32_t> kTheirs[] = {
      {0x40f2712e, 0x3eba0312}, {0x40fff46b, 0x3eb5090b}, {0x40b63e23, 0x3ed68bb5}, {0x408c68b0, 0x3ef46d14}};
  for (auto [x, root] : kTheirs) CHECK(std::bit_cast<uint32_t>(math::rsqrt(std::bit_cast<float>(x))) == root);
}

TEST_CASE("what is computed in float is within few ulp, in the tails too") {
  constexpr long double kTiny = 0x1p-140L;
  auto sigmoid = [](long double x) { return 1 / (1 + expl(-x)); };
  auto below = [](long double x) { return erfcl(-x * sqrtl(0.5L)) / 2; };
  check_unary(
      "exp_float", [](float x) { return math::exp_float(x); }, [](long double x) { return expl(x); }, 1.1);
  check_unary(
      "log1p_float", [](float x) { return math::log1p_float(std::fabs(x) <= 1 ? std::fabs(x) : 1.0f); },
      [](long double x) { return log1pl(std::fabs(x) <= 1 ? std::fabs(x) : 1.0L); }, 2);
  check_unary(
      "tanh_float", [](float x) { return math::tanh_float(x); }, [](long double x) { return tanhl(x); }, 1.6);
  check_unary(
      "rsqrt", math::rsqrt<float>, [](long double x) { return 1 / sqrtl(x); }, 1.5);
  check_unary("sigmoid", math::sigmoid<float>, sigmoid, 2.5);
  check_unary(
      "silu", math::silu<float>, [&](long double x) { return x * sigmoid(x); }, 3, kTiny);
  check_unary(
      "mish", math::mish<float>, [](long double x) { return x * tanhl(log1pl(expl(x))); }, 4, kTiny);
  check_unary(
      "gelu", math::gelu<float>, [&](long double x) { return x * below(x); }, 8, kTiny);
  check_unary(
      "log_sigmoid", math::log_sigmoid<float>, [](long double x) { return x < -11000 ? x : -log1pl(expl(-x)); }, 3,
      kTiny);
  for (float x : {-30.0f, -4.0f, -1.0f, -0.3f, 0.0f, 0.5f, 1.7f, 6.0f, 40.0f, 1e30f}) {
    INFO(x);
    auto close = [&](float gradient, double truth) {
      return std::fabs(gradient - truth) <= 4e-7 * (1 + std::fabs(truth));
    };
    CHECK(close(math::silu_gradient(1.0f, x), math::silu_gradient<double>(1, x)));
    CHECK(close(math::mish_gradient(1.0f, x), math::mish_gradient<double>(1, x)));
    CHECK(close(math::gelu_gradient(1.0f, x), math::gelu_gradient<double>(1, x)));
    CHECK(close(math::gelu_tanh_gradient(1.0f, x), math::gelu_tanh_gradient<double>(1, x)));
    CHECK(math::gelu_tanh(x) == Approx(math::gelu_tanh<double>(x)).epsilon(1e-5).margin(1e-30));
  }
}

// `near` and `exact` at all floats of 16 bits, rounded to them: the number of results that differ, by one unit. Any
// that differ otherwise fail.
template <class From, class To, class Near, class Exact>
int roundings_apart(From from, To to, Near near, Exact exact) {
  int apart = 0;
  for (uint32_t u = 0; u <= 0xFFFF; ++u) {
    const float x = from(static_cast<uint16_t>(u));
    const auto a = to(near(x)), b = to(exact(x));
    if (std::isnan(from(a)) && std::isnan(from(b))) continue;
    if (a == b) continue;
    INFO(x << ": " << from(a) << ", not " << from(b));
    REQUIRE(std::abs(a - b) == 1);
    ++apart;
  }
  return apart;
}

TEST_CASE("what a device computes for bf16 and f16 rounds as the functions of float do, but for near ties") {
  auto check = [](const char* name, auto near, auto exact) {
    INFO(name);
    CHECK(roundings_apart(work::from_brain, work::to_brain, near, exact) <= 4);
    CHECK(roundings_apart(work::from_half, work::to_half, near, exact) <= 8);
  };
  check("exp", cuda::exp_anywhere_near, math::exp<float>);
  check("tanh", cuda::tanh_near, [](float x) { return math::tanh_float(x); });
  check("sigmoid", cuda::sigmoid_near, math::sigmoid<float>);
  check("silu", cuda::silu_near, math::silu<float>);
  check("gelu", cuda::gelu_near, math::gelu<float>);
  check("gelu by tanh", cuda::gelu_tanh_near, math::gelu_tanh<float>);
  for (float g : {1.0f, -0.7f, 3e4f}) {
    auto with = [g](auto gradient) { return [=](float x) { return gradient(g, x); }; };
    check("silu's", with(cuda::silu_gradient_near), with(math::silu_gradient<float>));
    check("gelu's", with(cuda::gelu_gradient_near), with(math::gelu_gradient<float>));
    check("gelu's by tanh", with(cuda::gelu_tanh_gradient_near), with(math::gelu_tanh_gradient<float>));
  }
}

TEST_CASE("angles of any size are reduced exactly") {
  check_unary(
      "sin", [](float x) { return math::sin(x); }, [](long double x) { return sinl(x); });
  check_unary(
      "cos", [](float x) { return math::cos(x); }, [](long double x) { return cosl(x); });
  check_unary(
      "tan", [](float x) { return math::tan(x); }, [](long double x) { return tanl(x); });
  for (float x : {0.1f, 3.1415927f, 22.0f, 1e4f, 100000.0f, 262144.0f, -262143.97f}) {
    CHECK(ulps(static_cast<float>(math::sin_small(x)), sinl(x)) <= 0.51);
    CHECK(ulps(static_cast<float>(math::cos_small(x)), cosl(x)) <= 0.51);
  }
}

TEST_CASE("pow over pairs of floats") {
  double worst = 0;
  float at_x = 0, at_y = 0;
  auto look = [&](float x, float y) {
    double error = ulps(math::pow(x, y), powl(x, y));
    if (error > worst) worst = error, at_x = x, at_y = y;
  };
  for (uint64_t u = 0; u <= 0xFFFFFFFF; u += 40 * kBitStep) {
    auto x = std::bit_cast<float>(static_cast<uint32_t>(u));
    for (float y : {2.0f, 3.0f, -1.0f, 0.5f, 0.33333334f, -2.5f, 7.0f, 1.0001f, 40.0f}) look(x, y);
    for (float y : {1.0f, 0.9999f, 1.001f}) look(y, x);
  }
  const float special[] = {0.0f,      -0.0f, 1.0f,   -1.0f,       2.0f,        -2.0f,       3.0f,
                           -3.0f,     0.5f,  -0.5f,  2.5f,        INFINITY,    -INFINITY,   NAN,
                           0x1p-149f, 3e38f, -3e38f, 16777216.0f, 16777215.0f, -16777215.0f};
  for (float x : special)
    for (float y : special) look(x, y);
  INFO("pow(" << at_x << ", " << at_y << ")");
  CHECK(worst <= 0.51);
}

TEST_CASE("atan2 over pairs of floats") {
  double worst = 0;
  const float special[] = {0.0f,     -0.0f,     1.0f, -1.0f,     2.0f,  -0.3f, 5.0f,
                           INFINITY, -INFINITY, NAN,  0x1p-149f, 3e38f, -3e38f};
  for (float y : special)
    for (float x : special)
      worst = std::max(worst, ulps(static_cast<float>(math::Wide<float>::atan2(y, x)), atan2l(y, x)));
  CHECK(worst <= 0.51);
}

// Against Newton's and Halley's method in double, whose own test is below.
TEST_CASE("inverses of the normal distribution, of floats") {
  check_unary(
      "erfinv", [](float x) { return math::erfinv(x); },
      [](long double x) { return math::erfinv_core(static_cast<double>(x)); });
  check_unary(
      "ndtri", [](float p) { return math::ndtri(p); },
      [](long double p) { return math::ndtri_core(static_cast<double>(p)); });
  for (float x : {1.0f - 0x1p-24f, 0x1p-149f, 0.99f, 0.98f, 0.5f}) {
    CHECK(ulps(math::erfinv(-x), -static_cast<long double>(math::erfinv_core(x))) <= 0.51);
    CHECK(ulps(math::ndtri(x), math::ndtri_core(x)) <= 0.51);
  }
}

TEST_CASE("digamma, erfinv and ndtri") {
  constexpr double kEuler = 0.57721566490153286061;
  CHECK(math::digamma_core(1) == Approx(-kEuler).epsilon(1e-13));
  CHECK(math::digamma_core(0.5) == Approx(-kEuler - 2 * math::kLn2).epsilon(1e-13));
  CHECK(math::digamma_core(-0.5) == Approx(-kEuler - 2 * math::kLn2 + 2).epsilon(1e-12));
  CHECK(std::isnan(math::digamma_core(-3)));
  CHECK(math::digamma_core(0) == -INFINITY);
  for (double y : {1e-9, 0.01, 0.3, 0.9, 1.5, 3.0}) {
    CHECK(math::erfinv_core(std::erf(y)) == Approx(y).epsilon(1e-11));
    CHECK(math::erfinv_core(-std::erf(y)) == Approx(-y).epsilon(1e-11));
  }
  CHECK(math::ndtri_core(0.5) == 0);
  CHECK(math::ndtri_core(0.5 + 1e-9) == Approx(1e-9 * std::sqrt(2 * math::kPi)).epsilon(1e-7));
  CHECK(math::erfinv_core(1) == INFINITY);
  CHECK(std::isnan(math::erfinv_core(1.5)));
}

TEST_CASE("Bessel and Airy functions, on both sides of where their formulas change") {
  struct Known {  // to 30 digits by mpmath
    double x, j0, j1, y0, y1, k0, k1;
  };
  constexpr Known kKnown[] = {
      {0.01, 0.99997500015624957, 0.0049999375002604162, -3.0054556370836459, -63.678596282060655, 4.7212447301610949,
       99.973894118296246},
      {0.9, 0.80752379812254477, 0.40594954607880568, 0.0056283066352055584, -0.8731265824563288, 0.48673030816290051,
       0.71653357877601905},
      {3.7, -0.39923020337119112, 0.053833987745461791, 0.10607431532035411, 0.41667437268380749, 0.015630659921626658,
       0.017628035102223263},
      {11.5, -0.067653948111665228, -0.22837862066532347, -0.22523211169118787, 0.057942547143000822,
       3.7050381659564215e-6, 3.862894146160998e-6},
      {24.9, 0.08324596835301549, -0.13485569953140887, -0.13649918399676524, -0.086002557595554252,
       3.8360965209894921e-12, 3.9123824362567633e-12},
      {25.1, 0.10827567149994945, -0.11463478413442257, -0.11676770763803695, -0.11062223322783099,
       3.1283127143211171e-12, 3.190032318604266e-12},
      {180.0, -0.058862596948708744, -0.0086463182541182728, -0.0084827795766800132, 0.058839260936306619,
       6.2678151953187692e-80, 6.2852017448859222e-80},
  };
  for (const Known& k : kKnown) {
    INFO(k.x);
    CHECK(std::fabs(math::bessel_j(0, k.x) - k.j0) < 1e-15);
    CHECK(std::fabs(math::bessel_j(1, -k.x) + k.j1) < 1e-15);
    CHECK(std::fabs(math::bessel_y(0, k.x) - k.y0) < 3e-15);
    CHECK(std::fabs(math::bessel_y(1, k.x) - k.y1) < 2e-14);
    CHECK(std::fabs(math::bessel_k(0, k.x, false) / k.k0 - 1) < 1e-13);
    CHECK(std::fabs(math::bessel_k(1, k.x, true) / std::exp(k.x) / k.k1 - 1) < 1e-13);
  }
  constexpr double kAiry[][2] = {{-30.5, -0.0043336372887428654}, {-9.5, 0.3191032477191282},
                                 {-2.25, 0.061598658777005278},   {0, 0.35502805388781724},
                                 {1.75, 0.050569880805794872},    {2.5, 0.01572592338047049},
                                 {9.0, 2.4711684308724898e-9},    {40.0, 6.3657426585529149e-75}};
  for (const auto& [x, y] : kAiry) CHECK(std::fabs(math::airy(x) - y) < 2e-14 * (x > 0 ? std::fabs(y) * 10 : 1));
}

TEST_CASE("polynomials of any degree end, and their closed forms go on from their recurrences") {
  using math::Polynomial;
  for (Polynomial kind :
       {Polynomial::chebyshev_t, Polynomial::chebyshev_u, Polynomial::chebyshev_v, Polynomial::chebyshev_w}) {
    for (double x : {-0.99, -0.3, 0.0, 0.7, -1.01, 1.02}) {
      auto at = [&](double n) { return math::polynomial_of_degree(static_cast<double>(kind), x, n, 0.0); };
      for (double n : {7.0, 8.0, 9.0, 127.0, 128.0, 129.0}) {  // p(n + 1) = 2 x p(n) - p(n - 1)
        INFO(static_cast<int>(kind) << " of " << x << ", degree " << n);
        CHECK(std::fabs(at(n + 1) - 2 * x * at(n) + at(n - 1)) <= 1e-11 * (1 + std::fabs(at(n))));
      }
    }
  }
  for (double kind = 0; kind < 8; ++kind)
    for (double x : {-1.5, -1.0, 0.0, 0.5, 1.0, 2.0, HUGE_VAL, std::nan("")})
      for (double n : {1e6, 1e17, 1e300, HUGE_VAL, -HUGE_VAL, std::nan("")})
        math::polynomial_of_degree(kind, x, n, 0.0);
  CHECK(math::polynomial_of_degree(4.0f, 1.0f, 128.0f, 0.0f) != 0);
  CHECK(std::isnan(math::polynomial_of_degree(4.0f, 1.0f, 129.0f, 0.0f)));
  CHECK(math::polynomial_of_degree(7.0, 0.5, -3.0, 1.0) == 0);
}
