"""Random calls of systems of equations, decompositions and reductions of segments.

Matrices are such that rounding does not decide: far from singular, values apart. Eigenvectors and singular vectors are compared up to
signs and phases (`turned`), which no library defines.
"""
import torch

from kernel_calls import COMPLEX, Case, case, finite, strided, tensor

SINGLE = [torch.float32, torch.float64]
FIELD = SINGLE + SINGLE + COMPLEX
SIZES = [0, 1, 2, 3, 7, 16, 17, 33, 70]


def batch_of(r):
    return r.choice([[], [], [2], [1], [2, 3], [0]])


def any_matrix(r, m, n, batch, dtype=None, expand=False):
    return strided(r, torch.randn(*batch, m, n, dtype=dtype or r.choice(FIELD)), expand)


def square(r, dtype=None, batch=None, n=None):
    """Far from singular: singular values from 1 to about 5."""
    n, dtype, batch = r.choice(SIZES) if n is None else n, dtype or r.choice(FIELD), batch_of(r) if batch is None else batch
    q1, q2 = (torch.linalg.qr(torch.randn(*batch, n, n, dtype=dtype))[0] for _ in range(2))
    values = torch.linspace(1, 5, n, dtype=torch.float64).to(dtype)
    return strided(r, (q1 * values) @ q2, False)


def positive(r, dtype=None, batch=None, n=None):
    a = square(r, dtype, batch, n)
    return strided(r, a @ a.mH, False)


def apart(r, m, n, batch, dtype):
    """Singular values 1, 2, 3, ... so that vectors are determined."""
    k = min(m, n)
    u, v = (torch.linalg.qr(torch.randn(*batch, size, k, dtype=dtype))[0] for size in (m, n))
    return strided(r, (u * torch.arange(1, k + 1).to(dtype)) @ v.mH, False)


def sides(r, a, left=True, vector=False):
    """Right sides that fit, of a batch that broadcasts with that of `a`."""
    batch = r.choice([list(a.shape[:-2]), [1] * (a.dim() - 2), []])
    k, n = r.choice([0, 1, 3, 20]), a.shape[-1]
    return any_matrix(r, *((n, k) if left else (k, n)), batch, a.dtype)


@case("aten.linalg_cholesky_ex.default")
def cholesky(r):
    return Case(positive(r), upper=r.random() < 0.4, check_errors=r.random() < 0.3)


@case("aten.linalg_inv_ex.default")
def inverse(r):
    return Case(square(r), check_errors=r.random() < 0.3)


@case("aten._linalg_det.default", "aten._linalg_slogdet.default")
def determinant(r):
    return Case(square(r, n=r.choice([0, 1, 2, 3, 7, 17])))


@case("aten.linalg_lu_factor_ex.default", "aten.linalg_lu.default", "aten.linalg_qr.default", "aten.geqrf.default")
def factored(r):
    return Case(any_matrix(r, r.choice(SIZES), r.choice(SIZES), batch_of(r)))


@case("aten.lu_unpack.default")
def unpacked(r):
    lu, pivots, _ = torch.linalg.lu_factor_ex(any_matrix(r, r.choice(SIZES), r.choice(SIZES), batch_of(r)))
    if pivots.numel() and r.random() < 0.15:
        pivots = pivots.clone()
        pivots.view(-1)[0] = r.choice([0, -3, 1 << 30])
        return Case(lu, pivots, fails="pivot .* is not a row", likes=torch.ops.aten.lu_unpack(lu, torch.ones_like(pivots)))
    return Case(strided(r, lu, False), pivots, r.random() < 0.8, r.random() < 0.8)


@case("aten.linalg_lu_solve.default")
def lu_solve(r):
    a, left = square(r), r.random() < 0.7
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    return Case(strided(r, lu, False), pivots, sides(r, a, left), left=left, adjoint=r.random() < 0.5)


@case("aten._linalg_solve_ex.default")
def solve(r):
    a, left = square(r), r.random() < 0.7
    if left and r.random() < 0.3:
        return Case(a, torch.randn(a.shape[:-1], dtype=a.dtype))
    return Case(a, sides(r, a, left), left=left)


@case("aten.linalg_solve_triangular.default")
def solve_triangular(r):
    a, left = square(r, n=r.choice([0, 1, 2, 7, 17, 40])), r.random() < 0.7
    a = a + 5 * torch.eye(a.shape[-1], dtype=a.dtype)
    if r.random() < 0.5:
        a = a.mT.contiguous().mT
    ones = r.random() < 0.3
    return Case(a / a.shape[-1] if ones else a, sides(r, a, left), upper=r.random() < 0.5, left=left, unitriangular=ones)


@case("aten.triangular_solve.default")
def older_triangular(r):
    a = square(r, n=r.choice([0, 1, 2, 7, 17]))
    a = a + 5 * torch.eye(a.shape[-1], dtype=a.dtype)
    return Case(sides(r, a), a, r.random() < 0.5, r.random() < 0.5)


