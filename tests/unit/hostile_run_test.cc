// Hostile graphs: what the type rules find (a table of calls, each with the reason given), what only a run can find,
// and random calls of every op, which may fail but never fault. Runs under the sanitizers of `make asan`.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "libgraph/op.h"
#include "libgraph/text/text.h"
#include "libgraph/verify/verify.h"
#include "tests/support/hostile_run.h"
#include "tests/support/parse.h"
#include "tests/support/random_edit.h"

namespace sg {
namespace {

struct Case {
  std::string_view inputs;   // types, separated by `;`; they are %a, %b, ...
  std::string_view call;     // "%y = aten...": the node
  std::string_view finding;  // part of the message; empty: no finding
};

using test::parse;

std::string text_of(const Case& c) {
  std::string text = "sg 1.0\ngraph rank *\n", types(c.inputs);
  char name = 'a';
  for (size_t at = 0; at < types.size(); ++name) {
    size_t end = std::min(types.find(';', at), types.size());
    text += "  buffer %" + std::string(1, name) + " : " + types.substr(at, end - at) + " \"" + name + "\"\n";
    at = end + 1;
  }
  return text + "  " + std::string(c.call) + "\n  output %a\n";
}

// The first error of the verifier; empty if there is none.
std::string finding_of(const Job& job) {
  Diagnostics findings;
  verify(job, {}, &findings);
  for (const Diagnostic& d : findings.list())
    if (d.severity == Severity::error) return d.message;
  return {};
}

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    std::string found = finding_of(parse(text_of(c)));
    INFO(c.inputs << " | " << c.call << "\n  found: " << found << "\n  wanted: " << c.finding);
    if (c.finding.empty()) CHECK(found.empty());
    else CHECK(found.find(c.finding) != std::string::npos);
  }
}

TEST_CASE("hostile: indices, gathers and scatters") {
  check({
      {"f32[4, 3];i64[2, 3]", "%y = aten.gather(%a, 0, %b)", ""},
      {"f32[4, 3];i64[9, 3]", "%y = aten.gather(%a, 0, %b)", ""},
      {"f32[4, 3];i64[2, 4]", "%y = aten.gather(%a, 0, %b)", "'index' is larger than 'self' along dimension 1"},
      {"f32[4, 3];i64[2]", "%y = aten.gather(%a, 0, %b)", "as many dimensions"},
      {"f32[4, 3];f32[2, 3]", "%y = aten.gather(%a, 0, %b)", "'index' has to have i64 or i32"},
      {"f32[4, 3];i64[2, 3]", "%y = aten.gather(%a, 2, %b)", "dimension 2 of a tensor with 2"},
      {"f32[4, 3];i64[2, 3];f32[2, 3]", "%y = aten.scatter.src(%a, 0, %b, %c)", ""},
      {"f32[4, 3];i64[2, 3];f32[1, 3]", "%y = aten.scatter.src(%a, 0, %b, %c)",
       "'index' is larger than 'src' along dimension 0"},
      {"f32[4, 3];i64[2, 3];f64[2, 3]", "%y = aten.scatter.src(%a, 0, %b, %c)", "the element types differ"},
      {"f32[4, 3];i64[2, 5];f32[2, 5]", "%y = aten.scatter_add_(%a, 0, %b, %c)", "'index' is larger than 'self'"},
      {"f32[4, 3];i64[2, 3]", "%y = aten.scatter.value(%a, -3, %b, 1.0)", "dimension -3"},
      {"f32[4, 3];i64[2, 3];f32[2, 3]", "%y = aten.scatter_reduce.two(%a, 0, %b, %c, \"summ\")",
       "'reduce' has to be one of"},
      {"f32[4, 3];i64[2, 3];f32[2, 3]", "%y = torchtitan.deterministic_scatter_add(%a, %b, %c)", ""},
      {"f32[4, 3];i64[2, 4];f32[2, 4]", "%y = torchtitan.deterministic_scatter_add(%a, %b, %c)", "'index' is larger"},
      {"f32[4, 3];i64[2];f32[2, 3]", "%y = aten.index_add(%a, 0, %b, %c)", ""},
      {"f32[4, 3];i64[2];f32[3, 3]", "%y = aten.index_add(%a, 0, %b, %c)", "'source' does not have the shape"},
      {"f32[4, 3];i64[2];f32[2, 3]", "%y = aten.index_copy_(%a, 1, %b, %c)", "'source' does not have the shape"},
      {"f32[4, 3];i64[2, 2];f32[2, 3]", "%y = aten.index_add_(%a, 0, %b, %c)", "'index' has to be a vector"},
      {"f32[4, 3];i64[2]", "%y = aten.index_fill.int_Scalar(%a, 5, %b, 1.0)", "dimension 5"},
      {"f32[4, 3];i64[2]", "%y = aten.index_fill_.int_Scalar(%a, 1, %b, 1.0)", ""},
      {"f32[4, 3];f32[2]", "%y = aten.index_fill_.int_Scalar(%a, 1, %b, 1.0)", "'index' has to have i64 or i32"},
      {"f32[4, 3];i64[2, 2]", "%y = aten.index_select(%a, 0, %b)", "'index' has to be a vector"},
      {"f32[4, 3];f32[2]", "%y = aten.index.Tensor(%a, [%b])", "i64 or i32"},
      {"f32[4, 3];i64[2];f32[2, 3]", "%y = aten.index_put(%a, [%b], %c)", ""},
      {"f32[4, 3];i64[2];f32[5, 3]", "%y = aten.index_put(%a, [%b], %c)", "'values' does not broadcast"},
      {"f32[4, 3];i64[2];f32[5, 3]", "%y = aten.index_put_(%a, [%b], %c)", "'values' does not broadcast"},
      {"f32[4];i64[2];f32[2]", "%y = aten.index_put_(%a, [%b, %b], %c)", "more indices than dimensions"},
      {"f32[4];f32[2]", "%y = aten.take(%a, %b)", "i64 or i32"},
      {"f32[4];i64[2];i64[3]", "%y = aten.bincount(%b, %c)", "'weights' has to be of shape [2]"},
  });
}

