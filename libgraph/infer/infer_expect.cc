// The table of requirements that ops have on their arguments beyond types, and the check of a call against it.
#include "libgraph/infer/infer_expect.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <unordered_map>

namespace sg::infer {
namespace {

// `ops`: names; without an overload a name stands for all of them. `wants`: clauses separated by `;`, each a word and
// its operands. Omitted arguments are not checked.
//
//   float NAMES      floating element types             inexact NAMES   floating or complex ones
//   real NAMES       all but complex ones               whole NAMES     integers
//   index NAMES      i64 or i32                         mask NAMES      bool or floating
//   number NAMES     neither complex nor bool           truth NAMES     bool or u8
//   flag NAMES       bool                               nonbool NAMES   all but bool
//   ratio NAMES      one of them floating or complex
//   place NAMES      the same, or any of no elements
//   same NAMES       one element type for all
//   word NAME W...   one of these strings; W: with a number behind it
//   range NAME A B   an integer from A to B
//   part NAME        a number from 0 to 1
//   least NAME A     a number of at least A             above NAME A    a number of more than A
//   some NAMES       one of these is given
//   point NAME       a tensor of one element, without dimensions
//   fits NAMES       numbers that the result's type holds, if it is whole; as PyTorch has it, u8 holds -255 too. A
//                    complex number only where the result is complex
//   power NAME       the same, and not negative
//   factor NAME      the same, and whole for a result of whole numbers; a bool only for one of bools
struct Expectation {
  std::string_view ops, wants;
};

constexpr std::string_view kMatrices = "aten.mm aten.bmm";

constexpr Expectation kExpectations[] = {
    {"aten.gelu aten.gelu_ aten.gelu_backward", "float self; word approximate none tanh"},
    {"aten.mish aten.mish_ aten.hardswish aten.hardswish_ aten.hardsigmoid aten.hardsigmoid_ aten.leaky_relu "
     "aten.leaky_relu_ aten.elu aten.elu_ aten.celu aten.celu_ aten.selu aten.selu_ aten.softplus aten.softshrink "
     "aten.hardshrink aten.frac aten.frac_ aten.round.decimals aten.round_.decimals",
     "float self"},
    {"aten.silu aten.silu_", "inexact self"},
    {"aten.lerp aten.lerp_", "inexact self; same self end"},
    {"aten.addcdiv aten.addcdiv_", "ratio tensor1 tensor2"},
    {"aten.sub.Tensor aten.sub_.Tensor aten.rsub.Tensor", "nonbool self other; factor alpha"},
    {"aten.sub.Scalar aten.sub_.Scalar aten.rsub.Scalar", "nonbool self; factor alpha"},
    {"aten.relu aten.relu_ aten.relu6 aten.relu6_ aten.hardtanh aten.hardtanh_ aten.floor aten.floor_ aten.ceil "
     "aten.ceil_ aten.trunc aten.trunc_ aten.round.default aten.round_.default",
     "number self"},
    {"aten.heaviside aten.heaviside_", "real self; same self values"},
    {"aten.abs_", "real self"},
    {"aten.clamp aten.clamp_", "some min max"},
    {"aten.polygamma aten.polygamma_", "least n 0"},
    {"aten.div.Tensor_mode aten.div.Scalar_mode aten.div_.Tensor_mode aten.div_.Scalar_mode",
     "word rounding_mode floor trunc"},
    {"aten.masked_fill.Tensor aten.masked_fill_.Tensor", "flag mask; point value"},
    {"aten.masked_fill.Scalar aten.masked_fill_.Scalar", "flag mask; fits value"},
    {"aten.fill aten.fill_ aten.constant_pad_nd", "fits value"},
    {"aten.full aten.full_like aten.new_full", "fits fill_value"},
    {"aten.scalar_tensor", "fits s"},
    {"aten.threshold aten.threshold_", "fits threshold value"},
    {"aten.where", "truth condition; fits self other"},
    {"aten.add aten.add_", "factor alpha"},
    {"aten.pow.Tensor_Scalar aten.pow_.Scalar", "power exponent"},
    // reductions, scans, sorts
    {"aten.var aten.std aten.var_mean aten.norm aten.linalg_vector_norm", "inexact self"},
    {"aten.amax aten.amin aten.max.default aten.min.default aten.max.dim aten.min.dim aten.argmax aten.argmin",
     "real self"},
    {"aten.cummax aten.cummin aten.sort aten.argsort aten.topk aten.median aten.nanmedian aten.mode aten._unique2 "
     "aten.unique_consecutive aten.unique_dim",
     "real self"},
    {"aten.logcumsumexp", "float self"},
    {"aten.histc", "real self; range bins 1 1099511627776"},
    {"aten.bincount", "whole self; real weights; range minlength 0 1099511627776"},
    // norms and softmax
    {"aten._softmax aten._log_softmax", "float self"},
    {"aten._softmax_backward_data aten._log_softmax_backward_data", "float grad_output output"},
    {"aten.native_layer_norm aten.layer_norm aten.rms_norm aten._fused_rms_norm", "float input weight bias"},
    {"aten.native_layer_norm_backward", "float grad_out input mean rstd weight bias"},
    {"aten._fused_rms_norm_backward", "float grad_out input rstd weight"},
    {"aten.native_group_norm aten.group_norm", "float input weight bias"},
    {"aten.native_group_norm_backward", "float grad_out input mean rstd weight"},
    {"aten.native_batch_norm aten._native_batch_norm_legit aten._native_batch_norm_legit_no_training aten.batch_norm "
     "aten.instance_norm",
     "float input weight bias running_mean running_var"},
    {"aten.native_batch_norm_backward", "float grad_out input weight running_mean running_var save_mean save_invstd"},
    // losses
    {"aten.nll_loss_forward", "float self weight; index target; range reduction 0 2"},
    {"aten.nll_loss_backward",
     "float self weight; same self grad_output total_weight; index target; range reduction 0 2"},
    {"sg.cross_entropy", "float self weight; index target; range reduction 0 2"},
    {"sg.cross_entropy_backward",
     "float self weight log_sum; same grad_output total_weight; index target; range reduction 0 2"},
    {"aten._ctc_loss.default", "float log_probs; index targets"},
    {"aten._ctc_loss.Tensor", "float log_probs; index targets input_lengths target_lengths"},
    {"aten._ctc_loss_backward.default",
     "float log_probs; same log_probs grad neg_log_likelihood log_alpha; index targets"},
    {"aten._ctc_loss_backward.Tensor",
     "float log_probs; same log_probs grad neg_log_likelihood log_alpha; index targets input_lengths target_lengths"},
    {"aten.multi_margin_loss_backward", "float self weight; same self grad_output; index target; range reduction 0 2"},
    {"aten.multilabel_margin_loss_forward", "float self; index target; range reduction 0 2"},
    {"aten.multilabel_margin_loss_backward",
     "float self; same self grad_output is_target; index target; range reduction 0 2"},
    {"aten.cross_entropy_loss", "float self weight; real target; range reduction 0 2; part label_smoothing"},
    {"aten.mse_loss", "real self target; range reduction 0 2"},
    {"aten.mse_loss_backward", "real grad_output self target; range reduction 0 2"},
    {"aten.binary_cross_entropy_with_logits", "real self target weight pos_weight; range reduction 0 2"},
    {"aten.smooth_l1_loss", "real self target; range reduction 0 2; least beta 0"},
    {"aten.huber_loss", "real self target; range reduction 0 2; above delta 0"},
    {"aten.soft_margin_loss", "real self target; range reduction 0 2"},
    {"aten.binary_cross_entropy", "real self target weight; range reduction 0 2"},
    {"aten.smooth_l1_loss_backward aten.huber_loss_backward aten.soft_margin_loss_backward "
     "aten.binary_cross_entropy_backward",
     "real grad_output self target weight; range reduction 0 2"},
    {"aten.nll_loss2d_forward", "float self weight; index target; range reduction 0 2"},
    {"aten.nll_loss2d_backward",
     "float self weight; same self grad_output total_weight; index target; range reduction 0 2"},
    {"aten.glu aten.log_sigmoid_forward", "float self"},
    {"aten.rrelu_with_noise aten.rrelu_with_noise_ aten.rrelu_with_noise_backward",
     "float self; same self noise grad_output"},
    {"aten.glu_backward aten._prelu_kernel_backward", "float grad_output self weight"},
    {"aten._weight_norm_interface", "float v g"},
    {"aten._weight_norm_interface_backward", "float grad_w saved_v saved_g saved_norms"},
    {"aten._cdist_backward aten._pdist_backward", "float grad_output cdist pdist"},
    // products
    {kMatrices, "same self mat2"},
    {"aten.mv", "same self vec"},
    {"aten.dot", "same self tensor"},
    {"aten.addmm aten.addmm_", "same self mat1 mat2"},
    {"aten.baddbmm", "same self batch1 batch2"},
    {"aten.addmv", "same self mat vec"},
    {"aten.matmul", "same self other"},
    {"aten.linear", "same input weight bias"},
    {"aten._grouped_mm", "float self; same self mat2; index offs"},
    {"aten._scaled_mm", "float self mat2 scale_a scale_b bias scale_result"},
    {"aten._scaled_grouped_mm", "float self mat2 scale_a scale_b; index offs"},
    {"aten.convolution aten.conv1d aten.conv2d aten.conv3d aten.conv_transpose1d aten.conv_transpose2d "
     "aten.conv_transpose3d",
     "float input; same input weight bias; range groups 1 1099511627776"},
    {"aten.convolution_backward", "float input; same grad_output input weight; range groups 1 1099511627776"},
    // planes
    {"aten.max_pool2d_with_indices aten.max_pool3d_with_indices aten.adaptive_max_pool2d aten.adaptive_max_pool3d",
     "real self"},
    {"aten.max_pool1d aten.max_pool2d aten.max_pool3d aten.adaptive_max_pool1d", "real self"},
    {"aten.adaptive_avg_pool2d aten.adaptive_avg_pool3d", "real self"},
    {"aten.unfold_backward", "inexact grad_in"},
    {"aten._is_all_true aten._is_any_true", "mask self"},
    {"aten.pad", "word mode constant reflect replicate circular"},
    {"aten.avg_pool1d aten.avg_pool2d aten.avg_pool3d aten.adaptive_avg_pool1d aten._adaptive_avg_pool2d "
     "aten._adaptive_avg_pool3d",
     "real self"},
    {"aten.max_pool2d_with_indices_backward aten.max_pool3d_with_indices_backward aten.adaptive_max_pool2d_backward "
     "aten.adaptive_max_pool3d_backward",
     "float grad_output self; index indices"},
    {"aten.avg_pool2d_backward aten.avg_pool3d_backward aten._adaptive_avg_pool2d_backward "
     "aten._adaptive_avg_pool3d_backward",
     "real grad_output self"},
    {"aten.max_unpool2d aten.max_unpool3d", "real self; index indices"},
    {"aten.grid_sampler_2d aten.grid_sampler_3d", "float input; same input grid"},
    {"aten.grid_sampler_2d_backward aten.grid_sampler_3d_backward", "float input; same grad_output input grid"},
    // indices
    {"aten.gather", "place index"},
    {"aten.index_select aten.take", "index index"},
    {"aten.index_fill aten.index_fill_", "index index; fits value"},
    {"aten.index_add aten.index_add_ aten.index_copy aten.index_copy_", "index index; same self source"},
    {"aten.index_put aten.index_put_ aten._unsafe_index_put", "same self values"},
    {"aten.scatter.src aten.scatter_.src aten.scatter_add aten.scatter_add_ torchtitan.deterministic_scatter_add",
     "place index; same self src"},
    {"aten.scatter.value aten.scatter_.value", "place index; fits value"},
    {"aten.scatter.reduce", "place index; same self src; word reduce add multiply"},
    {"aten.scatter.value_reduce", "place index; word reduce add multiply; fits value"},
    {"aten.scatter_reduce aten.scatter_reduce_", "place index; same self src; word reduce sum prod mean amax amin"},
    {"aten.embedding", "index indices"},
    {"aten.embedding_renorm_", "float self; index indices"},
    {"aten.embedding_dense_backward", "float grad_output; index indices"},
    {"aten.segment_reduce", "float data; word reduce sum mean max min prod"},
    {"aten._segment_reduce_backward", "float data; same data grad output; word reduce sum mean max min prod"},
    {"aten.repeat_interleave.Tensor", "index repeats"},
    {"aten.one_hot", "whole self"},
    {"aten.searchsorted", "real sorted_sequence self; index sorter; word side left right"},
    {"aten.bucketize", "real self boundaries"},
    {"aten.isin", "real elements test_elements"},
    {"torchvision.nms", "float dets scores; same dets scores"},
    {"torchvision.roi_align", "float input; same input rois"},
    {"torchvision._roi_align_backward", "float grad; same grad rois"},
    // attention
    {"aten._scaled_dot_product_flash_attention_for_cpu aten.scaled_dot_product_attention",
     "float query; same query key value; mask attn_mask; part dropout_p"},
    {"aten._scaled_dot_product_flash_attention", "float query; same query key value; part dropout_p"},
    {"aten._scaled_dot_product_efficient_attention aten._scaled_dot_product_cudnn_attention",
     "float query; same query key value; mask attn_bias; part dropout_p"},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward aten._scaled_dot_product_flash_attention_backward",
     "float query logsumexp; same query key value out grad_out; mask attn_mask; part dropout_p"},
    {"aten._scaled_dot_product_efficient_attention_backward",
     "float query logsumexp; same query key value out grad_out_; mask attn_bias; part dropout_p"},
    {"aten._scaled_dot_product_cudnn_attention_backward",
     "float query logsumexp; same query key value out grad_out; mask attn_bias; part dropout_p"},
    {"higher_order.flex_attention", "float query; same query key value"},
    {"higher_order.flex_attention_backward", "float query out logsumexp grad_out grad_logsumexp; same query key value"},
    {"aten.masked_scatter", "flag mask; same self source"},
    {"aten.masked_scatter_backward", "mask mask"},
    // random numbers
    {"aten.bernoulli.Tensor aten.bernoulli_.Tensor", "real p"},
    {"aten.geometric aten.geometric_", "part p"},
    {"aten.native_dropout aten.dropout", "float input; part p"},
    {"aten.multinomial", "float self"},
    {"aten._standard_gamma aten._sample_dirichlet aten.poisson", "float self"},
    {"aten._standard_gamma_grad", "float self output; same self output"},
    {"aten._dirichlet_grad", "float x alpha total; same x alpha total"},
    {"aten.binomial", "float count prob; same count prob"},
    // collectives
    {"_c10d_functional.all_gather_into_tensor_out", "same input out"},
    {"_c10d_functional.reduce_scatter_tensor_out",
     "same input out; word reduce_op sum avg product min max band bor bxor premul_sum:"},
    {"_c10d_functional.all_reduce _c10d_functional.all_reduce_ _c10d_functional.all_reduce_coalesced "
     "_c10d_functional.all_reduce_coalesced_ _c10d_functional.reduce_scatter_tensor "
     "_c10d_functional.reduce_scatter_tensor_coalesced",
     "word reduce_op sum avg product min max band bor bxor premul_sum:"},
};

// Removes and returns the first word; empty if there is none.
constexpr std::string_view next_word(std::string_view* text, char separator = ' ') {
  while (!text->empty() && text->front() == ' ') text->remove_prefix(1);
  size_t end = std::min(text->find(separator), text->size());
  std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

constexpr bool is_number(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) { return '0' <= c && c <= '9'; });
}

