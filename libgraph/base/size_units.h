// The units of sizes, the same wherever one is read or shown: options, assertions of recipes, plots.
#pragma once

#include <optional>
#include <string_view>

namespace sg {

struct SizeUnit {
  std::string_view name;
  double bytes;
};
inline constexpr SizeUnit kBinarySizeUnits[] = {
    {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
inline constexpr SizeUnit kDecimalSizeUnits[] = {{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
inline constexpr std::string_view kSizeUnitNames = "KiB, MiB, GiB, TiB, kB, MB, GB or TB";  // for hints

// None = there is no such unit.
constexpr std::optional<double> bytes_of_unit(std::string_view name) {
  for (const SizeUnit& unit : kBinarySizeUnits)
    if (unit.name == name) return unit.bytes;
  for (const SizeUnit& unit : kDecimalSizeUnits)
    if (unit.name == name) return unit.bytes;
  return std::nullopt;
}

}  // namespace sg
