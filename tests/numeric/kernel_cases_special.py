"""Random calls of special functions, the rarer arithmetic and activations, losses of pairs, distances and weight norm."""
import torch

from kernel_calls import ALL, COMPLEX, FLOATS, INTS, REAL, Case, case, finite, indices, tensor, values

SINGLE = [torch.float32, torch.float64]


def pair(r, dtypes=FLOATS, other=None):
    t = tensor(r, dtypes)
    shape = [1 if r.random() < 0.2 else n for n in t.shape][r.randint(0, min(1, t.dim())):]
    return t, tensor(r, other or t.dtype, shape)


# --- one tensor ---

@case("aten.frac.default")
def frac(r):
    return Case(tensor(r, FLOATS))


@case("aten.sgn.default")
def sgn(r):
    return Case(tensor(r, ALL))


@case("aten.isposinf.default", "aten.isneginf.default")
def is_infinite(r):
    return Case(tensor(r, REAL + [torch.bool]))


@case("aten.deg2rad.default", "aten.rad2deg.default", "aten.special_entr.default", "aten.special_erfcx.default",
      "aten.special_log_ndtr.default")
def function(r):
    # of integers PyTorch computes in float: no measure of larger values
    return Case(tensor(r, SINGLE + [torch.bool]))


@case("aten.i0.default", "aten.special_i0e.default", "aten.special_i1.default", "aten.special_i1e.default",
      "aten.sinc.default")
def i0(r):
    return Case(finite(tensor(r, SINGLE)))


@case("aten.special_ndtri.default")
def ndtri(r):
    t = torch.rand(tensor(r, SINGLE).shape, dtype=torch.float64) * r.choice([1, 1, 1e-6, 1.2])
    return Case(t.to(r.choice(SINGLE)))


@case("aten.special_modified_bessel_k0.default", "aten.special_modified_bessel_k1.default", "aten.special_scaled_modified_bessel_k0.default",
      "aten.special_scaled_modified_bessel_k1.default", "aten.special_spherical_bessel_j0.default")
def bessel_k(r):
    return Case(finite(tensor(r, SINGLE)).abs() + 0.01)


@case("aten.special_bessel_j0.default", "aten.special_bessel_j1.default", "aten.special_bessel_y0.default", "aten.special_bessel_y1.default",
      "aten.special_airy_ai.default")
def bessel_j(r):
    return Case(finite(tensor(r, [torch.float32])).abs().clamp(0.1, 4))     # PyTorch is good to 1e-7 beyond 5, in f64 too


@case(*(f"aten.special_{shifted}chebyshev_polynomial_{kind}.default" for shifted in ("", "shifted_") for kind in "tuvw"),
      "aten.special_hermite_polynomial_h.default", "aten.special_hermite_polynomial_he.default", "aten.special_laguerre_polynomial_l.default",
      "aten.special_legendre_polynomial_p.default")
def polynomial(r):
    t = finite(tensor(r, SINGLE)).clamp(-1, 1)
    return Case(t, torch.randint(-1, 9, t.shape).to(t.dtype))


@case("aten.polygamma.default")
def polygamma(r):
    # of order 1 PyTorch is good to 1e-9 only
    return Case(r.choice([0, 2, 3, 4]), finite(tensor(r, SINGLE)).abs() + 0.25)


@case("aten.round.decimals")
def round_decimals(r):
    return Case(tensor(r, SINGLE), decimals=r.choice([0, 1, 3, -1]))


@case("aten.hardshrink.default", "aten.softshrink.default")
def shrink(r):
    return Case(tensor(r, FLOATS), r.choice([0.5, 1.5, 0]))


@case("aten.threshold.default")
def threshold(r):
    return Case(tensor(r, REAL), r.choice([0, 1, -2]), r.choice([0, 7]))


@case("aten.celu.default")
def celu(r):
    return Case(tensor(r, FLOATS), r.choice([1.0, 0.5, 2.0]))


@case("aten.log_sigmoid_forward.default")
def log_sigmoid(r):
    return Case(tensor(r, FLOATS))


@case("aten.glu.default")
def glu(r):
    t = tensor(r, FLOATS, least=1)
    axis = r.randrange(t.dim())
    shape = list(t.shape)
    shape[axis] *= 2
    return Case(tensor(r, t.dtype, shape), r.choice([axis, axis - t.dim()]))


