// PyTorch's primitives (`prims`), which Inductor's decompositions leave in the graphs of a TORCH_TRACE.
#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

ValueId copy_of(CompositeCall& c, ValueId v) { return c.make("clone", {v}); }

// Adds the keyword arguments of a factory. `requires_grad` does not affect a result's values.
PartArgs placed(CompositeCall& c, PartArgs args) {
  for (std::string_view name : {"dtype", "device"})
    if (c.has(name)) args.push_back(c.key(name, c.arg(name)));
  return args;
}

// The shape with dimensions `first` to `last` merged.
ArgList axes_as_one(CompositeCall& c, ValueId v, int first, int last) {
  ArgList shape;
  for (int i = 0; i < c.rank(v); ++i) {
    if (i <= first || i > last) shape.push_back(i == first ? c.product(v, first, last + 1) : c.size(v, i));
  }
  if (c.rank(v) == 0) shape.push_back(Arg::integer(1));
  return shape;
}

ValueId collapsed(CompositeCall& c) {
  ValueId a = c.tensor("a");
  const int first = c.wrap(c.integer("start"), c.rank(a)), last = c.wrap(c.integer("end"), c.rank(a));
  if (last < first) c.fail("its dimensions are not in order");
  return c.make("reshape", {a, axes_as_one(c, a, first, last)});
}

// A copy of `v` with the given strides.
ValueId laid_out(CompositeCall& c, ValueId v, const ArgList& strides) {
  return c.make("copy_", {c.make("new_empty_strided", {v, c.shape(v), strides}), v});
}

Arg dims_of(CompositeCall& c) {
  if (c.has("dims")) return c.arg("dims");
  Numbers all;
  for (int i = 0; i < c.rank(c.tensor("inp")); ++i) all.push_back(i);
  return PartArg(all).arg;
}

void give_extreme(CompositeCall& c, std::string_view op) {
  if (c.has("output_dtype")) return c.fail("has an element type of its own");
  c.give(c.make(op, {c.tensor("inp"), dims_of(c)}));
}

}  // namespace

void convert_element_type(CompositeCall& c) {
  c.give(c.make("_to_copy", {c.tensor("a"), c.key("dtype", c.arg("dtype"))}));
}

void device_put(CompositeCall& c) { c.give(c.make("_to_copy", {c.tensor("a"), c.key("device", c.arg("device"))})); }

void iota(CompositeCall& c) {
  ExprPool& exprs = c.exprs();
  const Expr start = c.as_expr(c.arg("start")), step = c.as_expr(c.arg("step"));
  const Expr end = exprs.add(start, exprs.mul(c.as_expr(c.arg("length")), step));
  c.give(c.make("arange.start_step", placed(c, {c.as_arg(start), c.as_arg(end), c.as_arg(step)})));
}

void prims_full(CompositeCall& c) { c.give(c.make("full", placed(c, {c.arg("shape"), c.arg("fill_value")}))); }
void prims_empty(CompositeCall& c) { c.give(c.make("empty.memory_format", placed(c, {c.arg("shape")}))); }

void prims_empty_strided(CompositeCall& c) {
  c.give(c.make("empty_strided", placed(c, {c.arg("shape"), c.arg("strides")})));
}

void prims_full_like(CompositeCall& c) { c.give(c.make("full_like", placed(c, {c.tensor("a"), c.arg("fill_value")}))); }

// Rounds twice, as PyTorch's own definition does.
void fma(CompositeCall& c) {
  c.give(c.make("add.Tensor", {c.make("mul.Tensor", {c.tensor("a"), c.arg("b")}), c.arg("c")}));
}

void prims_div(CompositeCall& c) {
  ValueId a = c.tensor("self");
  if (is_integral(c.dtype_of(a)))
    return c.give(c.make("div.Tensor_mode", {a, c.arg("other"), c.key("rounding_mode", c.word("trunc"))}));
  c.give(c.make("div.Tensor", {a, c.arg("other")}));
}

void prims_where(CompositeCall& c) { c.give(c.make("where.self", {c.tensor("pred"), c.tensor("a"), c.tensor("b")})); }

// --- shapes ---

void broadcast_in_dim(CompositeCall& c) {
  ValueId a = c.tensor("a");
  const ArgList shape = c.sizes("shape");
  const Numbers dims = c.integers("broadcast_dimensions");
  if (static_cast<int>(dims.size()) != c.rank(a)) return c.fail("needs a dimension of the result for each of its own");
  ArgList before(shape.size(), Arg::integer(1));
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0 || static_cast<size_t>(dims[i]) >= shape.size()) return c.fail("a dimension is out of range");
    before[static_cast<size_t>(dims[i])] = c.size(a, static_cast<int>(i));
  }
  c.give(c.make("expand", {c.make("reshape", {a, before}), shape}));
}