int64_t number_of(std::string_view word) {
  int64_t n = 0;
  for (char digit : word) n = n * 10 + (digit - '0');
  return n;
}

// Guards against typos in the table, which would silently check less.
constexpr bool is_clause(std::string_view clause) {
  constexpr std::array kinds = {"float", "inexact", "real", "whole", "number", "truth", "flag",  "nonbool",
                                "ratio", "index",   "mask", "place", "same",   "word",  "range", "part",
                                "least", "above",   "some", "point", "fits",   "power", "factor"};
  const std::string_view kind = next_word(&clause), name = next_word(&clause);
  if (std::ranges::find(kinds, kind) == kinds.end() || name.empty()) return false;
  if (kind == "word") return !next_word(&clause).empty();
  if (kind == "least" || kind == "above") return is_number(next_word(&clause));
  if (kind != "range") return true;
  const std::string_view low = next_word(&clause), high = next_word(&clause);
  return is_number(low) && is_number(high);
}

constexpr bool is_well_formed(const Expectation& e) {
  for (std::string_view wants = e.wants; !wants.empty();)
    if (!is_clause(next_word(&wants, ';'))) return false;
  return !e.ops.empty() && !e.wants.empty();
}
static_assert(std::ranges::all_of(kExpectations, is_well_formed));