@case("aten.glu_backward.default")
def glu_backward(r):
    grad = tensor(r, SINGLE, least=1)
    axis = r.randrange(grad.dim())
    shape = list(grad.shape)
    shape[axis] *= 2
    return Case(grad, tensor(r, grad.dtype, shape), axis)


@case("aten.zero.default")
def zero(r):
    return Case(tensor(r, ALL))


@case("aten.fill.Tensor")
def fill(r):
    return Case(tensor(r, ALL), torch.tensor(3))


# --- two tensors ---

@case("aten.copysign.Tensor")
def copysign(r):
    return Case(*pair(r, SINGLE))         # of integers the decomposition on fake tensors has other strides


@case("aten.special_xlog1py.default")
def float_pair(r):
    return Case(*pair(r, SINGLE + INTS))


@case("aten.logaddexp.default", "aten.logaddexp2.default")
def log_pair(r):
    return Case(*pair(r, FLOATS))


@case("aten.nextafter.default")
def nextafter(r):
    return Case(*pair(r, SINGLE + [torch.bfloat16]))


@case("aten.heaviside.default")
def heaviside(r):
    t, v = pair(r, REAL + [torch.bool])
    return Case(t, v)


@case("aten.gcd.default", "aten.lcm.default")
def gcd(r):
    a, b = pair(r, INTS)      # PyTorch's remainders of the least number, whose magnitude wraps around, are negative
    return Case(*(torch.where(t == torch.iinfo(t.dtype).min, 0, t) for t in (a, b)))


@case("aten.igamma.default", "aten.igammac.default")
def igamma(r):
    a, x = pair(r, SINGLE)
    return Case(finite(a).abs() + 0.1, finite(x).abs())


@case("aten.special_zeta.default")
def zeta(r):
    s, q = pair(r, SINGLE)
    return Case(finite(s).abs() + 1.1, finite(q).abs() + 0.1)


@case("aten.special_zeta.other_scalar")
def zeta_other(r):
    return Case(finite(tensor(r, SINGLE)).abs() + 1.1, r.choice([1, 2.5]))


@case("aten.special_zeta.self_scalar")
def zeta_self(r):
    return Case(r.choice([2, 3.5]), finite(tensor(r, SINGLE)).abs() + 0.1)


@case("aten.special_xlog1py.other_scalar", "aten.xlogy.Scalar_Other", "aten.copysign.Scalar")
def with_number(r):
    return Case(tensor(r, SINGLE + INTS), r.choice([0.5, 2, -0.0]))


@case("aten.special_xlog1py.self_scalar", "aten.xlogy.Scalar_Self")
def number_with(r):
    return Case(r.choice([0, 0.5, 2]), tensor(r, SINGLE + INTS))


@case("aten.bitwise_and.Scalar_Tensor", "aten.bitwise_or.Scalar_Tensor", "aten.bitwise_xor.Scalar_Tensor")
def bits_with(r):
    return Case(r.choice([1, 6, 0]), tensor(r, INTS))


@case("aten.bitwise_left_shift.Scalar_Tensor", "aten.bitwise_right_shift.Scalar_Tensor")
def number_shifted(r):
    return Case(r.choice([1, 6, 90]), tensor(r, INTS).remainder(7))


@case("aten.bitwise_and.Scalar", "aten.bitwise_or.Scalar", "aten.bitwise_xor.Scalar")
def bits_with_number(r):
    return Case(tensor(r, INTS), r.choice([1, 6, 0, -2]))


@case("aten.fmod.Scalar")
def fmod_number(r):
    t = finite(tensor(r, REAL))
    return Case(t, r.choice([3, 2 if t.dtype == torch.uint8 else -2, 5]))


@case("aten.add.Scalar", "aten.div.Scalar", "aten.eq.Scalar", "aten.ne.Scalar", "aten.ge.Scalar", "aten.gt.Scalar",
      "aten.le.Scalar", "aten.lt.Scalar")
def with_whole_number(r):
    return Case(finite(tensor(r, REAL + [torch.bool])), r.choice([2, 3, 5]))


@case("aten.sub.Scalar", "aten.remainder.Scalar")
def less_whole_number(r):
    return Case(finite(tensor(r, REAL)), r.choice([2, 3, 5]))


