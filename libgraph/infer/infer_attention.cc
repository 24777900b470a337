// Fused attention. Tensors are [batch, heads, length, width]; the strides of results depend on the kernel.
#include <algorithm>

#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

struct Attention {
  const Type* query;
  const Type* key;
  const Type* value;
  Exprs out_shape;  // [batch, heads, query length, value width]
};

Result<Attention> attention_of(InferCall& c) {
  Attention a;
  SG_ASSIGN(a.query, c.tensor("query"));
  SG_ASSIGN(a.key, c.tensor("key"));
  SG_ASSIGN(a.value, c.tensor("value"));
  for (const Type* t : {a.query, a.key, a.value})
    if (t->shape.size() != 4) return c.fail("query, key and value need 4 dimensions");
  const Exprs &q = a.query->shape, &k = a.key->shape, &v = a.value->shape;
  if (!c.may_equal(q[3], k[3])) return c.fail("query and key have different widths");
  if (!c.may_equal(k[0], v[0]) || !c.may_equal(k[1], v[1]) || !c.may_equal(k[2], v[2]))
    return c.fail("key and value have different sizes");
  if (!c.sizes.is(k[0], 1) && !c.may_equal(q[0], k[0])) return c.fail("query and key have different batches");
  auto heads = c.sizes.constant(q[1]), shared = c.sizes.constant(k[1]);
  if (heads && shared && (*shared == 0 ? *heads != 0 : *heads % *shared != 0))
    return c.fail("the query's heads are not a multiple of the key's");
  for (std::string_view mask : {"attn_mask", "attn_bias"})
    if (c.op.param_index(mask) >= 0) SG_TRY(c.expect_broadcast(mask, {q[0], q[1], q[2], k[2]}));
  a.out_shape = a.query->shape;
  a.out_shape[3] = a.value->shape[3];
  return a;
}

// Strides of a [batch, heads, length, width] tensor stored as [batch, length, heads, width].
Exprs heads_inside(InferCall& c, const Exprs& shape) {
  Exprs stride = c.sizes.contiguous({shape[0], shape[2], shape[1], shape[3]});
  std::swap(stride[1], stride[2]);
  return stride;
}

Status give_heads_inside(InferCall& c, const Type& like, const Exprs& shape) {
  return c.give(like.dtype, shape, heads_inside(c, shape), like);
}

// Checks what a backward op receives from the forward: the output's shape, and one logsumexp per row. Some kernels pad
// the rows.
Status expect_forward(InferCall& c, const Attention& a) {
  for (std::string_view name : {"grad_out", "grad_out_", "out"})
    if (c.op.param_index(name) >= 0) SG_TRY(c.expect_shape(name, a.out_shape));
  for (std::string_view name : {"logsumexp", "grad_logsumexp"}) {
    if (c.op.param_index(name) < 0 || !c.given(name)) continue;
    SG_ASSIGN(const Type* sums, c.tensor(name));
    const Exprs& have = sums->shape;
    bool fits = have.size() == 3 || (have.size() == 4 && c.sizes.is(have[3], 1));
    fits = fits && c.may_equal(have[0], a.out_shape[0]) && c.may_equal(have[1], a.out_shape[1]);
    auto rows = fits ? c.sizes.constant(have[2]) : std::nullopt, needed = c.sizes.constant(a.out_shape[2]);
    if (!fits || (rows && needed && *rows < *needed))
      return c.fail("'" + std::string(name) + "' does not have a number a row of the query");
  }
  return ok_status();
}

// Whether the recorded type has these strides. PyTorch picks a kernel, each with strides of its own, by device and
// masks; only the record tells which.
bool is_recorded(const InferCall& c, const Exprs& shape, const Exprs& stride) {
  if (c.node.result_count != 1) return false;
  const Type& recorded = c.graph.type(c.node.result(0));
  return recorded.kind == TypeKind::tensor && recorded.shape.size() == shape.size() &&
         c.sizes.same(recorded.stride, stride);
}

DType sum_type(const Type& t) { return t.dtype == DType::f64 ? DType::f64 : DType::f32; }