// The clauses of an op; empty if it has no row.
std::string_view wants_of(const OpInfo& op) {
  static const std::unordered_map<std::string_view, std::string_view> by_name = [] {
    std::unordered_map<std::string_view, std::string_view> out;
    for (const Expectation& e : kExpectations)
      for (std::string_view ops = e.ops; !ops.empty();) out.emplace(next_word(&ops), e.wants);
    return out;
  }();
  auto it = by_name.find(op.name);
  if (it == by_name.end()) it = by_name.find(op.name.substr(0, op.name.rfind('.')));
  return it == by_name.end() ? std::string_view() : it->second;
}

bool is_whole(DType t) { return !is_floating(t) && !is_complex(t) && t != DType::boolean; }

bool is_of(std::string_view kind, DType t) {
  if (kind == "float") return is_floating(t);
  if (kind == "inexact") return is_floating(t) || is_complex(t);
  if (kind == "real") return !is_complex(t);
  if (kind == "whole") return is_whole(t);
  if (kind == "number") return !is_complex(t) && t != DType::boolean;
  if (kind == "truth") return t == DType::boolean || t == DType::u8;
  if (kind == "flag") return t == DType::boolean;
  if (kind == "nonbool") return t != DType::boolean;
  if (kind == "index" || kind == "place") return t == DType::i64 || t == DType::i32;
  return is_floating(t) || t == DType::boolean;  // mask
}

