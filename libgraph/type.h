// The type of a value: a strided tensor, a symbolic scalar, a list, nothing, or something opaque.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/base/ids.h"
#include "libgraph/dtype.h"

namespace sg {

// The order is the value in the file: append only.
enum class TypeKind : uint8_t {
  unknown,  // not recorded and not yet inferred
  tensor,
  integer,   // a Python int or SymInt; `value` is its symbolic value when has_value
  floating,  // a Python float; `float_value` when has_value
  boolean,   // a Python bool; `value` is 0 or 1 when has_value
  list,      // `elements`
  none,      // a result that is absent (null inside a list of results)
  opaque,    // `text` says what, e.g. "DeviceMesh"
};

struct Type {
  TypeKind kind = TypeKind::unknown;
  DType dtype = DType::none;     // tensor
  bool has_value = false;        // scalars
  StrId device;                  // tensor: "cpu", "cuda:0"
  Expr offset;                   // tensor: storage offset in elements
  Expr value;                    // integer, boolean
  double float_value = 0;        // floating
  StrId text;                    // opaque
  std::vector<Expr> shape;       // tensor
  std::vector<Expr> stride;      // tensor: same length as shape, in elements
  std::vector<TypeId> elements;  // list

  friend bool operator==(const Type& a, const Type& b);  // floats by their bits
};

uint64_t hash_of(const Type& type);

}  // namespace sg