@case("aten.pow.Scalar")
def power_of_number(r):
    t = finite(tensor(r, REAL))
    return Case(r.choice([2, 3]), t if t.is_floating_point() else t % 4)


@case("aten.clamp.default")
def between_numbers(r):
    return Case(finite(tensor(r, REAL)), r.choice([-1, 1]) if r.random() < 0.8 else None, 3)


@case("aten.div.Scalar_mode")
def divided_by_number(r):
    t = finite(tensor(r, REAL))
    return Case(t, r.choice([3, 2 if t.dtype == torch.uint8 else -2, 5]), rounding_mode=r.choice(["floor", "trunc"]))


@case("aten.copy.default")
def copied_into(r):
    t = tensor(r, FLOATS + INTS)
    return Case(tensor(r, r.choice(FLOATS + INTS), t.shape), finite(t))


@case("aten.remainder.Scalar_Tensor")
def remainder_with(r):
    t = tensor(r, SINGLE + INTS)
    return Case(r.choice([5, -7]), torch.where(t == 0, torch.ones_like(t), t))


@case("aten.atan2.out")
def atan2_out(r):
    a, b = pair(r, SINGLE)
    return Case(a, b, out=torch.empty(torch.broadcast_shapes(a.shape, b.shape), dtype=a.dtype))


@case("aten._prelu_kernel.default")
def prelu(r):
    return Case(*pair(r, FLOATS))


@case("aten._prelu_kernel_backward.default")
def prelu_backward(r):
    t, w = pair(r, SINGLE)
    return Case(tensor(r, t.dtype, t.shape), t, w)


@case("aten.mish_backward.default")
def mish_backward(r):
    t = tensor(r, FLOATS)
    return Case(tensor(r, t.dtype, t.shape), finite(t))


@case("aten.log_sigmoid_backward.default")
def log_sigmoid_backward(r):
    t = finite(tensor(r, SINGLE))
    return Case(finite(tensor(r, t.dtype, t.shape)), t, torch.exp(-t.abs()))


@case("aten.hardshrink_backward.default", "aten.softshrink_backward.default")
def shrink_backward(r):
    t = tensor(r, FLOATS)
    return Case(tensor(r, t.dtype, t.shape), t, r.choice([0.5, 0]))


@case("aten.logit_backward.default")
def logit_backward(r):
    t = (finite(tensor(r, SINGLE)) * 0.3 + 0.5).contiguous()
    return Case(finite(tensor(r, t.dtype, t.shape)).contiguous(), t, r.choice([None, 0.1, 1e-3]))


# --- losses ---

@case("aten.smooth_l1_loss.default", "aten.huber_loss.default")
def smooth_l1(r):
    t = finite(tensor(r, FLOATS))
    return Case(t, finite(tensor(r, t.dtype, t.shape)), r.choice([0, 1, 2]), r.choice([1.0, 0.5]))


@case("aten.smooth_l1_loss_backward.default", "aten.huber_loss_backward.default")
def smooth_l1_backward(r):
    t, reduction = finite(tensor(r, SINGLE)), r.choice([0, 1, 2])
    grad = finite(tensor(r, t.dtype, t.shape if reduction == 0 else []))
    return Case(grad, t, finite(tensor(r, t.dtype, t.shape)), reduction, r.choice([1.0, 0.5]))


@case("aten.soft_margin_loss.default")
def soft_margin(r):
    t = finite(tensor(r, SINGLE))
    return Case(t, torch.sign(torch.randn(t.shape)).to(t.dtype), r.choice([0, 1, 2]))


@case("aten.soft_margin_loss_backward.default")
def soft_margin_backward(r):
    t, reduction = finite(tensor(r, SINGLE)), r.choice([0, 1, 2])
    grad = finite(tensor(r, t.dtype, t.shape if reduction == 0 else []))
    return Case(grad, t, torch.sign(torch.randn(t.shape)).to(t.dtype), reduction)


def bce_arguments(r):
    shape = tensor(r, SINGLE).shape
    dtype = r.choice(SINGLE)
    x, y = torch.rand(shape).to(dtype), torch.rand(shape).to(dtype)
    if x.numel() and r.random() < 0.3:
        x.flatten()[0] = r.choice([0, 1])
    return x, y, None if r.random() < 0.5 else torch.rand(shape).to(dtype)


