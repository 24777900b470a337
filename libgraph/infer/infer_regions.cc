// Regions of images: each row has an image index and a box, which is sampled in bins. Box selection: nms in
// infer_search.cc.
#include "libgraph/infer/infer_rules.h"

namespace sg::infer {
namespace {

constexpr int64_t kMostBins = int64_t{1} << 20;  // along an axis, so that products of two cannot overflow

// [regions, channels, vertical bins, horizontal bins]
Result<Exprs> regions_shape(const InferCall& c, Expr channels) {
  SG_ASSIGN(const Type* rois, c.tensor("rois"));
  if (rois->shape.size() != 2 || !c.may_equal(rois->shape[1], c.sizes.number(5)))
    return c.fail("'rois' has to be rows of 5 numbers");
  SG_ASSIGN(const Expr high, c.size("pooled_height"));
  SG_ASSIGN(const Expr wide, c.size("pooled_width"));
  if (c.is_outside(high, 1, kMostBins) || c.is_outside(wide, 1, kMostBins))
    return c.fail("the number of bins is not within [1, " + std::to_string(kMostBins) + "]");
  return Exprs{rois->shape[0], channels, high, wide};
}

}  // namespace

Status roi_align(InferCall& c) {
  SG_ASSIGN(const Type* input, c.tensor("input"));
  if (input->shape.size() != 4) return c.fail("'input' has to be a batch of images: 4 dimensions");
  SG_ASSIGN(const Exprs shape, regions_shape(c, input->shape[1]));
  return c.give_contiguous(input->dtype, shape, *input);
}

Status roi_align_backward(InferCall& c) {
  SG_ASSIGN(const Type* grad, c.tensor("grad"));
  Exprs images;
  for (std::string_view name : {"batch_size", "channels", "height", "width"}) {
    SG_ASSIGN(const Expr size, c.size(name));
    if (c.is_outside(size, 0, INT64_MAX)) return c.fail("'" + std::string(name) + "' is negative");
    images.push_back(size);
  }
  SG_ASSIGN(const Exprs shape, regions_shape(c, images[1]));
  SG_TRY(c.expect_shape("grad", shape));
  return c.give_contiguous(grad->dtype, images, *grad);
}

}  // namespace sg::infer
