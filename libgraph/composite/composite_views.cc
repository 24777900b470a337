// Views under other names, parts of tensors, concatenations.
#include <algorithm>
#include <numeric>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

constexpr int64_t kMaxSections = 4096;

Numbers all_dims(int rank) {
  Numbers dims(static_cast<size_t>(rank));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

ValueId part(CompositeCall& c, ValueId v, int dim, int64_t from, int64_t to) {
  return c.make("slice.Tensor", {v, dim, from, to});
}

// The shape that all tensors broadcast to.
ArgList common_shape(CompositeCall& c, const Values& tensors) {
  int rank = 0;
  for (ValueId v : tensors) rank = std::max(rank, c.rank(v));
  ArgList shape(static_cast<size_t>(rank), Arg::integer(1));
  for (ValueId v : tensors)
    for (int i = 1; i <= c.rank(v); ++i)
      if (!c.is_size(v, -i, 1)) shape[static_cast<size_t>(rank - i)] = c.size(v, -i);
  return shape;
}

ValueId at_least(CompositeCall& c, ValueId v, int rank) {
  if (c.rank(v) >= rank) return v;
  if (rank == 1) return c.make("reshape", {v, Numbers{1}});
  if (rank == 2) return c.rank(v) == 0 ? c.make("reshape", {v, Numbers{1, 1}}) : c.make("unsqueeze", {v, 0});
  if (c.rank(v) == 0) return c.make("reshape", {v, Numbers{1, 1, 1}});
  if (c.rank(v) == 1) v = c.make("unsqueeze", {v, 0});
  return c.make("unsqueeze", {v, -1});
}

void give_at_least(CompositeCall& c, int rank) {
  if (c.has("self")) return c.give(at_least(c, c.tensor("self"), rank));
  for (ValueId v : c.tensors("tensors")) c.give(at_least(c, v, rank));
}

// Splits at positions, which may be out of range and out of order, as in Python.
void give_parts(CompositeCall& c, ValueId self, int dim, const Numbers& ends) {
  int64_t size = c.known_size(self, dim), from = 0;
  for (size_t i = 0; i <= ends.size(); ++i) {
    int64_t to = i < ends.size() ? ends[i] : size;
    c.give(part(c, self, dim, from, to));
    from = to;
  }
}

void give_sections(CompositeCall& c, ValueId self, int dim, int64_t sections) {
  int64_t size = c.known_size(self, dim);
  if (sections <= 0 || sections > kMaxSections)
    return c.fail("cannot be cut into " + std::to_string(sections) + " parts");
  Numbers ends;
  int64_t at = 0;
  for (int64_t i = 0; i + 1 < sections; ++i) ends.push_back(at += size / sections + (i < size % sections ? 1 : 0));
  give_parts(c, self, dim, ends);
}

void give_split(CompositeCall& c, int dim) {
  ValueId self = c.tensor("self");
  if (c.failed()) return;
  if (c.has("sections")) return give_sections(c, self, dim, c.integer("sections"));
  give_parts(c, self, dim, c.integers("indices"));
}

void give_joined(CompositeCall& c, int rank, int dim) {
  Values tensors = c.tensors("tensors");
  for (ValueId& v : tensors) v = at_least(c, v, rank);
  c.give(c.make("cat", {tensors, dim}));
}

ValueId moved(CompositeCall& c, ValueId self, Numbers from, Numbers to) {
  int rank = c.rank(self);
  if (from.size() != to.size() || from.size() > static_cast<size_t>(rank))
    return c.fail("as many sources as destinations are needed"), self;
  Numbers order(static_cast<size_t>(rank), -1);
  std::vector<bool> is_moved(static_cast<size_t>(rank));
  for (size_t i = 0; i < from.size(); ++i) {
    auto source = static_cast<size_t>(c.wrap(from[i], rank)), target = static_cast<size_t>(c.wrap(to[i], rank));
    if (c.failed() || is_moved[source] || order[target] >= 0) return c.fail("a dimension is named twice"), self;
    order[target] = static_cast<int64_t>(source);
    is_moved[source] = true;
  }
  int64_t next = 0;
  for (int64_t& at : order) {
    if (at >= 0) continue;
    while (is_moved[static_cast<size_t>(next)]) ++next;
    at = next++;
  }
  return c.make("permute", {self, order});
}

ValueId grid(CompositeCall& c, ValueId v, size_t at, const ArgList& shape) {
  ArgList view(shape.size(), Arg::integer(1));
  view[at] = c.rank(v) == 0 ? Arg::integer(1) : c.size(v, 0);
  return c.make("expand", {c.make("view", {v, view}), shape});
}

Values grids(CompositeCall& c, Values tensors, bool swapped) {
  if (swapped && tensors.size() >= 2) std::swap(tensors[0], tensors[1]);
  ArgList shape;
  for (ValueId v : tensors) shape.push_back(c.rank(v) == 0 ? Arg::integer(1) : c.size(v, 0));
  Values out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (c.rank(tensors[i]) > 1) c.fail("a grid is made of vectors");
    out.push_back(grid(c, tensors[i], i, shape));
  }
  if (swapped && tensors.size() >= 2) std::swap(out[0], out[1]);
  return out;
}

}  // namespace

