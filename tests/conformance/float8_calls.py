"""Calls for make_vectors.py with numbers of 8 bits, of which OpInfo knows next to nothing: by name, float8 type -> calls. What
converts them meets every bit pattern, and floats on both sides of each of them and of the middle between two."""
import torch

from more_calls import some

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
WIDE = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def patterns(d):
    return torch.arange(256, dtype=torch.uint8).view(d).reshape(16, 16)


def numbers(d, *shape):
    return some(torch.float32, *shape).to(d)


def between(d, wide):
    """Floats at, between and beside the numbers of `d`, and beyond them."""
    at = patterns(d).float().flatten()
    at = at[at.isfinite()].unique()
    middle = (at[1:] + at[:-1]) / 2
    beyond = torch.tensor([3.4e38, -3.4e38, float("inf"), -float("inf"), float("nan"), 1e-30, -1e-30, 0.0, -0.0, 464, 465, 61440, 60000, 248, 247])
    all_of = torch.cat([at, middle, beyond])
    up, down = torch.full_like(all_of, float("inf")), torch.full_like(all_of, -float("inf"))
    return torch.cat([all_of, torch.nextafter(all_of, up), torch.nextafter(all_of, down)]).to(wide)


def conversions(d):
    calls = [([between(d, wide)], {"dtype": d}) for wide in WIDE]
    calls += [([patterns(d)], {"dtype": wide}) for wide in (*WIDE, E4M3, E5M2, torch.bool)]
    return calls + [([torch.arange(-20, 20, dtype=i)], {"dtype": d}) for i in (torch.int64, torch.int8)]


def moved(*more, **kwargs):
    return lambda d: [([numbers(d, 3, 4), *more], kwargs)]


def listed(*more):
    return lambda d: [([[numbers(d, 3, 4), numbers(d, 3, 4)], *more], {})]


def made(*args):
    return lambda d: [([*args], {"dtype": d, "device": torch.device("cpu")})]


def products(d):
    """Scaled by one number, by row and column; other results, a bias, another type on the right."""
    if d not in (E4M3, E5M2):
        return []
    calls = []
    one = [torch.tensor(0.5), torch.tensor(3.0)]
    for m, k, n in ((16, 32, 48), (1, 16, 16), (32, 144, 16)):
        a, rows = numbers(d, m, k), [torch.rand(m, 1) + 0.5, torch.rand(1, n) + 0.5]
        for right in (E4M3, E5M2):
            b = numbers(right, n, k).t()
            calls += [([a, b, *scales], {"out_dtype": out}) for scales in (one, rows) for out in (torch.bfloat16, torch.float32)]
        b = numbers(E4M3, n, k).t()
        calls += [([a, b, *scales, some(torch.bfloat16, n)], {"out_dtype": torch.bfloat16, "use_fast_accum": True}) for scales in (one, rows)]
        calls += [([a, b, *one], {}), ([a, b, *one, None, torch.tensor(0.25)], {"out_dtype": d})]
    return calls


def products_by_recipe(d):
    """The same by lists of scales, one for the tensor or one a row."""
    calls = []
    for (a, b, left, right, *more), kwargs in products(d):
        out = kwargs.get("out_dtype", d)
        if len(more) < 2 and out != torch.float32:      # whose orders of sums differ by more than PyTorch's own error here
            recipe = [0] if left.dim() == 0 else [1]
            calls.append(([a, b, [left], recipe, [], [right], recipe, [], *(more or [None]), out], {}))
    return calls


