"""Random calls of ops that go by indices, masks and order: indexing, sorting, searching."""
import torch

from kernel_calls import ALL, FLOATS, INTS, REAL, Case, case, dim_of, indices, sizes, strided, tensor, values


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
    return Case(t, axis, indices(r, [r.randint(0, 5)], t.shape[axis], negative=True), 1)


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
