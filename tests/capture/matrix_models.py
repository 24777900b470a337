"""Steps that decompose matrices or solve with them, as Gaussian processes, flows, filters, whitening and parametrizations do; reductions of
segments, bags of maxima. What the sweep takes besides networks."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import orthogonal

N = 6


class Step(nn.Module):
    """`fn(weight, x)`: the loss, or what is squared and averaged to be one."""

    def __init__(self, fn, rows=N, columns=N):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))
        self.fn = fn

    def forward(self, x):
        return self.fn(self.weight, x)


def _mean_square(out, _):
    return out.square().mean()


def _step(fn, *shape, x=None):
    return dict(model=Step(fn), loss_fn=_mean_square, inputs=torch.randn(*(shape or (3, N, N))) if x is None else x, targets=torch.zeros(1))


def _layer(how):
    return dict(model=orthogonal(nn.Linear(N, N), orthogonal_map=how), loss_fn=lambda y, _: y.pow(3).mean(), inputs=torch.randn(4, N), targets=torch.zeros(1))


def _positive(x):
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


def gaussian_process():
    """The likelihood of observations at the rows of x, by a Cholesky factor."""
    def loss(w, x):
        factor = torch.linalg.cholesky(_positive(x @ w))
        y = x[:, :1]
        return (y * torch.cholesky_solve(y, factor)).sum() + factor.diagonal().log().sum()
    return _step(loss, N, N)


def normal_distributions():
    def loss(w, x):
        of_weight = torch.distributions.MultivariateNormal(torch.zeros(N), covariance_matrix=_positive(w), validate_args=False)
        of_data = torch.distributions.MultivariateNormal(torch.zeros(N), precision_matrix=_positive(x), validate_args=False)
        return torch.distributions.kl_divergence(of_weight, of_data) - of_weight.log_prob(x).mean()
    return _step(loss, N, N)


def invertible_mixing():
    """A flow's 1x1 convolution: its logarithm of the determinant, and its inverse."""
    def loss(w, x):
        mixed = w + 3 * torch.eye(N)
        return (x @ mixed).square().mean() - torch.linalg.slogdet(mixed)[1] + (x @ torch.linalg.inv(mixed)).square().mean() + torch.linalg.det(mixed)
    return _step(loss)


def kalman_filter():
    def loss(w, x):
        state, spread, total = torch.zeros(N), torch.eye(N), 0.0
        for measured in x:
            state, spread = 0.3 * w @ state, 0.09 * w @ spread @ w.mT + torch.eye(N)
            seen = spread + torch.eye(N)
            missed = measured[0] - state
            gain = torch.linalg.solve(seen, spread, left=False)
            total = total + missed @ torch.linalg.solve(seen, missed) + torch.logdet(seen)
            state, spread = state + gain @ missed, (torch.eye(N) - gain) @ spread
        return total
    return _step(loss)


def whitening():
    def loss(w, x):
        y = x.flatten(0, 1) @ w
        values, vectors = torch.linalg.eigh(y.mT @ y / y.shape[0] + 0.1 * torch.eye(N))
        return (y @ vectors @ torch.diag(values.rsqrt()) @ vectors.mT).pow(4).mean()
    return _step(loss)


def singular_values():
    def loss(w, x):
        u, s, vh = torch.linalg.svd(w + x[0, :, :4], full_matrices=False)
        return ((u * s.log()) @ vh).square().mean() + torch.linalg.matrix_norm(x @ w, "nuc").mean() + torch.linalg.matrix_norm(w, 2)
    return dict(_step(loss), model=Step(loss, N, 4))


def least_squares():
    return _step(lambda w, x: torch.linalg.pinv((w + x)[..., :4]) @ x + torch.linalg.pinv(_positive(w), hermitian=True)[:4])


def factors():
    def loss(w, x):
        q, r = torch.linalg.qr((w + x)[..., :4])
        lu, pivots = torch.linalg.lu_factor(w + x)
        return (q @ r).square().mean() + r.square().mean() + torch.linalg.lu_solve(lu, pivots, x).square().mean() + torch.linalg.lu(w)[2].square().mean()
    return _step(loss)


def orthogonal_by_reflections():
    return _layer("householder")


def orthogonal_by_exponential():
    return _layer("matrix_exp")


def orthogonal_by_cayley():
    return _layer("cayley")


def segments():
    """Readouts of graphs of unequal size."""
    lengths = torch.tensor([4, 6, 8])
    return _step(lambda w, x: sum(torch.segment_reduce((x @ w).flatten(0, 1), how, lengths=lengths, axis=0).square().mean()
                                  for how in ("sum", "mean", "max", "min", "prod")))


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.largest, self.sum = nn.EmbeddingBag(10, 5, mode="max", padding_idx=3), nn.EmbeddingBag(10, 5, mode="sum")
        self.weights = nn.Parameter(torch.rand(4, 3))

    def forward(self, x):
        return self.largest(x) + self.sum(x, per_sample_weights=self.weights)


def bags():
    return dict(model=Bags(), loss_fn=_mean_square, inputs=torch.randint(10, (4, 3)), targets=torch.zeros(1))


MATRIX_MODELS = (
    gaussian_process, normal_distributions, invertible_mixing, kalman_filter, whitening, singular_values, least_squares, factors,
    orthogonal_by_reflections, orthogonal_by_exponential, orthogonal_by_cayley, segments, bags,
)  # fmt: skip
