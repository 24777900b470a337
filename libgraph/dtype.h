// Element types of tensors, with the two spellings in use: ours (`bf16`) and PyTorch's (`bfloat16`).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sg {

// The order is the value in the file: append only.
enum class DType : uint8_t {
  none,
  f64,
  f32,
  f16,
  bf16,
  f8e4m3fn,
  f8e5m2,
  f8e4m3fnuz,
  f8e5m2fnuz,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  c32,
  c64,
  c128,
};
inline constexpr int kDTypeCount = 21;

std::string_view dtype_name(DType t);                           // "bf16"; bool is "bool"
std::string_view torch_dtype_name(DType t);                     // "bfloat16"
std::optional<DType> parse_dtype(std::string_view name);        // our spelling
std::optional<DType> parse_torch_dtype(std::string_view name);  // PyTorch's, with or without "torch."
int dtype_bytes(DType t);                                       // size of one element
bool is_floating(DType t);                                      // of any width
bool is_float8(DType t);                                        // one of the four of 8 bits
bool is_complex(DType t);
DType real_part(DType t);   // of a complex type, that of its parts: c64 -> f32; other types are their own
bool is_integral(DType t);  // bool excluded

}  // namespace sg
