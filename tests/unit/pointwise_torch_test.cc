// Pointwise ops against PyTorch's results: tests/data/pointwise_cases.txt, written by tests/support/make_pointwise_cases.py.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "libgraph/dtype.h"
#include "tests/support/kernel_call.h"

using namespace sg;

namespace {

struct HeldTensor {
  std::vector<std::byte> memory;
  Tensor tensor;
};

struct Case {
  std::string op;
  std::map<std::string, ParamValue> arguments;
  HeldTensor expected;
  std::vector<std::unique_ptr<HeldTensor>> held;
  std::vector<std::unique_ptr<std::string>> texts;
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) out.push_back(part);
  return out;
}

HeldTensor read_tensor(const std::string& text) {   // DTYPE:SHAPE:HEX
  auto part = split(text, ':');
  std::vector<int64_t> shape;
  if (part.size() > 1)
    for (const std::string& d : split(part[1], 'x')) shape.push_back(std::stoll(d));
  HeldTensor out;
  out.tensor = make_tensor(nullptr, *parse_dtype(part[0]), shape);
  for (size_t i = 0; part.size() > 2 && i < part[2].size(); i += 2) out.memory.push_back(static_cast<std::byte>(std::stoi(part[2].substr(i, 2), nullptr, 16)));
  out.tensor.data = out.memory.data();
  return out;
}

ParamValue read_value(const std::string& text, Case* c) {
  ParamValue p;
  std::string body = text.substr(2);
  p.kind = ParamValue::Kind::scalar;
  if (text[0] == 'i') p.scalar = Scalar::integer(std::stoll(body));
  if (text[0] == 'f') p.scalar = Scalar::floating(std::stod(body));
  if (text[0] == 'b') p.scalar = Scalar::boolean(body == "1");
  if (text[0] == 's') {
    c->texts.push_back(std::make_unique<std::string>(body));
    p.kind = ParamValue::Kind::text, p.text = *c->texts.back();
  }
  if (text[0] == 't') {
    c->held.push_back(std::make_unique<HeldTensor>(read_tensor(body)));
    p.kind = ParamValue::Kind::tensor, p.tensor = c->held.back()->tensor;
  }
  return p;
}

Case read_case(const std::string& line) {
  Case c;
  auto parts = split(line, ';');
  c.op = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    size_t equals = parts[i].find('=');
    std::string name = parts[i].substr(0, equals), value = parts[i].substr(equals + 1);
    if (name.empty()) c.expected = read_tensor(value.substr(2));
    else c.arguments[name] = read_value(value, &c);
  }
  c.expected.tensor.data = c.expected.memory.data();
  return c;
}

// Results that two right implementations may round differently: the rest is held to the bit (NaN to NaN).
double tolerance(const Case& c) {
  static const std::set<std::string> exact_families = {
      "neg", "sign", "trunc", "round", "floor", "ceil", "abs", "square", "relu", "relu6", "hardtanh", "nan_to_num", "isnan", "isinf",
      "isfinite", "signbit", "logical_not", "positive", "reciprocal", "bitwise_not", "threshold_backward", "hardtanh_backward",
      "native_dropout_backward", "leaky_relu", "leaky_relu_backward", "add", "sub", "mul", "div", "remainder", "fmod", "floor_divide",
      "maximum", "minimum", "fmax", "fmin", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
      "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "isclose", "complex", "clamp",
      "clamp_min", "clamp_max", "where", "masked_fill", "copy", "fill", "zero", "conj_physical"};
  std::string family = split(c.op, '.')[1];
  if (family.ends_with('_')) family.pop_back();
  bool whole = !is_floating(c.expected.tensor.dtype) && !is_complex(c.expected.tensor.dtype);
  bool scaled = c.arguments.contains("alpha");   // PyTorch contracts a + alpha * b
  bool quotient = is_complex(c.expected.tensor.dtype) && (family == "div" || family == "reciprocal" || family == "mul" || family == "square" || family == "sqrt");
  if (whole || (exact_families.contains(family) && !scaled && !quotient)) return 0;
  switch (c.expected.tensor.dtype) {
    case DType::bf16: return 0x1p-7;   // two units: PyTorch rounds between steps here and there
    case DType::f16: return 0x1p-9;
    case DType::f64: return 1e-13;
    default: return family.starts_with("gelu") ? 2e-5 : 8e-7;
  }
}

template <class T>
bool agrees(T got, T want, double rtol) {
  if constexpr (is_complex_type<T>) {
    using R = typename T::value_type;
    double size = std::abs(std::complex<double>(want.real(), want.imag()));
    return agrees<R>(got.real(), want.real(), rtol) || agrees<R>(got.imag(), want.imag(), rtol) ||
           std::abs(std::complex<double>(got.real(), got.imag()) - std::complex<double>(want.real(), want.imag())) <= rtol * size;
  } else if constexpr (std::is_integral_v<T>) {
    return got == want;
  } else {
    double a = static_cast<double>(static_cast<Compute<T>>(got)), b = static_cast<double>(static_cast<Compute<T>>(want));
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    if (a == b) return true;
    return std::fabs(a - b) <= rtol * std::max(std::fabs(b), 0.2);   // results of cancellation: to an absolute bound
  }
}

std::string first_difference(Tensor got, const Case& c) {
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
        visit_dtype(p.tensor.dtype, [&]<class U>() { out << "  " << name << " " << +static_cast<Compute<U>>(p.tensor.template as<U>()[at]); });
      }
      return;
    }
  });
  return out.str();
}

}  // namespace

TEST_CASE("pointwise ops give PyTorch's results") {
  const char* file = std::getenv("SG_POINTWISE_CASES");
  std::ifstream in(file ? file : "tests/data/pointwise_cases.txt");
  REQUIRE(in.good());
  int count = 0;
  std::set<std::string> ops;
  for (std::string line; std::getline(in, line); ++count) {
    Case c = read_case(line);
    ops.insert(c.op);
    std::vector<test::Argument> arguments;
    HeldTensor result{std::vector<std::byte>(c.expected.memory.size() + 8), c.expected.tensor};
    result.tensor.data = result.memory.data();
    const OpInfo* info = find_op(c.op);
    REQUIRE(info);
    for (auto& [name, value] : c.arguments) {
      arguments.emplace_back(name, value);
      int at = info->param_index(name);
      if (info->writes() && at >= 0 && info->params[static_cast<size_t>(at)].written) result.tensor = value.tensor;
    }
    std::map<std::string, ParamValue> before = c.arguments;
    Status status = test::call(c.op, arguments, {result.tensor});
    INFO(line.substr(0, 400));
    if (!status.ok()) FAIL_CHECK(status.error().message);
    else if (std::string difference = first_difference(result.tensor, c); !difference.empty()) FAIL_CHECK(c.op << ": " << difference);
  }
  CHECK(count > 900);
  CHECK(ops.size() > 150);
}
