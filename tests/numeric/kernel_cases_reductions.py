"""Random calls of reductions: sums, extremes, scans, moments and norms of tensors."""
import torch

from kernel_calls import ALL, COMPLEX, FLOATS, INTS, REAL, Case, case, dim_of, dims_of, finite, indices, tensor


# --- sums, extremes, scans ---

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
