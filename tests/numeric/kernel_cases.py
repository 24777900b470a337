"""Random calls of ops: for each name a function of a random.Random that makes a Case."""
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


# --- reductions ---

@case("aten.sum.default", "aten.prod.default", "aten.any.default", "aten.all.default", "aten.count_nonzero.default")
def reduce_all(r):
    return Case(tensor(r, ALL))


@case("aten.mean.default", "aten.nansum.default")
def reduce_all_floats(r):
    return Case(tensor(r, FLOATS))


@case("aten.sum.dim_IntList")
def sum_dims(r):
    t = tensor(r, ALL)
    kw = {} if r.random() < 0.7 else {"dtype": r.choice([torch.float32, torch.float64, torch.int64, torch.bfloat16,
                                                         torch.complex64])}
    return Case(t, dims_of(r, t), r.random() < 0.5, **kw)


@case("aten.mean.dim")
def mean_dims(r):
    t = tensor(r, FLOATS + COMPLEX)
    return Case(t, dims_of(r, t), r.random() < 0.5, **({} if r.random() < 0.7 else {"dtype": torch.float64}))


@case("aten.amax.default", "aten.amin.default")
def extreme_dims(r):
    t = tensor(r, REAL + [torch.bool], low=1)
    return Case(t, dims_of(r, t), r.random() < 0.5)


@case("aten.max.default", "aten.min.default")
def extreme_all(r):
    return Case(tensor(r, REAL + [torch.bool], low=1))


@case("aten.max.dim", "aten.min.dim", "aten.argmax.default", "aten.argmin.default")
def extreme_dim(r):
    t = tensor(r, REAL, low=1)
    return Case(t, dim_of(r, t), r.random() < 0.5)


@case("aten.any.dim", "aten.all.dim", "aten.prod.dim_int")
def reduce_dim(r):
    t = tensor(r, ALL)
    return Case(t, dim_of(r, t), r.random() < 0.5)


@case("aten.any.dims", "aten.all.dims")
def reduce_bool_dims(r):
    t = tensor(r, ALL)
    return Case(t, dims_of(r, t) or None, r.random() < 0.5)


@case("aten.cumsum.default", "aten.cumprod.default")
def scan(r):
    t = tensor(r, REAL + COMPLEX)
    return Case(t, dim_of(r, t),
                **({} if r.random() < 0.7 else {"dtype": r.choice([torch.float64, torch.float32, torch.int64])}))


@case("aten.cumsum_.default")
def scan_in_place(r):
    t = tensor(r, REAL, expand=False)
    return Case(t, dim_of(r, t))


@case("aten.logcumsumexp.default")
def scan_exp(r):
    t = tensor(r, FLOATS)
    return Case(t, dim_of(r, t))


@case("aten.cummax.default", "aten.cummin.default")
def scan_extreme(r):
    t = tensor(r, REAL)
    return Case(t, dim_of(r, t))


@case("aten.histc.default")
def histc(r):
    low, high = r.choice([(0, 0), (-3, 3), (0, 7), (-0.5, 2.25)])
    t = tensor(r, [torch.float32, torch.float64])
    return Case(torch.nan_to_num(t, posinf=3, neginf=-3), r.choice([1, 4, 8, 100]), low, high)


@case("aten.bincount.default")
def bincount(r):
    t = indices(r, [r.randint(0, 40)], 9, r.choice(INTS))
    weights = None if r.random() < 0.5 else torch.randn(t.shape, dtype=torch.float64)
    return Case(t, weights, r.choice([0, 4, 20]), allocate=(0,))


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


def finite(t):
    return torch.nan_to_num(t, nan=1, posinf=1, neginf=-1)


def maybe(r, t):
    return t if r.random() < 0.7 else None


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


# --- indexing ---

@case("aten.index.Tensor")
def index(r):
    t = tensor(r, ALL, least=1, low=1)
    return Case(t, index_list(r, t), allocate=())


