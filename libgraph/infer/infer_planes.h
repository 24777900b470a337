// Planes of channels: [channels, plane] or [batch, channels, plane], where a plane has one to three spatial axes, the
// last ones; how many they are stands in the op's name (avg_pool3d).
#pragma once

#include "libgraph/infer/infer_call.h"

namespace sg::infer {

size_t axes_of(const InferCall& c);  // spatial ones

// An argument that is planes with their channels, batched or not.
Result<const Type*> planes(InferCall& c, std::string_view name);
bool is_batched(const InferCall& c, const Type& planes);

// An argument with a number for each of `axes`; one alone is for all of them.
Result<Exprs> each_axis(InferCall& c, std::string_view name, size_t axes);

// A window along one axis.
struct AxisWindow {
  Expr kernel, stride, padding, dilation;
};

// The number of its positions on `size` elements: (size + 2*padding - dilation*(kernel - 1) - 1) // stride + 1.
Expr window_count(InferCall& c, Expr size, const AxisWindow& w);
// The same with one more that reaches beyond the end, if it starts inside.
Expr window_count_beyond(InferCall& c, Expr size, const AxisWindow& w);

// Whether it is known to be.
bool below(const InferCall& c, Expr e, int64_t limit);

// Strides over `shape`: batched planes of two axes keep their memory format, all else becomes row-major.
Exprs plane_strides(InferCall& c, const Type& like, const Exprs& shape);

}  // namespace sg::infer
