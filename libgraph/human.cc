#include "libgraph/human.h"

#include <cstdio>

namespace sg {
namespace {

std::string scaled(double value, double base, const char* const* units) {
  int unit = 0;
  while (value >= base * 0.9995 && unit < 6) value /= base, ++unit;
  char text[48];
  int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", digits, value, units[unit]);
  return text;
}

}  // namespace

std::string human_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return scaled(bytes, 1024, kUnits);
}

std::string human_flops(double flops) {
  static constexpr const char* kUnits[] = {"flop", "kflop", "Mflop", "Gflop", "Tflop", "Pflop", "Eflop"};
  return scaled(flops, 1000, kUnits);
}

std::string human_count(double count) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P", "E"};
  std::string out = scaled(count, 1000, kUnits);
  if (out.back() == ' ') out.pop_back();
  return out;
}

std::string plural(size_t n, const std::string& thing) {
  return std::to_string(n) + " " + thing + (n == 1 ? "" : "s");
}

}  // namespace sg