std::string_view in_words(std::string_view kind) {
  return kind == "float"     ? "a floating element type"
         : kind == "inexact" ? "a floating or complex element type"
         : kind == "real"    ? "an element type that is not complex"
         : kind == "whole"   ? "an integer element type"
         : kind == "number"  ? "an element type that is neither complex nor bool"
         : kind == "truth"   ? "bool or u8 as element type"
         : kind == "flag"    ? "bool as element type"
         : kind == "nonbool" ? "another element type"
         : kind == "mask"    ? "bool or a floating element type"
                             : "i64 or i32 as element type";
}

Error wrong(const InferCall& c, std::string_view name, std::string_view what) {
  return c.fail("'" + std::string(name) + "' has to " + std::string(what));
}

// Elementwise ops take numbers, too, where their schema has a tensor.
bool is_number_given(const InferCall& c, std::string_view name) {
  const Type* t = c.type_of(*c.find(name));
  return c.op.has(kPointwise) && (t == nullptr || t->kind != TypeKind::tensor);
}

Status check_types_of(const InferCall& c, std::string_view kind, std::string_view names) {
  for (std::string_view name = next_word(&names); !name.empty(); name = next_word(&names)) {
    if (c.op.param_index(name) < 0 || !c.given(name)) continue;
    if (kind == "nonbool" && is_number_given(c, name)) continue;
    SG_ASSIGN(const Type* t, c.tensor(name));
    if (kind == "place" && c.sizes.is(c.sizes.count(t->shape), 0)) continue;
    if (!is_of(kind, t->dtype))
      return wrong(c, name, "have " + std::string(in_words(kind)) + ", not " + std::string(dtype_name(t->dtype)));
  }
  return ok_status();
}