TEST_CASE("hostile: views, their copies and their gradients") {
  check({
      {"f32[2, 3]", "%y = aten.slice_backward(%a, [4, 3], 0, 1, 3, 1)", ""},
      {"f32[2, 3]", "%y = aten.slice_backward(%a, [4, 3], 0, 1, 4, 1)", "'grad_output' has to be of shape [3, 3]"},
      {"f32[2, 3]", "%y = aten.slice_backward(%a, [4, 3], 7, 1, 3, 1)", "dimension 7"},
      {"f32[2, 3]", "%y = aten.slice_backward(%a, [4, 3], 0, 1, 3, 0)", "step of a slice has to be positive"},
      {"f32[3]", "%y = aten.select_backward(%a, [4, 3], 0, 4)", "index 4 is out of range"},
      {"f32[3]", "%y = aten.select_backward(%a, [], 0, 0)", "needs at least 1"},
      {"f32[4, 3];f32[2, 3]", "%y = aten.slice_scatter(%a, %b, 0, 1, 3)", ""},
      {"f32[4, 3];f32[2, 2]", "%y = aten.slice_scatter(%a, %b, 0, 1, 3)", "'src' does not broadcast"},
      {"f32[4, 3];f32[4]", "%y = aten.select_scatter(%a, %b, 0, 1)", "'src' has to be of shape [3]"},
      {"f32[4];f32[3]", "%y = aten.as_strided_scatter(%a, %b, [2], [1])", "'src' has to be of shape [2]"},
      {"f32[4, 3];f32[2, 3];f32[2, 2]", "%n = aten.split_with_sizes_copy.out(%a, [2, 2], out=[%b, %c]) : ()",
       "tensor 1 of 'out'"},
      {"f32[4, 3]", "%y, %z = aten.split_with_sizes(%a, [-1, 5])", "negative length"},
      {"f32[4, 3]", "%y = aten.narrow(%a, 0, 1, -1)", "negative length"},
      {"f32[4]", "%y = aten.unfold(%a, 0, 5, 1)", "not within the dimension"},
      {"f32[4]", "%y = aten.unfold(%a, 0, 2, 0)", "the step has to be positive"},
      {"f32[6, 3] stride [1, 6]", "%y = aten.view.dtype(%a, bf16)", "the last stride has to be 1"},
      {"f32[6, 2] stride [3, 1]", "%y = aten.view_as_complex(%a)", "a pair would begin within another"},
      {"f32[4]", "%y = aten.flip(%a, [0, 0])", "named twice"},
      {"f32[]", "%y = aten.flip(%a, [-1])", ""},
      {"f32[4]", "%y = aten.roll(%a, [1], [3])", "dimension 3"},
      {"f32[4]", "%y = aten.roll(%a, [1, 2])", "as many shifts as dims"},
      {"f32[4]", "%y = aten.constant_pad_nd(%a, [-9223372036854775808, 9223372036854775807])", "'pad' is out of range"},
      {"f32[1, 3]", "%y = aten.replication_pad1d_backward(%a, %a, [3, 9223372036854775806])",
       "padding is out of range"},
      {"f32[1, 3]", "%y = aten.reflection_pad1d_backward(%a, %a, [-9223372036854775808, 2])",
       "padding is out of range"},
      {"f32[1, 3]", "%y = aten.replication_pad1d_backward(%a, %a, [3, 1099511627776])", "has to be of shape"},
      {"f32[1, 3]", "%y = aten.pad(%a, [3, 9223372036854775806], \"replicate\")", "padding is out of range"},
      {"f32[2, 3];f32[1, 3]", "%y = aten.slice_scatter(%a, %b, 0, step=9223372036854775807)", ""},
      {"f32[2, 3];f32[1, 3]", "%y = aten.slice_backward(%b, [2, 3], 0, 0, 2, 9223372036854775807)", ""},
      {"f32[4, 3];bool[4, 3]", "%y = aten.masked_scatter_backward(%a, %b, [2, 9])", ""},
      {"f32[4, 3];bool[3]", "%y = aten.masked_scatter_backward(%a, %b, [0])", ""},
      {"f32[4, 3];bool[4]", "%y = aten.masked_scatter_backward(%a, %b, [12])", "does not broadcast"},
      {"f32[4, 3];bool[3]", "%y = aten.masked_scatter_backward(%a, %b, [-2, 3])", "negative"},
      {"f32[4, 2];f32[2, 3]", "%y = aten.diff(%a, 1, 0, %b)", "dimensions that are not joined"},
      {"f32[4]", "%y = aten.diff(%a, -1)", "cannot be negative"},
      {"f32[2, 3];f32[2, 4]", "%y = aten.stack([%a, %b])", "the shapes differ"},
      {"f32[0]", "%y = aten.repeat_interleave.self_int(%a, -2, 0)", "negative number of times"},
      {"f32[4]", "%y = aten.tril_(%a)", "at least 2 dimensions"},
      {"f32[4]", "%y = aten.bernoulli_.Tensor(%a, 4)", "is not a tensor"},
      {"f32[4]", "%y = aten.cumsum_(%a, 1)", "dimension 1"},
      {"f32[4]", "%y = aten.logcumsumexp(%a, 3)", "dimension 3"},
      {"f32[4, 4]", "%y = aten.sum.dim_IntList(%a, [0, 0])", "named twice"},
      {"f32[8]", "%y, %z = sg.unpack(%a, [[2, 3], [3]])", "more elements than the flat tensor"},
  });
}