void collapse_view(CompositeCall& c) { c.give(collapsed(c)); }
void collapse(CompositeCall& c) { c.give(copy_of(c, collapsed(c))); }

void split_dim(CompositeCall& c) {
  ValueId a = c.tensor("a");
  const int dim = c.wrap(c.integer("dim"), c.rank(a));
  const Expr outer = c.as_expr(c.arg("outer_length"));
  ArgList shape = c.shape(a);
  if (c.failed() || shape.empty()) return c.fail("needs a dimension");
  shape[static_cast<size_t>(dim)] = c.as_arg(c.exprs().floordiv(c.extent(a, dim), outer));
  shape.insert(shape.begin() + dim, c.as_arg(outer));
  c.give(c.make("view", {a, shape}));
}

void prims_reshape(CompositeCall& c) {
  c.give(c.make("clone", {c.make("reshape", {c.tensor("a"), c.arg("shape")}), c.memory_format("contiguous_format")}));
}

// Zeros of `self`'s type that lie as `other` does, where forward derivatives begin; the first axes of `self`, of
// batches that a vmap has made, come before those of `other`.
void zeros_like_feature(CompositeCall& c) {
  const ValueId self = c.tensor("self"), other = c.tensor("other");
  const int batches = static_cast<int>(c.integer("self_num_batch_dims"));
  if (batches > c.rank(self)) return c.fail("has fewer dimensions than it has batches");
  ArgList shape, strides;
  for (int i = 0; i < batches; ++i) shape.push_back(c.size(self, i));
  for (int i = 0; i < c.rank(other); ++i) shape.push_back(c.size(other, i));
  if (batches > 0) {
    for (int i = 0; i < c.rank(other); ++i)
      if (!c.same_size(c.type(other).stride[static_cast<size_t>(i)], c.as_expr(c.product(other, i + 1, c.rank(other)))))
        return c.fail("of batches has a recipe for what lies in rows only");
    return c.give(c.make("new_zeros", {self, shape}));
  }
  for (Expr stride : c.type(other).stride) strides.push_back(c.as_arg(stride));
  const Expr offset = c.type(other).offset;
  if (c.exprs().constant_value(offset) == 0)
    return c.give(c.make("zero_", {c.make("new_empty_strided", {self, shape, strides})}));
  // As far into its memory as the other is.
  Expr end = c.exprs().add(offset, c.exprs().constant(1));
  for (int i = 0; i < c.rank(other); ++i) {
    const Expr last = c.exprs().sub(c.extent(other, i), c.exprs().constant(1));
    end = c.exprs().add(end, c.exprs().mul(last, c.type(other).stride[static_cast<size_t>(i)]));
  }
  const ValueId memory = c.make("new_zeros", {self, ArgList{c.as_arg(end)}});
  c.give(c.make("as_strided", {memory, shape, strides, c.as_arg(offset)}));
}

void copy_strided(CompositeCall& c) { c.give(laid_out(c, c.tensor("a"), c.sizes("stride"))); }

void force_stride_order(CompositeCall& c) {
  ValueId v = c.tensor("input");
  const ArgList wanted = c.sizes("stride");
  bool is_so = wanted.size() == c.type(v).stride.size();
  for (size_t i = 0; is_so && i < wanted.size(); ++i) is_so = c.as_expr(wanted[i]) == c.type(v).stride[i];
  c.give(is_so ? v : laid_out(c, v, wanted));
}

// --- reductions ---

void prims_sum(CompositeCall& c) {
  PartArgs args{c.tensor("inp"), dims_of(c), false};
  const DType own = c.dtype_of(c.tensor("inp"));
  args.push_back(c.key("dtype", c.dtype("output_dtype").value_or(own)));
  c.give(c.make("sum.dim_IntList", std::move(args)));
}

void prims_amax(CompositeCall& c) { give_extreme(c, "amax"); }
void prims_amin(CompositeCall& c) { give_extreme(c, "amin"); }

void prims_var(CompositeCall& c) {
  if (c.has("output_dtype")) return c.fail("has an element type of its own");
  c.give(c.make("var.correction", {c.tensor("inp"), dims_of(c), c.key("correction", c.arg("correction"))}));
}