@case("aten.binary_cross_entropy.default")
def bce(r):
    return Case(*bce_arguments(r), r.choice([0, 1, 2]))


@case("aten.binary_cross_entropy_backward.default")
def bce_backward(r):
    x, y, weight = bce_arguments(r)
    reduction = r.choice([0, 1, 2])
    return Case(torch.randn(x.shape if reduction == 0 else []).to(x.dtype), x, y, weight, reduction)


def nll2d_arguments(r):
    classes = r.choice([1, 2, 5])
    shape = [r.randint(1, 3), classes, r.randint(1, 4), r.randint(1, 4)]
    target = indices(r, [shape[0], *shape[2:]], classes).clone()
    if r.random() < 0.5:
        target[torch.rand(target.shape) < 0.3] = -100
    dtype = r.choice(SINGLE)
    return tensor(r, dtype, shape), target, None if r.random() < 0.5 else torch.rand(classes).to(dtype), r.choice([0, 1, 2])


def ctc_arguments(r):
    time, batch, classes = r.randint(1, 7), r.randint(1, 3), r.randint(2, 5)
    scores = torch.randn(time, batch, classes, dtype=r.choice([torch.float32, torch.float64])).log_softmax(-1)
    counts = [r.randint(0, 3) for _ in range(batch)]
    labels = [[r.randint(1, classes - 1) for _ in range(n)] for n in counts]
    if r.random() < 0.5:
        targets = torch.tensor([row + [0] * (3 - len(row)) for row in labels])
    else:
        targets = torch.tensor(sum(labels, []), dtype=torch.int64)
    return scores, targets, [r.randint(1, time) for _ in range(batch)], counts


def as_tensors(arguments):
    return [torch.tensor(a) if isinstance(a, list) else a for a in arguments]


@case("aten._ctc_loss.default")
def ctc_loss(r):
    return Case(*ctc_arguments(r), 0, r.random() < 0.5)


@case("aten._ctc_loss.Tensor")
def ctc_loss_by_tensors(r):
    return Case(*as_tensors(ctc_arguments(r)), 0, r.random() < 0.5)


def ctc_backward_arguments(r):
    scores, targets, inputs, counts = ctc_arguments(r)
    losses, alpha = torch.ops.aten._ctc_loss(scores, targets, inputs, counts)
    alpha = alpha.nan_to_num(nan=0.0, posinf=0.0).clamp(-1e30, 0)
    return torch.rand(losses.shape, dtype=losses.dtype), scores, targets, inputs, counts, losses, alpha, 0, True


@case("aten._ctc_loss_backward.default")
def ctc_loss_backward(r):
    return Case(*ctc_backward_arguments(r))


@case("aten._ctc_loss_backward.Tensor")
def ctc_loss_backward_by_tensors(r):
    return Case(*as_tensors(ctc_backward_arguments(r)))


@case("aten.nll_loss2d_forward.default")
def nll2d(r):
    return Case(*nll2d_arguments(r), -100)


@case("aten.nll_loss2d_backward.default")
def nll2d_backward(r):
    scores, target, weight, reduction = nll2d_arguments(r)
    out, total = torch.ops.aten.nll_loss2d_forward(scores, target, weight, reduction, -100)
    return Case(torch.randn_like(out), scores, target, weight, reduction, -100, total)


# --- weight norm and distances ---

def weight_arguments(r):
    v = finite(tensor(r, SINGLE, low=1, least=1, expand=False)).contiguous()     # PyTorch reads others as if they were
    dim = r.choice([0, v.dim() - 1])
    shape = [n if i == dim else 1 for i, n in enumerate(v.shape)]
    return v, torch.randn(shape, dtype=v.dtype), dim


@case("aten._weight_norm_interface.default")
def weight_norm(r):
    return Case(*weight_arguments(r))


@case("aten._weight_norm_interface_backward.default")
def weight_norm_backward(r):
    v, g, dim = weight_arguments(r)
    v = torch.where(v == 0, torch.ones_like(v), v)
    _, norms = torch.ops.aten._weight_norm_interface(v, g, dim)
    return Case(torch.randn_like(v), v, g, norms, dim)


