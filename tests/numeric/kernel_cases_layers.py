"""Random calls of what layers end in: softmax, normalizations, losses."""
import torch

from kernel_calls import FLOATS, Case, case, dim_of, finite, indices, maybe, tensor


# --- softmax and norms ---

@case("aten._softmax.default", "aten._log_softmax.default")
def softmax(r):
    t = tensor(r, FLOATS)
    return Case(t, dim_of(r, t), False)


@case("aten._safe_softmax.default", "aten.softmax.int", "aten.log_softmax.int")
def softmax_dtype(r):
    t = tensor(r, FLOATS)
    if r.random() < 0.3 and t.numel():
        t = torch.full_like(t, -float("inf"))
    return Case(t, dim_of(r, t), r.choice([None, None, torch.float32, torch.float64]))


@case("aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default")
def softmax_backward(r):
    t = tensor(r, FLOATS)
    return Case(t, tensor(r, t.dtype, t.shape), dim_of(r, t), t.dtype)


def norm_arguments(r, dtypes=FLOATS):
    t = finite(tensor(r, dtypes, low=1, least=1))
    k = r.randint(1, t.dim())
    shape = list(t.shape[t.dim() - k:])
    return t, shape


@case("aten.native_layer_norm.default")
def layer_norm(r):
    t, shape = norm_arguments(r)
    return Case(t, shape, maybe(r, tensor(r, t.dtype, shape)), maybe(r, tensor(r, t.dtype, shape)),
                r.choice([1e-5, 1e-6]))


@case("aten.native_layer_norm_backward.default")
def layer_norm_backward(r):
    t, shape = norm_arguments(r)
    t = finite(t)
    weight = maybe(r, finite(tensor(r, t.dtype, shape)))
    _, mean, rstd = torch.ops.aten.native_layer_norm(t, shape, None, None, 1e-5)
    return Case(finite(tensor(r, t.dtype, t.shape)), t, shape, mean, rstd, weight,
                None if weight is None else tensor(r, t.dtype, shape),
                [r.random() < 0.8, weight is not None, weight is not None])


@case("aten._fused_rms_norm.default")
def rms_norm(r):
    t, shape = norm_arguments(r)
    return Case(t, shape, maybe(r, finite(tensor(r, t.dtype, shape))), r.choice([1e-5, None]))


@case("aten._fused_rms_norm_backward.default")
def rms_norm_backward(r):
    t, shape = norm_arguments(r)
    t = finite(t)
    weight = maybe(r, finite(tensor(r, t.dtype, shape)))
    _, rstd = torch.ops.aten._fused_rms_norm(t, shape, None, 1e-5)
    return Case(finite(tensor(r, t.dtype, t.shape)), t, shape, rstd, weight, [True, weight is not None])


# --- group and batch norm ---

def channels_first(r, dtypes=FLOATS):
    groups = r.randint(1, 3)
    shape = [r.randint(1, 3), groups * r.randint(1, 3)] + [r.randint(1, 4) for _ in range(r.randint(0, 2))]
    return groups, finite(tensor(r, dtypes, shape))


@case("aten.native_group_norm.default")
def group_norm(r):
    groups, t = channels_first(r)
    weight = finite(tensor(r, t.dtype, [t.shape[1]], expand=False))
    n, c = t.shape[:2]
    return Case(t.contiguous(), maybe(r, weight.contiguous()), maybe(r, weight.flip(0)), n, c, t.numel() // (n * c),
                groups, 1e-5)


