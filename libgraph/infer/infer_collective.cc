// Collectives and the flat buffers around them. Results are row-major; ranks are along the first dimension.
#include <algorithm>

#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

enum class Scale { up, down };

Result<Exprs> scaled(InferCall& c, const Type& input, Scale scale) {
  SG_ASSIGN(Expr ranks, c.size("group_size"));
  if (c.sizes.constant(ranks).value_or(1) <= 0) return c.fail("the group size has to be positive");
  ExprPool& e = c.sizes.exprs();
  Exprs shape = input.shape;
  if (shape.empty()) {
    if (scale == Scale::down) return c.fail("a tensor without dimensions cannot be scattered");
    return Exprs{ranks};
  }
  auto size = c.sizes.constant(shape[0]), count = c.sizes.constant(ranks);
  if (scale == Scale::down && size && count && *size % *count != 0)
    return c.fail("the first size is not a multiple of the group size");
  shape[0] = scale == Scale::up ? e.mul(shape[0], ranks) : e.floordiv(shape[0], ranks);
  return shape;
}

Status give_scaled(InferCall& c, const Type& input, Scale scale) {
  SG_ASSIGN(Exprs shape, scaled(c, input, scale));
  return c.give_contiguous(input.dtype, std::move(shape), input);
}

Status give_each(InferCall& c, Scale scale) {
  SG_ASSIGN(std::vector<const Type*> inputs, c.tensors("inputs"));
  for (const Type* input : inputs) {
    if (input == nullptr) return c.fail("a tensor is missing");
    SG_TRY(give_scaled(c, *input, scale));
  }
  return ok_status();
}

Status give_out(InferCall& c, Scale scale) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(const Type* out, c.tensor("out"));
  SG_ASSIGN(Exprs shape, scaled(c, *input, scale));
  auto have = c.sizes.constant(c.sizes.count(out->shape)), need = c.sizes.constant(c.sizes.count(shape));
  if (have && need && *have != *need) return c.fail("'out' does not hold the result");
  if (out->dtype != input->dtype) return c.fail("'out' has another element type");
  return c.give(*out);
}

// The total number of elements of a list of tensors.
Result<Expr> total(InferCall& c, const std::vector<const Type*>& list) {
  if (list.empty()) return c.fail("needs at least one tensor");
  Expr sum = c.sizes.number(0);
  for (const Type* t : list) {
    if (t == nullptr) return c.fail("a tensor is missing");
    sum = c.sizes.exprs().add(sum, c.sizes.count(t->shape));
  }
  return sum;
}

}  // namespace

Status all_gather(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  return give_scaled(c, *input, Scale::up);
}

Status reduce_scatter(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  return give_scaled(c, *input, Scale::down);
}

Status all_gather_out(InferCall& c) { return give_out(c, Scale::up); }
Status reduce_scatter_out(InferCall& c) { return give_out(c, Scale::down); }
Status all_gather_coalesced(InferCall& c) { return give_each(c, Scale::up); }
Status reduce_scatter_coalesced(InferCall& c) { return give_each(c, Scale::down); }

Status all_reduce(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  return c.give(input->dtype, input->shape, c.sizes.preserved(*input), *input);
}

Status like_each(InferCall& c) {
  SG_ASSIGN(std::vector<const Type*> inputs, c.tensors("inputs"));
  for (const Type* input : inputs) {
    if (input == nullptr) return c.fail("a tensor is missing");
    SG_TRY(c.give(input->dtype, input->shape, c.sizes.preserved(*input), *input));
  }
  return ok_status();
}

Status same_each(InferCall& c) {
  SG_ASSIGN(std::vector<const Type*> inputs, c.tensors("inputs"));
  for (const Type* input : inputs) {
    if (input == nullptr) return c.fail("a tensor is missing");
    SG_TRY(c.give(*input));
  }
  return ok_status();
}

Status all_to_all(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  SG_ASSIGN(Exprs received, c.size_list("output_split_sizes"));
  SG_ASSIGN(Exprs sent, c.size_list("input_split_sizes"));
  if (input->shape.empty()) return c.fail("needs at least one dimension");
  if (received.size() != sent.size()) return c.fail("as many parts are received as sent, one per rank");
  for (const Exprs& splits : {received, sent})
    for (Expr rows : splits)
      if (c.sizes.constant(rows).value_or(0) < 0) return c.fail("a part cannot have a negative size");
  // Whether the parts sent add up to the input is checked when sending: graph chunking leaves the size of the whole in
  // the record.
  Exprs shape = input->shape;
  if (!received.empty()) shape[0] = c.sizes.exprs().sum(received);
  return c.give_contiguous(input->dtype, std::move(shape), *input);
}

Status pre_bucket_all_gather(InferCall& c) {
  SG_ASSIGN(std::vector<const Type*> inputs, c.tensors("ag_ins"));
  SG_ASSIGN(Expr elements, total(c, inputs));
  SG_ASSIGN(Expr ranks, c.size("group_size"));
  SG_ASSIGN(Expr rank, c.size("rank"));
  SG_ASSIGN(std::vector<int64_t> numbers, c.integers("out_dtype_ints"));
  if (c.sizes.constant(ranks).value_or(1) <= 0) return c.fail("the group size has to be positive");
  auto at = c.sizes.constant(rank), count = c.sizes.constant(ranks);
  if (at && (*at < 0 || (count && *at >= *count))) return c.fail("'rank' is not within the group");
  if (numbers.size() != inputs.size()) return c.fail("as many element types as inputs are needed");
  DType dtype = c.dtype("dtype").value_or(inputs[0]->dtype);
  return c.give_contiguous(dtype, {c.sizes.exprs().mul(elements, ranks)}, *inputs[0]);
}

Status pre_bucket_reduce_scatter(InferCall& c) {
  SG_ASSIGN(std::vector<const Type*> inputs, c.tensors("rs_ins"));
  SG_ASSIGN(Expr elements, total(c, inputs));
  return c.give_contiguous(inputs[0]->dtype, {elements}, *inputs[0]);
}

}  // namespace sg::infer
