"""Calls of PyTorch's primitives for make_vectors.py: one or a few of each, in the element types that PyTorch takes."""
import torch
import torch._inductor.inductor_prims  # noqa: F401 (registers those that Inductor adds)
from torch.testing import make_tensor


def some(dtype, *shape, low=None, high=None):
    return make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)


def factory(dtype):
    return {"dtype": dtype, "device": torch.device("cpu"), "requires_grad": False}


def pooled(dtype, sizes):
    """(input, kernel, stride, padding, dilation): windows that overlap, with padding, with gaps."""
    axes = len(sizes)
    x = some(dtype, 2, 3, *sizes)
    return [(x, [2] * axes, [2] * axes, [0] * axes, [1] * axes), (x, [3] * axes, [2] * axes, [1] * axes, [1] * axes),
            (x, [2] * axes, [1] * axes, [0] * axes, [2] * axes)]


def offsets_to_indices(dtype):
    out = []
    for sizes in ([7, 8], [5, 6, 7]):
        for x, kernel, stride, padding, dilation in pooled(torch.float32, sizes):
            offsets = torch.ops.prims._low_memory_max_pool_with_offsets.default(x, kernel, stride, padding, dilation, False)[1]
            out.append(([offsets.to(dtype), kernel, sizes, stride, padding, dilation], {}))
    return out if dtype == torch.int8 else []


def sums(dtype):
    """Without `output_dtype` tracing keeps the element type of whole numbers, where an eager run gives i64."""
    kept = dtype.is_floating_point or dtype.is_complex or dtype == torch.int64
    out = [([some(dtype, 3, 4), [0]], {"output_dtype": torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64})]
    return out + ([([some(dtype, 3, 4, 5), [1]], {}), ([some(dtype, 3, 4), None], {})] if kept else [])


def put(dtype):
    at = [torch.tensor([2, 0, 3]), None]
    return [([some(dtype, 4, 5), at, some(dtype, 3, 5), False], {})]      # PyTorch 2.15 accumulates twice when run eagerly


