// The steps of GraphBuilder: each adds a few nodes with types as PyTorch gives them.
#include <algorithm>
#include <optional>

#include "tests/support/integer_type.h"
#include "tests/support/random_graph.h"

namespace sg::test {
namespace {

constexpr int64_t kMaxWeight = 1 << 16;  // elements; larger results do not feed further nodes

Arg key(Pool& pool, std::string_view name, Arg arg) {
  arg.set_key(pool.str(name));
  return arg;
}

}  // namespace

void GraphBuilder::choose_steps() {
  using B = GraphBuilder;
  steps_ = {{20, &B::pointwise_unary},
            {14, &B::pointwise_binary},
            {10, &B::pointwise_scalar},
            {4, &B::cast},
            {4, &B::compare_and_select},
            {10, &B::product},
            {6, &B::reduce},
            {6, &B::make_fresh},
            {6, &B::transpose},
            {5, &B::slice},
            {2, &B::select},
            {2, &B::diagonal},
            {2, &B::windows},
            {5, &B::reshape},
            {4, &B::unsqueeze_expand},
            {4, &B::split},
            {5, &B::copy_contiguous},
            {2, &B::concatenate},
            {2, &B::top_k},
            {2, &B::gather_rows},
            {1, &B::assert_true},
            {2, &B::read_size}};
  if (options_.in_place) steps_.insert(steps_.end(), {{6, &B::write_in_place}, {3, &B::write_slice}});
  if (options_.random_ops) steps_.push_back({2, &B::draw_random});
  if (options_.symbols) steps_.push_back({2, &B::read_data});
  if (options_.opaque_ops) steps_.push_back({2, &B::mystery});
  if (!program_.nested.empty() && &graph_ == &program_.graph) steps_.push_back({2, &B::call_nested});
  if (options_.collectives && job_.world > 1)
    steps_.insert(steps_.end(), {{3, &B::gather},
                                 {2, &B::gather_out},
                                 {3, &B::reduce_ranks},
                                 {2, &B::scatter_ranks},
                                 {2, &B::exchange},
                                 {8, &B::wait_one}});
  for (const WeightedStep& s : steps_) total_weight_ += s.weight;
}

// --- values ---

void GraphBuilder::add_entry(ValueId v, bool dense, bool writable) {
  if (weight_of(type(v)) > kMaxWeight) return;
  Entry entry{v, dense, writable};
  constexpr size_t kRecent = 40;
  if (recent_.size() < kRecent) recent_.push_back(entry);
  else recent_[next_recent_++ % kRecent] = entry;
  TypeId t = graph_.value(v).type;
  if (!dense) return;
  if (t.index >= last_of_type_.size()) last_of_type_.resize(t.index + 16);
  last_of_type_[t.index] = v;
  const Type& ty = type(v);
  if (ty.dtype == DType::i64 && ty.shape.size() == 1) counts_.push_back(v);
}

GraphBuilder::Entry GraphBuilder::pick_any() {
  return recent_.empty() || shape_.percent(15) ? shape_.pick(base_) : shape_.pick(recent_);
}

// A contiguous f32 tensor with at least `min_rank` dimensions.
GraphBuilder::Entry GraphBuilder::pick_dense(size_t min_rank) {
  for (int tries = 0; tries < 6; ++tries) {
    Entry e = pick_any();
    if (e.dense && type(e.value).dtype == DType::f32 && type(e.value).shape.size() >= min_rank) return e;
  }
  return base_[0];
}

GraphBuilder::Entry GraphBuilder::pick_writable() {
  for (int tries = 0; tries < 6; ++tries) {
    Entry e = pick_any();
    if (e.writable && type(e.value).dtype == DType::f32) return e;
  }
  return fresh_entry();
}

Type GraphBuilder::dense_type(DType dtype, std::vector<Expr> shape) {
  return pool_.types[pool_.tensor(dtype, std::move(shape), device_)];
}

Arg GraphBuilder::size_arg(Expr e) {
  std::optional<int64_t> number = pool_.exprs.constant_value(e);
  return number ? Arg::integer(*number) : Arg::expr(e);
}

Arg GraphBuilder::shape_arg(const std::vector<Expr>& shape) {
  ArgList items;
  for (Expr e : shape) items.push_back(size_arg(e));
  return Arg::list(std::move(items));
}

std::optional<size_t> GraphBuilder::constant_dim(const Type& t, int64_t at_least) {
  size_t start = shape_.below(t.shape.size());
  for (size_t i = 0; i < t.shape.size(); ++i) {
    size_t dim = (start + i) % t.shape.size();
    std::optional<int64_t> size = pool_.exprs.constant_value(t.shape[dim]);
    if (size && *size >= at_least) return dim;
  }
  return std::nullopt;
}

int64_t GraphBuilder::weight_of(const Type& t) const {
  if (t.kind != TypeKind::tensor) return 0;
  int64_t weight = 1;
  for (Expr e : t.shape) {
    auto hint = [](StrId) { return std::optional<int64_t>(8); };
    std::optional<int64_t> size = pool_.exprs.evaluate(e, hint);
    if (!size || *size > kMaxWeight) return kMaxWeight + 1;
    weight *= std::max<int64_t>(*size, 1);
    if (weight > kMaxWeight) return weight;
  }
  return weight;
}

// --- pointwise, products, reductions ---

void GraphBuilder::pointwise_unary() {
  constexpr std::string_view kOps[] = {"aten.neg.default", "aten.tanh.default", "aten.exp.default", "aten.silu.default",
                                       "aten.rsqrt.default"};
  Entry e = pick_dense();
  add_entry(emit(shape_.pick(kOps), {Arg::value(e.value)}, type(e.value)), true, true);
}

void GraphBuilder::pointwise_binary() {
  constexpr std::string_view kOps[] = {"aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor"};
  Entry e = pick_dense();
  TypeId t = graph_.value(e.value).type;
  ValueId other = t.index < last_of_type_.size() && last_of_type_[t.index] ? last_of_type_[t.index] : e.value;
  size_t op = shape_.below(4);
  std::vector<Arg> args = {Arg::value(e.value), Arg::value(other)};
  if (op < 2 && own_.percent(10)) args.push_back(key(pool_, "alpha", Arg::integer(own_.between(2, 5))));
  add_entry(emit(kOps[op], std::move(args), type(e.value)), true, true);
}

void GraphBuilder::pointwise_scalar() {
  constexpr std::string_view kOps[] = {"aten.mul.Scalar", "aten.div.Scalar", "aten.pow.Tensor_Scalar",
                                       "aten.mul.Tensor", "aten.add.Tensor"};
  constexpr double kOdd[] = {0.1, 1e-5, 1e300, 5e-324, -0.0, 2.0, 1.0 / 3.0};
  Entry e = pick_dense();
  size_t op = shape_.below(5);
  Arg scalar = own_.percent(50) ? Arg::integer(own_.between(1, 9)) : Arg::floating(own_.pick(kOdd));
  add_entry(emit(kOps[op], {Arg::value(e.value), std::move(scalar)}, type(e.value)), true, true);
}

void GraphBuilder::compare_and_select() {
  Entry e = pick_dense();
  Type mask = type(e.value);
  mask.dtype = DType::boolean;
  ValueId m = emit("aten.ge.Scalar", {Arg::value(e.value), Arg::integer(0)}, mask);
  ValueId other = emit("aten.neg.default", {Arg::value(e.value)}, type(e.value));
  add_entry(emit("aten.where.self", {Arg::value(m), Arg::value(e.value), Arg::value(other)}, type(e.value)), true,
            true);
}

void GraphBuilder::cast() {
  constexpr DType kTo[] = {DType::bf16, DType::f16, DType::f64};
  Entry e = pick_dense();
  Type narrow = type(e.value);
  narrow.dtype = shape_.pick(kTo);
  ValueId v =
      emit("aten._to_copy.default", {Arg::value(e.value), key(pool_, "dtype", Arg::dtype(narrow.dtype))}, narrow);
  v = emit("aten.neg.default", {Arg::value(v)}, narrow);
  add_entry(emit("aten._to_copy.default", {Arg::value(v), key(pool_, "dtype", Arg::dtype(DType::f32))}, type(e.value)),
            true, true);
}

// x^T x of a matrix: the inner size is the outer size of x.
void GraphBuilder::product() {
  Entry e = pick_dense(2);
  const Type t = type(e.value);
  if (t.shape.size() != 2 || !pool_.exprs.is_constant(t.shape[1])) return pointwise_unary();
  Type turned = t;
  std::swap(turned.shape[0], turned.shape[1]);
  std::swap(turned.stride[0], turned.stride[1]);
  ValueId v = emit("aten.t.default", {Arg::value(e.value)}, turned);
  ValueId square =
      emit("aten.mm.default", {Arg::value(v), Arg::value(e.value)}, dense_type(t.dtype, {t.shape[1], t.shape[1]}));
  add_entry(square, true, true);
  if (shape_.percent(60))
    add_entry(emit("aten.mm.default", {Arg::value(e.value), Arg::value(square)}, dense_type(t.dtype, t.shape)), true,
              true);
}

void GraphBuilder::reduce() {
  constexpr std::string_view kOps[] = {"aten.sum.dim_IntList", "aten.mean.dim", "aten.amax.default"};
  Entry e = pick_dense(1);
  std::vector<Expr> shape = type(e.value).shape;
  if (shape.empty()) return pointwise_unary();
  int64_t dim = static_cast<int64_t>(shape_.below(shape.size()));
  bool keep = shape_.percent(40);
  if (keep) shape[static_cast<size_t>(dim)] = pool_.exprs.constant(1);
  else shape.erase(shape.begin() + dim);
  std::vector<Arg> args = {
      Arg::value(e.value),
      Arg::list({Arg::integer(shape_.percent(20) && !keep ? dim - static_cast<int64_t>(shape.size()) - 1 : dim)})};
  if (keep) args.push_back(Arg::boolean(true));
  ValueId v = emit(shape_.pick(kOps), std::move(args), dense_type(DType::f32, shape));
  if (!keep) add_entry(v, true, true);  // sizes of 1 make strides ambiguous, which not every op allows
}

// --- creation ---

void GraphBuilder::make_fresh() { fresh_entry(); }

GraphBuilder::Entry GraphBuilder::fresh_entry() {
  constexpr std::string_view kOps[] = {"aten.zeros.default", "aten.ones.default", "aten.empty.memory_format"};
  const size_t choices = options_.undefined_memory ? 3 : 2;
  Type like = type(pick_dense(1).value);
  std::vector<Arg> args = {shape_arg(like.shape), key(pool_, "dtype", Arg::dtype(DType::f32)),
                           key(pool_, "device", Arg::text(ArgKind::device, device_)),
                           key(pool_, "pin_memory", Arg::boolean(false))};
  ValueId v = emit(kOps[shape_.below(choices)], std::move(args), dense_type(DType::f32, like.shape));
  add_entry(v, true, true);
  return {v, true, true};
}

void GraphBuilder::gather_rows() {
  Entry e = pick_dense(1);
  Type t = type(e.value);
  if (t.shape.empty() || !pool_.exprs.is_constant(t.shape[0])) return pointwise_unary();
  Expr rows = pool_.exprs.constant(shape_.between(2, 4));
  ValueId index = emit("aten.arange.default",
                       {size_arg(rows), key(pool_, "device", Arg::text(ArgKind::device, device_)),
                        key(pool_, "pin_memory", Arg::boolean(false))},
                       dense_type(DType::i64, {rows}));
  counts_.push_back(index);
  t.shape[0] = rows;
  add_entry(
      emit("aten.index.Tensor", {Arg::value(e.value), Arg::list({Arg::value(index)})}, dense_type(DType::f32, t.shape)),
      true, true);
}

void GraphBuilder::concatenate() {
  Entry e = pick_dense(1);
  Type t = type(e.value);
  if (t.shape.empty()) return pointwise_unary();
  t.shape[0] = pool_.exprs.mul(pool_.exprs.constant(2), t.shape[0]);
  add_entry(
      emit("aten.cat.default", {Arg::list({Arg::value(e.value), Arg::value(e.value)})}, dense_type(t.dtype, t.shape)),
      true, true);
}

void GraphBuilder::top_k() {
  Entry e = pick_dense(1);
  Type t = type(e.value);
  std::optional<int64_t> last = t.shape.empty() ? std::nullopt : pool_.exprs.constant_value(t.shape.back());
  if (!last || *last < 2) return pointwise_unary();
  t.shape.back() = pool_.exprs.constant(2);
  Type values = dense_type(t.dtype, t.shape), indices = dense_type(DType::i64, t.shape);
  NodeId n =
      emit_node("aten.topk.default",
                {Arg::value(e.value), Arg::integer(2), Arg::integer(-1), Arg::boolean(true), Arg::boolean(false)},
                {pool_.types.intern(values), pool_.types.intern(indices)}, true);
  add_entry(graph_.node(n).result(0), true, true);
  add_entry(graph_.node(n).result(1), true, true);
}

void GraphBuilder::assert_true() {
  Entry e = pick_dense();
  Type mask = type(e.value);
  mask.dtype = DType::boolean;
  ValueId m = emit("aten.ge.Scalar", {Arg::value(e.value), Arg::integer(0)}, mask);
  ValueId all = emit("aten.all.default", {Arg::value(m)}, dense_type(DType::boolean, {}));
  emit_node("aten._assert_async.msg",
            {Arg::value(all), Arg::text(ArgKind::string, pool_.str("must be \"positive\"\n"))}, {}, false);
}

// --- views ---

void GraphBuilder::transpose() {
  Entry e = pick_any();
  Type t = type(e.value);
  if (t.kind != TypeKind::tensor || t.shape.size() < 2) return pointwise_unary();
  size_t a = shape_.below(t.shape.size()), b = (a + 1) % t.shape.size();
  std::swap(t.shape[a], t.shape[b]);
  std::swap(t.stride[a], t.stride[b]);
  add_entry(
      emit("aten.transpose.int",
           {Arg::value(e.value), Arg::integer(static_cast<int64_t>(a)), Arg::integer(static_cast<int64_t>(b))}, t),
      false, e.writable);
}

void GraphBuilder::slice() {
  Entry e = pick_any();
  Type t = type(e.value);
  if (t.kind != TypeKind::tensor || t.shape.empty()) return pointwise_unary();
  std::optional<size_t> dim = constant_dim(t, 4);
  if (!dim) return pointwise_unary();
  int64_t size = *pool_.exprs.constant_value(t.shape[*dim]);
  int64_t begin = shape_.between(0, 1), end = shape_.percent(30) ? INT64_MAX : size - 1;
  t.shape[*dim] = pool_.exprs.constant(std::min(end, size) - begin);
  t.offset = pool_.exprs.add(t.offset, pool_.exprs.mul(pool_.exprs.constant(begin), t.stride[*dim]));
  add_entry(
      emit("aten.slice.Tensor",
           {Arg::value(e.value), Arg::integer(static_cast<int64_t>(*dim)), Arg::integer(begin), Arg::integer(end)}, t),
      false, e.writable);
}

void GraphBuilder::select() {
  Entry e = pick_any();
  Type t = type(e.value);
  std::optional<size_t> dim = t.kind == TypeKind::tensor && !t.shape.empty() ? constant_dim(t, 2) : std::nullopt;
  if (!dim) return pointwise_unary();
  const auto at = static_cast<int64_t>(*dim);
  const int64_t index = shape_.percent(50) ? 0 : *pool_.exprs.constant_value(t.shape[*dim]) - 1;
  t.offset = pool_.exprs.add(t.offset, pool_.exprs.mul(pool_.exprs.constant(index), t.stride[*dim]));
  t.shape.erase(t.shape.begin() + at), t.stride.erase(t.stride.begin() + at);
  add_entry(emit("aten.select.int", {Arg::value(e.value), Arg::integer(at), Arg::integer(index)}, t), false,
            e.writable);
}

void GraphBuilder::diagonal() {
  Entry e = pick_any();
  Type t = type(e.value);
  if (t.kind != TypeKind::tensor || t.shape.size() < 2) return pointwise_unary();
  const std::optional<int64_t> rows = pool_.exprs.constant_value(t.shape[0]),
                               columns = pool_.exprs.constant_value(t.shape[1]);
  if (!rows || !columns || *rows < 1 || *columns < 1) return pointwise_unary();
  const Expr size = pool_.exprs.constant(std::min(*rows, *columns)), step = pool_.exprs.add(t.stride[0], t.stride[1]);
  t.shape.erase(t.shape.begin(), t.shape.begin() + 2), t.stride.erase(t.stride.begin(), t.stride.begin() + 2);
  t.shape.push_back(size), t.stride.push_back(step);
  add_entry(emit("aten.diagonal.default", {Arg::value(e.value)}, t), false, e.writable);
}

// Views whose elements share memory with each other, and one by sizes and strides, whose do not.
void GraphBuilder::windows() {
  Entry e = pick_dense(1);
  Type t = type(e.value);
  const std::optional<int64_t> all = pool_.exprs.constant_value(pool_.exprs.product(t.shape));
  std::optional<size_t> dim = t.shape.empty() ? std::nullopt : constant_dim(t, 3);
  if (!dim || !all || *all < 4 || !pool_.exprs.constant_value(t.offset)) return pointwise_unary();
  const auto number = [&](int64_t n) { return pool_.exprs.constant(n); };
  if (shape_.percent(50)) {
    const int64_t size = *pool_.exprs.constant_value(t.shape[*dim]);
    t.shape[*dim] = number(size - 1);
    t.shape.push_back(number(2)), t.stride.push_back(t.stride[*dim]);
    add_entry(
        emit("aten.unfold.default",
             {Arg::value(e.value), Arg::integer(static_cast<int64_t>(*dim)), Arg::integer(2), Arg::integer(1)}, t),
        false, false);
    return;
  }
  const bool overlaps = shape_.percent(50);
  const int64_t rows = overlaps ? *all - 1 : *all / 2, step = overlaps ? 1 : 2;
  t.shape = {number(rows), number(2)}, t.stride = {number(step), number(1)};
  add_entry(
      emit("aten.as_strided.default",
           {Arg::value(e.value), Arg::list({Arg::integer(rows), Arg::integer(2)}),
            Arg::list({Arg::integer(step), Arg::integer(1)}), Arg::integer(*pool_.exprs.constant_value(t.offset))},
           t),
      false, !overlaps && e.writable);
}

void GraphBuilder::reshape() {
  Entry e = pick_dense();
  const Type t = type(e.value);
  Expr all = pool_.exprs.product(t.shape);
  ValueId flat =
      emit("aten.view.default", {Arg::value(e.value), Arg::list({Arg::integer(-1)})}, dense_type(t.dtype, {all}));
  if (pool_.exprs.is_constant(all)) add_entry(flat, true, e.writable);
  ValueId back = emit("aten.view.default", {Arg::value(flat), shape_arg(t.shape)}, t);
  add_entry(back, true, e.writable);
}

void GraphBuilder::unsqueeze_expand() {
  Entry e = pick_dense(1);
  const Type t = type(e.value);
  if (t.shape.empty()) return pointwise_unary();
  Type u = t;
  Expr step = pool_.exprs.mul(t.shape[0], t.stride[0]);
  u.shape.insert(u.shape.begin(), pool_.exprs.constant(1));
  u.stride.insert(u.stride.begin(), step);
  ValueId v = emit("aten.unsqueeze.default", {Arg::value(e.value), Arg::integer(0)}, u);
  u.shape[0] = pool_.exprs.constant(3);
  u.stride[0] = pool_.exprs.constant(0);
  std::vector<Arg> sizes(u.shape.size(), Arg::integer(-1));
  sizes[0] = Arg::integer(3);
  add_entry(emit("aten.expand.default", {Arg::value(v), Arg::list(std::move(sizes))}, u), false, false);
}

void GraphBuilder::split() {
  Entry e = pick_any();
  const Type t = type(e.value);
  std::optional<size_t> dim = t.kind == TypeKind::tensor && !t.shape.empty() ? constant_dim(t, 2) : std::nullopt;
  if (!dim) return pointwise_unary();
  int64_t size = *pool_.exprs.constant_value(t.shape[*dim]), part = (size + 1) / shape_.between(1, 2);
  std::vector<TypeId> types;
  for (int64_t at = 0; at < size; at += part) {
    Type piece = t;
    piece.shape[*dim] = pool_.exprs.constant(std::min(part, size - at));
    piece.offset = pool_.exprs.add(t.offset, pool_.exprs.mul(pool_.exprs.constant(at), t.stride[*dim]));
    types.push_back(pool_.types.intern(std::move(piece)));
  }
  NodeId n =
      emit_node("aten.split.Tensor",
                {Arg::value(e.value), Arg::integer(part), Arg::integer(static_cast<int64_t>(*dim))}, types, true);
  add_entry(graph_.node(n).result(0), false, e.writable);
}

void GraphBuilder::copy_contiguous() {
  Entry e = pick_any();
  const Type t = type(e.value);
  if (t.kind != TypeKind::tensor || t.dtype != DType::f32) return pointwise_unary();
  StrId format = pool_.str("contiguous_format");
  add_entry(emit("aten.clone.default",
                 {Arg::value(e.value), key(pool_, "memory_format", Arg::text(ArgKind::memory_format, format))},
                 dense_type(t.dtype, t.shape)),
            true, true);
}

// --- writes and random numbers ---

void GraphBuilder::write_in_place() {
  if (!pending_.empty()) return wait_one();  // no write to what a pending collective may be reading
  Entry e = pick_writable();
  const Type t = type(e.value);
  Arg self = Arg::value(e.value);
  switch (shape_.below(4)) {
    case 0: emit("aten.add_.Scalar", {self, Arg::integer(own_.between(1, 3))}, t); return;
    case 1: emit("aten.div_.Scalar", {self, Arg::floating(0.5)}, t); return;
    case 2: add_entry(emit("aten.add_.Tensor", {self, self}, t), e.dense, true); return;
    default:
      emit("aten.copy_.default",
           {self, Arg::value(emit("aten.clone.default",
                                  {self, key(pool_, "memory_format",
                                             Arg::text(ArgKind::memory_format, pool_.str("contiguous_format")))},
                                  dense_type(t.dtype, t.shape)))},
           t);
  }
}

// A write whose effect is read only through the other view of the same storage.
void GraphBuilder::write_slice() {
  Entry e = fresh_entry();
  Type t = type(e.value);
  std::optional<size_t> dim = t.shape.empty() ? std::nullopt : constant_dim(t, 2);
  if (!dim) return;
  t.shape[*dim] = pool_.exprs.constant(1);
  ValueId part =
      emit("aten.slice.Tensor",
           {Arg::value(e.value), Arg::integer(static_cast<int64_t>(*dim)), Arg::integer(0), Arg::integer(1)}, t);
  emit("aten.add_.Scalar", {Arg::value(part), Arg::floating(0.25)}, t);
  add_entry(e.value, e.dense, true);
}

void GraphBuilder::draw_random() {
  Entry e = pick_dense();
  const Type t = type(e.value);
  NodeMeta meta;
  meta.random.stream = ++next_stream_;
  meta.random.rank_local = shape_.percent(70);
  if (options_.metadata && shape_.percent(25) && !t.shape.empty()) {
    meta.random.origin_shape = t.shape;
    meta.random.origin_shape[0] = pool_.exprs.mul(pool_.exprs.constant(4), t.shape[0]);
    meta.random.origin_offset.assign(t.shape.size(), pool_.exprs.constant(0));
    meta.random.origin_offset[0] = t.shape[0];
  }
  ValueId fresh = emit("aten.empty_like.default", {Arg::value(e.value)}, t);
  ValueId mask = emit("aten.bernoulli_.float", {Arg::value(fresh), Arg::floating(0.9)}, t, pool_.metas.intern(meta));
  add_entry(emit("aten.mul.Tensor", {Arg::value(e.value), Arg::value(mask)}, t), true, true);
}

// --- sizes and symbols ---

void GraphBuilder::read_size() {
  Entry e = pick_dense(1);
  const Type t = type(e.value);
  if (t.shape.empty()) return pointwise_unary();
  ValueId size =
      emit("aten.sym_size.int", {Arg::value(e.value), Arg::integer(0)}, pool_.types[integer_type(&pool_, t.shape[0])]);
  Expr doubled = pool_.exprs.mul(pool_.exprs.constant(2), t.shape[0]);
  ValueId twice = emit("python.mul", {Arg::value(size), Arg::integer(2)}, pool_.types[integer_type(&pool_, doubled)]);
  if (pool_.exprs.is_constant(t.shape[0])) return;
  Type fresh = dense_type(DType::f32, {doubled, pool_.exprs.constant(4)});
  add_entry(
      emit("aten.new_zeros.default", {Arg::value(e.value), Arg::list({Arg::value(twice), Arg::integer(4)})}, fresh),
      true, true);
}

// Reads numbers from a vector of counts: each becomes a symbol that sizes a tensor and is bounded by guards.
void GraphBuilder::read_data() {
  if (counts_.empty() || &graph_ != &program_.graph) return gather_rows();
  ValueId counts = shape_.pick(counts_);
  std::optional<int64_t> size = pool_.exprs.constant_value(type(counts).shape[0]);
  if (!size || *size > 8) return;
  Type scalar = dense_type(DType::i64, {});
  std::vector<TypeId> types;
  for (int64_t i = 0; i < *size; ++i) {
    scalar.offset = pool_.exprs.add(type(counts).offset, pool_.exprs.constant(i));
    types.push_back(pool_.types.intern(scalar));
  }
  NodeId n = emit_node("aten.unbind.int", {Arg::value(counts)}, types, true);
  Expr sum = pool_.exprs.constant(0);
  std::vector<ValueId> numbers;
  int64_t reads = std::min<int64_t>(*size, shape_.between(1, 3));
  for (int64_t i = 0; i < reads; ++i) {
    StrId name = pool_.str("u" + std::to_string(next_symbol_++));
    Symbol symbol{name, SymbolKind::data, 0, std::nullopt, std::nullopt, 1, StrId()};
    if (shape_.percent(60)) symbol.max = 256;
    program_.symbols.push_back(symbol);
    Expr u = pool_.exprs.symbol(name);
    sum = pool_.exprs.add(sum, u);
    program_.guards.push_back({Relation::le, pool_.exprs.constant(0), u, shape_.percent(50) ? source_ : SourceId()});
    NodeMeta meta;
    if (shape_.percent(30)) meta.binds = std::vector<StrId>{name};
    numbers.push_back(emit("aten._local_scalar_dense.default",
                           {Arg::value(graph_.node(n).result(static_cast<uint32_t>(i)))},
                           pool_.types[integer_type(&pool_, u)], pool_.metas.intern(meta)));
  }
  program_.guards.push_back({Relation::le, sum, pool_.exprs.constant(4096), source_});
  Expr u = type(numbers[0]).value;
  ValueId rows =
      emit("aten.new_zeros.default", {Arg::value(base_[0].value), Arg::list({Arg::value(numbers[0]), Arg::integer(4)})},
           dense_type(DType::f32, {u, pool_.exprs.constant(4)}));
  add_entry(rows, true, true);
}

// --- unknown ops, nested graphs ---

void GraphBuilder::mystery() {
  constexpr std::string_view kOps[] = {"mylib.mystery.default", "mylib.mystery.out", "vendor::kernel<4>", "f"};
  std::vector<Arg> args;
  for (size_t i = shape_.below(5); i-- > 0;)
    args.push_back(shape_.percent(40) ? Arg::value(pick_any().value) : random_literal(3));
  if (shape_.percent(50)) args.push_back(key(pool_, "flag", random_literal(2)));
  if (shape_.percent(20)) args.push_back(key(pool_, "odd key", random_literal(1)));
  Type floating, boolean, list, opaque, none, unknown;
  floating.kind = TypeKind::floating, boolean.kind = TypeKind::boolean, none.kind = TypeKind::none;
  list.kind = TypeKind::list, opaque.kind = TypeKind::opaque;
  if (shape_.percent(50)) floating.has_value = true, floating.float_value = -0.0;
  if (shape_.percent(50)) boolean.has_value = true, boolean.value = pool_.exprs.constant(1);
  list.elements = {pool_.types.intern(floating), pool_.types.intern(dense_type(DType::c64, {}))};
  opaque.text = pool_.str("DeviceMesh");
  const Type* kinds[] = {&floating, &boolean, &list, &opaque, &none, &unknown};
  bool tuple = shape_.percent(40);
  size_t count = tuple ? shape_.below(5) : shape_.below(2);
  std::vector<TypeId> types;
  for (size_t i = 0; i < count; ++i)
    types.push_back(shape_.percent(50) ? graph_.value(pick_dense().value).type
                                       : pool_.types.intern(*shape_.pick(kinds)));
  emit_node(shape_.pick(kOps), std::move(args), types, tuple);
}

void GraphBuilder::call_nested() {
  NestedId id(static_cast<uint32_t>(shape_.below(program_.nested.size())));
  const Graph& body = program_.nested[id.index]->graph;
  std::vector<Arg> operands;
  for (const Input& input : body.inputs()) {
    TypeId wanted = body.value(input.value).type;
    ValueId v = wanted.index < last_of_type_.size() ? last_of_type_[wanted.index] : ValueId();
    if (!v) {
      const Type t = pool_.types[wanted];
      v = emit(
          "aten.zeros.default",
          {shape_arg(t.shape), key(pool_, "dtype", Arg::dtype(t.dtype)),
           key(pool_, "device", Arg::text(ArgKind::device, device_)), key(pool_, "pin_memory", Arg::boolean(false))},
          t);
    }
    operands.push_back(Arg::value(v));
  }
  std::vector<TypeId> types;
  for (const Output& o : body.outputs()) types.push_back(body.value(o.value).type);
  std::string_view op = shape_.percent(50) ? "sg.call" : "mylib.higher_order";
  emit_node(op, {Arg::graph(id), Arg::list(std::move(operands))}, types, true);
}

// --- collectives ---

void GraphBuilder::launch(std::string_view op, std::vector<Arg> args, Type result) {
  ValueId v = emit(op, std::move(args), result);
  pending_.push_back(v);
  if (shape_.percent(20) && !result.shape.empty())  // its size may be read before the wait
    emit("aten.sym_size.int", {Arg::value(v), Arg::integer(0)}, pool_.types[integer_type(&pool_, result.shape[0])]);
}

void GraphBuilder::wait_one() {
  if (pending_.empty()) return pointwise_unary();
  size_t i = shape_.below(pending_.size());
  ValueId v = pending_[i];
  pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
  const Type t = type(v);
  add_entry(emit("_c10d_functional.wait_tensor.default", {Arg::value(v)}, t), true, false);
}

GroupId GraphBuilder::usable_group() {
  std::vector<GroupId> found;
  for (uint32_t g = 0; g < job_.groups.size(); ++g)
    if (job_.groups[g].parts.size() * job_.groups[g].parts[0].ranks.size() == job_.world) found.push_back(GroupId(g));
  return found.empty() ? GroupId() : shape_.pick(found);
}

int64_t GraphBuilder::group_size(GroupId g) const {
  return static_cast<int64_t>(job_.groups[g.index].parts[0].ranks.size());
}

void GraphBuilder::gather() {
  GroupId g = usable_group();
  Entry e = pick_dense(1);
  Type t = type(e.value);
  if (!g || t.shape.empty()) return pointwise_unary();
  int64_t n = group_size(g);
  t.shape[0] = pool_.exprs.mul(pool_.exprs.constant(n), t.shape[0]);
  launch("_c10d_functional.all_gather_into_tensor.default", {Arg::value(e.value), Arg::integer(n), Arg::group(g)},
         dense_type(t.dtype, t.shape));
}

// A bucketed gather: each rank sends its own part of a buffer, and receives into that buffer.
void GraphBuilder::gather_out() {
  GroupId g = usable_group();
  if (!g) return pointwise_unary();
  int64_t n = group_size(g), part = shape_.between(4, 9);
  Expr all = pool_.exprs.constant(n * part);
  Type t = dense_type(DType::f32, {all});
  ValueId buffer =
      emit("aten.zeros.default",
           {shape_arg({all}), key(pool_, "dtype", Arg::dtype(DType::f32)),
            key(pool_, "device", Arg::text(ArgKind::device, device_)), key(pool_, "pin_memory", Arg::boolean(false))},
           t);
  uint32_t rank = program_.ranks.empty() ? 0 : program_.ranks[0];
  const GroupPart* mine = job_.groups[g.index].part_of(rank);
  int64_t place = mine ? std::find(mine->ranks.begin(), mine->ranks.end(), rank) - mine->ranks.begin() : 0;
  Type own = dense_type(DType::f32, {pool_.exprs.constant(part)});
  own.offset = pool_.exprs.constant(place * part);
  ValueId mine_value =
      emit("aten.slice.Tensor",
           {Arg::value(buffer), Arg::integer(0), Arg::integer(place * part), Arg::integer((place + 1) * part)}, own);
  launch("_c10d_functional.all_gather_into_tensor_out.default",
         {Arg::value(mine_value), Arg::integer(n), Arg::group(g), key(pool_, "out", Arg::value(buffer))}, t);
}

void GraphBuilder::reduce_ranks() {
  GroupId g = usable_group();
  Entry e = pick_dense();
  if (!g) return pointwise_unary();
  constexpr std::string_view kReduce[] = {"sum", "avg", "max"};
  launch("_c10d_functional.all_reduce.default",
         {Arg::value(e.value), Arg::text(ArgKind::string, pool_.str(shape_.pick(kReduce))), Arg::group(g)},
         type(e.value));
}

void GraphBuilder::scatter_ranks() {
  GroupId g = usable_group();
  Entry e = pick_dense(1);
  Type t = type(e.value);
  std::optional<int64_t> rows = t.shape.empty() ? std::nullopt : pool_.exprs.constant_value(t.shape[0]);
  if (!g || !rows || *rows % group_size(g) != 0) return pointwise_unary();
  t.shape[0] = pool_.exprs.constant(*rows / group_size(g));
  launch(
      "_c10d_functional.reduce_scatter_tensor.default",
      {Arg::value(e.value), Arg::text(ArgKind::string, pool_.str("sum")), Arg::integer(group_size(g)), Arg::group(g)},
      dense_type(t.dtype, t.shape));
}

void GraphBuilder::exchange() {
  GroupId g = usable_group();
  Entry e = pick_dense(1);
  const Type t = type(e.value);
  std::optional<int64_t> rows = t.shape.empty() ? std::nullopt : pool_.exprs.constant_value(t.shape[0]);
  if (!g || !rows || *rows % group_size(g) != 0) return pointwise_unary();
  ArgList parts(static_cast<size_t>(group_size(g)), Arg::integer(*rows / group_size(g)));
  launch("_c10d_functional.all_to_all_single.default",
         {Arg::value(e.value), Arg::list(parts), Arg::list(parts), Arg::group(g)}, t);
}

}  // namespace sg::test