Status check_same(const InferCall& c, std::string_view names) {
  std::string_view first_name;
  const Type* first = nullptr;
  for (std::string_view name = next_word(&names); !name.empty(); name = next_word(&names)) {
    if (c.op.param_index(name) < 0 || !c.given(name)) continue;
    SG_ASSIGN(const Type* t, c.tensor(name));
    if (first == nullptr) first = t, first_name = name;
    if (t->dtype != first->dtype)
      return c.fail("the element types differ: '" + std::string(first_name) + "' has " +
                    std::string(dtype_name(first->dtype)) + ", '" + std::string(name) + "' has " +
                    std::string(dtype_name(t->dtype)));
  }
  return ok_status();
}

Status check_ratio(const InferCall& c, std::string_view names) {
  std::string listed;
  for (std::string_view name = next_word(&names); !name.empty(); name = next_word(&names)) {
    if (!c.given(name) || is_number_given(c, name)) return ok_status();
    SG_ASSIGN(const Type* t, c.tensor(name));
    if (is_of("inexact", t->dtype)) return ok_status();
    listed += (listed.empty() ? "'" : " or '") + std::string(name) + "'";
  }
  return c.fail(listed + " has to have a floating or complex element type");
}

bool is_finite_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(number);
}

Status check_word(const InferCall& c, std::string_view name, std::string_view allowed) {
  if (!c.given(name)) return ok_status();
  std::string listed;
  for (std::string_view word = next_word(&allowed); !word.empty(); word = next_word(&allowed)) {
    const bool has_number = word.ends_with(':');
    if (!has_number && c.text(name) == word) return ok_status();
    if (has_number && c.text(name).starts_with(word) && is_finite_number(c.text(name).substr(word.size())))
      return ok_status();
    listed += (listed.empty() ? "'" : ", '") + std::string(word) + (has_number ? "NUMBER'" : "'");
  }
  return wrong(c, name, "be one of " + listed + ", not '" + std::string(c.text(name)) + "'");
}

