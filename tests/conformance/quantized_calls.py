"""Calls for make_vectors.py of quantization-aware training, which OpInfo leaves out: numbers within the range, beyond both ends
and amid two places; observers that see their first batch, a later one, none; ranges of one number, of nothing but 0, on one side
of 0, too small for a scale. By name: element type -> calls."""
import torch

from more_calls import floats_only, some

ON, OFF = torch.tensor([1], dtype=torch.uint8), torch.tensor([0], dtype=torch.uint8)


def numbers(d, *shape):
    """Some beyond the range of a scale of 0.1 and 8 places, some amid two places."""
    x = some(d, *shape, low=-2, high=2)
    x.view(-1)[:4] = torch.tensor([0.05, 0.15, -0.25, 0.35], dtype=d)
    return x


def whole(*numbers_of):
    return torch.tensor(numbers_of, dtype=torch.int32)


def by_numbers(d):
    return [([numbers(d, 4, 6), 0.1, 0, -8, 7], {}), ([numbers(d, 4, 6), 0.013, 100, 0, 255], {}), ([numbers(d, 5).new_empty(0), 0.1, 0, 0, 15], {})]


def by_tensors(*switches):
    def make(d):
        scale, zero = torch.tensor([0.1]), whole(3)
        calls = [([numbers(d, 4, 6), scale, zero, *switch, -8, 7], {}) for switch in switches]
        return calls + [([numbers(d, 4), torch.tensor(0.013), whole(100)[0], *switches[0], 0, 255], {})]
    return floats_only(make)


def by_channel(d):
    scale = some(torch.float32, 6, low=0.02, high=0.3)
    calls = [([numbers(d, 4, 6), scale, whole(0, 1, 2, -3, -8, 7), 1, -8, 7], {}),
             ([numbers(d, 6, 2, 3), scale, whole(0, 1, 2, 3, 8, 15), 0, 0, 15], {})]
    fraction = torch.tensor([0.0, 0.5, 1.2, -3.7, -8.0, 7.0])
    return calls + [([numbers(d, 4, 6), scale, fraction, 1, -8, 7], {})]


def learned(d):
    zeros = (0.0, 2.5, -3.3, 99.0) if d == torch.float32 else ()
    return [([numbers(d, 4, 6), torch.tensor([0.1]), torch.tensor([zero]), -8, 7, 0.3], {}) for zero in zeros]


def learned_by_channel(d):
    scale, zero = some(torch.float32, 6, low=0.02, high=0.3), torch.tensor([0.0, 0.5, 1.2, -3.7, -9.0, 7.0])
    return [([numbers(d, 4, 6), scale, zero, 1, -8, 7, 0.3], {}), ([numbers(d, 6, 2, 3), scale, zero, 0, -8, 7], {})] if d == torch.float32 else []


def with_gradient(calls):
    """The gradient of what comes out before the arguments of the forward; its sums do not cancel."""
    return lambda d: [([torch.rand_like(args[0]) * args[0], *args], kwargs) for args, kwargs in calls(d)]


def observed(d):
    if d != torch.float32:
        return []
    inf = float("inf")

    def call(part=lambda x: x, low=-1.0, high=1.5, observer=ON, quantizer=ON, least=0, most=127, rows=False, symmetric=False):
        x = part(numbers(d, 4, 6))
        low, high = (torch.full((x.shape[0] if rows else 1,), v) for v in (low, high))
        scale, zero = torch.full_like(low, 0.5), torch.full_like(low, 1, dtype=torch.int32)
        return [x, observer, quantizer, low, high, scale, zero, 0.01, least, most, 0 if rows else -1, rows, symmetric], {}

    calls = [call(), call(low=inf, high=-inf), call(observer=OFF), call(quantizer=OFF), call(observer=OFF, quantizer=OFF)]
    calls += [call(least=-128, symmetric=True), call(least=-128, rows=True, symmetric=True), call(low=inf, high=-inf, rows=True),
              call(low=inf, high=-inf, least=-127, symmetric=True)]
    for part in (lambda x: x.abs() + 1, lambda x: -x.abs() - 1, lambda x: x * 0, lambda x: x * 1e-6, lambda x: x.abs() * 1e-7,
                 lambda x: x.abs() * -1e-7, lambda x: x * 1e-42, lambda x: x * 1e30):
        calls += [call(part, inf, -inf), call(part, inf, -inf, least=-128, rows=True, symmetric=True)]
    return calls


CALLS = {
    "aten.fake_quantize_per_tensor_affine_cachemask.default": floats_only(by_numbers),
    "aten.fake_quantize_per_tensor_affine.default": floats_only(by_numbers),
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default": by_tensors([ON], [OFF], [torch.tensor([1])]),
    "aten.fake_quantize_per_tensor_affine.tensor_qparams": by_tensors([]),
    "aten.fake_quantize_per_channel_affine_cachemask.default": floats_only(by_channel),
    "aten.fake_quantize_per_channel_affine.default": floats_only(by_channel),
    "aten._fake_quantize_learnable_per_tensor_affine.default": learned,
    "aten._fake_quantize_learnable_per_tensor_affine_backward.default": with_gradient(learned),
    "aten._fake_quantize_learnable_per_channel_affine.default": learned_by_channel,
    "aten._fake_quantize_learnable_per_channel_affine_backward.default": with_gradient(learned_by_channel),
    "aten._fused_moving_avg_obs_fq_helper.default": observed,
    "aten._fused_moving_avg_obs_fq_helper_functional.default": observed,
    "aten.fused_moving_avg_obs_fake_quant.default": observed,
    "aten.resize_.default": lambda d: [([some(d, 3, 4), [3, 4]], {})],
}