void broadcast_to(CompositeCall& c) { c.give(c.make("expand", {c.tensor("self"), c.sizes("size")})); }

void broadcast_tensors(CompositeCall& c) {
  Values tensors = c.tensors("tensors");
  ArgList shape = common_shape(c, tensors);
  for (ValueId v : tensors) c.give(c.make("expand", {v, shape}));
}

void last_transposed(CompositeCall& c) {
  if (c.rank(c.tensor("self")) < 2) return c.fail("needs two dimensions");
  c.give(c.make("transpose.int", {c.tensor("self"), -2, -1}));
}

void last_adjoint(CompositeCall& c) {
  ValueId self = c.tensor("self");
  if (c.rank(self) == 0) return c.give(self);
  if (c.rank(self) == 1) return c.fail("needs two dimensions");
  ValueId turned = c.make("transpose.int", {self, -2, -1});
  c.give(is_complex(c.dtype_of(self)) ? c.make("_conj", {turned}) : turned);
}

void conjugate(CompositeCall& c) {
  ValueId self = c.tensor("self");
  c.give(is_complex(c.dtype_of(self)) ? c.make("_conj", {self}) : self);
}

void swap_dims(CompositeCall& c) {
  bool axes = c.has("axis0");
  c.give(c.make("transpose.int",
                {c.tensor("self"), c.integer(axes ? "axis0" : "dim0"), c.integer(axes ? "axis1" : "dim1")}));
}

void move_dims(CompositeCall& c) {
  c.give(moved(c, c.tensor("self"), c.integers("source"), c.integers("destination")));
}

void view_as(CompositeCall& c) { c.give(c.make("view", {c.tensor("self"), c.shape(c.tensor("other"))})); }
void reshape_as(CompositeCall& c) { c.give(c.make("reshape", {c.tensor("self"), c.shape(c.tensor("other"))})); }
void ravel(CompositeCall& c) { c.give(c.make("reshape", {c.make("contiguous", {c.tensor("self")}), Numbers{-1}})); }
void type_as(CompositeCall& c) { c.give(c.make("to.dtype", {c.tensor("self"), c.dtype_of(c.tensor("other"))})); }
void to_other(CompositeCall& c) {
  c.give(c.make("to.dtype", {c.tensor("self"), c.dtype_of(c.tensor("other")), c.flag("non_blocking"), c.flag("copy"),
                             c.arg("memory_format")}));
}

void atleast_1d(CompositeCall& c) { give_at_least(c, 1); }
void atleast_2d(CompositeCall& c) { give_at_least(c, 2); }
void atleast_3d(CompositeCall& c) { give_at_least(c, 3); }

