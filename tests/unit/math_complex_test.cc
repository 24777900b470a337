// Elementary functions of complex numbers against the C library in long double.

#include <catch2/catch.hpp>
#include <cmath>
#include <complex>
#include <random>
#include <string>

#include "librun/work/complex.h"

namespace sg {
namespace {

using Wide = std::complex<long double>;

struct Function {
  const char* name;
  math::Complex (*ours)(math::Complex);
  Wide (*theirs)(const Wide&);
};

const Function kFunctions[] = {
    {"exp", [](math::Complex a) { return math::exponential(a); }, std::exp},
    {"log", [](math::Complex a) { return math::logarithm<double>(a); }, std::log},
    {"sqrt", [](math::Complex a) { return math::square_root(a); }, std::sqrt},
    {"sin", [](math::Complex a) { return math::sin(a); }, std::sin},
    {"cos", [](math::Complex a) { return math::cos(a); }, std::cos},
    {"tan", [](math::Complex a) { return math::tan(a); }, std::tan},
    {"sinh", [](math::Complex a) { return math::sinh(a); }, std::sinh},
    {"cosh", [](math::Complex a) { return math::cosh(a); }, std::cosh},
    {"tanh", [](math::Complex a) { return math::tanh(a); }, std::tanh},
    {"asin", [](math::Complex a) { return math::asin(a); }, std::asin},
    {"acos", [](math::Complex a) { return math::acos(a); }, std::acos},
    {"atan", [](math::Complex a) { return math::atan(a); }, std::atan},
    {"asinh", [](math::Complex a) { return math::asinh(a); }, std::asinh},
    {"acosh", [](math::Complex a) { return math::acosh(a); }, std::acosh},
    {"atanh", [](math::Complex a) { return math::atanh(a); }, std::atanh},
    {"expm1", [](math::Complex a) { return math::exp_minus_one(a); },
     [](const Wide& a) {
       const long double half = std::sin(a.imag() / 2);
       return Wide(std::expm1(a.real()) * std::cos(a.imag()) - 2 * half * half,
                   std::exp(a.real()) * std::sin(a.imag()));
     }},
};

std::string text_of(Wide a) {
  return std::to_string(static_cast<double>(a.real())) + " + " + std::to_string(static_cast<double>(a.imag())) + "i";
}

// The distance from the true value, in units of the last place of its magnitude.
double distance(math::Complex ours, Wide theirs) {
  const Wide error(ours.re - theirs.real(), ours.im - theirs.imag());
  return static_cast<double>(std::abs(error) / std::abs(theirs) / 0x1p-52L);
}

TEST_CASE("complex functions are those of the C library", "[complex]") {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  for (const double spread : {1e-9, 1e-3, 1.0, 30.0})
    for (int i = 0; i < 2000; ++i) {
      const math::Complex a{spread * normal(random), spread * normal(random)};
      for (const Function& f : kFunctions) {
        const Wide expected = f.theirs(Wide(a.re, a.im));
        INFO(f.name << " of " << text_of(Wide(a.re, a.im)));
        CHECK(distance(f.ours(a), expected) < 16);
      }
    }
}

// Both sides of each cut, and zeros of both signs.
TEST_CASE("complex functions have the cuts of C", "[complex]") {
  for (const double x : {-3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0})
    for (const double y : {-3.0, -0.0, 0.0, 3.0})
      for (const Function& f : kFunctions) {
        const Wide expected = f.theirs(Wide(x, y));
        const math::Complex found = f.ours({x, y});
        INFO(f.name << " of " << text_of(Wide(x, y)) << " is " << text_of(expected) << ", ours "
                    << text_of(Wide(found.re, found.im)));
        if (std::isfinite(expected.real())) CHECK(std::abs(found.re - static_cast<double>(expected.real())) < 1e-14);
        else CHECK(found.re == static_cast<double>(expected.real()));
        CHECK(std::abs(found.im - static_cast<double>(expected.imag())) < 1e-14);
        if (expected.real() == 0) CHECK(found.re == 0);
        CHECK(std::signbit(found.im) == std::signbit(expected.imag()));
      }
}

}  // namespace
}  // namespace sg
