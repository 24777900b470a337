"""Calls for make_vectors.py at edges that no sample has. Numbers that the tensor's whole type does not hold: PyTorch casts them to
that type first, so that 300 is 44 for uint8, or takes them for a bound as they are. Operands of several types; nothing of nothing. By
name: element type -> calls. What PyTorch refuses is left out; no divisor is 0 once cast, which PyTorch does not survive."""
import torch

BITS = {torch.uint8: 8, torch.int8: 8, torch.int16: 16, torch.int32: 32}


def held(d):
    """Numbers of the type, both ends among them."""
    ends = torch.iinfo(d)
    return torch.tensor([[ends.max, ends.min, 44, 100], [5, 1 if d == torch.uint8 else -7, 0, 3]], dtype=d)


def divisors(d):
    t = held(d)
    return torch.where(t == 0, torch.ones_like(t), t)


def beyond(d):
    """Negative or past its end, and far beyond both; -1 in none of the signed ones, by which the least number has no quotient."""
    many = 1 << BITS[d]
    return [-1 if d == torch.uint8 else many - 3, many + 44, -many - 7, (3 << 40) + 5]


def with_numbers(call, extra=lambda d: []):
    return lambda d: [call(held(d), n) for n in beyond(d) + extra(d)] if d in BITS else []


def number_second(t, n):
    return [t, n], {}


def number_first(t, n):
    return [n, t], {}


def amounts(d):
    return [1 << BITS[d], -1]


def shifted_number(t, n):
    return [n, t.remainder(torch.tensor(11, dtype=t.dtype))], {}


def with_mode(mode):
    return lambda t, n: ([t, n], {"rounding_mode": mode})


def both_modes(d):
    return with_numbers(with_mode("floor"))(d) + with_numbers(with_mode("trunc"))(d)


def soft_labels(d):
    """Scores and probabilities of classes, weights too, of any two or three types. The scores are so far apart that their logarithms
    are the same in all of them, for PyTorch rounds those to the scores' type."""
    scores, chances, weight = torch.tensor([[0, -1024, -512], [-256, 0, -512]], dtype=d), torch.tensor([[0.25, 0.5, 0.25], [0, 1, 0]]), torch.tensor([0.5, 1, 2])
    types = (torch.float64, torch.float32, torch.bfloat16)
    return [([scores, chances.to(t), None if w is None else weight.to(w), r], {}) for t in types for w in (None, *types) for r in (0, 1)]


def emptily(call):
    """By an empty index of any number of dimensions, which asks for nothing and says nowhere."""
    shapes = ((0,), (0, 3), (2, 0, 5), (1, 0, 1, 1))
    return lambda d: [(call(torch.tensor([[1, 0, 1], [0, 1, 1]], dtype=d), torch.zeros(s, dtype=torch.int64)), {}) for s in shapes]


def source_for(index, t):
    return torch.zeros(index.shape, dtype=t.dtype)


def with_nothing(d):
    """PyTorch's legacy empty vector beside tensors of any number of dimensions, and alone, where no axis is wrong."""
    nothing, t = torch.zeros(0, dtype=d), torch.ones(2, 3, 4, dtype=d)
    return [([list(tensors), dim], {}) for tensors in ((nothing, t), (t, nothing, t)) for dim in (2, -3)] + [([[nothing, nothing], 1], {})]


def least(d):
    """The least number that an unsigned type takes, by PyTorch's test of overflow, and the greatest."""
    return [-255, -1, 255] if d == torch.uint8 else [torch.iinfo(d).min, torch.iinfo(d).max] if d in BITS else []


def head_with_gradients(d):
    """Samples of the head's loss ask for no gradients. Of classes, one row ignored, with a bias and scales or without; of chances."""
    def some(*shape):
        return (torch.rand(*shape) * 4 - 2).to(d)

    classes = torch.tensor([0, 3, 1, -100, 2])
    calls = ((classes, some(4), some(4).abs(), "mean", (True, True, True)), (classes, None, None, "sum", (True, True, False)),
             (some(5, 4).abs(), None, None, "mean", (True, False, False)), (some(5, 4).abs(), some(4), some(4).abs(), "sum", (False, True, True)))
    return [([some(5, 3), some(4, 3), target, bias, scales, how, -100, 0.0, 5, "compact", d, False, *wanted], {}) for target, bias, scales, how, wanted in calls]