TEST_CASE("hostile: products, convolutions and pools") {
  check({
      {"f32[2, 3];f64[3, 4]", "%y = aten.mm(%a, %b)", "element types differ"},
      {"f32[2, 3];f64[3, 4]", "%y = aten.matmul(%a, %b)", "element types differ"},
      {"f32[5, 2, 4];f32[2, 3];f32[3, 4]", "%y = aten.addmm(%a, %b, %c)", "more dimensions than the product"},
      {"i64[4];f32[2, 3];f32[3, 4]", "%y = aten.addmm(%a, %b, %c)", "element types differ"},
      {"f32[3, 4];f32[2, 3];f32[3, 4]", "%y = aten.addmm_(%a, %b, %c)", "'self' has to be of shape [2, 4]"},
      {"f32[2, 3];f32[4, 3];f32[5]", "%y = aten.linear(%a, %b, %c)", "'bias' does not broadcast"},
      {"f32[6, 3];f32[2, 3, 4];i32[3]", "%y = aten._grouped_mm(%a, %b, %c)", "not the number of groups"},
      {"f32[6, 3];f32[2, 3, 4];f32[2]", "%y = aten._grouped_mm(%a, %b, %c)", "i64 or i32"},
      {"f8e4m3fn[2, 4];f8e5m2[4, 3];f32[];f32[1, 3]", "%y = aten._scaled_mm(%a, %b, %c, %d)", ""},
      {"f8e4m3fn[2, 4];f8e5m2[5, 3];f32[];f32[]", "%y = aten._scaled_mm(%a, %b, %c, %d)", "the inner sizes differ"},
      {"f8e4m3fn[2, 4];f8e5m2[4, 3];i64[];f32[]", "%y = aten._scaled_mm(%a, %b, %c, %d)", "'scale_a' has to have"},
      {"f8e4m3fn[2, 4];f8e5m2[4, 3];f32[];f32[5]", "%y = aten._scaled_mm(%a, %b, %c, %c, %d)", "'bias' does not"},
      {"f8e4m3fn[2, 4];f8e5m2[4, 3];f32[]", "%y = aten._scaled_mm(%a, %b, %c, %c, none, none, i64)", "'out_dtype'"},
      {"f32[1, 4, 5, 5];f32[6, 2, 3, 3];f32[6]",
       "%y = aten.convolution(%a, %b, %c, [1, 1], [0, 0], [1, 1], false, [0, 0], 2)", ""},
      {"f32[1, 4, 5, 5];f32[6, 2, 3, 3];f32[5]",
       "%y = aten.convolution(%a, %b, %c, [1, 1], [0, 0], [1, 1], false, [0, 0], 2)", "'bias' has to be of shape [6]"},
      {"f32[1, 4, 5, 5];f32[6, 3, 3, 3]",
       "%y = aten.convolution(%a, %b, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)",
       "the channels of input and weight differ"},
      {"f32[1, 4, 5, 5];f32[5, 2, 3, 3]",
       "%y = aten.convolution(%a, %b, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 2)", "does not divide the filters"},
      {"f32[1, 4, 5, 5];f32[6, 2, 3, 3]",
       "%y = aten.convolution(%a, %b, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 0)", "'groups' has to lie in"},
      {"f32[1, 4, 5, 5];f32[6, 4, 3, 3]",
       "%y = aten.convolution(%a, %b, none, [1, 1], [-1, 0], [1, 1], false, [0, 0], 1)",
       "'padding' has to be at least 0"},
      {"f32[1, 4, 5, 5];f32[6, 4, 3, 3]",
       "%y = aten.convolution(%a, %b, none, [1, 1], [0, 0], [0, 1], false, [0, 0], 1)",
       "'dilation' has to be positive"},
      {"f32[1, 4, 5, 5];f32[4, 6, 3, 3]",
       "%y = aten.convolution(%a, %b, none, [2, 2], [0, 0], [1, 1], true, [2, 0], 1)",
       "'output_padding' has to be smaller"},
      {"f32[1, 4, 5, 5];f32[6, 2, 3, 3];f32[6]", "%y = aten.conv2d(%a, %b, %c, groups=2)", ""},
      {"f32[4, 5, 5];f32[6, 4, 2, 3]", "%y = aten.conv2d.padding(%a, %b, none, 1, \"same\", 2)", ""},
      {"f32[4, 5, 5];f32[6, 4, 2, 3]", "%y = aten.conv2d.padding(%a, %b, none, 2, \"same\")", "a stride of 1"},
      {"f32[4, 5, 5];f32[6, 4, 2, 3]", "%y = aten.conv2d.padding(%a, %b, none, 1, \"full\")", "'same' or 'valid'"},
      {"f32[5];f32[6, 4, 2]", "%y = aten.conv1d(%a, %b)", "3 to 5 dimensions"},
      {"f32[1, 4, 5];f32[4, 6, 3]", "%y = aten.conv_transpose1d(%a, %b, none, 2, 0, 1)", ""},
      {"f32[1, 4, 5];f32[4, 6, 3]", "%y = aten.conv_transpose1d(%a, %b, none, 2, 0, 2)",
       "'output_padding' has to be smaller"},
      {"f32[2, 3, 4];f32[3]", "%y = aten.batch_norm(%a, %b, none, none, none, false, 0.1, 1e-05, true)",
       "running statistics are needed"},
      {"f32[2, 3, 4];f32[4]", "%y = aten.batch_norm(%a, %b, none, none, none, true, 0.1, 1e-05, true)",
       "'weight' has to be of shape [3]"},
      {"f32[2, 3, 4];f32[4]", "%y = aten.instance_norm(%a, %b, none, none, none, true, 0.1, 1e-05, true)",
       "'weight' has to be of shape [3]"},
      {"f32[2, 4, 4]", "%y = aten.group_norm(%a, 2)", ""},
      {"f32[2, 4, 4]", "%y = aten.group_norm(%a, 3)", "does not divide the channels"},
      {"f32[2, 4, 4]", "%y = aten.group_norm(%a, 0)", "does not divide the channels"},
      {"f32[2, 4, 4]", "%y = aten.pad(%a, [1, 2], \"circular\")", ""},
      {"f32[2, 4, 4]", "%y = aten.pad(%a, [5, 0], \"circular\")", "more than the axis"},
      {"f32[2, 4, 4]", "%y = aten.pad(%a, [4, 0], \"reflect\")", "less than the axis"},
      {"f32[2, 4, 4]", "%y = aten.pad(%a, [1], \"replicate\")", "two numbers"},
      {"f32[2, 4, 4]", "%y = aten.max_pool1d(%a, 5)", "larger than the padded plane"},
      {"f32[1, 6, 4, 3];f32[1, 4, 5, 5];f32[6, 4, 3, 3]",
       "%x, %y, %z = aten.convolution_backward(%a, %b, %c, [6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1, [true, true, "
       "true])",
       "'grad_output' has to be of shape [1, 6, 3, 3]"},
      {"f32[1, 6, 3, 3];f32[1, 4, 5, 5];f32[6, 4, 3, 3]",
       "%x, %y, %z = aten.convolution_backward(%a, %b, %c, [6], [1, 1], [0, 0], [1, 1], false, [0, 0], 1, [true, "
       "true])",
       "needs three outputs"},
      {"f32[1, 2, 4, 4]", "%y = aten.avg_pool2d(%a, [2, 2], [2, 2], [-1, 0])", "no negative padding"},
      {"f32[1, 2, 4, 4]", "%y = aten.avg_pool2d(%a, [2, 2], [2, 2], [2, 0])", "more than half of the window"},
      {"f32[1, 1, 2, 2];f32[1, 2, 4, 4]",
       "%y = aten.avg_pool2d_backward(%a, %b, [2, 2], [2, 2], [0, 0], false, true, none)",
       "'grad_output' has to be of shape [1, 2, 2, 2]"},
      {"f32[1, 2, 2, 2];f32[1, 2, 4, 4];i64[1, 2, 2, 1]",
       "%y = aten.max_pool2d_with_indices_backward(%a, %b, [2, 2], [2, 2], [0, 0], [1, 1], false, %c)",
       "'indices' has to be of shape"},
  });
}

