"""Random calls of ops that PyTorch makes of others: torch.export leaves them whole."""
import torch

from kernel_calls import ALL, FLOATS, Case, case, finite, maybe, strided, tensor
from kernel_cases_layers import channels_first
from kernel_cases_planes import SINGLE, each, planes, window

DOUBLES = [torch.float32, torch.float64]


# --- convolutions ---

def filters(r, axes, transposed):
    """An image, batched or not, a weight for it, perhaps a bias, and the groups."""
    groups, dtype = r.choice([1, 1, 2]), r.choice(DOUBLES)
    channels, out = groups * r.randint(1, 4), groups * r.randint(1, 4)
    size = [r.randint(4, 9) for _ in range(axes)]
    image = strided(r, torch.randn([r.choice([1, 3]), channels, *size], dtype=dtype), expand=False)
    kernel = [r.randint(1, 3) for _ in range(axes)]
    weight = torch.randn([channels, out // groups, *kernel] if transposed else [out, channels // groups, *kernel],
                         dtype=dtype)
    return image if r.random() < 0.8 else image[0], weight, maybe(r, torch.randn(out, dtype=dtype)), groups


@each("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
def conv(r, axes, op):
    image, weight, bias, groups = filters(r, axes, False)
    stride = r.choice([[2], [r.randint(1, 3) for _ in range(axes)]])
    return Case(image, weight, bias, stride, r.choice([[0], [1], [r.randint(0, 2) for _ in range(axes)]]),
                r.choice([[1], [2] + [1] * (axes - 1)]), groups)


@each("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")
def conv_padded(r, axes, op):
    image, weight, bias, groups = filters(r, axes, False)
    word = r.choice(["same", "valid"])
    stride, dilation = ([1], [r.choice([1, 2])]) if word == "same" else ([r.randint(1, 2)], [1])
    return Case(image, weight, bias, stride, word, dilation, groups)


@each("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transposed(r, axes, op):
    image, weight, bias, groups = filters(r, axes, True)
    stride = r.randint(1, 3)
    return Case(image, weight, bias, [stride], [r.choice([0, 1])], [r.randint(0, stride - 1)], groups,
                [r.choice([1, 2])])


# --- pools and pads ---

@each("aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default")
def max_pool(r, axes, op):
    kernel, stride, padding = window(r, axes)
    return Case(planes(r, axes, SINGLE, numbers=True), kernel, stride, padding, 1, r.random() < 0.5)


@each("aten.adaptive_avg_pool2d.default", "aten.adaptive_avg_pool3d.default", "aten.adaptive_max_pool1d.default")
def adaptive_pool(r, axes, op):
    return Case(planes(r, axes, SINGLE, empty=False), [r.choice([1, r.randint(1, 9)])] * axes)


@case("aten.pad.default")
def pad(r):
    mode, axes = r.choice(["constant", "constant", "reflect", "replicate", "circular"]), r.randint(1, 3)
    t = planes(r, axes, ALL if mode == "constant" else SINGLE, empty=False)
    if mode == "constant":
        return Case(t, [r.randint(0, 3) for _ in range(2 * r.randint(0, axes))], mode, r.choice([None, 2]))
    most = [n - (mode == "reflect") for n in reversed(t.shape[-axes:])]
    return Case(t, [r.randint(0, min(3, n)) for n in most for _ in range(2)], mode)


# --- norms ---

@case("aten.batch_norm.default", "aten.instance_norm.default")
def running_norm(r):
    _, t = channels_first(r, DOUBLES)
    c, own = t.shape[1], t.numel() // (t.shape[0] * t.shape[1]) > 1 and r.random() < 0.7
    make = (lambda: torch.rand(c).to(t.dtype) + 0.5)
    mean, var = (None, None) if own and r.random() < 0.3 else (make(), make())
    return Case(t, maybe(r, make()), maybe(r, make()), mean, var, own, 0.1, 1e-5, True)


@case("aten.group_norm.default")
def group_norm(r):
    groups, t = channels_first(r, FLOATS)
    weight = finite(tensor(r, t.dtype, [t.shape[1]], expand=False))
    return Case(t, groups, maybe(r, weight.contiguous()), maybe(r, weight.flip(0)), 1e-5)