CALLS = {
    "torch_nn._linear_cross_entropy_batch_chunked.default": lambda d: head_with_gradients(d) if d in (torch.float32, torch.float64) else [],
    "aten.gather.default": emptily(lambda t, i: [t, 1, i]),
    "aten.scatter.src": emptily(lambda t, i: [t, 1, i, source_for(i, t)]), "aten.scatter.value": emptily(lambda t, i: [t, 1, i, 1]),
    "aten.scatter_add.default": emptily(lambda t, i: [t, 1, i, source_for(i, t)]),
    "aten.scatter_add_.default": emptily(lambda t, i: [t, 1, i, t.clone()]),
    "aten.scatter_reduce.two": emptily(lambda t, i: [t, 1, i, source_for(i, t), "sum"]),
    "aten.cat.default": with_nothing,
    "aten.ldexp.Tensor": lambda d: [([torch.tensor([0.3, -2.0, 5.0, 0.7]).to(d), n], {}) for n in (torch.tensor([2, -3, 1, 0]), torch.tensor(3))] if d.is_floating_point else [],
    "aten._weight_norm_interface_backward.default": lambda d: [([torch.ones(4, 0).to(d), torch.ones(4, 0).to(d), torch.ones(4, 1).to(d), torch.zeros(4, 1).to(d), 0], {})] if d in (torch.float32, torch.float64) else [],
    "aten._new_zeros_with_same_feature_meta.default": lambda d: [([torch.ones(3, dtype=d), torch.ones(4, 6, dtype=d)[1:, 2::2]], {})],
    "aten.roll.default": lambda d: [([torch.arange(12).reshape(3, 4).to(d).t(), [n]], {}) for n in (1, -5, 100)],  # as one row
    "aten.pow.Tensor_Scalar": lambda d: [([torch.tensor([True, False]), e], {}) for e in (False, True, 0, 1, 2)] if d == torch.bool else [],
    "aten.fill.Scalar": lambda d: [([held(d), n], {}) for n in least(d)],
    "aten.full.default": lambda d: [([[2, 3], n], {"dtype": d}) for n in least(d)],
    "aten.cross_entropy_loss.default": lambda d: soft_labels(d) if d.is_floating_point else [],
    "aten.topk.default": lambda d: [([torch.tensor(3, dtype=d), k], {}) for k in (0, 1)] + [([torch.ones(2, 3, dtype=d), 0], {})],
    "aten.sort.default": lambda d: [([torch.tensor(3, dtype=d)], {})], "aten.mode.default": lambda d: [([torch.tensor(3, dtype=d)], {})] if not d.is_complex else [],
    "aten.channel_shuffle.default": lambda d: [([torch.ones(shape, dtype=d), 2], {}) for shape in ((2, 0, 3), (2, 4, 0), (0, 4, 3))],
    "aten.pixel_shuffle.default": lambda d: [([torch.ones(shape, dtype=d), 2], {}) for shape in ((2, 0, 3, 3), (0, 4, 3, 3), (2, 4, 0, 3))],
    "aten.remainder.Scalar": with_numbers(number_second), "aten.fmod.Scalar": with_numbers(number_second),
    "aten.remainder.Scalar_Tensor": lambda d: [([n, divisors(d)], {}) for n in beyond(d)] if d in BITS else [],
    "aten.remainder.Tensor": lambda d: [([held(d), torch.tensor(n)], {}) for n in beyond(d)] if d in BITS else [],
    "aten.floor_divide.default": lambda d: [([held(d), torch.tensor(n)], {}) for n in beyond(d)] if d in BITS else [],
    "aten.floor_divide.Scalar": with_numbers(number_second), "aten.div.Scalar_mode": both_modes,
    "aten.bitwise_left_shift.Tensor_Scalar": with_numbers(number_second, amounts),
    "aten.bitwise_right_shift.Tensor_Scalar": with_numbers(number_second, amounts),
    "aten.bitwise_left_shift.Scalar_Tensor": with_numbers(shifted_number),
    "aten.bitwise_right_shift.Scalar_Tensor": with_numbers(shifted_number),
    "aten.bitwise_and.Scalar": with_numbers(number_second), "aten.pow.Scalar": with_numbers(number_first),
    "aten.eq.Scalar": with_numbers(number_second), "aten.lt.Scalar": with_numbers(number_second),
    "aten.clamp.default": lambda d: [([held(d), low, high], {}) for low, high in ((-1 << 40, 50), (2, 1 << 40), (-1 << 40, 1 << 40))],
    "aten.clamp_min.default": with_numbers(number_second), "aten.clamp_max.default": with_numbers(number_second),
    "aten.hardtanh.default": lambda d: [([held(d), -1 << 40, 50], {}), ([held(d), 2, 1 << 40], {})] if d in BITS else [],
    "aten.masked_fill.Scalar": lambda d: [([held(d), held(d) > 44, n], {}) for n in beyond(d)] if d in BITS else [],
    "aten.threshold.default": lambda d: [([held(d), n, 7], {}) for n in beyond(d)] if d in BITS else [],
}
