// Layers: norms that return running statistics, dropout of whole features, embedding bags.
#include <cmath>
#include <limits>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

// Noise: 1 with probability 1 - p, else 0.
ValueId keep_mask(CompositeCall& c, ValueId shaped, double p) { return c.make("bernoulli.p", {shaped, 1 - p}); }

ValueId feature_shaped(CompositeCall& c, ValueId v) {  // one element per sample and channel
  ArgList shape = c.shape(v);
  if (shape.size() < 2) return c.fail("needs a dimension of channels"), v;
  for (size_t i = 2; i < shape.size(); ++i) shape[i] = Arg::integer(1);
  return c.make("new_empty", {v, shape});
}

// Whether the dropout is trivial: it drops nothing, or everything. Its result is then given.
bool is_settled(CompositeCall& c, ValueId input, double p, bool train) {
  if (p != 0 && train && p != 1) return false;
  c.give(p == 0 || !train ? input : c.make("mul.Tensor", {input, c.make("zeros_like", {input})}));
  return true;
}

enum class Dropped { elements, features };
enum class Filled { zeros, alpha };  // alpha: keeps mean and variance in front of a SELU

void drop(CompositeCall& c, Dropped dropped, Filled filled) {
  ValueId input = c.tensor("input");
  double p = c.number("p");
  if (is_settled(c, input, p, c.flag("train"))) return;
  ValueId noise =
      keep_mask(c, dropped == Dropped::features ? feature_shaped(c, input) : c.make("empty_like", {input}), p);
  if (filled == Filled::zeros) return c.give(c.make("mul.Tensor", {input, c.make("div.Scalar", {noise, 1 - p})}));
  constexpr double kAlpha = 1.7580993408473766;
  double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  ValueId shift =
      c.make("add.Scalar", {c.make("mul.Scalar", {c.make("add.Scalar", {noise, -1}), kAlpha * a}), kAlpha * a * p});
  c.give(c.make("add.Tensor", {c.make("mul.Tensor", {input, c.make("mul.Scalar", {noise, a})}), shift}));
}

}  // namespace

void feature_dropout(CompositeCall& c) { drop(c, Dropped::features, Filled::zeros); }
void alpha_dropout(CompositeCall& c) { drop(c, Dropped::elements, Filled::alpha); }
void feature_alpha_dropout(CompositeCall& c) { drop(c, Dropped::features, Filled::alpha); }

void prelu(CompositeCall& c) {
  ValueId self = c.tensor("self"), weight = c.tensor("weight");
  if (c.rank(weight) > 1) return c.fail("needs a weight of one dimension at most");
  if (c.rank(self) != c.rank(weight)) {
    ArgList shape(static_cast<size_t>(c.rank(self)), Arg::integer(1));
    if (c.rank(self) > 1) shape[1] = c.product(weight, 0, c.rank(weight));
    weight = c.make("reshape", {weight, shape});
  }
  c.give(c.make("_prelu_kernel", {self, weight}));
}

void rrelu(CompositeCall& c) {
  ValueId self = c.tensor("self");
  if (!c.flag("training")) return c.give(c.make("leaky_relu", {self, (c.number("lower") + c.number("upper")) / 2}));
  ValueId slope = c.make("uniform", {self, c.number("lower"), c.number("upper")});
  c.give(c.make("where.self", {c.make("le.Scalar", {self, 0}), c.make("mul.Tensor", {self, slope}), self}));
}

// The running statistics are updated in copies, which are returned.
void batch_norm_functional(CompositeCall& c) {
  ValueId mean = c.make("clone", {c.tensor("running_mean")}), var = c.make("clone", {c.tensor("running_var")});
  PartArg training = c.has("training") ? PartArg(c.arg("training")) : PartArg(true);
  PartArgs args{c.tensor("input"), c.tensor("weight"), c.tensor("bias"), mean, var,
                training,          c.arg("momentum"),  c.arg("eps")};
  for (ValueId v : c.make_all("_native_batch_norm_legit", args)) c.give(v);
  if (!c.has("training")) c.give(c.make("new_empty", {c.tensor("input"), Numbers{0}, c.key("dtype", DType::u8)}));
  c.give(mean);
  c.give(var);
}

