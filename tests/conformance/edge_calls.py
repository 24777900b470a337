"""Calls for make_vectors.py with a number that the tensor's whole type does not hold, which no sample has: PyTorch casts it to
that type first, so that 300 is 44 for uint8, or takes it for a bound as it is. By name: element type -> calls. What PyTorch
refuses is left out; none of the numbers is 0 once cast, which PyTorch's division does not survive."""
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


CALLS = {
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
