"""Random calls of ops on planes of channels: pooling, pads, resampling, grids, windows as columns."""
import torch

from kernel_calls import ALL, COMPLEX, FLOATS, Case, case, finite, tensor, values

SINGLE = [torch.float32, torch.float64]


def name_axes(name):
    return next(int(name[i]) for i in range(len(name) - 1) if name[i] in "123" and name[i + 1] == "d")


def planes(r, axes, dtypes=FLOATS, low=3, high=7, batched=None, empty=True, numbers=False):
    batched = r.random() < 0.7 if batched is None else batched
    lead = [r.randint(0 if empty else 1, 3), r.randint(1, 3)] if batched else [r.randint(1, 3)]
    shape = lead + [r.randint(low, high) for _ in range(axes)]
    t = tensor(r, dtypes, shape)
    if len(shape) >= 4 and batched and r.random() < 0.3:
        t = t.contiguous(memory_format=torch.channels_last if axes == 2 else torch.channels_last_3d)
    return finite(t) if not numbers and t.is_floating_point() else t


def add(name):
    """Registers a function of (r, axes, op) under one op's name."""
    def register(make):
        op = eval(f"torch.ops.{name}", {"torch": torch})
        case(name)(lambda r: make(r, name_axes(name), op))
        return make
    return register


def each(*names):
    def register(make):
        for name in names:
            add(name)(make)
        return make
    return register