def index_list(r, t):
    if r.random() < 0.15:
        k = r.randint(1, t.dim())
        first = r.randint(0, t.dim() - k)
        mask = torch.rand(t.shape[first:first + k]) < r.choice([0, 0.4, 1])
        return [None] * first + [mask]
    shape = sizes(r, r.randint(0, 2), high=6)
    out = []
    for axis in range(r.randint(1, t.dim())):
        if r.random() < 0.4:
            out.append(None)
        else:
            own = [1 if r.random() < 0.2 else n for n in shape][r.randint(0, 1) if len(shape) == 2 and shape[0] == 1 else 0:]
            out.append(indices(r, own, t.shape[axis], r.choice([torch.int64, torch.int64, torch.int32]), negative=True))
    if all(x is None for x in out):
        out[-1] = indices(r, shape, t.shape[len(out) - 1])
    return out


@case("aten.index_put.default", "aten.index_put_.default")
def index_put(r):
    t = tensor(r, ALL, least=1, low=1, expand=False)
    at = index_list(r, t)
    picked = t[tuple(slice(None) if i is None else i.long() if i.dtype == torch.int32 else i for i in at)]
    accumulate = r.random() < 0.7
    given = values(r, t.dtype, picked.shape) if accumulate else values(r, t.dtype, [])
    if accumulate and r.random() < 0.3:
        given = values(r, t.dtype, [])
    return Case(t, at, strided(r, given), accumulate)


@case("aten.index_select.default")
def index_select(r):
    t = tensor(r, ALL)
    axis = dim_of(r, t)
    n = t.shape[axis] if t.dim() else 1
    return Case(t, axis, indices(r, [r.randint(0, 9)] if n else [0], n))


@case("aten.index_add.default", "aten.index_copy.default", "aten.index_add_.default", "aten.index_copy_.default")
def index_add(r):
    t = tensor(r, ALL, least=1, low=1, expand=False)
    axis = dim_of(r, t)
    n = r.randint(0, t.shape[axis])
    at = torch.randperm(t.shape[axis])[:n]
    source = list(t.shape)
    source[axis] = n
    return Case(t, axis, strided(r, at), tensor(r, t.dtype, source))


@case("aten.index_fill.int_Scalar", "aten.index_fill_.int_Scalar")
def index_fill(r):
    t = tensor(r, ALL, least=1, low=1)
    axis = dim_of(r, t)
    return Case(t, axis, indices(r, [r.randint(0, 5)], t.shape[axis]), 1)


@case("aten.take.default")
def take(r):
    t = tensor(r, ALL, low=1)
    return Case(t, indices(r, sizes(r), t.numel(), negative=True))


@case("aten.embedding.default")
def embedding(r):
    t = tensor(r, FLOATS, rank=2, low=1)
    return Case(t, indices(r, sizes(r), t.shape[0]))


@case("aten.embedding_dense_backward.default")
def embedding_backward(r):
    rows, width = r.randint(1, 12), r.choice([1, 3, 64, 300])
    at = indices(r, sizes(r, least=1), rows)
    return Case(tensor(r, FLOATS, [*at.shape, width]), at, rows, r.choice([-1, 0]), r.random() < 0.2)


@case("aten.gather.default")
def gather(r):
    t = tensor(r, ALL, low=1)
    axis = dim_of(r, t)
    return Case(t, axis, scatter_index(r, t, axis))


def scatter_index(r, t, axis):
    shape = [r.randint(0, n) if r.random() < 0.3 else n for n in t.shape]
    if t.dim() == 0:
        return indices(r, [], 1)
    shape[axis] = r.randint(0, 9)
    if r.random() < 0.3:
        line = [1] * t.dim()
        line[axis] = shape[axis]
        return indices(r, line, t.shape[axis]).expand(shape)
    return indices(r, shape, t.shape[axis])


def unique_index(r, t, axis):
    """One that names no place twice, so that the result is defined."""
    if t.dim() == 0:
        return torch.zeros([], dtype=torch.int64)
    shape = [r.randint(0, n) if r.random() < 0.3 else n for n in t.shape]
    order = torch.rand(t.shape).argsort(axis)
    return strided(r, order[tuple(slice(0, n) for n in shape)], expand=False)


@case("aten.scatter.src", "aten.scatter_.src")
def scatter_src(r):
    t = tensor(r, ALL, low=1, expand=False)
    axis = dim_of(r, t)
    at = unique_index(r, t, axis)
    return Case(t, axis, at, tensor(r, t.dtype, [n + r.randint(0, 1) for n in at.shape]))