void tensor_split(CompositeCall& c) { give_split(c, c.wrap(c.integer("dim"), c.rank(c.tensor("self")))); }
void hsplit(CompositeCall& c) { give_split(c, c.rank(c.tensor("self")) == 1 ? 0 : 1); }
void vsplit(CompositeCall& c) { give_split(c, 0); }
void dsplit(CompositeCall& c) { give_split(c, 2); }

void unsafe_chunk(CompositeCall& c) {
  ValueId self = c.tensor("self");
  int dim = c.wrap(c.integer("dim"), c.rank(self));
  int64_t chunks = c.integer("chunks"), size = c.known_size(self, dim);
  if (c.failed() || chunks <= 0 || chunks > kMaxSections)
    return c.fail("needs at least one chunk, and no huge number of them");
  if (size == 0) {
    const Numbers none(static_cast<size_t>(chunks), 0);
    for (ValueId v : c.make_all("unsafe_split_with_sizes", {self, none, dim}, none.size())) c.give(v);
    return;
  }
  int64_t length = std::max<int64_t>((size + chunks - 1) / chunks, 1),
          count = std::max<int64_t>((size + length - 1) / length, 1);
  for (ValueId v : c.make_all("split.Tensor", {self, length, dim}, static_cast<size_t>(count))) c.give(v);
}

void split_sizes(CompositeCall& c) {
  ArgList sizes = c.sizes("split_size");
  for (ValueId v : c.make_all("split_with_sizes", {c.tensor("self"), sizes, c.integer("dim")}, sizes.size())) c.give(v);
}

void hstack(CompositeCall& c) {
  Values tensors = c.tensors("tensors");
  give_joined(c, 1, !tensors.empty() && c.rank(tensors[0]) <= 1 ? 0 : 1);
}
void vstack(CompositeCall& c) { give_joined(c, 2, 0); }
void dstack(CompositeCall& c) { give_joined(c, 3, 2); }

void column_stack(CompositeCall& c) {
  Values tensors = c.tensors("tensors");
  for (ValueId& v : tensors)
    if (c.rank(v) <= 1) v = c.make("reshape", {v, ArgList{c.product(v, 0, c.rank(v)), Arg::integer(1)}});
  c.give(c.make("cat", {tensors, 1}));
}

void concat(CompositeCall& c) { c.give(c.make("cat", {c.tensors("tensors"), c.integer("dim")})); }

// Each tensor padded with zeros to `num_chunks` equal parts along `dim`; the parts number i of all are one row.
void chunk_cat(CompositeCall& c) {
  Values tensors = c.tensors("tensors");
  const int64_t chunks = c.integer("num_chunks");
  if (c.failed() || tensors.empty() || chunks < 1) return c.fail("needs at least one tensor and one chunk");
  ExprPool& e = c.exprs();
  const int dim = c.wrap(c.integer("dim"), c.rank(tensors[0]));
  for (ValueId& v : tensors) {
    const int rank = c.rank(v);
    if (c.failed() || rank <= dim || c.dtype_of(v) != c.dtype_of(tensors[0]))
      return c.fail("needs tensors of one element type that have the dimension");
    const Expr count = e.constant(chunks), size = c.extent(v, dim);
    const Expr length = e.floordiv(e.add(size, e.constant(chunks - 1)), count),
               missing = e.sub(e.mul(length, count), size);
    ArgList shape;
    for (int i = 0; i < dim; ++i) shape.push_back(c.size(v, i));
    shape.push_back(Arg::integer(chunks));
    shape.push_back(c.as_arg(e.mul(length, c.as_expr(c.product(v, dim + 1, rank)))));
    if (e.constant_value(missing) != 0) {
      ArgList pad(static_cast<size_t>(2 * (rank - dim)), Arg::integer(0));
      pad.back() = c.as_arg(missing);
      v = c.make("constant_pad_nd", {v, pad});
    }
    v = c.make("reshape", {v, shape});
  }
  ValueId joined = c.make("cat", {tensors, dim + 1});
  if (!c.has("out")) return c.give(joined);
  ValueId out = c.tensor("out");
  if (c.type(out).shape != c.type(joined).shape) return c.fail("`out` has another size, and PyTorch would resize it");
  c.give(c.make("copy_", {out, joined}));
}