TEST_CASE("hostile: norms, losses and attention") {
  check({
      {"f32[2, 3];f32[2, 3];f32[2, 2];f32[3]",
       "%y, %z = aten._fused_rms_norm_backward(%a, %b, [3], %c, %d, [true, true])", "'rstd' has to be of shape [2, 1]"},
      {"f32[2, 3, 4];f32[2, 3, 4];f32[2];f32[3];f32[3];f32[3];f32[3]",
       "%x, %y, %z = aten.native_batch_norm_backward(%a, %b, %d, %d, %e, %c, %f, true, 1e-5, [true, true, true])",
       "'save_mean' has to be of shape [3]"},
      {"i64[2, 3]", "%y = aten._softmax(%a, 1, false)", "'self' has to have a floating element type"},
      {"f32[4, 5];f32[4, 5];i64[4];f32[2]", "%y = aten.nll_loss_backward(%a, %b, %c, none, 0, -100, %d)",
       "'grad_output' has to be of shape [4]"},
      {"bf16[];f32[4, 5];i64[4];f32[]", "%y = aten.nll_loss_backward(%a, %b, %c, none, 1, -100, %d)",
       "element types differ"},
      {"f32[4, 5];i64[4]", "%y, %z = aten.nll_loss_forward(%a, %b, none, 3, -100)", "'reduction' has to lie in [0, 2]"},
      {"f32[6, 2, 4];i64[2, 3]", "%y, %z = aten._ctc_loss(%a, %b, [6, 5], [3, 2])", ""},
      {"f32[6, 2, 4];i64[2, 3]", "%y, %z = aten._ctc_loss(%a, %b, [6, 7], [3, 2])",
       "an input length is beyond the 6 steps"},
      {"f32[6, 2, 4];i64[2, 3]", "%y, %z = aten._ctc_loss(%a, %b, [6, 5, 4], [3, 2, 1])",
       "has not one number an entry of the batch"},
      {"f32[6, 2, 4];i64[2, 3]", "%y, %z = aten._ctc_loss(%a, %b, [6, 5], [-1, 2])", "'target_lengths' cannot be -1"},
      {"f32[6, 2, 4];i64[3, 3]", "%y, %z = aten._ctc_loss(%a, %b, [6, 5], [3, 2])",
       "'targets' does not have one row per entry of the batch"},
      {"f32[6, 2, 4];i64[2, 3]", "%y, %z = aten._ctc_loss(%a, %b, [6, 5], [3, 2], 4)", "'blank' is not a class"},
      {"f32[6, 2, 4];f32[2, 3]", "%y, %z = aten._ctc_loss(%a, %b, [6, 5], [3, 2])", "'targets' has to have i64 or i32"},
      {"f32[2];f32[6, 2, 4];i64[2, 3];f32[2];f32[2, 5, 7]",
       "%y = aten._ctc_loss_backward(%a, %b, %c, [6, 5], [3, 2], %d, %e, 0)",
       "'log_alpha' has to be of shape [2, 6, 7]"},
      {"f32[4, 5];i64[4, 6]", "%y, %z = aten.multilabel_margin_loss_forward(%a, %b, 1)",
       "'target' has to be of shape [4, 5]"},
      {"f32[];f32[4, 5];i64[4];f32[4]", "%y = aten.multi_margin_loss_backward(%a, %b, %c, 1, 1.0, %d)",
       "'weight' has to be of shape [5]"},
      {"f32[4];f32[3]", "%y = aten.rrelu_with_noise(%a, %b)", "'noise' has to be of shape [4]"},
      {"f32[4, 2, 3];i64[2]", "%y = aten.embedding_renorm_(%a, %b, 1.0, 2.0)", "the table is not a matrix"},
      {"f32[]", "%y, %z, %w = aten.unique_consecutive(%a, false, false, 0)", "a number has no slices"},
      {"f32[4, 5];i64[3]", "%y = aten.cross_entropy_loss(%a, %b)", "'target' has to be of shape [4]"},
      {"f32[4, 5];f32[4, 5];f32[7]", "%y = aten.binary_cross_entropy_with_logits(%a, %b, %c)",
       "'weight' does not broadcast"},
      {"f32[3];f32[4, 5];f32[4, 5]", "%y = aten.mse_loss_backward(%a, %b, %c, 0)", "'grad_output' does not broadcast"},
      {"f32[2]", "%y = aten.gelu(%a, approximate=\"tanhh\")", "'approximate' has to be one of 'none', 'tanh'"},
      {"f32[2];f32[2]", "%y = aten.div.Tensor_mode(%a, %b, rounding_mode=\"round\")",
       "'rounding_mode' has to be one of"},
      {"f32[1, 4, 3, 8];f32[1, 2, 5, 8];f32[1, 2, 6, 8]",
       "%y, %z = aten._scaled_dot_product_flash_attention_for_cpu(%a, %b, %c)", "key and value have different sizes"},
      {"f32[1, 3, 3, 8];f32[1, 2, 5, 8]", "%y, %z = aten._scaled_dot_product_flash_attention_for_cpu(%a, %b, %b)",
       "not a multiple of the key's"},
      {"f32[1, 2, 3, 8];f32[1, 2, 5, 8];f32[4, 5]",
       "%y, %z = aten._scaled_dot_product_flash_attention_for_cpu(%a, %b, %b, attn_mask=%c)",
       "'attn_mask' does not broadcast"},
      {"f32[1, 2, 3, 8];f32[1, 2, 3, 8];f32[1, 2, 2]",
       "%x, %y, %z = aten._scaled_dot_product_flash_attention_for_cpu_backward(%a, %a, %b, %b, %a, %c, 0.0, false)",
       "'logsumexp' does not have a number a row"},
      {"f32[1, 2, 3, 4];f32[1, 2, 3, 8];f32[1, 2, 3]",
       "%x, %y, %z = aten._scaled_dot_product_flash_attention_for_cpu_backward(%a, %b, %b, %b, %b, %c, 0.0, false)",
       "'grad_out' has to be of shape"},
      {"f32[2, 4];f32[3, 5]", "%y = aten.searchsorted.Tensor(%a, %b)", "a row for each of the values"},
      {"f32[4];f32[5];i64[3]", "%y = aten.searchsorted.Tensor(%a, %b, sorter=%c)", "'sorter' has to be of shape [4]"},
      {"f32[2];f32[2, 2]", "%y = aten.bucketize.Tensor(%a, %b)", "'boundaries' has to be a vector"},
      {"f32[4]", "%y = aten.histc(%a, 0)", "'bins' has to lie in"},
      {"f32[4]", "%y = aten.isin.Tensor_Tensor(%a, 3)", "'test_elements' is not a tensor"},
      {"f32[4, 4];f32[4]", "%y = torchvision.nms(%a, %b, 0.5)", ""},
      {"f32[4, 5];f32[4]", "%y = torchvision.nms(%a, %b, 0.5)", "rows of 4 numbers"},
      {"f32[4, 4];f32[3]", "%y = torchvision.nms(%a, %b, 0.5)", "'scores' has to be of shape [4]"},
      {"f32[1, 2, 8, 8];f32[3, 5]", "%y = torchvision.roi_align(%a, %b, 1.0, 2, 2, 2, true)", ""},
      {"f32[1, 2, 8, 8];f32[3, 4]", "%y = torchvision.roi_align(%a, %b, 1.0, 2, 2, 2, true)", "rows of 5 numbers"},
      {"f32[1, 2, 8, 8];f64[3, 5]", "%y = torchvision.roi_align(%a, %b, 1.0, 2, 2, 2, true)", "element types differ"},
      {"f32[1, 2, 8, 8];f32[3, 5]", "%y = torchvision.roi_align(%a, %b, 1.0, 0, 2, 2, true)", "number of bins"},
  });
}