void batch_norm_with_update(CompositeCall& c) {
  PartArgs args{
      c.tensor("input"), c.tensor("weight"), c.tensor("bias"), c.tensor("running_mean"), c.tensor("running_var"), true,
      c.arg("momentum"), c.arg("eps")};
  for (ValueId v : c.make_all("_native_batch_norm_legit", args)) c.give(v);
  c.give(c.make("new_empty", {c.tensor("input"), Numbers{0}, c.key("dtype", DType::u8)}));
}

// Batch norm on GPUs. The running statistics are written, although PyTorch's schema does not say so. The last result is
// memory that cuDNN reserves for the backward; without training the saved statistics are empty too.
void cudnn_batch_norm(CompositeCall& c) {
  const bool training = c.flag("training");
  PartArgs args{c.tensor("input"),
                c.tensor("weight"),
                c.tensor("bias"),
                c.tensor("running_mean"),
                c.tensor("running_var"),
                training,
                c.arg("exponential_average_factor"),
                c.arg("epsilon")};
  std::vector<ValueId> made = c.make_all("native_batch_norm", args);
  c.give(made[0]);
  for (size_t i : {size_t{1}, size_t{2}})
    c.give(training ? made[i] : c.make("new_empty", {c.tensor("weight"), Numbers{0}}));
  c.give(c.make("new_empty", {c.tensor("input"), Numbers{0}, c.key("dtype", DType::u8)}));
}

void cudnn_batch_norm_backward(CompositeCall& c) {
  PartArgs args{c.tensor("grad_output"), c.tensor("input"),
                c.tensor("weight"),      c.tensor("running_mean"),
                c.tensor("running_var"), c.tensor("save_mean"),
                c.tensor("save_var"),    true,
                c.arg("epsilon"),        ArgList{Arg::boolean(true), Arg::boolean(true), Arg::boolean(true)}};
  for (ValueId v : c.make_all("native_batch_norm_backward", args)) c.give(v);
}

// The reserved memory is that of cuDNN and MIOpen.
void batch_norm_backward(CompositeCall& c) {
  PartArgs args{c.tensor("grad_out"),     c.tensor("input"),       c.tensor("weight"),
                c.tensor("running_mean"), c.tensor("running_var"), c.tensor("save_mean"),
                c.tensor("save_var"),     c.flag("update"),        c.arg("eps"),
                c.arg("output_mask")};
  for (ValueId v : c.make_all("native_batch_norm_backward", args)) c.give(v);
}

void embedding_renorm(CompositeCall& c) {
  ValueId out = c.make("clone", {c.tensor("self")});
  c.give(c.make("embedding_renorm_", {out, c.tensor("indices"), c.arg("max_norm"), c.arg("norm_type")}));
}

void max_pool1d_with_indices(CompositeCall& c) {
  auto flat = [&](std::string_view name, int64_t across) {
    Numbers n = c.integers(name);
    return n.empty() ? Numbers() : Numbers{across, n[0]};
  };
  ValueId plane = c.make("unsqueeze", {c.tensor("self"), -2});
  for (ValueId v :
       c.make_all("max_pool2d_with_indices", {plane, flat("kernel_size", 1), flat("stride", 1), flat("padding", 0),
                                              flat("dilation", 1), c.flag("ceil_mode")}))
    c.give(c.make("squeeze.dim", {v, -2}));
}

void grid_sampler(CompositeCall& c) {
  ValueId input = c.tensor("input");
  if (c.rank(input) != 4 && c.rank(input) != 5) return c.fail("needs an input of 4 or 5 dimensions");
  c.give(c.make(
      c.rank(input) == 4 ? "grid_sampler_2d" : "grid_sampler_3d",
      {input, c.tensor("grid"), c.integer("interpolation_mode"), c.integer("padding_mode"), c.flag("align_corners")}));
}

