// Axis rules of ops that treat the entries of their first axis independently: convolutions, pooling, norms by channel
// or group.
#include <algorithm>

#include "libpasses/axis/axis_rules.h"

namespace sg::axis {
namespace {

// Results are coded as r = rows, s = a sum over the rows, f = independent of the rows.
struct BatchRow {
  std::string_view op;
  std::string_view carriers;  // arguments whose first axis is the batch; the others are whole
  std::string_view results;
  std::string_view size = {};  // argument (or its first item) that holds the length of the first axis
};

constexpr BatchRow kRows[] = {
    {"aten.convolution.default", "input", "r"},
    {"aten.convolution_backward.default", "grad_output,input", "rss"},
    {"aten.conv1d.default", "input", "r"},
    {"aten.conv1d.padding", "input", "r"},
    {"aten.conv2d.default", "input", "r"},
    {"aten.conv2d.padding", "input", "r"},
    {"aten.conv3d.default", "input", "r"},
    {"aten.conv3d.padding", "input", "r"},
    {"aten.conv_transpose1d.default", "input", "r"},
    {"aten.conv_transpose2d.input", "input", "r"},
    {"aten.conv_transpose3d.input", "input", "r"},
    {"aten.max_pool2d_with_indices.default", "self", "rr"},
    {"aten.max_pool3d_with_indices.default", "self", "rr"},
    {"aten.max_pool2d_with_indices_backward.default", "grad_output,self,indices", "r"},
    {"aten.max_pool3d_with_indices_backward.default", "grad_output,self,indices", "r"},
    {"aten.max_pool1d.default", "self", "r"},
    {"aten.max_pool2d.default", "self", "r"},
    {"aten.max_pool3d.default", "self", "r"},
    {"aten.avg_pool1d.default", "self", "r"},
    {"aten.avg_pool2d.default", "self", "r"},
    {"aten.avg_pool3d.default", "self", "r"},
    {"aten.avg_pool2d_backward.default", "grad_output,self", "r"},
    {"aten.avg_pool3d_backward.default", "grad_output,self", "r"},
    {"aten.adaptive_avg_pool1d.default", "self", "r"},
    {"aten.adaptive_max_pool1d.default", "self", "rr"},
    {"aten.adaptive_avg_pool2d.default", "self", "r"},
    {"aten.adaptive_avg_pool3d.default", "self", "r"},
    {"aten._adaptive_avg_pool2d.default", "self", "r"},
    {"aten._adaptive_avg_pool3d.default", "self", "r"},
    {"aten._adaptive_avg_pool2d_backward.default", "grad_output,self", "r"},
    {"aten._adaptive_avg_pool3d_backward.default", "grad_output,self", "r"},
    {"aten.native_group_norm.default", "input", "rrr", "N"},
    {"aten.native_group_norm_backward.default", "grad_out,input,mean,rstd", "rss", "N"},
    {"aten.group_norm.default", "input", "r"},
    {"aten.native_batch_norm.default", "input", "rff"},
    {"aten._native_batch_norm_legit.default", "input", "rff"},
    {"aten._native_batch_norm_legit.no_stats", "input", "rff"},
    {"aten._native_batch_norm_legit_no_training.default", "input", "rff"},
    {"aten.native_batch_norm_backward.default", "grad_out,input", "rss"},
    {"aten.batch_norm.default", "input", "r"},
    {"aten.upsample_nearest1d.default", "self", "r"},
    {"aten.upsample_nearest1d.vec", "input", "r"},
    {"aten.upsample_nearest2d.default", "self", "r"},
    {"aten.upsample_nearest2d.vec", "input", "r"},
    {"aten.upsample_nearest3d.default", "self", "r"},
    {"aten.upsample_nearest3d.vec", "input", "r"},
    {"aten._upsample_nearest_exact1d.default", "self", "r"},
    {"aten._upsample_nearest_exact1d.vec", "input", "r"},
    {"aten._upsample_nearest_exact2d.default", "self", "r"},
    {"aten._upsample_nearest_exact2d.vec", "input", "r"},
    {"aten._upsample_nearest_exact3d.default", "self", "r"},
    {"aten._upsample_nearest_exact3d.vec", "input", "r"},
    {"aten.upsample_linear1d.default", "self", "r"},
    {"aten.upsample_linear1d.vec", "input", "r"},
    {"aten.upsample_bilinear2d.default", "self", "r"},
    {"aten.upsample_bilinear2d.vec", "input", "r"},
    {"aten.upsample_trilinear3d.default", "self", "r"},
    {"aten.upsample_trilinear3d.vec", "input", "r"},
    {"aten.upsample_bicubic2d.default", "self", "r"},
    {"aten.upsample_bicubic2d.vec", "input", "r"},
    {"aten._upsample_bilinear2d_aa.default", "self", "r"},
    {"aten._upsample_bilinear2d_aa.vec", "input", "r"},
    {"aten._upsample_bicubic2d_aa.default", "self", "r"},
    {"aten._upsample_bicubic2d_aa.vec", "input", "r"},
    {"aten._upsample_lanczos2d_aa.default", "self", "r"},
    {"aten._upsample_lanczos2d_aa.vec", "input", "r"},
    {"aten.upsample_nearest1d_backward.default", "grad_output", "r", "input_size"},
    {"aten.upsample_nearest2d_backward.default", "grad_output", "r", "input_size"},
    {"aten.upsample_nearest3d_backward.default", "grad_output", "r", "input_size"},
    {"aten._upsample_nearest_exact1d_backward.default", "grad_output", "r", "input_size"},
    {"aten._upsample_nearest_exact2d_backward.default", "grad_output", "r", "input_size"},
    {"aten._upsample_nearest_exact3d_backward.default", "grad_output", "r", "input_size"},
    {"aten.upsample_linear1d_backward.default", "grad_output", "r", "input_size"},
    {"aten.upsample_bilinear2d_backward.default", "grad_output", "r", "input_size"},
    {"aten.upsample_trilinear3d_backward.default", "grad_output", "r", "input_size"},
    {"aten.upsample_bicubic2d_backward.default", "grad_output", "r", "input_size"},
    {"aten._upsample_bilinear2d_aa_backward.default", "grad_output", "r", "input_size"},
    {"aten._upsample_bicubic2d_aa_backward.default", "grad_output", "r", "input_size"},
    {"aten._upsample_lanczos2d_aa_backward.default", "grad_output", "r", "input_size"},
    {"aten.reflection_pad1d.default", "self", "r"},
    {"aten.reflection_pad1d_backward.default", "grad_output,self", "r"},
    {"aten.reflection_pad2d.default", "self", "r"},
    {"aten.reflection_pad2d_backward.default", "grad_output,self", "r"},
    {"aten.reflection_pad3d.default", "self", "r"},
    {"aten.reflection_pad3d_backward.default", "grad_output,self", "r"},
    {"aten.replication_pad1d.default", "self", "r"},
    {"aten.replication_pad1d_backward.default", "grad_output,self", "r"},
    {"aten.replication_pad2d.default", "self", "r"},
    {"aten.replication_pad2d_backward.default", "grad_output,self", "r"},
    {"aten.replication_pad3d.default", "self", "r"},
    {"aten.replication_pad3d_backward.default", "grad_output,self", "r"},
    {"aten.adaptive_max_pool2d.default", "self", "rr"},
    {"aten.adaptive_max_pool2d_backward.default", "grad_output,self,indices", "r"},
    {"aten.max_unpool2d.default", "self,indices", "r"},
    {"aten.adaptive_max_pool3d.default", "self", "rr"},
    {"aten.adaptive_max_pool3d_backward.default", "grad_output,self,indices", "r"},
    {"aten.max_unpool3d.default", "self,indices", "r"},
    {"aten.grid_sampler_2d.default", "input,grid", "r"},
    {"aten.grid_sampler_2d_backward.default", "grad_output,input,grid", "rr"},
    {"aten.grid_sampler_3d.default", "input,grid", "r"},
    {"aten.grid_sampler_3d_backward.default", "grad_output,input,grid", "rr"},
    {"aten.im2col.default", "self", "r"},
    {"aten.col2im.default", "self", "r"},
};

bool lists(std::string_view names, std::string_view name) {
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find(',', at), names.size());
    if (names.substr(at, end - at) == name) return true;
    at = end + 1;
  }
  return false;
}