TEST_CASE("hostile: systems of equations, decompositions and segments") {
  check({
      {"f32[3, 4]", "%y, %z = aten.linalg_cholesky_ex(%a)", "'self' is not square"},
      {"f32[3]", "%y, %z = aten.linalg_inv_ex(%a)", "'A' needs at least 2 dimensions"},
      {"bf16[3, 3]", "%y, %z = aten.linalg_inv_ex(%a)", "'A' has to be of f32, f64, c64 or c128"},
      {"f32[3, 3];f32[4, 2]", "%y, %l, %p, %i = aten._linalg_solve_ex(%a, %b)", "the right side does not fit"},
      {"f32[3, 3];f64[3, 2]", "%y, %l, %p, %i = aten._linalg_solve_ex(%a, %b)", "the element types differ"},
      {"f32[2, 3, 3];f32[4, 3, 2]", "%y, %l, %p, %i = aten._linalg_solve_ex(%a, %b)", "do not broadcast"},
      {"f32[3, 3];f32[3]", "%y, %l, %p, %i = aten._linalg_solve_ex(%a, %b, left=false)",
       "a vector stands on the right"},
      {"f32[3, 3];i32[4];f32[3, 2]", "%y = aten.linalg_lu_solve(%a, %b, %c)", "'pivots' has to be of shape [3]"},
      {"f32[3, 3];i64[3];f32[3, 2]", "%y = aten.linalg_lu_solve(%a, %b, %c)", "'pivots' has to be of i32"},
      {"f32[3, 3];i32[3];f32[3, 2]", "%y = aten.linalg_lu_solve(%a, %b, %c)", ""},
      {"f32[5, 3];i32[5]", "%p, %l, %u = aten.lu_unpack(%a, %b)", "'LU_pivots' has to be of shape [3]"},
      {"f32[3, 3];f32[2, 4]", "%y = aten.linalg_solve_triangular(%a, %b, upper=true)", "the right side does not fit"},
      {"f32[3, 3];f32[2, 4]", "%y = aten.cholesky_solve(%b, %a)", "the right side does not fit"},
      {"f32[3, 5];f32[3]", "%y = aten.linalg_householder_product(%a, %b)", "at least as many rows as columns"},
      {"f32[5, 3];f32[4]", "%y = aten.linalg_householder_product(%a, %b)", "more numbers than there are vectors"},
      {"f32[2, 5, 3];f32[3, 3]", "%y = aten.linalg_householder_product(%a, %b)", "of another batch size"},
      {"f32[5, 3];f32[3];f32[4, 2]", "%y = aten.ormqr(%a, %b, %c)", "does not fit the reflections"},
      {"f32[5, 3]", "%y, %z = aten.linalg_qr(%a, \"full\")", "'mode' has to be one of"},
      {"f32[3, 3]", "%y, %z = aten._linalg_eigh(%a, \"X\")", "'UPLO' has to be L or U"},
      {"i64[2]", "%n = aten._linalg_check_errors(%a, \"linalg.inv\", is_matrix=false) : ()", "'info' has to be of i32"},
      {"f32[6, 3];i64[2]", "%y = aten.segment_reduce(%a, \"sum\")", "needs 'lengths' or 'offsets'"},
      {"f32[6, 3];i64[2]", "%y = aten.segment_reduce(%a, \"median\", lengths=%b)", "'reduce' has to be one of"},
      {"f32[6, 3];i64[2]", "%y = aten.segment_reduce(%a, \"sum\", lengths=%b, axis=1)",
       "'axis' has to be the last one"},
      {"f32[6, 3];i64[5, 2]", "%y = aten.segment_reduce(%a, \"sum\", lengths=%b, axis=1)", "does not fit the data"},
      {"f32[6, 3];i64[0]", "%y = aten.segment_reduce(%a, \"sum\", offsets=%b)", "needs at least one number"},
      {"f32[6, 3];i64[2];f32[3, 3]", "%y = aten._segment_reduce_backward(%c, %c, %a, \"sum\", lengths=%b)",
       "'grad' has to be of shape [2, 3]"},
  });
}