namespace {

// The bag of each index: the number of offsets at or before its position, minus 1.
ValueId bags_of(CompositeCall& c, ValueId offsets, Expr count) {
  ValueId places = c.make("arange", {c.as_arg(count), c.key("dtype", c.dtype_of(offsets))});
  ValueId found = c.make("searchsorted.Tensor", {offsets, places, c.key("right", true)});
  return c.make("sub.Scalar", {found, 1});
}

struct Bags {
  ValueId of_index, sizes;  // the bag of each index; the number of indices per bag, without padding
  Expr count;
};

ValueId column(CompositeCall& c, ValueId v) { return c.make("unsqueeze", {v, -1}); }

// The table's row for each index, times its weight; 0 for the padding index.
ValueId rows_of(CompositeCall& c, ValueId kept) {
  ValueId rows = c.make("index_select", {c.tensor("weight"), 0, c.tensor("indices")}),
          weights = c.tensor("per_sample_weights");
  if (!weights.is_none()) rows = c.make("mul.Tensor", {rows, column(c, weights)});
  return kept.is_none() ? rows : c.make("mul.Tensor", {rows, column(c, c.make("to.dtype", {kept, c.dtype_of(rows)}))});
}

// The bag of each index, expanded to the shape of the rows, as scatter_reduce needs it.
ValueId spread_bags(CompositeCall& c, const Bags& bags, ValueId rows) {
  return c.make("expand", {column(c, bags.of_index), c.shape(rows)});
}

ValueId largest_of(CompositeCall& c, const Bags& bags, ValueId kept, ValueId rows, const ArgList& shape) {
  if (!kept.is_none())
    rows = c.make("where.ScalarOther", {column(c, kept), rows, -std::numeric_limits<double>::infinity()});
  ValueId out = c.make("scatter_reduce.two", {c.zeros(shape, rows), 0, spread_bags(c, bags, rows), rows, c.word("amax"),
                                              c.key("include_self", false)});
  if (kept.is_none()) return out;
  return c.make("where.ScalarOther", {column(c, c.make("gt.Scalar", {bags.sizes, 0})), out, 0.0});
}

// The table row that each maximum comes from: that of the first index in the bag that has it.
ValueId rows_of_largest(CompositeCall& c, const Bags& bags, ValueId kept, ValueId rows, ValueId out,
                        const ArgList& shape) {
  ValueId indices = c.tensor("indices");
  if (c.is_size(indices, 0, 0)) return c.zeros(shape, indices);
  ValueId found = c.make("eq.Tensor", {rows, c.make("index_select", {out, 0, bags.of_index})});
  if (!kept.is_none()) found = c.make("logical_and", {found, column(c, kept)});
  constexpr int64_t kNowhere = int64_t{1} << 62;  // where a NaN leaves no match
  ValueId place = column(c, c.make("arange", {c.size(indices, 0), c.key("dtype", DType::i64)}));
  place = c.make("where.ScalarOther", {found, place, kNowhere});
  ValueId first = c.make("scatter_reduce.two", {c.zeros(shape, place), 0, spread_bags(c, bags, rows), place,
                                                c.word("amin"), c.key("include_self", false)});
  first = c.make("where.ScalarOther", {c.make("lt.Scalar", {first, kNowhere}), first, 0});
  return c.make("index.Tensor", {indices, Values{first}});
}

}  // namespace