@case("aten.cholesky_solve.default")
def cholesky_solve(r):
    upper = r.random() < 0.4
    factor = torch.linalg.cholesky_ex(positive(r), upper=upper)[0]
    return Case(sides(r, factor), strided(r, factor, False), upper)


@case("aten.cholesky_inverse.default")
def cholesky_inverse(r):
    upper = r.random() < 0.4
    return Case(strided(r, torch.linalg.cholesky_ex(positive(r), upper=upper)[0], False), upper)


@case("aten.linalg_householder_product.default")
def householder(r):
    n, k = r.choice([0, 1, 3, 17, 40]), r.choice([0, 1, 3, 17, 40])
    a, tau = torch.geqrf(torch.randn(*batch_of(r), n + k, n, dtype=r.choice(FIELD)))
    return Case(strided(r, a, False), strided(r, tau[..., :r.choice([n, n // 2])], False))


@case("aten.ormqr.default")
def reflect(r):
    m, k, left = r.choice([1, 3, 17, 40]), r.choice([1, 3, 17]), r.random() < 0.6
    a, tau = torch.geqrf(torch.randn(*batch_of(r), m, r.randint(1, m), dtype=r.choice(FIELD)))
    other = any_matrix(r, *((m, k) if left else (k, m)), a.shape[:-2], a.dtype)
    return Case(strided(r, a, False), tau, other, left, r.random() < 0.5)


@case("aten._linalg_eigh.default")
def eigh(r):
    n, dtype, batch = r.choice([0, 1, 2, 5, 17, 40]), r.choice(FIELD), batch_of(r)
    q = torch.linalg.qr(torch.randn(*batch, n, n, dtype=dtype))[0]
    a = (q * (torch.arange(n) - n / 3).to(dtype)) @ q.mH
    a = a if r.random() < 0.5 else r.choice([torch.tril, torch.triu])(a)
    half = r.choice("LU") if torch.equal(a, a.mH) else "L" if not a.triu(1).any() else "U"
    return Case(strided(r, a, False), half, r.random() < 0.7, turned={1: -2})


@case("aten._linalg_svd.default")
def svd(r):
    m, n, dtype = r.choice([1, 2, 5, 17, 40]), r.choice([0, 1, 2, 5, 17, 40]), r.choice(FIELD)
    full = abs(m - n) <= 1 and r.random() < 0.5      # of more vectors without a value none is determined
    return Case(apart(r, m, n, batch_of(r), dtype), full, r.random() < 0.7, turned={0: -2, 2: -1})


@case("aten.linalg_matrix_exp.default")
def matrix_exp(r):
    a = square(r, n=r.choice([0, 1, 2, 5, 17, 40]))
    return Case(a * r.choice([1e-3, 0.1, 0.3]))


@case("aten._linalg_check_errors.default")
def check_errors(r):
    api = r.choice(["linalg.cholesky", "linalg.inv", "torch.linalg.solve", "linalg.eigh", "linalg.svd"])
    info, is_matrix = torch.zeros(r.choice([[], [3], [2, 2]]), dtype=torch.int32), False
    if info.dim() == 0:
        is_matrix = True
    if r.random() < 0.5:
        return Case(info, api, is_matrix=is_matrix)
    info.view(-1)[-1] = 2
    return Case(info, api, is_matrix=is_matrix, fails=api if is_matrix else f"{api}: .Batch element {info.numel() - 1}.: ")


def lengths_of(r, outer, rows):
    cuts = [sorted(r.randint(0, rows) for _ in range(3)) for _ in range(outer)]
    return torch.tensor([[b - a for a, b in zip([0, *c], [*c, rows])] for c in cuts])


def segments(r):
    """(data, reduce, keywords) with every row in a segment."""
    rows, inner, outer = r.choice([0, 1, 5, 12]), r.choice([[], [3], [2, 2]]), r.choice([None, 2])
    data = finite(tensor(r, SINGLE, [*([outer] if outer else []), rows, *inner], expand=False)).contiguous()
    lengths = lengths_of(r, outer or 1, rows).reshape([outer, 4] if outer else [4])
    where = {"lengths": lengths}
    if r.random() < 0.4:
        where = {"offsets": torch.nn.functional.pad(lengths.cumsum(-1), (1, 0))}
    if r.random() < 0.3:
        where["initial"] = 1.5
    return data, r.choice(["sum", "mean", "max", "min", "prod"]), {**where, "axis": 1 if outer else 0}


@case("aten.segment_reduce.default")
def segment_reduce(r):
    data, reduce, where = segments(r)
    if "lengths" in where and r.random() < 0.1:
        return Case(data, reduce, **{**where, "lengths": where["lengths"] + 1}, fails="segment", likes=[torch.ops.aten.segment_reduce(data, reduce, **where)])
    return Case(data, reduce, **where)


@case("aten._segment_reduce_backward.default")
def segment_reduce_backward(r):
    data, reduce, where = segments(r)
    out = torch.ops.aten.segment_reduce(data, reduce, **where)
    return Case(torch.randn_like(out), out, data, reduce, **where)