Status check_range(const InferCall& c, std::string_view name, int64_t low, int64_t high) {
  SG_ASSIGN(Expr e, c.size(name));
  auto value = c.sizes.constant(e);
  if (!value || (*value >= low && *value <= high)) return ok_status();
  return wrong(c, name, "lie in [" + std::to_string(low) + ", " + std::to_string(high) + "]");
}

// The number that is given for a parameter; none if it is left out, or known only to the run.
std::optional<double> known_number(const InferCall& c, std::string_view name) {
  const Arg* arg = c.op.param_index(name) < 0 ? nullptr : c.find(name);
  if (arg != nullptr && arg->is(ArgKind::floating)) return arg->as_float();
  if (arg != nullptr && arg->is(ArgKind::integer)) return static_cast<double>(arg->as_int());
  return std::nullopt;
}

Status check_part(const InferCall& c, std::string_view name) {
  const double value = known_number(c, name).value_or(0);
  return value >= 0 && value <= 1 ? ok_status() : Status(wrong(c, name, "lie in [0, 1]"));
}

Status check_bound(const InferCall& c, std::string_view name, std::string_view bound, bool may_be_it) {
  const auto value = known_number(c, name);
  const auto least = static_cast<double>(number_of(bound));
  if (!value || *value > least || (may_be_it && *value == least)) return ok_status();
  return wrong(c, name, (may_be_it ? "be at least " : "be more than ") + std::string(bound));
}

Status check_some(const InferCall& c, std::string_view names) {
  std::string listed;
  for (std::string_view name = next_word(&names); !name.empty(); name = next_word(&names)) {
    if (c.given(name)) return ok_status();
    listed += (listed.empty() ? "'" : " or '") + std::string(name) + "'";
  }
  return c.fail("needs " + listed);
}

Status check_point(const InferCall& c, std::string_view name) {
  if (!c.given(name)) return ok_status();
  SG_ASSIGN(const Type* t, c.tensor(name));
  return t->shape.empty() ? ok_status() : Status(wrong(c, name, "be a tensor without dimensions"));
}

bool is_of_result(std::string_view kind) { return kind == "fits" || kind == "power" || kind == "factor"; }