@case("aten.scatter.value", "aten.scatter_.value")
def scatter_value(r):
    t = tensor(r, ALL, low=1, expand=False)
    axis = dim_of(r, t)
    return Case(t, axis, scatter_index(r, t, axis), r.choice([1, 0, 2]))


@case("aten.scatter_add.default", "aten.scatter_add_.default")
def scatter_add(r):
    t = tensor(r, ALL, low=1, expand=False)
    axis = dim_of(r, t)
    at = scatter_index(r, t, axis)
    return Case(t, axis, at, tensor(r, t.dtype, [n + r.randint(0, 1) for n in at.shape]))


@case("aten.scatter.reduce")
def scatter_reduced(r):
    t = tensor(r, FLOATS, low=1, expand=False)
    axis = dim_of(r, t)
    at = scatter_index(r, t, axis)
    return Case(t, axis, at, tensor(r, t.dtype, at.shape), reduce=r.choice(["add", "multiply"]))


@case("aten.scatter.value_reduce")
def scatter_value_reduced(r):
    t = tensor(r, FLOATS, low=1, expand=False)
    axis = dim_of(r, t)
    return Case(t, axis, scatter_index(r, t, axis), 2, reduce=r.choice(["add", "multiply"]))


@case("aten.scatter_reduce.two", "aten.scatter_reduce_.two")
def scatter_reduce(r):
    t = tensor(r, REAL, low=1, expand=False)
    axis = dim_of(r, t)
    at = scatter_index(r, t, axis)
    return Case(t, axis, at, tensor(r, t.dtype, at.shape), r.choice(["sum", "prod", "mean", "amax", "amin"]),
                include_self=r.random() < 0.5)


# --- moving elements ---

@case("aten.cat.default")
def cat(r):
    first = tensor(r, ALL, least=1)
    axis = dim_of(r, first)
    out = [first]
    for _ in range(r.randint(0, 3)):
        shape = list(first.shape)
        shape[axis] = r.randint(0, 4)
        out.append(tensor(r, r.choice([first.dtype, first.dtype, torch.float32]), shape))
    if r.random() < 0.2:
        out.insert(r.randint(0, len(out)), torch.empty(0))
    return Case(out, axis)


@case("aten.stack.default")
def stack(r):
    first = tensor(r, ALL)
    return Case([first] + [tensor(r, first.dtype, first.shape) for _ in range(r.randint(0, 3))],
                r.randint(-first.dim() - 1, first.dim()))


@case("aten.split_with_sizes_copy.default")
def split_copy(r):
    t = tensor(r, ALL, least=1)
    axis = dim_of(r, t)
    cut = r.randint(0, t.shape[axis])
    return Case(t, [cut, t.shape[axis] - cut], axis)


@case("aten.tril.default", "aten.triu.default")
def triangle(r):
    return Case(tensor(r, ALL, least=2), r.randint(-4, 4))


@case("aten.tril_.default", "aten.triu_.default")
def triangle_in_place(r):
    return Case(tensor(r, ALL, least=2, expand=False), r.randint(-4, 4))


@case("aten.repeat.default")
def repeat(r):
    t = tensor(r, ALL)
    return Case(t, [r.randint(0, 3) for _ in range(t.dim() + r.randint(0, 1))])


@case("aten.flip.default")
def flip(r):
    t = tensor(r, ALL)
    return Case(t, dims_of(r, t))


@case("aten.roll.default")
def roll(r):
    t = tensor(r, ALL)
    axes = dims_of(r, t)
    return Case(t, [r.randint(-7, 7) for _ in axes] or [r.randint(-7, 7)], axes)


@case("aten.constant_pad_nd.default")
def pad(r):
    t = tensor(r, ALL, least=1, low=2)
    return Case(t, [r.randint(-1, 3) for _ in range(2 * r.randint(0, t.dim()))], r.choice([0, 1]))


@case("aten.diff.default")
def diff(r):
    t = tensor(r, REAL + [torch.bool], least=1)
    axis = dim_of(r, t)
    extra = [tensor(r, t.dtype, t.shape) if r.random() < 0.3 else None for _ in range(2)]
    return Case(t, r.randint(0, 3), axis, *extra)