// What only a run knows: two symbols that differ, indices, views of a caller's memory.
TEST_CASE("hostile: sizes of the run are held against the rules") {
  auto run = [](const std::string& body) {
    Job job = parse("sg 1.0\ngraph rank *\n" + body);
    CHECK(finding_of(job) == "");
    return test::run_hostile(job, 1, false);
  };
  test::HostileReport products =
      run("  symbol m input [2, 64] hint 3\n  symbol n input [2, 64] hint 4\n  input %a : f32[2, m]\n  input %b : "
          "f32[n, 5]\n"
          "  %y = aten.mm(%a, %b)\n  output %y\n");
  CHECK(products.outcome == test::HostileOutcome::failed);
  CHECK(products.message.find("%y = aten.mm.default: the inner sizes differ") != std::string::npos);
  test::HostileReport joined =
      run("  symbol m input [2, 64] hint 3\n  symbol n input [2, 64] hint 4\n  input %a : f32[2, m]\n  input %b : "
          "f32[2, n]\n"
          "  %y = aten.cat([%a, %b])\n  output %y\n");
  CHECK(joined.message.find("the sizes of dimension 1 differ") != std::string::npos);
  test::HostileReport fine =
      run("  symbol m input [2, 64] hint 3\n  input %a : f32[2, m]\n  input %b : f32[m, 5]\n  %y = aten.mm(%a, %b)\n  "
          "output %y\n");
  CHECK(fine.outcome == test::HostileOutcome::ran);
}

