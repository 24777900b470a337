// The type of a number that the graph knows: `int 4*s0`.
#pragma once

#include "libgraph/pool.h"

namespace sg::test {

inline TypeId integer_type(Pool* pool, Expr value) {
  Type t;
  t.kind = TypeKind::integer;
  t.has_value = true;
  t.value = value;
  return pool->types.intern(std::move(t));
}

}  // namespace sg::test
