#include "libgraph/export/python_ops.h"

#include "libgraph/export/python_words.h"

namespace sg::python {

namespace {

constexpr SizeOp kSizeOps[] = {
    {"python.add", Spelling::infix, "+", "operator.add", 2},
    {"python.sub", Spelling::infix, "-", "operator.sub", 2},
    {"python.mul", Spelling::infix, "*", "operator.mul", 2},
    {"python.floordiv", Spelling::infix, "//", "operator.floordiv", 2},
    {"python.mod", Spelling::infix, "%", "operator.mod", 2},
    {"python.pow", Spelling::infix, "**", "operator.pow", 2},
    {"python.truediv", Spelling::infix, "/", "operator.truediv", 2},
    {"python.max", Spelling::call, "max", "torch.sym_max", 2},
    {"python.min", Spelling::call, "min", "torch.sym_min", 2},
    {"python.sym_max", Spelling::call, "max", "torch.sym_max", 2},
    {"python.sym_min", Spelling::call, "min", "torch.sym_min", 2},
    {"python.sym_sum", Spelling::call, "sum", "torch.sym_sum", 1},
    {"python.sym_float", Spelling::call, "float", "torch.sym_float", 1},
    {"python.sym_not", Spelling::prefix, "not ", "torch.sym_not", 1},
    {"python.not_", Spelling::prefix, "not ", "operator.not_", 1},
    {"python.sym_ite", Spelling::call, "torch.sym_ite", "torch.sym_ite", 3},
    {"python.and_", Spelling::infix, "&", "operator.and_", 2},
    {"python.or_", Spelling::infix, "|", "operator.or_", 2},
    {"python.xor", Spelling::infix, "^", "operator.xor", 2},
    {"python.lshift", Spelling::infix, "<<", "operator.lshift", 2},
    {"python.rshift", Spelling::infix, ">>", "operator.rshift", 2},
    {"python.pos", Spelling::prefix, "+", "operator.pos", 1},
    {"python.abs", Spelling::call, "abs", "operator.abs", 1},
    {"python.sym_int", Spelling::call, "int", "torch.sym_int", 1},
    {"python.trunc", Spelling::call, "math.trunc", "math.trunc", 1},
    {"python.floor", Spelling::call, "math.floor", "math.floor", 1},
    {"python.ceil", Spelling::call, "math.ceil", "math.ceil", 1},
    {"python.round", Spelling::call, "round", "round", 1, 1},
    {"python.sym_sqrt", Spelling::call, "math.sqrt", "torch.sym_sqrt", 1},
    {"python.sym_log2", Spelling::call, "math.log2", "torch._sym_log2", 1},
    {"python.sym_sin", Spelling::call, "math.sin", "torch._sym_sin", 1},
    {"python.sym_cos", Spelling::call, "math.cos", "torch._sym_cos", 1},
    {"python.sym_tan", Spelling::call, "math.tan", "torch._sym_tan", 1},
    {"python.sym_asin", Spelling::call, "math.asin", "torch._sym_asin", 1},
    {"python.sym_acos", Spelling::call, "math.acos", "torch._sym_acos", 1},
    {"python.sym_atan", Spelling::call, "math.atan", "torch._sym_atan", 1},
    {"python.sym_sinh", Spelling::call, "math.sinh", "torch._sym_sinh", 1},
    {"python.sym_cosh", Spelling::call, "math.cosh", "torch._sym_cosh", 1},
    {"python.sym_tanh", Spelling::call, "math.tanh", "torch._sym_tanh", 1},
    {"python.neg", Spelling::prefix, "-", "operator.neg", 1},
    {"python.eq", Spelling::infix, "==", "operator.eq", 2},
    {"python.ne", Spelling::infix, "!=", "operator.ne", 2},
    {"python.lt", Spelling::infix, "<", "operator.lt", 2},
    {"python.le", Spelling::infix, "<=", "operator.le", 2},
    {"python.gt", Spelling::infix, ">", "operator.gt", 2},
    {"python.ge", Spelling::infix, ">=", "operator.ge", 2},
    {"python.getitem", Spelling::index, "", "operator.getitem", 2},
};

constexpr std::string_view kTransferOps = R"py(
import torch._functorch._activation_offloading.offload_ops  # noqa: E402  registers torch.ops.ao
)py";

constexpr std::string_view kVisionOps = R"py(
import torchvision as vision  # noqa: E402, F401  registers torch.ops.torchvision
)py";