TEST_CASE("hostile: regions of images that are not there, and larger than any image") {
  for (const auto& [number, message] : {std::pair{"9.0", "a region is of image 9"}, {"nan", "a region is of image"}}) {
    Job job = parse("sg 1.0\ngraph rank *\n  input %x : f32[1, 2, 8, 8]\n  %r = aten.full([3, 5], " +
                    std::string(number) + ") : f32[3, 5]\n" +
                    "  %y = torchvision.roi_align(%x, %r, 1.0, 2, 2, 2, true) : f32[3, 2, 2, 2]\n  output %y\n");
    CHECK(test::run_hostile(job, 1, false).message.find(message) != std::string::npos);
  }
  Job job = parse(
      "sg 1.0\ngraph rank *\n  input %x : f32[1, 2, 8, 8]\n  %z = aten.zeros([3, 3]) : f32[3, 3]\n"
      "  %o = aten.full([3, 2], 1e30) : f32[3, 2]\n  %r = aten.cat([%z, %o], 1) : f32[3, 5]\n"
      "  %y = torchvision.roi_align(%x, %r, 1.0, 2, 2, -1, true) : f32[3, 2, 2, 2]\n  output %y\n");
  CHECK(test::run_hostile(job, 1, false).message.find("a region is too large") != std::string::npos);
}