# By the primitive's name: element type -> calls.
CALLS = {
    "_low_memory_max_pool_offsets_to_indices": offsets_to_indices,
    "_low_memory_max_pool_with_offsets": lambda d: [([*p, ceil], {}) for s in ([7, 8], [5, 6, 7]) for p in pooled(d, s) for ceil in (False, True)],
    "_unsafe_index_put_": put,
    "amax": lambda d: [([some(d, 3, 4, 5), [1]], {}), ([some(d, 3, 4), [0, 1]], {}), ([some(d, 3, 4), None], {})],
    "amin": lambda d: [([some(d, 3, 4, 5), [1]], {}), ([some(d, 3, 4), [0, 1]], {}), ([some(d, 3, 4), None], {})],
    "as_strided": lambda d: [([some(d, 24), [3, 4], [7, 2], 1], {})],
    "as_strided_scatter": lambda d: [([some(d, 4, 6), some(d, 3, 4), [3, 4], [6, 1], 2], {})],
    "broadcast_in_dim": lambda d: [([some(d, 4), [3, 4], [1]], {}), ([some(d, 4, 1), [2, 4, 3], [1, 2]], {}), ([some(d), [2, 3], []], {})],
    "cat": lambda d: [([[some(d, 2, 3), some(d, 4, 3)], 0], {}), ([[some(d, 2, 3), some(d, 2, 1)], 1], {})],
    "collapse": lambda d: [([some(d, 2, 3, 4, 5), 1, 2], {}), ([some(d, 2, 3), 0, 1], {})],
    "collapse_view": lambda d: [([some(d, 2, 3, 4, 5), 1, 2], {}), ([some(d, 2, 3), 0, 1], {})],
    "convert_element_type": lambda d: [([some(d, 3, 4), to], {}) for to in (torch.float32, torch.bfloat16, torch.int64, torch.bool)],
    "copy_strided": lambda d: [([some(d, 3, 4), [1, 3]], {}), ([some(d, 3, 4), [4, 1]], {})],
    "copy_to": lambda d: [([some(d, 3, 4), some(d, 3, 4)], {})],
    "device_put": lambda d: [([some(d, 3, 4), torch.device("cpu")], {})],
    "empty": lambda d: [([[3, 4]], factory(d))],
    "empty_strided": lambda d: [([[3, 4], [1, 3]], factory(d))],
    "fft_c2c": lambda d: [([some(d, 4, 6)], {"dim": [1], "forward": f}) for f in (False, True)] + [([some(d, 4, 6)], {"dim": [0, 1], "forward": True})],
    "fft_c2r": lambda d: [([some(d, 4, 4)], {"dim": [1], "last_dim_size": n}) for n in (6, 7)],
    "fft_r2c": lambda d: [([some(d, 4, 6)], {"dim": [1], "onesided": o}) for o in (False, True)],
    "fma": lambda d: [([some(d, 3, 4), some(d, 3, 4), some(d, 3, 4)], {})],
    "full": lambda d: [([[3, 4], 2], factory(d)), ([[], 1], factory(d))],
    "full_like": lambda d: [([some(d, 3, 4), 2], factory(d)), ([some(d, 4, 3).t(), 1], factory(d))],
    "inductor_force_stride_order": lambda d: [([some(d, 3, 4), [1, 3]], {}), ([some(d, 3, 4), [4, 1]], {})],
    "inductor_lookup_seed": lambda d: [([some(d, 3, low=0, high=99), 1], {})] if d == torch.int64 else [],
    "inductor_randint": lambda d: [([2, 9, [5, 4], some(d, low=0, high=99)], {})] if d == torch.int64 else [],
    "inductor_random": lambda d: [([[5, 4], some(d, low=0, high=99), mode], {}) for mode in ("rand", "randn")] if d == torch.int64 else [],
    "inductor_seed": lambda d: [([torch.device("cpu")], {})],
    "inductor_seeds": lambda d: [([3, torch.device("cpu")], {})],
    "iota": lambda d: [([7], {**factory(d), "start": 2, "step": 3}), ([5], {**factory(d), "start": 9, "step": -2}), ([0], {**factory(d), "start": 0, "step": 1})],
    "prepare_softmax_online": lambda d: [([some(d, 3, 5), 1], {}), ([some(d, 3, 5), 0], {})],
    "reshape": lambda d: [([some(d, 3, 4), [2, 6]], {}), ([some(d, 4, 3).t(), [6, 2]], {})],
    "rev": lambda d: [([some(d, 3, 4), [0]], {}), ([some(d, 3, 4), [0, 1]], {})],
    "scalar_tensor": lambda d: [([2], {"dtype": d, "device": torch.device("cpu")})],
    "split_dim": lambda d: [([some(d, 3, 8), 1, 2], {}), ([some(d, 6), 0, 3], {})],
    "squeeze": lambda d: [([some(d, 3, 1, 4, 1), [1, 3]], {}), ([some(d, 1, 3), [0]], {})],
    "sum": sums,
    "transpose": lambda d: [([some(d, 2, 3, 4), [2, 0, 1]], {})],
    "var": lambda d: [([some(d, 3, 4, 5), [1], 1], {}), ([some(d, 3, 4), [0, 1], 0], {})],
    "view_of_dtype": lambda d: [([some(d, 3, 4), to], {}) for to in OF_SIZE.get(d.itemsize, ()) if to != d],
    "where": lambda d: [([some(torch.bool, 3, 4), some(d, 3, 4), some(d, 3, 4)], {})],
}
OF_SIZE = {4: (torch.float32, torch.int32), 8: (torch.float64, torch.int64), 2: (torch.bfloat16, torch.int16), 1: (torch.uint8, torch.int8)}


def calls_of(name, op, dtype):
    """(arguments, keyword arguments) of each call; those of pointwise primitives follow from the schema."""
    packet = name.split(".")[1]
    if packet in CALLS:
        return CALLS[packet](dtype)
    count = len(op._schema.arguments) - len([a for a in op._schema.arguments if a.kwarg_only])
    low, high = (0, 4) if packet.startswith("shift") or packet.startswith("igamma") else (None, None)
    shapes = ((3, 5), ()) if count == 1 else ((3, 5),)
    return [([some(dtype, *shape, low=low, high=high) for _ in range(count)], {}) for shape in shapes]