// mode: 0 sum, 1 mean, 2 max. Of the further results, only the bag sizes match PyTorch's in all modes.
void embedding_bag(CompositeCall& c) {
  ValueId indices = c.tensor("indices"), offsets = c.tensor("offsets"), kept;
  int64_t mode = c.integer("mode");
  if (c.rank(indices) != 1 || c.rank(offsets) != 1) return c.fail("needs indices and offsets of one dimension");
  Bags bags;
  bags.count = c.extent(offsets, 0);
  if (c.flag("include_last_offset")) {
    bags.count = c.exprs().sub(bags.count, c.exprs().constant(1));
    offsets = c.make("slice.Tensor", {offsets, 0, 0, c.as_arg(bags.count)});
  }
  bags.of_index = bags_of(c, offsets, c.extent(indices, 0));
  if (c.has("padding_idx") && c.integer("padding_idx") != -1)
    kept = c.make("ne.Scalar",
                  {indices, c.wrap(c.integer("padding_idx"), static_cast<int>(c.known_size(c.tensor("weight"), 0)))});
  ValueId ones = kept.is_none() ? c.make("ones_like", {indices}) : c.make("to.dtype", {kept, c.dtype_of(indices)});
  bags.sizes = c.make("index_add", {c.zeros({c.as_arg(bags.count)}, indices), 0, bags.of_index, ones});
  ArgList shape{c.as_arg(bags.count), c.size(c.tensor("weight"), 1)};
  ValueId out, rows = rows_of(c, mode == 2 ? ValueId() : kept);
  if (mode == 2) {
    out = largest_of(c, bags, kept, rows, shape);
  } else {
    out = c.make("index_add", {c.zeros(shape, rows), 0, bags.of_index, rows});
    if (mode == 1)
      out = c.make("div.Tensor",
                   {out, c.make("to.dtype", {column(c, c.make("clamp_min", {bags.sizes, 1})), c.dtype_of(rows)})});
  }
  c.give(out);
  c.give_own(bags.of_index);
  c.give_own(bags.sizes);
  if (mode != 2) return c.give_own(bags.sizes);
  const bool has_backward = c.is_read_only_by(3, "_embedding_bag");
  c.give_own(has_backward ? rows_of_largest(c, bags, kept, rows, out, shape)
                          : c.make("new_empty", {indices, Numbers{0}}));
}

namespace {

// The gradient of each maximum goes to the row it comes from; empty bags have none.
void give_gradient_of_largest(CompositeCall& c) {
  ValueId grad = c.tensor("grad"), from = c.tensor("maximum_indices");
  if (c.rank(from) != 2) return c.fail("the rows of the largest are not given");
  ValueId filled = column(c, c.make("gt.Scalar", {c.tensor("bag_size"), 0}));
  ArgList shape{c.arg("num_weights"), c.size(grad, 1)};
  from = c.make("where.ScalarOther", {filled, c.make("to.dtype", {from, DType::i64}), 0});
  grad = c.make("where.ScalarOther", {filled, grad, 0.0});
  c.give(c.make("scatter_add", {c.zeros(shape, grad), 0, from, grad}));
}

}  // namespace

namespace {

// The bag of each index: PyTorch's forward omits it where its own kernels do not need it.
ValueId told_bags(CompositeCall& c, ValueId indices) {
  ValueId of_index = c.tensor("offset2bag");
  if (c.failed() || c.extent(of_index, 0) == c.extent(indices, 0)) return of_index;
  if (!c.has("offsets")) return c.fail("the bags of the indices are not given"), of_index;
  return bags_of(c, c.tensor("offsets"), c.extent(indices, 0));
}

}  // namespace

// The gradient of the weights of a sum: each row times the gradient of its bag.
void embedding_bag_weights_backward(CompositeCall& c) {
  ValueId grad = c.tensor("grad"), indices = c.tensor("indices"), of_index = told_bags(c, indices);
  ValueId rows = c.make("index_select", {c.tensor("weight"), 0, indices});
  rows = c.make("mul.Tensor", {rows, c.make("index_select", {grad, 0, of_index})});
  ValueId out = c.make("sum.dim_IntList", {rows, Numbers{1}});
  const int64_t padding = c.integer("padding_idx");
  if (padding != -1) out = c.make("where.ScalarOther", {c.make("ne.Scalar", {indices, padding}), out, 0.0});
  c.give(out);
}

