// Pointwise ops against PyTorch's results, written by tests/support/make_pointwise_cases.py.
#include <catch2/catch.hpp>

#include <cmath>
#include <set>
#include <sstream>

#include "librun/element.h"
#include "tests/support/kernel_call.h"
#include "tests/support/pointwise_cases.h"
#include "tests/support/rng.h"

using namespace sg;

namespace {

// The tolerance of results that two correct implementations may round differently; others must match in every bit (NaN
// with NaN).
double tolerance(const test::PointwiseCase& c) {
  static const std::set<std::string> exact_families = {"neg",
                                                       "sign",
                                                       "trunc",
                                                       "round",
                                                       "floor",
                                                       "ceil",
                                                       "abs",
                                                       "square",
                                                       "relu",
                                                       "relu6",
                                                       "hardtanh",
                                                       "nan_to_num",
                                                       "isnan",
                                                       "isinf",
                                                       "isfinite",
                                                       "signbit",
                                                       "logical_not",
                                                       "positive",
                                                       "reciprocal",
                                                       "bitwise_not",
                                                       "threshold_backward",
                                                       "hardtanh_backward",
                                                       "native_dropout_backward",
                                                       "leaky_relu",
                                                       "leaky_relu_backward",
                                                       "add",
                                                       "sub",
                                                       "mul",
                                                       "div",
                                                       "remainder",
                                                       "fmod",
                                                       "floor_divide",
                                                       "maximum",
                                                       "minimum",
                                                       "fmax",
                                                       "fmin",
                                                       "eq",
                                                       "ne",
                                                       "lt",
                                                       "le",
                                                       "gt",
                                                       "ge",
                                                       "logical_and",
                                                       "logical_or",
                                                       "logical_xor",
                                                       "bitwise_and",
                                                       "bitwise_or",
                                                       "bitwise_xor",
                                                       "bitwise_left_shift",
                                                       "bitwise_right_shift",
                                                       "isclose",
                                                       "complex",
                                                       "clamp",
                                                       "clamp_min",
                                                       "clamp_max",
                                                       "where",
                                                       "masked_fill",
                                                       "copy",
                                                       "fill",
                                                       "zero",
                                                       "conj_physical"};
  std::string family = c.op.substr(5, c.op.rfind('.') - 5);
  if (family.ends_with('_')) family.pop_back();
  bool whole = !is_floating(c.expected.tensor.dtype) && !is_complex(c.expected.tensor.dtype);
  bool scaled = c.arguments.contains("alpha");  // PyTorch contracts a + alpha * b
  bool quotient = is_complex(c.expected.tensor.dtype) && (family == "div" || family == "reciprocal" ||
                                                          family == "mul" || family == "square" || family == "sqrt");
  if (whole || (exact_families.contains(family) && !scaled && !quotient)) return 0;
  switch (c.expected.tensor.dtype) {
    case DType::bf16: return scaled ? 0x1p-3 : 0x1p-7;  // two units: PyTorch sometimes rounds between steps
    case DType::f16: return 0x1p-9;
    case DType::f64: return 1e-13;
    default: return family.starts_with("gelu") ? 2e-5 : 8e-7;
  }
}

template <class T>
bool agrees(T got, T want, double rtol) {
  if constexpr (is_complex_type<T>) {
    using R = typename T::value_type;
    std::complex<double> a(got.real(), got.imag()), b(want.real(), want.imag());
    bool by_parts = agrees<R>(got.real(), want.real(), rtol) && agrees<R>(got.imag(), want.imag(), rtol);
    return by_parts || std::abs(a - b) <= rtol * std::abs(b);
  } else if constexpr (std::is_integral_v<T>) {
    return got == want;
  } else {
    double a = static_cast<double>(static_cast<Compute<T>>(got)),
           b = static_cast<double>(static_cast<Compute<T>>(want));
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    if (a == b) return true;
    return std::fabs(a - b) <= rtol * std::max(std::fabs(b), 0.2);  // after cancellation: an absolute bound
  }
}

std::string first_difference(Tensor got, const test::PointwiseCase& c) {
  std::ostringstream out;
  double rtol = tolerance(c);
  visit_dtype(got.dtype, [&]<class T>() {
    for (int64_t i = 0; i < got.elements(); ++i) {
      T a = got.as<T>()[i], b = c.expected.tensor.template as<T>()[i];
      if (agrees(a, b, rtol)) continue;
      out << "element " << i << ": " << +static_cast<Compute<T>>(a) << ", PyTorch has " << +static_cast<Compute<T>>(b);
      for (auto& [name, p] : c.arguments) {
        if (p.kind != ParamValue::Kind::tensor) continue;
        int64_t at = p.tensor.rank == 0 ? 0 : i;
        visit_dtype(p.tensor.dtype, [&]<class U>() {
          out << "  " << name << " " << +static_cast<Compute<U>>(p.tensor.template as<U>()[at]);
        });
      }
      return;
    }
  });
  return out.str();
}

}  // namespace

TEST_CASE("pointwise ops give PyTorch's results") {
  std::set<std::string> ops;
  auto cases = test::read_pointwise_cases();
  for (test::PointwiseCase& c : cases) {
    ops.insert(c.op);
    std::vector<test::Argument> arguments;
    std::vector<std::byte> memory(c.expected.memory.size() + 1);
    Tensor result = c.expected.tensor;
    result.data = memory.data();
    std::string written = test::written_argument(c.op);
    if (!written.empty()) result = c.arguments[written].tensor;
    for (auto& [name, value] : c.arguments) arguments.emplace_back(name, value);
    Status status = test::call(c.op, arguments, {result});
    INFO(c.line.substr(0, 400));
    if (!status.ok()) FAIL_CHECK(status.error().message);
    else if (std::string difference = first_difference(result, c); !difference.empty())
      FAIL_CHECK(c.op << ": " << difference);
  }
  CHECK(cases.size() > 1400);
  CHECK(ops.size() > 150);
}

// Blocks with small quotients are computed by vectors, others by libm.
TEST_CASE("rests of divisions have the bits of libm") {
  test::Rng rng(11);
  for (const int64_t most : {int64_t{3}, int64_t{1} << 27, int64_t{1} << 40}) {
    test::Buffer<float> a({4096}), b({4096}), out({4096});
    for (int64_t i = 0; i < 4096; ++i) {
      b.at(i) = static_cast<float>(rng.below(1 << 20) + 1) / 1024 * (rng.below(2) ? 1.0f : -1.0f);
      const float near = b.at(i) * static_cast<float>(rng.below(static_cast<uint64_t>(most)));  // a whole quotient
      a.at(i) = rng.below(3) ? near : std::nextafter(near, 0.0f);
    }
    REQUIRE(test::call("aten.fmod.Tensor", {{"self", a}, {"other", b}}, {out.tensor()}).ok());
    for (int64_t i = 0; i < 4096; ++i) {
      CAPTURE(a.at(i), b.at(i));
      const float expected = std::fmod(a.at(i), b.at(i));
      REQUIRE((out.at(i) == expected && std::signbit(out.at(i)) == std::signbit(expected)));
    }
  }
}