@case("aten.repeat_interleave.Tensor")
def repeat_interleave(r):
    t = torch.randint(0, 4, [r.randint(0, 9)], dtype=r.choice([torch.int64, torch.int32]))
    known = r.random() < 0.5
    return Case(strided(r, t, expand=False), **({"output_size": int(t.sum())} if known else {}),
                allocate=() if known else (0,))


@case("aten.repeat_interleave.self_int")
def repeat_interleave_int(r):
    t = tensor(r, ALL)
    return Case(t, r.randint(0, 3), r.choice([None, dim_of(r, t)]))


@case("aten.view_copy.default")
def view_copy(r):
    t = values(r, r.choice(ALL), sizes(r))
    return Case(t, [t.numel()])


@case("aten.permute_copy.default")
def permute_copy(r):
    t = tensor(r, ALL)
    order = list(range(t.dim()))
    r.shuffle(order)
    return Case(t, order)


@case("aten.slice_copy.Tensor")
def slice_copy(r):
    t = tensor(r, ALL, least=1)
    return Case(t, dim_of(r, t), *slice_of(r))


def slice_of(r):
    return r.choice([None, -3, 0, 1, 50]), r.choice([None, -1, 2, 100, 2**63 - 1]), r.randint(1, 3)


@case("aten.slice_backward.default")
def slice_backward(r):
    shape = sizes(r, least=1)
    axis = r.randint(-len(shape), len(shape) - 1)
    start, end, step = slice_of(r)
    start, end = start or 0, 2**63 - 1 if end is None else end
    part = torch.ops.aten.slice(torch.empty(shape), axis, start, end, step)
    return Case(tensor(r, ALL, part.shape), shape, axis, start, end, step)


@case("aten.select_backward.default")
def select_backward(r):
    shape = sizes(r, least=1, low=1)
    axis = r.randint(-len(shape), len(shape) - 1)
    at = r.randint(-shape[axis], shape[axis] - 1)
    return Case(tensor(r, ALL, torch.empty(shape).select(axis, at).shape), shape, axis, at)


@case("aten.slice_scatter.default")
def slice_scatter(r):
    t = tensor(r, ALL, least=1)
    axis, part = dim_of(r, t), slice_of(r)
    return Case(t, tensor(r, t.dtype, torch.ops.aten.slice(t, axis, *part).shape), axis, *part)


@case("aten.select_scatter.default")
def select_scatter(r):
    t = tensor(r, ALL, least=1, low=1)
    axis = dim_of(r, t)
    at = r.randint(-t.shape[axis], t.shape[axis] - 1)
    return Case(t, tensor(r, t.dtype, t.select(axis, at).shape), axis, at)


# --- sorting ---

@case("aten.sort.default")
def sort(r):
    t = tensor(r, REAL + [torch.bool])
    return Case(t, dim_of(r, t), r.random() < 0.5, positions=(1,))


@case("aten.sort.stable")
def sort_stable(r):
    t = tensor(r, REAL + [torch.bool])
    return Case(t, stable=True, dim=dim_of(r, t), descending=r.random() < 0.5)


@case("aten.argsort.default")
def argsort(r):
    t = tensor(r, REAL)
    return Case(t, dim_of(r, t), r.random() < 0.5, positions=(0,))


@case("aten.argsort.stable")
def argsort_stable(r):
    t = tensor(r, REAL)
    return Case(t, stable=True, dim=dim_of(r, t), descending=r.random() < 0.5)


@case("aten.topk.default")
def topk(r):
    t = tensor(r, REAL, least=1)
    axis = dim_of(r, t)
    return Case(t, r.randint(0, t.shape[axis]), axis, r.random() < 0.5, r.random() < 0.7)


@case("aten.median.default")
def median(r):
    return Case(tensor(r, REAL, low=1))


@case("aten.median.dim")
def median_dim(r):
    t = tensor(r, REAL, low=1)
    return Case(t, dim_of(r, t), r.random() < 0.5, positions=(1,))


# --- checks and numbers ---

@case("aten._local_scalar_dense.default")
def item(r):
    return Case(values(r, r.choice(REAL + [torch.bool]), []))


# --- moments and norms ---