// Whether it is a batch norm by the mean and variance of its input.
bool takes_statistics(const AxisCall& c) {
  return c.op.name.find("batch_norm") != std::string_view::npos &&
         (c.boolean("training", false) || c.boolean("train", false) || c.op.name.ends_with(".no_stats"));
}

// A batch norm along its channels, each of which has statistics of its own: an instance norm has all images' there.
Status by_channel(AxisCall& c, const Along& a) {
  if (!c.tensor("running_mean").is_none() || !c.tensor("running_var").is_none())
    return c.fail("it takes mean and variance by channel, and has running ones");
  Along own = a;
  own.axis = 0;
  for (const Param& param : c.op.params) {
    const ValueId v = c.tensor(param.name);
    if (v.is_none() || c.type(v).kind != TypeKind::tensor) continue;
    SG_TRY(c.want(v, c.rank(v) == 1 ? own : a));
  }
  for (uint32_t i = 0; i < c.node.result_count; ++i) {
    const Type& type = c.type(c.result(i));
    SG_TRY(type.kind != TypeKind::tensor ? c.give(AxisState()) : c.give_along(type.shape.size() == 1 ? own : a));
  }
  return ok_status();
}

// Fails if anything makes the rows depend on each other.
Status check_rows_apart(const AxisCall& c) {
  if (takes_statistics(c)) return c.fail("it takes mean and variance over all rows: a chunk's would be others");
  const ValueId weight = c.tensor("weight");
  if (c.op.name.find("conv") != std::string_view::npos && c.rank(c.tensor("input")) != c.rank(weight))
    return c.fail("its input has no batch axis");
  const bool windows = c.op.name == "aten.im2col.default" || c.op.name == "aten.col2im.default";
  const size_t batched = c.op.name == "aten.im2col.default" ? 4 : 3;
  if (windows && c.rank(c.tensor("self")) != batched) return c.fail("its input has no batch axis");
  return ok_status();
}

}  // namespace