// The gradient of the table: each index adds the gradient of its bag to its row, or its part of that (where a row's is
// divided by how often it is read).
void embedding_bag_backward(CompositeCall& c) {
  ValueId grad = c.tensor("grad"), indices = c.tensor("indices"), weights = c.tensor("per_sample_weights");
  int64_t mode = c.integer("mode"), padding = c.integer("padding_idx");
  if (c.has("sparse") && c.flag("sparse")) return c.fail("sparse gradients have no recipe");
  if (mode == 2) return give_gradient_of_largest(c);
  ValueId of_index = told_bags(c, indices);
  ValueId rows = c.make("index_select", {grad, 0, of_index});
  if (mode == 1) {
    ValueId sizes = c.make("index_select", {c.make("clamp_min", {c.tensor("bag_size"), 1}), 0, of_index});
    rows = c.make("div.Tensor", {rows, c.make("to.dtype", {column(c, sizes), c.dtype_of(rows)})});
  }
  if (!weights.is_none()) rows = c.make("mul.Tensor", {rows, column(c, weights)});
  if (padding != -1)
    rows = c.make("mul.Tensor",
                  {rows, c.make("to.dtype", {column(c, c.make("ne.Scalar", {indices, padding})), c.dtype_of(rows)})});
  if (c.flag("scale_grad_by_freq"))
    return c.give(c.make("embedding_dense_backward", {rows, indices, c.arg("num_weights"), -1, true}));
  ArgList shape{c.arg("num_weights"), c.size(grad, 1)};
  c.give(c.make("index_add", {c.zeros(shape, rows), 0, indices, rows}));
}

// The input position of each point of the result: -1 and 1 are the centers of the outer pixels (`align_corners`) or
// their outer edges.
void affine_grid(CompositeCall& c) {
  ValueId theta = c.tensor("theta");
  ArgList size = c.sizes("size");
  if (size.size() != 4) return c.fail("is taken apart for images only");
  bool corners = c.flag("align_corners");
  auto line = [&](const Arg& count) {
    auto n = c.exprs().constant_value(c.as_expr(count));
    if (!n) c.fail("needs a known size");
    if (c.failed() || *n <= 1) return c.zeros({count}, theta);
    ValueId points = c.make("linspace", {-1, 1, count, c.key("dtype", c.dtype_of(theta))});
    return corners ? points
                   : c.make("div.Scalar",
                            {c.make("mul.Scalar", {points, static_cast<double>(*n - 1)}), static_cast<double>(*n)});
  };
  ArgList plane{size[0], size[2], size[3], Arg::integer(1)};
  auto spread = [&](ValueId v, bool rows) {
    return c.make("expand",
                  {c.make("view", {v, rows ? ArgList{Arg::integer(1), size[2], Arg::integer(1), Arg::integer(1)}
                                           : ArgList{Arg::integer(1), Arg::integer(1), size[3], Arg::integer(1)}}),
                   plane});
  };
  ValueId x = spread(line(size[3]), false), y = spread(line(size[2]), true), one = c.make("new_ones", {theta, plane});
  ValueId base =
      c.make("view", {c.make("cat", {Values{x, y, one}, -1}), ArgList{size[0], Arg::integer(-1), Arg::integer(3)}});
  ValueId grid = c.make("bmm", {base, c.make("transpose.int", {theta, 1, 2})});
  c.give(c.make("view", {grid, ArgList{size[0], size[2], size[3], Arg::integer(2)}}));
}

// A convolution along time: of (time, batch, channels), by (time, in, out).
void conv_tbc(CompositeCall& c) {
  ValueId x = c.make("permute", {c.tensor("self"), Numbers{1, 2, 0}});
  ValueId weight = c.make("permute", {c.tensor("weight"), Numbers{2, 1, 0}});
  ValueId out = c.make("conv1d", {c.make("contiguous", {x}), c.make("contiguous", {weight}), c.tensor("bias"),
                                  Numbers{1}, Numbers{c.integer("pad")}});
  c.give(c.make("clone", {c.make("permute", {out, Numbers{2, 0, 1}}), c.memory_format("contiguous_format")}));
}

}  // namespace sg::composite