def row_arguments(r):
    batch, width, dtype = r.choice([[], [2], [2, 3]]), r.choice([1, 3, 5]), r.choice(SINGLE)
    other = r.choice([batch, batch, [1] * len(batch)])
    x1 = finite(tensor(r, dtype, [*batch, r.randint(1, 5), width]))
    return x1, finite(tensor(r, dtype, [*other, r.randint(1, 5), width])), r.choice([0.0, 1.0, 2.0, 3.0, 1.5, float("inf")])


@case("aten._cdist_forward.default")
def cdist(r):
    return Case(*row_arguments(r), r.choice([None, 2]))


@case("aten._cdist_backward.default")
def cdist_backward(r):
    x1, x2, p = row_arguments(r)
    x2 = x2.expand([*x1.shape[:-2], *x2.shape[-2:]]).contiguous()
    x1 = x1.contiguous()
    out = torch.ops.aten._cdist_forward(x1, x2, p, 2)
    return Case(torch.randn_like(out), x1, x2, p, out)


@case("aten._pdist_forward.default")
def pdist(r):
    return Case(finite(tensor(r, SINGLE, [r.randint(0, 6), r.randint(1, 4)])),
                r.choice([0.0, 1.0, 2.0, 3.0, float("inf")]))


@case("aten._pdist_backward.default")
def pdist_backward(r):
    t, p = finite(tensor(r, SINGLE, [r.randint(2, 6), r.randint(1, 4)])).contiguous(), r.choice([0.0, 1.0, 2.0, 3.0, float("inf")])
    out = torch.ops.aten._pdist_forward(t, p)
    return Case(torch.randn_like(out), t, p, out)


# --- Fourier transforms, masked writes, in place ---

def axes_of(r, t):
    return r.sample(range(t.dim()), r.randint(1, min(t.dim(), 3)))


@case("aten._fft_c2c.default")
def fft_c2c(r):
    t = tensor(r, COMPLEX, least=1, low=1, expand=False)
    return Case(t, axes_of(r, t), r.choice([0, 1, 2]), r.random() < 0.5)


@case("aten._fft_r2c.default")
def fft_r2c(r):
    t = finite(tensor(r, SINGLE, least=1, low=1, expand=False))
    return Case(t, axes_of(r, t), r.choice([0, 1, 2]), r.random() < 0.7)


@case("aten._fft_c2r.default")
def fft_c2r(r):
    t = tensor(r, COMPLEX, least=1, low=1, expand=False)
    axes = axes_of(r, t)
    half = t.shape[axes[-1]]
    return Case(t, axes, r.choice([0, 1, 2]), 1 if half == 1 else r.choice([2 * half - 2, 2 * half - 1]))


@case("aten.masked_scatter.default")
def masked_scatter(r):
    t = tensor(r, ALL)
    mask = torch.rand([1 if r.random() < 0.2 else n for n in t.shape]) < 0.5
    return Case(t, mask, values(r, t.dtype, [t.numel() + r.randint(0, 2)]))


@case("aten.masked_scatter_backward.default")
def masked_scatter_backward(r):
    t = tensor(r, ALL)
    mask = torch.rand([1 if r.random() < 0.2 else n for n in t.shape]) < 0.5
    return Case(t, mask, r.choice([[t.numel() + r.randint(0, 2)], [2, t.numel()]]))


@case("aten.sign_.default", "aten.ceil_.default", "aten.square_.default", "aten.sin_.default",
      "aten.hardswish_.default", "aten.gelu_.default",
      "aten.elu_.default", "aten.leaky_relu_.default", "aten.hardtanh_.default", "aten.erf_.default",
      "aten.nan_to_num_.default",
      "aten.log1p_.default", "aten.frac_.default", "aten.mish_.default", "aten.hardsigmoid_.default",
      "aten.celu_.default")
def in_place(r):
    return Case(finite(tensor(r, SINGLE, expand=False)))


@case("aten.fmod_.Tensor", "aten.atan2_.default", "aten.hypot_.default", "aten.xlogy_.Tensor", "aten.clamp_min_.Tensor",
      "aten.copysign_.Tensor")
def in_place_pair(r):
    t = finite(tensor(r, SINGLE, expand=False))
    return Case(t, finite(tensor(r, t.dtype, t.shape)) + 0.5)