constexpr HelperOp kHelperOps[] = {
    {"sg.pack", "pack", R"py(
def pack(tensors, dtype=None, parts=1):
    """The elements of all tensors in one flat tensor: one after the other, or so for each part of their rows."""
    dtype = tensors[0].dtype if dtype is None else dtype
    rows = [tensor.tensor_split(parts) if parts > 1 else [tensor] for tensor in tensors]
    return torch.cat([part.reshape(-1).to(dtype) for parts_of_one in zip(*rows) for part in parts_of_one])
)py"},
    {"sg.unpack", "unpack", R"py(
def unpack(flat, shapes):
    """Views of a flat tensor: one per shape, in order."""
    parts, start = [], 0
    for shape in shapes:
        parts.append(flat.narrow(0, start, math.prod(shape)).view(list(shape)))
        start += math.prod(shape)
    return parts
)py"},
    {"sg.copy_bits", "copy_bits", R"py(
def copy_bits(tensor, dtype):
    """The same bytes as numbers of another type, in memory of their own."""
    return tensor.clone().view(dtype)
)py"},
    {"sg.cross_entropy", "cross_entropy", R"py(
def cross_entropy(scores, target, weight, reduction, ignore_index):
    """The loss, the total weight, and what log-softmax takes from the numbers of each row."""
    logs = torch.ops.aten._log_softmax(scores.float() if scores.element_size() == 2 else scores, 1, False)
    loss, total = torch.ops.aten.nll_loss_forward(logs, target, weight, reduction, ignore_index)
    return loss, total, torch.logsumexp(scores.double(), 1)
)py"},
    {"sg.cross_entropy_backward", "cross_entropy_backward", R"py(
def cross_entropy_backward(scores, log_sum, grad, target, weight, reduction, ignore_index, total, dtype):
    """The gradient of the scores. Log-probabilities are worked out again, so `log_sum` is not asked."""
    logs = torch.ops.aten._log_softmax(scores.float() if scores.element_size() == 2 else scores, 1, False)
    slope = torch.ops.aten.nll_loss_backward(grad, logs, target, weight, reduction, ignore_index, total)
    return torch.ops.aten._log_softmax_backward_data(slope, logs, 1, logs.dtype).to(dtype)
)py"},
    {"sg.offload", "offload", R"py(
def offload(tensor, device="cpu"):
    """A copy on the host; memory of its own also where the tensor lies there already."""
    return tensor.to(device, copy=True)
)py"},
    {"sg.reload", "reload", R"py(
def reload(tensor, device):
    """A copy back on the device."""
    return tensor.to(device, copy=True)
)py"},
    {"sg.wait", "arrived", R"py(
def arrived(tensor):
    """From here on what an offload or a reload copies may be read: here it has been copied already."""
    return tensor
)py"},
    {"ao.offload.default", "", kTransferOps},
    {"ao.reload.default", "", kTransferOps},
    {"ao.wait_tensor.default", "", kTransferOps},
    {"torchvision.nms.default", "", kVisionOps},
    {"torchvision.roi_align.default", "", kVisionOps},
    {"torchvision._roi_align_backward.default", "", kVisionOps},
    {"torchtitan.deterministic_scatter_add.default", "deterministic_scatter_add", R"py(
def deterministic_scatter_add(tensor, index, src):
    """Adds rows of `src` to rows of a copy of `tensor`; those of one row in their order, whatever the threads do."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        return tensor.scatter_add(0, index, src)
    finally:
        torch.use_deterministic_algorithms(before)
)py"},
    {"bucketing._pre_bucket_all_gather.default", "", R"py(
import torch._inductor.fx_passes.bucketing  # noqa: E402  registers torch.ops.bucketing
)py"},
    {"bucketing._pre_bucket_reduce_scatter.default", "", R"py(
import torch._inductor.fx_passes.bucketing  # noqa: E402  registers torch.ops.bucketing
)py"},
};

}  // namespace

const SizeOp* find_size_op(std::string_view name) {
  for (const SizeOp& op : kSizeOps)
    if (op.name == name) return &op;
  return nullptr;
}

const HelperOp* find_helper_op(std::string_view name) {
  for (const HelperOp& op : kHelperOps)
    if (op.name == name) return &op;
  return nullptr;
}

bool split_op_name(std::string_view name, QualifiedOp* out) {
  size_t dot = name.find('.');
  if (dot == name.npos || !is_dotted_name(name)) return false;
  *out = {name.substr(0, dot), name.substr(dot + 1)};
  return out->space != "sg" && out->space != "python";
}

}  // namespace sg::python
