"""What the vectors of decompositions can be held to: where the matrix says the result, and up to what."""
import torch

# Results of which each line along an axis may be turned by a sign or a phase: eigenvectors, singular vectors.
TURNED = {("aten._linalg_eigh.default", 1): -2, ("aten.linalg_eigh.default", 1): -2, ("aten._linalg_svd.default", 0): -2,
          ("aten._linalg_svd.default", 2): -1, ("aten.linalg_svd.default", 0): -2, ("aten.linalg_svd.default", 2): -1}
OF_TRIANGLES = ("aten.linalg_solve_triangular", "aten.triangular_solve", "aten.cholesky_solve", "aten.cholesky_inverse")
OF_MATRICES = ("aten.linalg_cholesky", "aten._linalg_solve_ex", "aten.linalg_solve.", "aten.linalg_inv", "aten.inverse", "aten.linalg_lu",
               "aten._linalg_det", "aten.linalg_det", "aten.det.", "aten._linalg_slogdet", "aten.linalg_slogdet", "aten.slogdet", "aten.logdet",
               "aten.linalg_qr", "aten.geqrf", "aten.linalg_pinv")
MOST_CONDITION = 1e5
LEAST_GAP = 1e-2          # of the largest value: closer ones have vectors that rounding chooses


def wide(t):
    return t.resolve_conj().to(torch.complex128 if t.dtype.is_complex else torch.float64)


def is_sound(name, tensors):
    """Whether rounding leaves the results as they are: they are no measure of a matrix that is nearly singular."""
    if not name.startswith(OF_TRIANGLES + OF_MATRICES):
        return True
    for t in tensors:
        if t.dim() < 2 or t.numel() == 0 or not (t.dtype.is_floating_point or t.dtype.is_complex):
            continue
        if t.shape[-1] != t.shape[-2] and not name.startswith(("aten.linalg_qr", "aten.geqrf", "aten.linalg_lu", "aten.linalg_pinv")):
            continue
        forms = [wide(t).tril(), wide(t).triu()] if name.startswith(OF_TRIANGLES) else [wide(t)]
        for f in forms:
            if not torch.isfinite(f).all() or not (torch.linalg.cond(f) < MOST_CONDITION).all():
                return False
        if name.startswith("aten.linalg_cholesky") and torch.linalg.cholesky_ex(forms[0])[1].any():
            return False
    return True


def has_own_vectors(values, line_count):
    """Whether each of so many vectors belongs to a value far from all others; of those without one, at most one is determined."""
    if values.numel() == 0:
        return True
    if line_count > values.shape[-1] + 1 or not torch.isfinite(values).all():
        return False
    v = values.double()
    if line_count > values.shape[-1]:
        v = torch.cat([v, torch.zeros_like(v[..., :1])], -1)
    scale = v.abs().amax(-1, keepdim=True)
    gaps = (v.unsqueeze(-1) - v.unsqueeze(-2)).abs() + scale.unsqueeze(-1) * torch.eye(v.shape[-1])
    return bool((gaps > LEAST_GAP * scale.unsqueeze(-1)).all())


def turned_to(t, like, axis):
    """`t`, each line along `axis` turned so that it fits `like` best."""
    inner = (t.conj() * like.to(t.dtype)).sum(axis, keepdim=True)
    return t * torch.where(inner == 0, torch.ones_like(inner), inner.sgn())
