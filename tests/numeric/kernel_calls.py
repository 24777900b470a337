"""What the random calls of ops are made of: the table of cases, and tensors of all types, sizes and strides."""
import torch

FLOATS = [torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
COMPLEX = [torch.complex64, torch.complex128]
ALL = FLOATS + INTS + [torch.bool] + COMPLEX
REAL = FLOATS + INTS
CASES = {}


class Case:
    """`positions`: results that are indices, where equal elements make the choice free; `fails`: what the kernel's message has to match, or True; `likes`: results to hand over where PyTorch gives none;
    `turned`: results of which each line along an axis may be turned by a sign or a phase."""
    def __init__(self, *args, fails=None, likes=(), allocate=(), positions=(), turned=(), **kwargs):
        self.args, self.kwargs, self.fails, self.likes, self.allocate = args, kwargs, fails, list(likes), allocate
        self.positions, self.turned = positions, dict(turned)

    def results(self, expected):
        return [e.dtype if i in self.allocate else e if isinstance(e, torch.Tensor) else None
                for i, e in enumerate(expected)]


def case(*names):
    def add(make):
        for name in names:
            CASES[name] = make
        return make
    return add


def sizes(r, rank=None, low=0, high=9, least=0):
    rank = r.randint(least, 4) if rank is None else rank
    if r.random() < 0.12:
        return [r.choice([1, 3, 300, 1030]) if i == rank - 1 else r.randint(1, 3) for i in range(rank)]
    return [r.choice([low, 1, 2, 3, 5, high]) if r.random() < 0.9 else r.randint(max(low, 1), 40) for _ in range(rank)]


def values(r, dtype, shape):
    if dtype == torch.bool:
        return torch.rand(shape) < 0.5
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype)
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -20
        t = torch.randint(low, 20, shape, dtype=dtype)
        return with_some(r, t, [torch.iinfo(dtype).min, torch.iinfo(dtype).max]) if r.random() < 0.15 else t
    t = (torch.randn(shape, dtype=torch.float64) * r.choice([1, 1, 5, 0.01]) + r.choice([0, 0, 3])).to(dtype)
    if r.random() < 0.15:
        t = torch.round(t)                      # ties
    return with_some(r, t, [float("nan"), float("inf"), -float("inf"), -0.0]) if r.random() < 0.1 else t


def with_some(r, t, special):
    """One or two elements replaced."""
    flat = t.flatten()
    for _ in range(r.randint(1, 2) if t.numel() else 0):
        flat[r.randrange(t.numel())] = r.choice(special)
    return flat.reshape(t.shape)


def strided(r, t, expand=True):
    """The same values under other strides."""
    how = r.random()
    if how < 0.4 or t.numel() == 0:
        return t
    if how < 0.6 and t.dim() > 1:
        order = list(range(t.dim()))
        r.shuffle(order)
        back = [order.index(i) for i in range(t.dim())]
        return t.permute(order).contiguous().permute(back)
    if how < 0.8 and t.dim() > 0:
        wide = torch.zeros([n * 2 + 1 for n in t.shape], dtype=t.dtype)
        view = wide[tuple(slice(1, None, 2) for _ in t.shape)][tuple(slice(0, n) for n in t.shape)]
        view.copy_(t)
        return view
    if how < 0.9 and expand and t.dim() > 0:
        axis = r.randrange(t.dim())
        return t.narrow(axis, 0, 1).expand(t.shape)
    return t


def tensor(r, dtypes=FLOATS, shape=None, expand=True, **kw):
    dtype = r.choice(dtypes) if isinstance(dtypes, list) else dtypes
    return strided(r, values(r, dtype, sizes(r, **kw) if shape is None else list(shape)), expand)


def dim_of(r, t):
    return r.randint(-max(t.dim(), 1), max(t.dim(), 1) - 1)


def dims_of(r, t):
    axes = r.sample(range(t.dim()), r.randint(0, t.dim()))
    return [a - t.dim() if r.random() < 0.3 else a for a in axes]


def indices(r, shape, size, dtype=torch.int64, negative=False):
    low = -size if negative else 0
    if size == 0:
        shape = [0] + list(shape[1:]) if shape else [0]
    t = torch.randint(low, max(size, 1), shape, dtype=dtype) if size else torch.zeros(shape, dtype=dtype)
    if r.random() < 0.3 and t.numel():
        t = t.sort(-1)[0] if t.dim() else t
    return strided(r, t)


def finite(t):
    return torch.nan_to_num(t, nan=1, posinf=1, neginf=-1)


def maybe(r, t):
    return t if r.random() < 0.7 else None