// PyTorch stores the result of nonzero column by column; selecting a column must give that column.
TEST_CASE("hostile: results whose size the data decides lie as their type says") {
  Job job = parse(
      "sg 1.0\ngraph rank *\n  symbol u data [0, 64]\n  input %x : f32[2, 9]\n  %o = aten.ones_like(%x)\n"
      "  %z = aten.nonzero(%o) : i64[u, 2] stride [1, u]\n  %r = aten.select.int(%z, 1, 0) : i64[u]\n"
      "  %y = aten.index_select(%x, 0, %r) : f32[u, 9]\n  output %y\n");
  test::HostileReport report = test::run_hostile(job, 1, false);
  CHECK(report.message == "");
  CHECK(report.outcome == test::HostileOutcome::ran);
}

// The error names the matrix in one line, as PyTorch's does; results that nothing checks are still numbers.
TEST_CASE("hostile: matrices that have no decomposition") {
  auto run = [](const std::string& body) {
    Job job = parse("sg 1.0\ngraph rank *\n" + body);
    CHECK(finding_of(job) == "");
    return test::run_hostile(job, 1, false);
  };
  const std::string zeros = "  %a = aten.zeros([2, 3, 3]) : f32[2, 3, 3]\n";
  auto checked = [&](const std::string& op, const std::string& api) {
    return run(zeros + "  %y, %i = aten." + op + "(%a)\n  %n = aten._linalg_check_errors(%i, \"" + api +
               "\", is_matrix=false) : ()\n  output %y\n");
  };
  CHECK(
      checked("linalg_inv_ex", "linalg.inv")
          .message.find(
              "linalg.inv: (Batch element 0): The diagonal element 1 is zero, the inversion could not be completed") !=
      std::string::npos);
  CHECK(checked("linalg_cholesky_ex", "linalg.cholesky")
            .message.find("(the leading minor of order 1 is not positive-definite)") != std::string::npos);
  CHECK(run(zeros + "  %y, %i = aten.linalg_inv_ex(%a, check_errors=true)\n  output %y\n").outcome ==
        test::HostileOutcome::failed);
  CHECK(run(zeros + "  %y, %i = aten.linalg_inv_ex(%a)\n  output %y\n").outcome == test::HostileOutcome::ran);
  const std::string nan = "  %n = aten.full([3, 3], nan) : f32[3, 3]\n";
  CHECK(run(nan + "  %u, %s, %v = aten._linalg_svd(%n)\n  output %s\n")
            .message.find("linalg.svd: The algorithm failed") != std::string::npos);
  CHECK(
      run(nan + "  %w, %q = aten._linalg_eigh(%n)\n  output %w\n").message.find("linalg.eigh: The algorithm failed") !=
      std::string::npos);
  CHECK(run(nan + "  %y = aten.linalg_matrix_exp(%n)\n  output %y\n").outcome == test::HostileOutcome::ran);
  const std::string pivots = "  %p = aten.full([3], 7, dtype=i32) : i32[3]\n";
  CHECK(run(nan + pivots + "  %y = aten.linalg_lu_solve(%n, %p, %n)\n  output %y\n")
            .message.find("pivot 7 is not a row of 3") != std::string::npos);
}

TEST_CASE("hostile: what a call gives its body has the body's types, steps included") {
  std::string text =
      "sg 1.0\ngraph rank *\n  input %a : f32[2, 3]\n  %t = aten.t(%a) : f32[3, 2] stride [1, 3]\n  %y, = "
      "sg.call(graph:body, [%t])\n  output %y\n"
      "graph rank * nested body\n  input %x : f32[3, 2]\n  %v = aten.view(%x, [6])\n  output %v\n";
  CHECK(finding_of(parse(text)).find("argument 0 of \"body\"") != std::string::npos);
  std::string number = text;
  number.replace(number.find("[%t]"), 4, "[7]");
  CHECK(finding_of(parse(number)).find("argument 0 of \"body\" is not a tensor") != std::string::npos);
}

TEST_CASE("hostile: random calls of every op never fault") {
  int ran = 0;
  for (const OpInfo& op : all_ops()) {
    for (uint64_t round = 0; round < 4 && !op.has(kHigherOrder); ++round) {
      test::Rng rng(round * 7919 + static_cast<uint64_t>(&op - all_ops().data()));
      Job job = parse("sg 1.0\ngraph rank *\n  input %x : f32[2, 3]\n  input %i : i64[3]\n  output %x\n");
      if (!test::add_random_call(job, *job.programs[0], op, rng, 40)) continue;
      std::string text = print_text(job);
      INFO(text);
      test::HostileReport report = test::run_hostile(job, round, round % 2 == 1);
      CHECK_FALSE(report.own_fault);
      ran += report.outcome == test::HostileOutcome::ran;
    }
  }
  CHECK(ran > 500);
}

}  // namespace
}  // namespace sg