void tile(CompositeCall& c) {
  ArgList dims = c.sizes("dims");
  auto rank = static_cast<size_t>(c.rank(c.tensor("self")));
  while (dims.size() < rank) dims.insert(dims.begin(), Arg::integer(1));
  c.give(c.make("repeat", {c.tensor("self"), dims}));
}

void fliplr(CompositeCall& c) { c.give(c.make("flip", {c.tensor("self"), Numbers{1}})); }
void flipud(CompositeCall& c) { c.give(c.make("flip", {c.tensor("self"), Numbers{0}})); }

void rot90(CompositeCall& c) {
  ValueId self = c.tensor("self");
  Numbers dims = c.integers("dims");
  if (c.failed() || dims.size() != 2) return c.fail("turns a plane of two dimensions");
  int64_t a = c.wrap(dims[0], c.rank(self)), b = c.wrap(dims[1], c.rank(self)), k = ((c.integer("k") % 4) + 4) % 4;
  if (a == b) return c.fail("turns a plane of two dimensions");
  if (k == 0) return c.give(c.make("clone", {self, c.memory_format("contiguous_format")}));
  if (k == 2) return c.give(c.make("flip", {self, Numbers{a, b}}));
  c.give(c.make("transpose.int", {c.make("flip", {self, Numbers{k == 1 ? b : a}}), a, b}));
}

void meshgrid(CompositeCall& c) {
  for (ValueId v : grids(c, c.tensors("tensors"), false)) c.give(v);
}

void meshgrid_indexed(CompositeCall& c) {
  std::string order = c.text("indexing");
  if (order != "ij" && order != "xy") return c.fail("'indexing' has to be 'ij' or 'xy'");
  for (ValueId v : grids(c, c.tensors("tensors"), order == "xy")) c.give(v);
}

void cartesian_prod(CompositeCall& c) {
  Values tensors = c.tensors("tensors");
  if (tensors.size() == 1) return c.give(tensors[0]);
  Values columns = grids(c, tensors, false);
  for (ValueId& v : columns) v = c.make("reshape", {v, Numbers{-1}});
  c.give(c.make("stack", {columns, 1}));
}

void block_diag(CompositeCall& c) {
  Values tensors = c.tensors("tensors");
  if (tensors.empty()) return c.fail("needs at least one matrix");
  ExprPool& e = c.exprs();
  Expr height = e.constant(0), width = height, row = height, column = height;
  for (ValueId& v : tensors) {
    v = at_least(c, v, 2);
    height = e.add(height, c.extent(v, 0)), width = e.add(width, c.extent(v, 1));
  }
  ValueId out = c.zeros({c.as_arg(height), c.as_arg(width)}, tensors[0]);
  for (ValueId v : tensors) {
    const Expr below = e.add(row, c.extent(v, 0)), right = e.add(column, c.extent(v, 1));
    ValueId rows = c.make("slice.Tensor", {out, 0, c.as_arg(row), c.as_arg(below)});
    c.make("copy_", {c.make("slice.Tensor", {rows, 1, c.as_arg(column), c.as_arg(right)}), v});
    row = below, column = right;
  }
  c.give(out);
}

void argwhere(CompositeCall& c) { c.give(c.make("nonzero", {c.tensor("self")})); }