Status give_grads(InferCall& c, const Attention& a) {
  for (const Type* t : {a.query, a.key, a.value})
    SG_TRY(c.give(t->dtype, t->shape, c.sizes.in_order_of(*t, t->shape), *t));
  return ok_status();
}

Status give_matching(InferCall& c, const Attention& a) {
  Exprs stride = c.sizes.in_order_of(*a.query, a.out_shape, false);
  return c.give(a.query->dtype, a.out_shape, std::move(stride), *a.query);
}

}  // namespace

Status flash_attention_cpu(InferCall& c) {
  SG_ASSIGN(Attention a, attention_of(c));
  SG_TRY(
      c.give(a.query->dtype, a.out_shape, c.sizes.preserved(*a.query), *a.query));  // in the memory order of the query
  Exprs shape{a.query->shape[0], a.query->shape[1], a.query->shape[2]};
  Exprs stride = c.sizes.contiguous({shape[0], shape[2], shape[1]});
  std::swap(stride[1], stride[2]);
  return c.give(sum_type(*a.query), std::move(shape), std::move(stride), *a.query);
}

Status flash_attention_cpu_backward(InferCall& c) {
  SG_ASSIGN(Attention a, attention_of(c));
  SG_TRY(expect_forward(c, a));
  for (const Type* t : {a.query, a.key, a.value}) SG_TRY(give_heads_inside(c, *t, t->shape));
  return ok_status();
}

Status flash_attention(InferCall& c) {
  SG_ASSIGN(Attention a, attention_of(c));
  SG_TRY(give_matching(c, a));
  SG_TRY(c.give_contiguous(DType::f32, {a.query->shape[0], a.query->shape[1], a.query->shape[2]}, *a.query));
  SG_TRY(c.give_none());
  SG_TRY(c.give_none());
  SG_TRY(c.give_integer(a.query->shape[2]));
  SG_TRY(c.give_integer(a.key->shape[2]));
  SG_TRY(c.give_contiguous(DType::u64, {c.sizes.number(2)}, *a.query));
  SG_TRY(c.give_contiguous(DType::u64, {}, *a.query));
  return c.give_contiguous(a.query->dtype, {c.sizes.number(0)}, *a.query);
}

Status cudnn_attention(InferCall& c) {
  SG_ASSIGN(Attention a, attention_of(c));
  SG_ASSIGN(bool with_sums, c.boolean("compute_log_sumexp"));
  SG_TRY(give_matching(c, a));
  Exprs sums{a.query->shape[0], a.query->shape[1], a.query->shape[2], c.sizes.number(1)};
  SG_TRY(with_sums ? c.give_contiguous(DType::f32, std::move(sums), *a.query) : c.give_none());
  SG_TRY(c.give_none());
  SG_TRY(c.give_none());
  SG_TRY(c.give_integer(a.query->shape[2]));
  SG_TRY(c.give_integer(a.key->shape[2]));
  SG_TRY(c.give_contiguous(DType::i64, {}, *a.query));
  SG_TRY(c.give_contiguous(DType::i64, {}, *a.query));
  return c.give_none();
}

Status attention_backward(InferCall& c) {
  SG_ASSIGN(Attention a, attention_of(c));
  SG_TRY(expect_forward(c, a));
  return give_grads(c, a);
}

Status efficient_attention(InferCall& c) {
  SG_ASSIGN(Attention a, attention_of(c));
  SG_ASSIGN(bool with_sums, c.boolean("compute_log_sumexp"));
  SG_TRY(give_heads_inside(c, *a.query, a.out_shape));
  ExprPool& e = c.sizes.exprs();
  Expr unit = c.sizes.number(32), length = e.add(a.query->shape[2], c.sizes.number(31));
  Expr padded = with_sums ? e.mul(e.floordiv(length, unit), unit) : c.sizes.number(0);  // rows come in blocks of 32
  SG_TRY(c.give_contiguous(DType::f32, {a.query->shape[0], a.query->shape[1], padded}, *a.query));
  SG_TRY(c.give_contiguous(DType::i64, {}, *a.query));
  return c.give_contiguous(DType::i64, {}, *a.query);
}

