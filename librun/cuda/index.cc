// Elements by index: from calls to kernels/index.h.
#include <algorithm>
#include <array>
#include <optional>

#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/index.h"
#include "librun/work/run.h"
#include "librun/work/search.h"
#include "librun/work/shapes.h"

namespace sg::cuda {
namespace {

// Selects along axes of `self` by indices; the other axes come before (the first `outer`) or after the picked ones.
struct Picks {
  std::vector<std::pair<int, Tensor>> indices;  // axis and index
  std::vector<int64_t> shape;                   // the common broadcast shape of the indices
  int outer = 0;                                // axes before them in the result
  bool wraps = true;
};

Selection selection_of(const Tensor& self, const Picks& picks) {
  Selection s;
  Tensor rest = self;
  rest.rank = 0;
  for (int axis = 0; axis < self.rank; ++axis) {
    auto indexed = [&](const auto& pick) { return pick.first == axis; };
    if (std::ranges::any_of(picks.indices, indexed)) continue;
    const auto at = static_cast<size_t>(rest.rank++);
    rest.shape[at] = self.dim(axis);
    rest.stride[at] = self.step(axis);
    (static_cast<int>(at) < picks.outer ? s.outer : s.inner) *= self.dim(axis);
  }
  s.rest = Device::view(rest);
  merge_axes(&s.rest, picks.outer, rest.rank);
  s.outer_axes = merge_axes(&s.rest, 0, picks.outer);
  for (int64_t size : picks.shape) s.picked *= size;
  for (const auto& [axis, index] : picks.indices) {
    const auto k = static_cast<size_t>(s.indexed++);
    s.index[k] = element_view(broadcast_to(index, picks.shape));
    s.size[k] = self.dim(axis);
    s.stride[k] = self.step(axis);
  }
  s.wraps = picks.wraps;
  return s;
}

std::vector<int64_t> result_shape(const Tensor& self, const Picks& picks) {
  std::vector<int64_t> shape;
  for (int axis = 0; axis < self.rank; ++axis)
    if (std::ranges::none_of(picks.indices, [&](const auto& pick) { return pick.first == axis; }))
      shape.push_back(self.dim(axis));
  shape.insert(shape.begin() + picks.outer, picks.shape.begin(), picks.shape.end());
  return shape;
}

// The positions where a mask is set: one index per axis of the mask.
Result<std::vector<Tensor>> indices_of_mask(KernelCall& call, const Tensor& self, int axis, const Tensor& mask) {
  if (axis + mask.rank > self.rank) return call.fail("a mask has more axes than what it picks from");
  for (int i = 0; i < mask.rank; ++i)
    if (mask.dim(i) != self.dim(axis + i)) return call.fail("a mask does not have the shape of what it picks from");
  if (mask.rank == 0) return call.fail("the CUDA backend has no index by a mask without axes", "--backend cpu");
  SG_ASSIGN(Tensor places, places_of(call, mask));
  Tensor positions = backend_of(call).scratch(DType::i64, std::array{places.dim(0), int64_t{mask.rank}});
  work::Unravel work{places.as<int64_t>(), positions.as<int64_t>(), mask.rank, {}};
  std::copy_n(mask.shape.begin(), mask.rank, work.shape);
  for_each(call, places.dim(0), 1, work);
  std::vector<Tensor> out;
  for (int i = 0; i < mask.rank; ++i) {
    Tensor column = drop_axis(positions, 1);
    column.data += i * dtype_bytes(DType::i64);
    out.push_back(column);
  }
  return out;
}

Result<Picks> picks_of(KernelCall& call, const Tensor& self) {
  Picks picks;
  int runs = 0, first = -1, last = -2, more = 0;  // more: additional axes that masks stand for
  const std::span<const Tensor> given = call.tensors("indices");
  if (given.size() > static_cast<size_t>(self.rank)) return call.fail("there are more indices than axes");
  for (int axis = 0; axis < static_cast<int>(given.size()); ++axis) {
    const Tensor& index = given[static_cast<size_t>(axis)];
    if (index.is_none()) continue;
    if (first < 0) first = axis + more;
    runs += axis != last + 1;
    last = axis;
    if (index.dtype == DType::boolean || index.dtype == DType::u8) {  // as many indices as the mask has axes
      SG_ASSIGN(std::vector<Tensor> masked, indices_of_mask(call, self, axis + more, index));
      for (const Tensor& t : masked) {
        SG_TRY(broadcast_index(call, &picks.shape, t));
        picks.indices.emplace_back(axis + more++, t);
      }
      --more;
      continue;
    }
    SG_TRY(broadcast_index(call, &picks.shape, index));
    picks.indices.emplace_back(axis + more, index);
  }
  if (picks.indices.size() > static_cast<size_t>(kMaxIndexed))
    return call.fail("the CUDA backend takes at most " + std::to_string(kMaxIndexed) + " indices");
  picks.outer = runs <= 1 ? std::max(first, 0) : 0;
  return picks;
}

// Along one axis; negative indices are errors.
Picks along_axis(const Tensor& index, int axis) {
  return {{{axis, index}}, {index.sizes().begin(), index.sizes().end()}, axis, false};
}

Status select(KernelCall& call, const Tensor& self, const Picks& picks, const Tensor& out) {
  SelectArgs args;
  args.from = selection_of(self, picks);
  args.to = element_view(out);
  args.report = device_of(call).report();
  device_of(call).launch("select_elements", blocks_for(args.to.count), args);
  return ok_status();
}

Status index(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  SG_ASSIGN(Picks picks, picks_of(call, self));
  const std::vector<int64_t> shape = result_shape(self, picks);
  SG_TRY(result_of_shape(call, 0, shape));
  return select(call, self, picks, call.result());
}

Status index_select(KernelCall& call) {
  const Tensor self = with_axis(call.tensor("self"));
  return select(call, self, along_axis(with_axis(call.tensor("index")), wrap_axis(call.integer("dim"), self.rank)),
                with_axis(call.result()));
}

Status embedding(KernelCall& call) {
  return select(call, call.tensor("weight"), along_axis(call.tensor("indices"), 0), call.result());
}

Status gather(KernelCall& call) {
  if (call.result().elements() == 0) return ok_status();  // an empty index may have any rank
  GatherArgs args;
  args.to = Device::view(with_axis(call.result()));
  args.from = Device::view(with_axis(call.tensor("self")));
  args.index = Device::view(with_axis(call.tensor("index")));
  args.axis = wrap_axis(call.integer("dim"), args.index.axes);
  args.report = device_of(call).report();
  device_of(call).launch("gather_elements", blocks_for(args.index.count), args);
  return ok_status();
}

// --- writing ---

// The result starts as a copy of `self`, unless the op writes to `self`.
void start_from(KernelCall& call, const Tensor& self) {
  const Tensor& out = call.result();
  if (out.data != self.data || !std::ranges::equal(out.strides(), self.strides())) backend_of(call).copy(out, self);
}

// Sorts `buckets.sources` sources into buckets by destination, and writes each to its destination. With fewer sources
// than destinations nothing is as long as the destinations, which may be every element of a large tensor.
void scatter_sorted(KernelCall& call, BucketArgs buckets, ScatterArgs args) {
  auto longs = [&](int64_t count) { return backend_of(call).scratch(DType::i64, std::array{count}); };
  const int64_t sources = buckets.sources, destinations = buckets.destinations;
  const Tensor keys = longs(sources), sorted = longs(sources), order = longs(sources);
  buckets.key = keys.as<int64_t>();
  buckets.sorted = sorted.as<int64_t>();
  buckets.order = order.as<int64_t>();
  buckets.report = device_of(call).report();
  device_of(call).launch("bucket_keys", blocks_for(sources), buckets);
  sort_line(call, keys, sorted, order);
  args.order = buckets.order;
  args.sources = sources;
  args.destinations = destinations;
  const int64_t others = args.to.outer * args.to.inner;
  if (sources < destinations) {
    args.sorted = buckets.sorted;
    return device_of(call).launch("scatter_runs", blocks_for(sources * others), args);
  }
  args.begin = buckets.begin = longs(destinations + 1).as<int64_t>();
  device_of(call).launch("bucket_begins", blocks_for(destinations + 1), buckets);
  device_of(call).launch("scatter_buckets", blocks_for(destinations * others), args);
}

// How sources are combined with existing elements.
struct Putting {
  Combine how = Combine::last;
  Scalar scale = Scalar::integer(1);
  int64_t skip = -1;  // an index that is skipped
  bool includes_self = true;
};

// Puts `from` into `out` at the picked positions.
Status put(KernelCall& call, const Tensor& out, const Picks& picks, const Tensor& from, const Putting& putting) {
  const Selection selection = selection_of(out, picks);
  BucketArgs buckets;
  buckets.picks = selection;
  buckets.sources = selection.picked;
  buckets.skip = putting.skip;
  int64_t reach = 1;  // number of positions that can be picked
  for (int k = 0; k < selection.indexed; ++k) reach *= selection.size[k];
  buckets.destinations = reach;
  const Scalar& scale = putting.scale;
  ScatterArgs args;
  args.to = selection;
  args.from = element_view(from);
  args.scale = scale.to_complex().real();
  args.whole_scale = scale.is_integral() ? scale.i : static_cast<int64_t>(scale.re);
  args.how = putting.how;
  args.scale_im = scale.to_complex().imag();
  args.includes_self = putting.includes_self;
  scatter_sorted(call, buckets, args);
  return ok_status();
}

Status index_put(KernelCall& call) {
  start_from(call, call.tensor("self"));
  const Tensor& out = call.result();
  SG_ASSIGN(Picks picks, picks_of(call, out));
  const std::vector<int64_t> shape = result_shape(out, picks);
  std::vector<int64_t> given(shape);
  SG_TRY(broadcast_index(call, &given, call.tensor("values")));
  if (given != shape || shape.size() > static_cast<size_t>(kMaxRank))
    return call.fail("the values do not broadcast to what the indices pick");
  return put(call, out, picks, broadcast_to(call.tensor("values"), shape),
             {.how = call.flag("accumulate") ? Combine::sum : Combine::last});
}

Status index_add(KernelCall& call) {
  start_from(call, call.tensor("self"));
  const Tensor out = with_axis(call.result());
  const Picks picks = along_axis(with_axis(call.tensor("index")), wrap_axis(call.integer("dim"), out.rank));
  const Tensor source = with_axis(call.tensor("source"));
  if (!std::ranges::equal(result_shape(out, picks), source.sizes()))
    return call.fail("the source does not have the shape of what is indexed");
  return put(call, out, picks, source, {.how = Combine::sum, .scale = call.scalar("alpha")});
}

Status embedding_renorm(KernelCall& call) {
  const Tensor& table = call.tensor("self");
  const Tensor indices = in_rows_as(call, call.tensor("indices"), DType::i64);
  const Tensor sorted = backend_of(call).scratch(DType::i64, std::array{indices.elements()});
  if (indices.elements() == 0) return ok_status();
  sort_line(call, make_tensor(indices.data, DType::i64, sorted.sizes()), sorted, {});
  RenormArgs args;
  args.table = Device::view(table);
  args.sorted = sorted.as<int64_t>();
  args.count = sorted.elements();
  args.renorm = {call.number("max_norm"), call.number("norm_type")};
  args.report = device_of(call).report();
  device_of(call).launch("renorm_rows", blocks_for(args.count), args);
  return ok_status();
}

Status embedding_backward(KernelCall& call) {
  if (call.flag("scale_grad_by_freq")) return run_by_host(call);
  backend_of(call).fill(call.result(), Scalar::integer(0));
  const int64_t padding = call.integer("padding_idx");
  return put(call, call.result(), along_axis(call.tensor("indices"), 0), call.tensor("grad_output"),
             {.how = Combine::sum, .skip = padding});
}

// The index along `axis` if it is the same for all other axes, as when rows of a table are accumulated; else none.
std::optional<Tensor> index_in_common(const Tensor& index, int axis) {
  for (int other = 0; other < index.rank; ++other)
    if (other != axis && index.dim(other) != 1 && index.step(other) != 0) return std::nullopt;
  Tensor line = make_tensor(index.data, index.dtype, std::array{index.dim(axis)});
  line.stride[0] = index.step(axis);
  return line;
}

// One index per element, along one axis.
Status scatter(KernelCall& call, int64_t dim, const Tensor& source, Combine how, bool includes_self = true) {
  start_from(call, call.tensor("self"));
  const Tensor out = with_axis(call.result()), index = with_axis(call.tensor("index"));
  if (index.elements() == 0) return ok_status();
  Tensor from = source;
  if (source.rank > 0) from.shape = index.shape;  // the source may be larger than the index
  const int axis = wrap_axis(dim, out.rank);
  if (const auto line = index_in_common(index, axis)) {
    Tensor reached = out;
    for (int other = 0; other < out.rank; ++other)
      if (other != axis) reached.shape[static_cast<size_t>(other)] = index.dim(other);
    return put(call, reached, along_axis(*line, axis), from, {.how = how, .includes_self = includes_self});
  }
  BucketArgs buckets;
  buckets.target = Device::view(out);
  buckets.index = Device::view(index);
  buckets.axis = axis;
  buckets.sources = index.elements();
  buckets.destinations = extent_bytes(out) / dtype_bytes(out.dtype);
  ScatterArgs args;
  Tensor start = out;
  start.rank = 0;
  args.to.rest = Device::view(start);
  args.from = element_view(from);
  args.how = how;
  args.includes_self = includes_self;
  scatter_sorted(call, buckets, args);
  return ok_status();
}

Tensor value_source(KernelCall& call) {
  Tensor value = backend_of(call).scratch(call.result().dtype, {});
  backend_of(call).fill(value, call.scalar("value"));
  return value;
}

Status scatter_src(KernelCall& call) { return scatter(call, call.integer("dim"), call.tensor("src"), Combine::last); }
Status scatter_value(KernelCall& call) { return scatter(call, call.integer("dim"), value_source(call), Combine::last); }
Status scatter_add(KernelCall& call) { return scatter(call, call.integer("dim"), call.tensor("src"), Combine::sum); }
Status scatter_add_rows(KernelCall& call) { return scatter(call, 0, call.tensor("src"), Combine::sum); }

Result<Combine> named_reduce(KernelCall& call) {
  const std::string_view name = call.text("reduce");
  if (name == "add" || name == "sum") return Combine::sum;
  if (name == "multiply" || name == "prod") return Combine::product;
  if (name == "mean") return Combine::mean;
  if (name == "amax") return Combine::largest;
  if (name == "amin") return Combine::smallest;
  return call.fail("there is no reduction '" + std::string(name) + "'");
}

Status scatter_src_reduce(KernelCall& call) {
  SG_ASSIGN(Combine how, named_reduce(call));
  return scatter(call, call.integer("dim"), call.tensor("src"), how);
}
Status scatter_value_reduce(KernelCall& call) {
  SG_ASSIGN(Combine how, named_reduce(call));
  return scatter(call, call.integer("dim"), value_source(call), how);
}
Status scatter_reduce(KernelCall& call) {
  SG_ASSIGN(Combine how, named_reduce(call));
  return scatter(call, call.integer("dim"), call.tensor("src"), how, call.flag("include_self"));
}

// --- one axis, written ---

// `wraps`: negative indices count from the end.
Status index_copy_from(KernelCall& call, const Tensor& source, bool wraps = false) {
  start_from(call, call.tensor("self"));
  const Tensor out = with_axis(call.result());
  Picks picks = along_axis(with_axis(call.tensor("index")), wrap_axis(call.integer("dim"), out.rank));
  picks.wraps = wraps;
  if (!std::ranges::equal(result_shape(out, picks), source.sizes()))
    return call.fail("the source does not have the shape of what is indexed");
  return put(call, out, picks, source, {});
}
Status index_copy(KernelCall& call) { return index_copy_from(call, with_axis(call.tensor("source"))); }
Status index_fill(KernelCall& call) {
  Tensor shape = with_axis(call.result());
  shape.shape[static_cast<size_t>(wrap_axis(call.integer("dim"), shape.rank))] = call.tensor("index").elements();
  return index_copy_from(call, broadcast_to(value_source(call), shape.sizes()), true);
}

Status take(KernelCall& call) {
  Tensor flat = call.tensor("self");
  if (!flat.is_contiguous()) {
    flat = backend_of(call).scratch(flat.dtype, flat.sizes());
    backend_of(call).copy(flat, call.tensor("self"));
  }
  flat = make_tensor(flat.data, flat.dtype, std::array{flat.elements()});
  Picks picks = along_axis(call.tensor("index"), 0);
  picks.wraps = true;
  return select(call, flat, picks, call.result());
}

constexpr KernelRow kIndexRows[] = {
    {"aten.index.Tensor", index},
    {"aten._unsafe_index.Tensor", index},
    {"aten.index_put.default", index_put},
    {"aten._unsafe_index_put.default", index_put},
    {"aten.index_put_.default", index_put},
    {"aten.index_select.default", index_select},
    {"aten.index_add.default", index_add},
    {"aten.index_add_.default", index_add},
    {"aten.embedding.default", embedding},
    {"aten.embedding_dense_backward.default", embedding_backward},
    {"aten.embedding_renorm_.default", embedding_renorm},
    {"aten.gather.default", gather},
    {"aten.scatter.src", scatter_src},
    {"aten.scatter_.src", scatter_src},
    {"aten.scatter.value", scatter_value},
    {"aten.scatter_.value", scatter_value},
    {"aten.scatter_add.default", scatter_add},
    {"aten.scatter_add_.default", scatter_add},
    {"torchtitan.deterministic_scatter_add.default", scatter_add_rows},
    {"aten.scatter.reduce", scatter_src_reduce},
    {"aten.scatter.value_reduce", scatter_value_reduce},
    {"aten.scatter_reduce.two", scatter_reduce},
    {"aten.scatter_reduce_.two", scatter_reduce},
    {"aten.index_copy.default", index_copy},
    {"aten.index_copy_.default", index_copy},
    {"aten.index_fill.int_Scalar", index_fill},
    {"aten.index_fill_.int_Scalar", index_fill},
    {"aten.take.default", take},
};

}  // namespace

std::span<const KernelRow> index_kernels() { return kIndexRows; }

}  // namespace sg::cuda