// The first `size` places, in order: each element is written to the row that the count before it says, the others to
// one row more, which is dropped.
void nonzero_static(CompositeCall& c) {
  ValueId self = c.tensor("self");
  const Arg size = c.sizes("size")[0], fill = c.arg("fill_value");
  const int dims = c.rank(self);
  auto flat = [&](ValueId v) { return c.make("reshape", {v, Numbers{-1}}); };
  ValueId found = flat(c.make("ne.Scalar", {self, 0}));
  ValueId row = c.make("sub.Tensor", {c.make("cumsum", {found, 0}), 1});
  found = c.make("logical_and", {found, c.make("lt.Scalar", {row, size})});
  row = c.make("where.ScalarOther", {found, row, size});
  const Arg rows = c.as_arg(c.exprs().add(c.as_expr(size), c.exprs().constant(1)));
  if (dims == 0) return c.give(c.make("full", {ArgList{size, Arg::integer(0)}, fill, c.key("dtype", DType::i64)}));
  Values columns;
  for (int dim = 0; dim < dims; ++dim) {
    ArgList along(static_cast<size_t>(dims), Arg::integer(1));
    along[static_cast<size_t>(dim)] = c.size(self, dim);
    ValueId place = c.make("view", {c.make("arange", {c.size(self, dim)}), along});
    place = flat(c.make("expand", {place, c.shape(self)}));
    ValueId column = c.make("full", {ArgList{rows}, fill, c.key("dtype", DType::i64)});
    columns.push_back(c.make("scatter.src", {column, 0, row, place}));
  }
  c.give(c.make("slice.Tensor", {c.make("stack", {columns, 1}), 0, 0, size}));
}

void msort(CompositeCall& c) { c.give(c.make_all("sort", {c.tensor("self"), 0, false})[0]); }

void take_along_dim(CompositeCall& c) {
  ValueId self = c.tensor("self"), indices = c.tensor("indices");
  if (c.arg("dim").is(ArgKind::none))
    return c.give(c.make("gather", {c.make("view", {self, Numbers{-1}}), 0, c.make("view", {indices, Numbers{-1}})}));
  int dim = c.wrap(c.integer("dim"), c.rank(self));
  ValueId from_end = c.make("add.Scalar", {indices, c.size(self, dim)});
  indices = c.make("where.self", {c.make("lt.Scalar", {indices, 0}), from_end, indices});
  if (c.rank(self) != c.rank(indices)) return c.fail("needs indices of the same rank");
  ArgList from = common_shape(c, {self, indices}), to = from;
  if (!c.failed() && c.rank(self) > 0)
    from[static_cast<size_t>(dim)] = c.size(self, dim), to[static_cast<size_t>(dim)] = c.size(indices, dim);
  c.give(c.make("gather", {c.make("expand", {self, from}), dim, c.make("expand", {indices, to})}));
}

void index_fill_tensor(CompositeCall& c) {
  ValueId self = c.tensor("self"), value = c.make("to.dtype", {c.tensor("value"), c.dtype_of(self)});
  int dim = c.wrap(c.integer("dim"), c.rank(self));
  ArgList shape = c.shape(self);
  if (!shape.empty())
    shape[static_cast<size_t>(dim)] = c.rank(c.tensor("index")) == 0 ? Arg::integer(1) : c.size(c.tensor("index"), 0);
  ValueId out = c.make("clone", {self});
  c.give(c.make("index_copy_", {out, dim, c.tensor("index"), c.make("expand", {value, shape})}));
}

// x_copy: the view x, then a contiguous copy of it.
namespace {

void give_copy(CompositeCall& c, ValueId view) {
  c.give(c.make("clone", {view, c.memory_format("contiguous_format")}));
}

}  // namespace