@case("aten.var.correction", "aten.std.correction", "aten.var_mean.correction")
def variance(r):
    t = tensor(r, FLOATS + COMPLEX)
    t = t if t.is_complex() else finite(t)      # PyTorch's mean of infinities is NaN on this way, infinite on others
    return Case(t, dims_of(r, t) or None, correction=r.choice([None, 0, 1, 2]), keepdim=r.random() < 0.5)


@case("aten.var.dim", "aten.std.dim")
def variance_dim(r):
    t = tensor(r, FLOATS)
    return Case(t, dims_of(r, t), r.random() < 0.5, r.random() < 0.5)


@case("aten.var.default", "aten.std.default")
def variance_all(r):
    return Case(tensor(r, FLOATS), r.random() < 0.5)


@case("aten.linalg_vector_norm.default")
def vector_norm(r):
    t = tensor(r, FLOATS + COMPLEX, low=1)
    return Case(t, r.choice([0, 1, 2, 2, 3, 0.5, float("inf"), -float("inf")]), dims_of(r, t) or None, r.random() < 0.5)


@case("aten.norm.ScalarOpt_dim")
def norm_dim(r):
    t = tensor(r, FLOATS, low=1)
    return Case(t, r.choice([None, 1, 2, 3]), dims_of(r, t), r.random() < 0.5)


@case("aten.norm.Scalar")
def norm_all(r):
    return Case(tensor(r, FLOATS, low=1), r.choice([1, 2, 3]))


@case("aten.logsumexp.default")
def logsumexp(r):
    t = tensor(r, FLOATS)
    return Case(t, dims_of(r, t), r.random() < 0.5)


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


# --- searching ---

@case("aten.nonzero.default")
def nonzero(r):
    return Case(tensor(r, ALL), allocate=(0,))


@case("aten.masked_select.default")
def masked_select(r):
    t = tensor(r, ALL)
    shape = [1 if r.random() < 0.3 else n for n in t.shape][r.randint(0, min(1, t.dim())):]
    return Case(t, torch.rand(shape) < 0.5, allocate=(0,))


@case("aten._unique2.default")
def unique(r):
    t = tensor(r, INTS + [torch.float32])
    return Case(torch.nan_to_num(t) if t.is_floating_point() else t, True, r.random() < 0.5, r.random() < 0.5,
                allocate=(0, 1, 2))


@case("aten.bucketize.Tensor")
def bucketize(r):
    t = tensor(r, REAL)
    return Case(t, values(r, t.dtype, [r.randint(0, 9)]).nan_to_num().sort()[0], out_int32=r.random() < 0.5,
                right=r.random() < 0.5)


@case("aten.searchsorted.Tensor")
def searchsorted(r):
    dtype, rows, n = r.choice(REAL), r.randint(1, 3), r.randint(1, 9)
    sequence = values(r, dtype, [rows, n]).nan_to_num()
    kw = {"side": r.choice(["left", "right"])} if r.random() < 0.5 else {}
    if r.random() < 0.3:
        return Case(sequence, values(r, dtype, [rows, 4]), sorter=sequence.argsort(-1), **kw)
    return Case(sequence.sort(-1)[0], values(r, dtype, [rows, 4]), out_int32=r.random() < 0.5, **kw)


@case("aten.isin.Tensor_Tensor")
def isin(r):
    t = tensor(r, REAL)
    return Case(t, values(r, t.dtype, [r.randint(0, 9)]), invert=r.random() < 0.5)


@case("aten.one_hot.default")
def one_hot(r):
    known = r.random() < 0.5
    return Case(indices(r, sizes(r, low=1), 5), 5 if known else -1, allocate=() if known else (0,))


# --- factories ---

@case("aten.linspace.default")
def linspace(r):
    return Case(r.choice([0, -3, 0.5]), r.choice([1, 10, 2.25]), r.choice([0, 1, 2, 5, 100]),
                dtype=r.choice([torch.float32, torch.float64, torch.int64]))


@case("aten.eye.m")
def eye(r):
    return Case(r.randint(0, 5), r.randint(0, 5), dtype=r.choice(ALL))


@case("aten.tril_indices.default")
def tril_indices(r):
    return Case(r.randint(0, 5), r.randint(0, 5), r.randint(-6, 6))