CALLS = {
    "aten._to_copy.default": conversions,
    "aten._scaled_mm.default": products,
    "aten._scaled_mm_v2.default": products_by_recipe,
    "aten.abs.default": lambda d: [([patterns(d)], {})],
    "aten.isnan.default": lambda d: [([patterns(d)], {})],
    "aten.eq.Tensor": lambda d: [([patterns(d), patterns(d).t().contiguous()], {}), ([patterns(d), patterns(d)], {})],
    "aten.ne.Tensor": lambda d: [([patterns(d), patterns(d).t().contiguous()], {})],
    "aten.eq.Scalar": lambda d: [([patterns(d), 2.0], {})],
    "aten.ne.Scalar": lambda d: [([patterns(d), 0.0], {})],
    "aten.mul.Tensor": lambda d: [([patterns(d), patterns(d).flip(0)], {})],
    "aten.where.self": lambda d: [([torch.rand(16, 16) < 0.5, patterns(d), patterns(d).t().contiguous()], {})],
    "aten.copy_.default": lambda d: [([numbers(d, 3, 4), some(torch.float32, 3, 4)], {}), ([some(torch.float32, 3, 4), numbers(d, 3, 4)], {}),
                                     ([numbers(d, 3, 4), numbers(d, 4)], {})],
    "aten.clone.default": lambda d: [([patterns(d)], {}), ([patterns(d).t()], {"memory_format": torch.contiguous_format})],
    "aten.cat.default": listed(1), "aten.stack.default": listed(0),
    "aten.split_with_sizes_copy.default": moved([1, 3], 1),
    "aten.slice_scatter.default": lambda d: [([numbers(d, 5, 4), numbers(d, 2, 4), 0, 1, 3], {})],
    "aten.select_scatter.default": lambda d: [([numbers(d, 5, 4), numbers(d, 4), 0, 2], {})],
    "aten.repeat.default": moved([2, 3]), "aten.flip.default": moved([0, 1]), "aten.roll.default": moved([1], [0]),
    "aten.constant_pad_nd.default": moved([1, 2, 0, 1], 0.0),
    "aten.embedding.default": lambda d: [([numbers(d, 6, 4), torch.tensor([[0, 5], [2, 2]])], {})],
    "aten.index.Tensor": lambda d: [([numbers(d, 6, 4), [torch.tensor([5, 0, 0])]], {}), ([numbers(d, 3, 4), [torch.rand(3, 4) < 0.5]], {})],
    "aten.index_select.default": lambda d: [([numbers(d, 6, 4), 1, torch.tensor([3, 0])], {})],
    "aten.view.dtype": lambda d: [([patterns(d), torch.uint8], {}), ([patterns(d).view(torch.uint8), d], {})],
    "aten.contiguous.default": lambda d: [([patterns(d).t()], {})], "aten.lift_fresh_copy.default": moved(),
    "aten.copy.default": lambda d: [([numbers(d, 3, 4), some(torch.float32, 3, 4)], {}), ([some(torch.float32, 3, 4), numbers(d, 4)], {})],
    "aten.split_with_sizes_copy.out": lambda d: [([numbers(d, 5, 3), [2, 3]], {"out": [torch.zeros(2, 3, dtype=d), torch.zeros(3, 3, dtype=d)]})],
    "aten.reshape.default": lambda d: [([numbers(d, 3, 4).t(), [6, 2]], {})], "aten.flatten.using_ints": lambda d: [([numbers(d, 3, 4).t(), 0, 1], {})],
    "aten.view_copy.default": moved([6, 2]), "aten.expand_copy.default": lambda d: [([numbers(d, 3, 1), [3, 4]], {})],
    "aten.permute_copy.default": moved([1, 0]), "aten.slice_copy.Tensor": moved(1, 1, 4, 2),
    "aten.slice_backward.default": lambda d: [([numbers(d, 3, 2), [3, 4], 1, 1, 3, 1], {})],
    "aten.select_backward.default": lambda d: [([numbers(d, 3), [3, 4], 1, 2], {})],
    "aten.repeat_interleave.self_int": moved(2, 1),
    "aten._unsafe_index.Tensor": lambda d: [([numbers(d, 6, 4), [torch.tensor([5, 0, 0])]], {})],
    "aten.new_zeros.default": moved([2, 3]), "aten.new_ones.default": moved([2, 3]), "aten.new_full.default": moved([2, 3], 1.7),
    "aten.fill.Scalar": moved(1.1),
    "aten.t.default": moved(), "aten.transpose.int": moved(0, 1),
    "aten.zeros.default": made([3, 4]), "aten.ones.default": made([3, 4]), "aten.full.default": made([3, 4], 2.7),
    "aten.zeros_like.default": moved(), "aten.ones_like.default": moved(), "aten.full_like.default": moved(0.3), "aten.empty_like.default": moved(),
    "aten.fill_.Scalar": moved(1.1), "aten.zero_.default": moved(),
}