// The maximum of each row, and the sum of exp(a - maximum).
void prepare_softmax_online(CompositeCall& c) {
  ValueId a = c.tensor("a");
  const Numbers dim{c.integer("dim")};
  ValueId largest = c.make("amax", {a, dim, true});
  c.give(largest);
  c.give(c.make("sum.dim_IntList", {c.make("exp", {c.make("sub.Tensor", {a, largest})}), dim, true}));
}

void prims_fft_r2c(CompositeCall& c) {
  c.give(c.make("_fft_r2c", {c.tensor("self"), c.arg("dim"), 0, c.arg("onesided")}));
}

void prims_fft_c2c(CompositeCall& c) {
  c.give(c.make("_fft_c2c", {c.tensor("self"), c.arg("dim"), 0, c.arg("forward")}));
}

void prims_fft_c2r(CompositeCall& c) {
  c.give(c.make("_fft_c2r", {c.tensor("self"), c.arg("dim"), 0, c.arg("last_dim_size")}));
}

// --- masked indexing ---

namespace {

constexpr int64_t kFirst = 0;

// The indices, clamped to the bounds of `self`; with `both_ways`, negative ones count from the end.
ArgList held(CompositeCall& c, ValueId self, bool both_ways) {
  ArgList indices = c.sizes("indices");
  if (static_cast<int>(indices.size()) > c.rank(self)) return c.fail("has more indices than dimensions"), indices;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i].is(ArgKind::value)) continue;
    const Expr size = c.extent(self, static_cast<int>(i)), one = c.exprs().constant(1);
    const Arg low = both_ways ? c.as_arg(c.exprs().mul(c.exprs().constant(-1), size)) : Arg::integer(kFirst);
    const Arg high = c.as_arg(c.exprs().sub(size, one));
    indices[i] = PartArg(c.make("clamp", {indices[i].as_value(), low, high})).arg;
  }
  return indices;
}

bool has_elements(CompositeCall& c, ValueId v) {
  for (int i = 0; i < c.rank(v); ++i)
    if (c.is_size(v, i, 0)) return false;
  return true;
}

ValueId elsewhere(CompositeCall& c) { return c.make("logical_not", {c.tensor("mask")}); }

}  // namespace

void unsafe_masked_index(CompositeCall& c) {
  ValueId self = c.tensor("self");
  if (!has_elements(c, self)) return c.fail("its tensor has no elements");
  ValueId found = c.make("_unsafe_index.Tensor", {self, held(c, self, false)});
  c.give(c.make("masked_fill.Scalar", {found, elsewhere(c), c.arg("fill")}));
}

void unsafe_masked_index_put_accumulate(CompositeCall& c) {
  ValueId self = c.tensor("self");
  if (!has_elements(c, self)) return c.give(copy_of(c, self));
  ValueId counted = c.make("masked_fill.Scalar", {c.tensor("values"), elsewhere(c), 0});
  c.give(c.make("_unsafe_index_put", {self, held(c, self, true), counted, true}));
}

// --- random numbers from a seed that is a value ---

namespace {

PartArgs drawn(CompositeCall& c, PartArgs args, DType dtype) {
  args.push_back(c.key("dtype", dtype));
  args.push_back(c.key("device", Arg::text(ArgKind::device, c.type(c.tensor("seed")).device)));
  return args;
}

constexpr int64_t kLargestSeed = INT64_MAX;

}  // namespace

void inductor_seed(CompositeCall& c) {
  c.give(c.make("randint", {kLargestSeed, ArgList(), c.key("device", c.arg("device"))}));
}

void inductor_seeds(CompositeCall& c) {
  c.give(c.make("randint", {kLargestSeed, ArgList{c.arg("count")}, c.key("device", c.arg("device"))}));
}

void inductor_lookup_seed(CompositeCall& c) {
  c.give(copy_of(c, c.make("select.int", {c.tensor("seeds"), 0, c.arg("index")})));
}

void inductor_random(CompositeCall& c) {
  const std::string mode = c.text("mode");
  if (mode != "rand" && mode != "randn") return c.fail("draws in a way of its own: " + mode);
  c.give(c.make_by_seed(mode, drawn(c, {c.arg("size")}, DType::f32), c.tensor("seed")));
}

void inductor_randint(CompositeCall& c) {
  c.give(c.make_by_seed("randint.low", drawn(c, {c.arg("low"), c.arg("high"), c.arg("size")}, DType::i64),
                        c.tensor("seed")));
}

}  // namespace sg::composite
