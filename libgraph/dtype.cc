#include "libgraph/dtype.h"

namespace sg {
namespace {

struct Row {
  std::string_view name, torch_name;
  int bytes;
};

constexpr Row kRows[kDTypeCount] = {
    {"none", "none", 0},
    {"f64", "float64", 8},
    {"f32", "float32", 4},
    {"f16", "float16", 2},
    {"bf16", "bfloat16", 2},
    {"f8e4m3fn", "float8_e4m3fn", 1},
    {"f8e5m2", "float8_e5m2", 1},
    {"f8e4m3fnuz", "float8_e4m3fnuz", 1},
    {"f8e5m2fnuz", "float8_e5m2fnuz", 1},
    {"i64", "int64", 8},
    {"i32", "int32", 4},
    {"i16", "int16", 2},
    {"i8", "int8", 1},
    {"u64", "uint64", 8},
    {"u32", "uint32", 4},
    {"u16", "uint16", 2},
    {"u8", "uint8", 1},
    {"bool", "bool", 1},
    {"c32", "complex32", 4},
    {"c64", "complex64", 8},
    {"c128", "complex128", 16},
};

const Row& row(DType t) { return kRows[static_cast<int>(t)]; }

}  // namespace

std::string_view dtype_name(DType t) { return row(t).name; }
std::string_view torch_dtype_name(DType t) { return row(t).torch_name; }
int dtype_bytes(DType t) { return row(t).bytes; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (int i = 1; i < kDTypeCount; ++i)
    if (kRows[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

std::optional<DType> parse_torch_dtype(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  for (int i = 1; i < kDTypeCount; ++i)
    if (kRows[i].torch_name == name) return static_cast<DType>(i);
  return std::nullopt;
}

bool is_floating(DType t) { return t >= DType::f64 && t <= DType::f8e5m2fnuz; }
bool is_float8(DType t) { return t >= DType::f8e4m3fn && t <= DType::f8e5m2fnuz; }
bool is_complex(DType t) { return t >= DType::c32 && t <= DType::c128; }
bool is_integral(DType t) { return t >= DType::i64 && t <= DType::u8; }

DType real_part(DType t) {
  return t == DType::c128 ? DType::f64 : t == DType::c64 ? DType::f32 : t == DType::c32 ? DType::f16 : t;
}

}  // namespace sg