Status batch(AxisCall& c) {
  const BatchRow* row = std::ranges::find(kRows, c.op.name, &BatchRow::op);
  SG_ASSIGN(const ValueId first, c.first_along());
  if (c.state(first).local) return c.fail("positions of each chunk's own");
  const Along a = c.state(first).along;
  if (a.axis == 1 && takes_statistics(c) && c.rank(first) > 1) return by_channel(c, a);
  if (a.axis != 0)
    return c.fail("it couples the rows along axis " + std::to_string(a.axis) + ": only the batch axis can be chunked");
  SG_TRY(check_rows_apart(c));
  for (const Param& param : c.op.params) {
    const ValueId v = c.tensor(param.name);
    if (v.is_none() || c.type(v).kind != TypeKind::tensor) continue;
    SG_TRY(lists(row->carriers, param.name) ? c.want(v, a) : c.want_whole(v, param.name));
  }
  if (!row->size.empty()) SG_TRY(c.edit_size(row->size, 0, a));
  AxisState sum;
  sum.kind = AxisKind::partial;
  for (uint32_t i = 0; i < c.node.result_count; ++i) {
    const bool absent = c.type(c.result(i)).kind != TypeKind::tensor;
    const char is = i < row->results.size() ? row->results[i] : 'f';
    SG_TRY(absent      ? c.give(AxisState())
           : is == 'r' ? c.give_along(a)
           : is == 's' ? c.give(sum)
                       : c.give_settled(Settle::first));
  }
  return ok_status();
}

// Padding the last axes does not affect the axes before them.
Status pad(AxisCall& c) {
  const AxisState* s = c.along(c.tensor("self"));
  const Arg* list = c.find("pad");
  if (s == nullptr || list == nullptr || !list->is(ArgKind::list)) return c.fail("its axes are not known");
  if (s->local) return c.fail("positions of each chunk's own are padded");
  if (s->along.axis + list->items().size() / 2 >= c.rank(c.tensor("self"))) return c.fail("it pads the chunked axis");
  return c.give_all(along_state(s->along));
}

}  // namespace sg::axis