Status efficient_attention_backward(InferCall& c) {
  SG_ASSIGN(Attention a, attention_of(c));
  SG_TRY(expect_forward(c, a));
  SG_ASSIGN(const Type* bias, c.optional_tensor("attn_bias"));
  SG_ASSIGN(std::vector<int64_t> mask, c.integers("grad_input_mask"));
  if (mask.size() != 4) return c.fail("needs four outputs to choose from");
  size_t i = 0;
  for (const Type* t : {a.query, a.key, a.value})
    SG_TRY(mask[i++] != 0 ? give_heads_inside(c, *t, t->shape) : c.give_none());
  bool wanted = mask[3] != 0 && bias != nullptr;
  return wanted ? c.give(bias->dtype, bias->shape, c.sizes.preserved(*bias), *bias) : c.give_none();
}

Status sdpa(InferCall& c) {
  SG_ASSIGN(const Type* query, c.tensor("query"));
  SG_ASSIGN(const Type* value, c.tensor("value"));
  if (query->shape.empty() || value->shape.empty()) return c.fail("query and value need a dimension of width");
  SG_ASSIGN(const Type* key, c.tensor("key"));
  if (c.given("attn_mask") && c.given("is_causal")) {
    SG_ASSIGN(const bool is_causal, c.boolean("is_causal"));
    if (is_causal) return c.fail("takes a mask, or is causal");
  }
  const Exprs &q = query->shape, &k = key->shape, &v = value->shape;
  size_t rank = q.size();
  if (rank < 2 || k.size() != rank || v.size() != rank)
    return c.fail("query, key and value need equally many dimensions, at least 2");
  bool fits = c.may_equal(q[rank - 1], k[rank - 1]) && c.may_equal(k[rank - 2], v[rank - 2]);
  for (size_t i = 0; fits && i + 2 < rank; ++i) fits = c.may_equal(k[i], v[i]);
  if (!fits) return c.fail("the sizes of query, key and value do not fit");
  Exprs scores = q;
  scores.back() = k[rank - 2];
  SG_TRY(c.expect_broadcast("attn_mask", scores));
  Exprs shape = query->shape;
  shape.back() = value->shape.back();
  if (shape.size() != 4) return c.give_contiguous(query->dtype, std::move(shape), *query);
  for (const Exprs& stride : {c.sizes.contiguous(shape), c.sizes.in_order_of(*query, shape)})
    if (is_recorded(c, shape, stride)) return c.give(query->dtype, shape, stride, *query);
  return give_heads_inside(c, *query, shape);
}

Status flex_attention(InferCall& c) {
  SG_ASSIGN(Attention a, attention_of(c));
  Exprs stride = c.sizes.in_order_of(*a.query, a.out_shape);
  SG_TRY(c.give(a.query->dtype, a.out_shape, std::move(stride), *a.query));
  for (int i = 0; i < 2; ++i)
    SG_TRY(c.give_contiguous(DType::f32, {a.query->shape[0], a.query->shape[1], a.query->shape[2]}, *a.query));
  return ok_status();
}

Status flex_attention_backward(InferCall& c) {
  SG_ASSIGN(Attention a, attention_of(c));
  SG_TRY(expect_forward(c, a));
  for (const Type* t : {a.query, a.key, a.value})
    SG_TRY(c.give(t->dtype, t->shape, c.sizes.in_order_of(*t, t->shape), *t));
  // Gradients of the tensors that score_mod captured: None for index tensors; for float tensors their own type, or None
  // where not needed, as recorded.
  Type list;
  list.kind = TypeKind::list;
  SG_ASSIGN(std::vector<const Type*> captured, c.tensors("score_mod_other_buffers"));
  const Type* recorded = c.node.result_count > 3 ? &c.graph.type(c.node.result(3)) : nullptr;
  for (const Type* t : captured) {
    Type grad;
    grad.kind = TypeKind::none;
    const size_t i = list.elements.size();
    const bool unasked = recorded != nullptr && i < recorded->elements.size() &&
                         c.pool.types[recorded->elements[i]].kind == TypeKind::none;
    if (t != nullptr && is_floating(t->dtype) && !unasked)
      grad = c.make(t->dtype, t->shape, c.sizes.preserved(*t), t->device);
    list.elements.push_back(c.pool.types.intern(std::move(grad)));
  }
  return c.give(std::move(list));
}

}  // namespace sg::infer