// Whether PyTorch casts `arg` to the type: what it calls no overflow, for whole ones. Unknown numbers may.
bool may_fit(const InferCall& c, const Arg& arg, DType type) {
  if (is_complex(type)) return true;
  if (arg.is(ArgKind::complex) && arg.items()[1].as_float() != 0) return false;
  if (!is_integral(type)) return true;
  const bool is_unsigned = type == DType::u64 || type == DType::u32 || type == DType::u16 || type == DType::u8;
  const int bits = 8 * dtype_bytes(type);
  const double end = std::ldexp(1.0, is_unsigned ? bits : bits - 1);
  if (arg.is(ArgKind::floating) || arg.is(ArgKind::complex)) {
    const double value = arg.is(ArgKind::complex) ? arg.items()[0].as_float() : arg.as_float();
    return value >= (is_unsigned ? 0 : -end) && value <= (bits == 64 ? end : end - 1);
  }
  auto e = c.as_size(arg);
  const auto value = e.ok() ? c.sizes.constant(*e) : std::nullopt;
  if (!value || bits == 64) return true;
  const auto most = static_cast<int64_t>(end) - 1;
  return *value <= most && *value >= (is_unsigned ? -most : -most - 1);
}

Status check_fits(const InferCall& c, std::string_view kind, std::string_view names) {
  const DType type = c.results[0].dtype;
  for (std::string_view name = next_word(&names); !name.empty(); name = next_word(&names)) {
    const Arg* arg = c.op.param_index(name) < 0 ? nullptr : c.find(name);
    const Type* given = arg == nullptr ? nullptr : c.type_of(*arg);
    if (arg == nullptr || (given != nullptr && given->kind == TypeKind::tensor)) continue;
    const bool is_of_computation = kind == "factor" && c.op.writes();  // whose type may be wider than the result's
    if (!is_of_computation && !may_fit(c, *arg, type))
      return c.fail("'" + std::string(name) + "' is no number of " + std::string(dtype_name(type)));
    const auto power = c.as_size(*arg);
    if (kind == "power" && is_integral(type) && power.ok() && c.sizes.constant(*power).value_or(0) < 0)
      return c.fail("whole numbers have no negative powers");
    if (kind == "factor" && is_integral(type) && (arg->is(ArgKind::floating) || arg->is(ArgKind::complex)))
      return c.fail("'" + std::string(name) + "' has to be a whole number, as its result has");
    if (kind == "factor" && arg->is(ArgKind::boolean) && type != DType::boolean)
      return c.fail("'" + std::string(name) + "' has to be a number: only a result of bools takes a bool");
  }
  return ok_status();
}

Status check_clause(const InferCall& c, std::string_view clause) {
  std::string_view kind = next_word(&clause);
  if (is_of_result(kind)) return ok_status();  // check_result_numbers() does
  if (kind == "same") return check_same(c, clause);
  std::string_view rest = clause, name = next_word(&rest);
  if (kind == "word") return check_word(c, name, rest);
  if (kind == "part") return check_part(c, name);
  if (kind == "ratio") return check_ratio(c, clause);
  if (kind == "least" || kind == "above") return check_bound(c, name, next_word(&rest), kind == "least");
  if (kind == "some") return check_some(c, clause);
  if (kind == "point") return check_point(c, name);
  if (kind != "range") return check_types_of(c, kind, clause);
  int64_t low = number_of(next_word(&rest));
  return check_range(c, name, low, number_of(next_word(&rest)));
}

}  // namespace

Status check_expectations(const InferCall& c) {
  for (const Param& p : c.op.params)
    if (p.kind == ParamKind::tensor && !c.op.has(kPointwise) && c.given(p.name)) SG_TRY(c.tensor(p.name));
  for (std::string_view wants = wants_of(c.op); !wants.empty();) SG_TRY(check_clause(c, next_word(&wants, ';')));
  return ok_status();
}

Status check_result_numbers(const InferCall& c) {
  if (c.results.empty() || c.results[0].kind != TypeKind::tensor) return ok_status();
  for (std::string_view wants = wants_of(c.op); !wants.empty();) {
    std::string_view clause = next_word(&wants, ';');
    const std::string_view kind = next_word(&clause);
    if (is_of_result(kind)) SG_TRY(check_fits(c, kind, clause));
  }
  return ok_status();
}

}  // namespace sg::infer