@case("aten.native_group_norm_backward.default")
def group_norm_backward(r):
    groups, t = channels_first(r, [torch.float32, torch.float64])
    n, c = t.shape[:2]
    t, weight = t.contiguous(), maybe(r, torch.randn(c).to(t.dtype))
    _, mean, rstd = torch.ops.aten.native_group_norm(t, None, None, n, c, t.numel() // (n * c), groups, 1e-5)
    return Case(torch.randn_like(t), t, mean, rstd, weight, n, c, t.numel() // (n * c), groups, [True, True, True])


@case("aten.native_batch_norm.default", "aten._native_batch_norm_legit.default")
def batch_norm(r):
    _, t = channels_first(r, [torch.float32, torch.float64])
    c = t.shape[1]
    make = (lambda: torch.rand(c).to(t.dtype) + 0.5)
    return Case(t, maybe(r, make()), maybe(r, make()), make(), make(), t.numel() // c > 1 and r.random() < 0.7, 0.1,
                1e-5)


@case("aten._native_batch_norm_legit.no_stats")
def batch_norm_no_stats(r):
    _, t = channels_first(r, [torch.float32, torch.float64])
    return Case(t, None, None, True, 0.1, 1e-5)


@case("aten._native_batch_norm_legit_no_training.default")
def batch_norm_eval(r):
    _, t = channels_first(r, [torch.float32, torch.float64])
    make = (lambda: torch.rand(t.shape[1]).to(t.dtype) + 0.5)
    return Case(t, make(), make(), make(), make(), 0.1, 1e-5)


@case("aten.native_batch_norm_backward.default")
def batch_norm_backward(r):
    _, t = channels_first(r, [torch.float32, torch.float64])
    make = (lambda: torch.rand(t.shape[1]).to(t.dtype) + 0.5)
    return Case(torch.randn_like(t), t, maybe(r, make()), make(), make(), make(), make(), r.random() < 0.7, 1e-5,
                [True, True, True])


# --- losses ---

def nll_arguments(r):
    classes = r.choice([1, 2, 7, 300])
    n = r.choice([0, 1, 5, 40])
    dtype = r.choice(FLOATS)
    scores = tensor(r, dtype, [n, classes] if r.random() < 0.9 else [classes])
    target = indices(r, [n] if scores.dim() == 2 else [], classes)
    if target.numel() and r.random() < 0.5:
        target = target.clone()
        target[torch.rand(target.shape) < 0.4] = -100
    weight = None if r.random() < 0.5 else torch.rand(classes).to(dtype)
    return scores, target, weight, r.choice([0, 1, 2])


@case("aten.nll_loss_forward.default")
def nll_loss(r):
    scores, target, weight, reduction = nll_arguments(r)
    return Case(scores, target, weight, reduction, -100)


@case("aten.nll_loss_backward.default")
def nll_loss_backward(r):
    scores, target, weight, reduction = nll_arguments(r)
    out, total = torch.ops.aten.nll_loss_forward(scores, target, weight, reduction, -100)
    return Case(torch.randn(out.shape, dtype=torch.float64).to(out.dtype), scores, target, weight, reduction, -100,
                total)


@case("aten.mse_loss.default")
def mse_loss(r):
    t = tensor(r, FLOATS)
    return Case(t, tensor(r, r.choice([t.dtype, *FLOATS]), t.shape), r.choice([0, 1, 2]))


@case("aten.mse_loss_backward.default")
def mse_loss_backward(r):
    t, reduction = tensor(r, FLOATS), r.choice([0, 1, 2])
    grad = finite(tensor(r, t.dtype, t.shape if reduction == 0 else []))
    return Case(grad, t, tensor(r, t.dtype, t.shape), reduction)


@case("aten.binary_cross_entropy_with_logits.default")
def bce(r):
    t = finite(tensor(r, FLOATS))
    extra = [torch.rand(t.shape).to(t.dtype) if r.random() < 0.4 else None for _ in range(2)]
    target = torch.rand(t.shape).to(r.choice([t.dtype, *FLOATS]) if extra == [None, None] else t.dtype)
    return Case(t, target, *extra, r.choice([0, 1, 2]))


@case("aten.cross_entropy_loss.default")
def cross_entropy(r):
    classes = r.choice([1, 3, 9])
    shape = r.choice([[classes], [4, classes], [3, classes, 2], [2, classes, 3, 2]])
    t = finite(tensor(r, [torch.float32, torch.float64], shape))
    rows = [n for i, n in enumerate(shape) if i != (1 if len(shape) > 1 else 0)]
    if r.random() < 0.3:
        target = torch.rand(shape).to(t.dtype)
    else:
        target = indices(r, rows, classes)
        if target.numel() and r.random() < 0.5:
            target = torch.where(torch.rand(target.shape) < 0.3, -100, target)
    weight = torch.rand(classes).to(t.dtype) if r.random() < 0.4 else None
    return Case(t, target, weight, r.choice([0, 1, 2]), -100, r.choice([0.0, 0.1]))