def window(r, axes):
    kernel = [r.randint(1, 3) for _ in range(axes)]
    stride = r.choice([[], [r.randint(1, 3) for _ in range(axes)], [2]])
    return kernel, stride, [r.randint(0, k // 2) for k in kernel]


# --- pooling ---

@each("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool(r, axes, op):
    kernel, stride, padding = window(r, axes)
    t = planes(r, axes, FLOATS + [torch.int64, torch.uint8] if axes == 2 else SINGLE + [torch.int64], numbers=True)
    return Case(t, kernel, stride, padding, r.choice([1, [1] * (axes - 1) + [2]]), r.random() < 0.5)


@each("aten.max_pool2d_with_indices_backward.default", "aten.max_pool3d_with_indices_backward.default")
def max_pool_backward(r, axes, op):
    t = planes(r, axes, SINGLE)
    kernel, stride, padding = window(r, axes)
    arguments = [kernel, stride, padding, [1] * axes, r.random() < 0.5]
    forward = torch.ops.aten.max_pool2d_with_indices if axes == 2 else torch.ops.aten.max_pool3d_with_indices
    out, at = forward(t.contiguous() if axes == 3 else t, *arguments)
    return Case(torch.randn_like(out), t, *arguments, at)


@each("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(r, axes, op):
    kernel, stride, padding = window(r, axes)
    arguments = [planes(r, axes, FLOATS + [torch.int64] if axes == 2 else FLOATS), kernel, stride, padding,
                 r.random() < 0.5, r.random() < 0.5]
    return Case(*arguments, *([] if axes == 1 else [r.choice([None, 3])]))


@each("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def avg_pool_backward(r, axes, op):
    kernel, stride, padding = window(r, axes)
    t = planes(r, axes, SINGLE)
    arguments = [t, kernel, stride, padding, r.random() < 0.5, r.random() < 0.5, r.choice([None, 3])]
    forward = torch.ops.aten.avg_pool2d if axes == 2 else torch.ops.aten.avg_pool3d
    return Case(torch.randn_like(forward(*arguments)), *arguments)


@each("aten.adaptive_avg_pool1d.default", "aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default",
      "aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_pool(r, axes, op):
    return Case(planes(r, axes, SINGLE), [r.randint(1, 9) for _ in range(axes)])


@each("aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default")
def adaptive_avg_backward(r, axes, op):
    t = planes(r, axes, SINGLE, empty=False)
    return Case(tensor(r, t.dtype, [*t.shape[:t.dim() - axes], *[r.randint(1, 9) for _ in range(axes)]]), t)


@each("aten.adaptive_max_pool2d_backward.default", "aten.adaptive_max_pool3d_backward.default")
def adaptive_max_backward(r, axes, op):
    t = planes(r, axes, SINGLE, empty=False)
    forward = torch.ops.aten.adaptive_max_pool2d if axes == 2 else torch.ops.aten.adaptive_max_pool3d
    out, at = forward(t, [r.randint(1, 9) for _ in range(axes)])
    return Case(torch.randn_like(out), t, at)


@each("aten.max_unpool2d.default", "aten.max_unpool3d.default")
def max_unpool(r, axes, op):
    size = [r.randint(4, 6) for _ in range(axes)]
    small = planes(r, axes, SINGLE, low=2, high=3, empty=False).contiguous()
    count = 1
    for n in size:
        count *= n
    flat = [torch.randperm(count)[:small[0].numel() // small.shape[1] if small.dim() == axes + 2 else small[0].numel()]
            for _ in range(small.numel() // (small[0, 0].numel() if small.dim() == axes + 2 else small[0].numel()))]
    at = torch.stack(flat).reshape(small.shape)
    return Case(small, at, size, *([] if axes == 2 else [[1] * 3, [0] * 3]))


# --- pads ---

def pads(r, t, axes, most):
    out = []
    for k in range(axes):
        n = t.shape[t.dim() - 1 - k]
        out += [r.randint(-1, n - 1 if most else n + 1), r.randint(-1, n - 1 if most else n + 1)]
    return out


@each("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default",
      "aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def pad(r, axes, op):
    t = planes(r, axes, SINGLE + COMPLEX + [torch.bfloat16], numbers=True)
    return Case(t, pads(r, t, axes, "reflection" in str(op)))


@each("aten.reflection_pad1d_backward.default", "aten.reflection_pad2d_backward.default",
      "aten.reflection_pad3d_backward.default",
      "aten.replication_pad1d_backward.default", "aten.replication_pad2d_backward.default",
      "aten.replication_pad3d_backward.default")
def pad_backward(r, axes, op):
    t = planes(r, axes, SINGLE + COMPLEX, empty=False)
    padding = [max(p, 0) for p in pads(r, t, axes, "reflection" in str(op))]
    forward = getattr(torch.ops.aten, str(op).split(".")[1].replace("_backward", ""))
    return Case(torch.randn_like(forward(t, padding)), t, padding)


# --- upsampling ---

KINDS = ["upsample_nearest", "_upsample_nearest_exact", "linear", "upsample_bicubic", "_upsample_bilinear_aa",
         "_upsample_bicubic_aa"]
LINEAR = {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}


def upsample_names():
    names = [f"{kind}{d}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for d in (1, 2, 3)]
    return names + [*LINEAR.values(), "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"]


def scales(r, axes, t, size):
    """None, or what makes the size of the input's."""
    if r.random() < 0.5:
        return [None] * axes, size
    factors = [r.choice([1.0, 1.5, 2.0, 2.7, 3.0]) for _ in range(axes)]
    return factors, [max(int(n * f), 1) for n, f in zip(t.shape[2:], factors)]   # as .vec has it


def upsample_input(r, axes, name):
    # Antialiased planes of width 1 are not compared: PyTorch gives zeros where the strides leave the format open.
    dtypes = SINGLE + ([torch.bfloat16] if not name.endswith("aa") else []) + ([torch.uint8] if "nearest" in name and axes == 2 else [])
    return planes(r, axes, dtypes, low=2 if name.endswith("aa") else 1, high=6, batched=True, empty=False)


def upsample_case(r, name, axes):
    t = upsample_input(r, axes, name)
    factors, size = scales(r, axes, t, [r.randint(2 if name.endswith("aa") else 1, 11) for _ in range(axes)])
    aligned = [] if "nearest" in name else [r.random() < 0.4]
    return Case(t, size, *aligned, *factors)


def upsample_vec_case(r, name, axes):
    t = planes(r, axes, SINGLE, low=2, high=6, batched=True, empty=False)
    aligned = [] if "nearest" in name else [r.random() < 0.4]
    if r.random() < 0.4:
        return Case(t, [r.randint(2, 9) for _ in range(axes)], *aligned, None)
    return Case(t, None, *aligned,
                [r.choice([1.0 if name.endswith("aa") else 0.5, 1.5, 2.0, 2.7]) for _ in range(axes)])


def upsample_backward_case(r, name, axes):
    t = planes(r, axes, SINGLE, low=1, high=6, batched=True, empty=False)
    factors, size = scales(r, axes, t, [r.randint(2 if name.endswith("aa") else 1, 11) for _ in range(axes)])
    aligned = [] if "nearest" in name else [r.random() < 0.4]
    grad = tensor(r, t.dtype, [*t.shape[:2], *size])
    return Case(finite(grad), size, list(t.shape), *aligned, *factors)


for upsample in upsample_names():
    d = name_axes(upsample)
    case(f"aten.{upsample}.default")(lambda r, n=upsample, d=d: upsample_case(r, n, d))
    case(f"aten.{upsample}.vec")(lambda r, n=upsample, d=d: upsample_vec_case(r, n, d))
    case(f"aten.{upsample}_backward.default")(lambda r, n=upsample, d=d: upsample_backward_case(r, n, d))


# --- grids ---

def grid_arguments(r, axes):
    t = planes(r, axes, SINGLE, low=1, high=5, batched=True, empty=False)
    grid = torch.rand([t.shape[0], *[r.randint(1, 4) for _ in range(axes)], axes], dtype=torch.float64) * r.choice([2, 2, 6]) - r.choice([1, 1, 3])
    mode = r.choice([0, 1, 2] if axes == 2 else [0, 1])
    return t, grid.to(t.dtype), mode, r.choice([0, 1, 2]), r.random() < 0.5


@each("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(r, axes, op):
    return Case(*grid_arguments(r, axes))


@each("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def grid_backward(r, axes, op):
    t, grid, *rest = grid_arguments(r, axes)
    grad = torch.randn([*t.shape[:2], *grid.shape[1:-1]], dtype=t.dtype)
    return Case(grad, t, grid, *rest, [r.random() < 0.8, True])


# --- columns, channels to places ---

def column_arguments(r):
    return [r.randint(1, 3), r.randint(1, 3)], [r.choice([1, 1, 2]), 1], [r.randint(0, 2), r.randint(0, 2)], [r.randint(1, 2), r.randint(1, 3)]


@case("aten.im2col.default")
def im2col(r):
    return Case(planes(r, 2, FLOATS + COMPLEX + [torch.bool], low=5, high=8, numbers=True), *column_arguments(r))


@case("aten.col2im.default")
def col2im(r):
    arguments = column_arguments(r)
    t = torch.randn([r.randint(1, 2), r.randint(1, 3), r.randint(5, 8), r.randint(5, 8)],
                    dtype=r.choice(SINGLE + COMPLEX))
    columns = torch.ops.aten.im2col(t, *arguments)
    columns = torch.randn_like(columns) if r.random() < 0.7 else torch.randn_like(columns)[0]
    return Case(columns, list(t.shape[2:]), *arguments)


@case("aten.pixel_shuffle.default")
def pixel_shuffle(r):
    f = r.randint(1, 3)
    lead = r.choice([[], [2], [2, 2]])
    return Case(tensor(r, ALL, [*lead, f * f * r.randint(1, 2), r.randint(1, 4), r.randint(1, 4)]), f)


@case("aten.pixel_unshuffle.default")
def pixel_unshuffle(r):
    f = r.randint(1, 3)
    lead = r.choice([[], [2], [2, 2]])
    return Case(tensor(r, ALL, [*lead, r.randint(1, 3), f * r.randint(1, 4), f * r.randint(1, 4)]), f)


@case("aten.channel_shuffle.default")
def channel_shuffle(r):
    groups = r.randint(1, 3)
    return Case(values(r, r.choice(ALL), [r.randint(1, 3), groups * r.randint(1, 3), *r.choice([[4], [2, 3]])]), groups)