void alias_copy(CompositeCall& c) { give_copy(c, c.tensor("self")); }
void t_copy(CompositeCall& c) { give_copy(c, c.make("t", {c.tensor("self")})); }
void transpose_copy(CompositeCall& c) {
  give_copy(c, c.make("transpose.int", {c.tensor("self"), c.integer("dim0"), c.integer("dim1")}));
}
void squeeze_copy(CompositeCall& c) { give_copy(c, c.make("squeeze", {c.tensor("self")})); }
void squeeze_copy_dim(CompositeCall& c) { give_copy(c, c.make("squeeze.dim", {c.tensor("self"), c.integer("dim")})); }
void squeeze_copy_dims(CompositeCall& c) {
  give_copy(c, c.make("squeeze.dims", {c.tensor("self"), c.integers("dim")}));
}
void unsqueeze_copy(CompositeCall& c) { give_copy(c, c.make("unsqueeze", {c.tensor("self"), c.integer("dim")})); }
void select_copy(CompositeCall& c) {
  give_copy(c, c.make("select.int", {c.tensor("self"), c.integer("dim"), c.arg("index")}));
}
void narrow_copy(CompositeCall& c) {
  give_copy(c, c.make("narrow", {c.tensor("self"), c.integer("dim"), c.arg("start"), c.arg("length")}));
}
void unfold_copy(CompositeCall& c) {
  give_copy(c, c.make("unfold", {c.tensor("self"), c.integer("dimension"), c.integer("size"), c.integer("step")}));
}
void diagonal_copy(CompositeCall& c) {
  give_copy(c, c.make("diagonal", {c.tensor("self"), c.integer("offset"), c.integer("dim1"), c.integer("dim2")}));
}
void as_strided_copy(CompositeCall& c) {
  give_copy(c, c.make("as_strided", {c.tensor("self"), c.sizes("size"), c.sizes("stride"), c.arg("storage_offset")}));
}
void unbind_copy(CompositeCall& c) {
  ValueId self = c.tensor("self");
  int dim = c.wrap(c.integer("dim"), c.rank(self));
  for (ValueId v : c.make_all("unbind.int", {self, dim}, static_cast<size_t>(c.known_size(self, dim)))) give_copy(c, v);
}

// The places of what is not zero: one tensor an axis.
void places_by_axis(CompositeCall& c) {
  ValueId self = c.tensor(c.has("condition") ? "condition" : "self");
  if (c.rank(self) == 0) self = c.make("unsqueeze", {self, 0});
  Type found = c.recorded(0);
  if (found.kind != TypeKind::tensor || found.shape.size() != 1) return c.fail("the number of places has no symbol");
  const Expr count = found.shape[0];
  found.offset = c.exprs().constant(0);
  found.shape = {count, c.exprs().constant(c.rank(self))};
  found.stride = {c.exprs().constant(1), count};
  const ValueId places = c.make_found("nonzero", {self}, std::move(found));
  for (int axis = 0; axis < c.rank(self); ++axis) c.give_own(c.make("select.int", {places, 1, axis}));
}

void sum_to_size(CompositeCall& c) {
  ValueId self = c.tensor("self");
  ArgList size = c.sizes("size");
  if (size.empty()) return c.give(c.make("sum", {self}));
  int lead = c.rank(self) - static_cast<int>(size.size());
  if (lead < 0) return c.fail("has fewer dimensions than the size");
  Numbers dims = all_dims(lead);
  bool reduces = lead > 0;
  for (int i = lead; i < c.rank(self); ++i) {
    const Arg& want = size[static_cast<size_t>(i - lead)];
    if (want.is(ArgKind::integer) && want.as_int() == 1 && !c.is_size(self, i, 1)) dims.push_back(i), reduces = true;
  }
  if (reduces) self = c.make("sum.dim_IntList", {self, dims, true});
  c.give(lead > 0 ? c.make("view", {self, size}) : self);
}

// Supported only if it leaves the size unchanged.
namespace {

void give_of_size(CompositeCall& c, const ArgList& asked) {
  ValueId self = c.tensor("self");
  const ArgList shape = c.shape(self);
  bool is_same = asked.size() == shape.size();
  for (size_t i = 0; is_same && i < shape.size(); ++i)
    is_same = c.same_size(c.as_expr(asked[i]), c.extent(self, static_cast<int>(i)));
  if (!is_same) return c.fail("changes the size of memory that others may read");
  c.give(self);
}

}  // namespace

void resize(CompositeCall& c) { give_of_size(c, c.sizes("size")); }
void resize_as(CompositeCall& c) { give_of_size(c, c.shape(c.tensor("the_template"))); }

}  // namespace sg::composite
