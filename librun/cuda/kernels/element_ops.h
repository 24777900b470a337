// Pointwise ops on one element: selects among the rows of element_ops.def.
#pragma once

#include "librun/cpu/block/block.h"
#include "librun/cuda/kernels/element_functions.h"

namespace sg::cuda {

using cpu::BlockOp;
using cpu::Lane;

// --- the rows ---

#define SG_NONE(op, ...)

#define REAL(op, ...) \
  case BlockOp::op:   \
    return __VA_ARGS__;
#define WHOLE SG_NONE
#define FLAG SG_NONE
#define CX SG_NONE
#define REAL_TEST SG_NONE
#define WHOLE_TEST SG_NONE
#define FLAG_TEST SG_NONE
#define CX_TEST SG_NONE
template <class T>
SG_FN T real_op(BlockOp op, T a, T b, T c, T d, T e) {
  switch (op) {
#include "librun/cuda/kernels/element_ops.def"
    default: return T(0);
  }
}
#undef REAL
#undef REAL_TEST
#define REAL SG_NONE
#define REAL_TEST(op, ...) \
  case BlockOp::op: return __VA_ARGS__;
template <class T>
SG_FN bool real_test(BlockOp op, T a, T b, T c, T d) {
  switch (op) {
#include "librun/cuda/kernels/element_ops.def"
    default: return false;
  }
}
#undef REAL_TEST
#undef WHOLE
#define REAL_TEST SG_NONE
#define WHOLE(op, ...) \
  case BlockOp::op: return __VA_ARGS__;
SG_FN int64_t whole_op(BlockOp op, int64_t a, int64_t b, int64_t c, int64_t d, [[maybe_unused]] const Report& report) {
  switch (op) {
#include "librun/cuda/kernels/element_ops.def"
    default: return 0;
  }
}
#undef WHOLE
#undef WHOLE_TEST
#define WHOLE SG_NONE
#define WHOLE_TEST(op, ...) \
  case BlockOp::op: return __VA_ARGS__;
SG_FN bool whole_test(BlockOp op, int64_t a, int64_t b) {
  switch (op) {
#include "librun/cuda/kernels/element_ops.def"
    default: return false;
  }
}
#undef WHOLE_TEST
#undef FLAG
#undef FLAG_TEST
#define WHOLE_TEST SG_NONE
#define FLAG(op, ...) \
  case BlockOp::op:   \
    return __VA_ARGS__;
#define FLAG_TEST FLAG
SG_FN int flag_op(BlockOp op, int a, int b, int c) {
  switch (op) {
#include "librun/cuda/kernels/element_ops.def"
    default: return 0;
  }
}
#undef FLAG
#undef FLAG_TEST
#undef CX
#define FLAG SG_NONE
#define FLAG_TEST SG_NONE
#define CX(op, ...) \
  case BlockOp::op: return __VA_ARGS__;
template <class T>
SG_FN Cx<T> complex_op(BlockOp op, Cx<T> a, Cx<T> b, Cx<T> c, Cx<T> d) {
  switch (op) {
#include "librun/cuda/kernels/element_ops.def"
    default: return {T(0), T(0)};
  }
}
#undef CX
#undef CX_TEST
#define CX SG_NONE
#define CX_TEST(op, ...) \
  case BlockOp::op: return __VA_ARGS__;
template <class T>
SG_FN bool complex_test(BlockOp op, Cx<T> a, Cx<T> b) {
  switch (op) {
#include "librun/cuda/kernels/element_ops.def"
    default: return false;
  }
}
#undef REAL
#undef REAL_TEST
#undef WHOLE
#undef WHOLE_TEST
#undef FLAG
#undef FLAG_TEST
#undef CX
#undef CX_TEST

// --- between real and complex numbers ---

template <class T>
SG_FN Cx<T> complex_of_parts(BlockOp op, T a, T b) {
  return op == BlockOp::polar ? rounded<T>(math::turned(a, b)) : Cx<T>{a, b};
}
template <class T>
SG_FN T part_of_complex(BlockOp op, Cx<T> a) {
  return op == BlockOp::angle ? math::angle(a) : math::length(a.re, a.im);
}

}  // namespace sg::cuda
