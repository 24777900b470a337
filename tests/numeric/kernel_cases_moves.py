"""Random calls of ops that move elements or make them up: joining, slicing, padding, factories."""
import torch

from kernel_calls import ALL, REAL, Case, case, dim_of, dims_of, sizes, strided, tensor, values


# --- moving elements ---

@case("aten.cat.default")
def cat(r):
    first = tensor(r, ALL, least=1)
    axis = dim_of(r, first)
    out = [first]
    for _ in range(r.randint(0, 3)):
        shape = list(first.shape)
        shape[axis] = r.randint(0, 4)
        out.append(tensor(r, r.choice([first.dtype, first.dtype, torch.float32]), shape))
    if r.random() < 0.2:
        out.insert(r.randint(0, len(out)), torch.empty(0))
    return Case(out, axis)


@case("aten.stack.default")
def stack(r):
    first = tensor(r, ALL)
    return Case([first] + [tensor(r, first.dtype, first.shape) for _ in range(r.randint(0, 3))],
                r.randint(-first.dim() - 1, first.dim()))


@case("aten.split_with_sizes_copy.default")
def split_copy(r):
    t = tensor(r, ALL, least=1)
    axis = dim_of(r, t)
    cut = r.randint(0, t.shape[axis])
    return Case(t, [cut, t.shape[axis] - cut], axis)


@case("aten.unfold_backward.default")
def unfold_backward(r):
    shape = sizes(r, least=1)
    axis = r.randrange(len(shape))
    shape[axis] = r.randint(1, 9)
    size, step = r.randint(1, shape[axis]), r.randint(1, 4)
    windows = [1 if r.random() < 0.3 and i != axis else n for i, n in enumerate(shape)]  # broadcast along the others
    windows[axis] = (shape[axis] - size) // step + 1
    return Case(tensor(r, REAL, windows + [size]), shape, axis, size, step)


@case("aten.tril.default", "aten.triu.default")
def triangle(r):
    return Case(tensor(r, ALL, least=2), r.randint(-4, 4))


@case("aten.tril_.default", "aten.triu_.default")
def triangle_in_place(r):
    return Case(tensor(r, ALL, least=2, expand=False), r.randint(-4, 4))


@case("aten.repeat.default")
def repeat(r):
    t = tensor(r, ALL)
    return Case(t, [r.randint(0, 3) for _ in range(t.dim() + r.randint(0, 1))])


@case("aten.flip.default")
def flip(r):
    t = tensor(r, ALL)
    return Case(t, dims_of(r, t))


@case("aten.roll.default")
def roll(r):
    t = tensor(r, ALL)
    axes = dims_of(r, t)
    return Case(t, [r.randint(-7, 7) for _ in axes] or [r.randint(-7, 7)], axes)


@case("aten.constant_pad_nd.default")
def pad(r):
    t = tensor(r, ALL, least=1, low=2)
    return Case(t, [r.randint(-1, 3) for _ in range(2 * r.randint(0, t.dim()))], r.choice([0, 1]))


@case("aten.diff.default")
def diff(r):
    t = tensor(r, REAL + [torch.bool], least=1)
    axis = dim_of(r, t)
    extra = [tensor(r, t.dtype, t.shape) if r.random() < 0.3 else None for _ in range(2)]
    return Case(t, r.randint(0, 3), axis, *extra)


@case("aten.repeat_interleave.Tensor")
def repeat_interleave(r):
    t = torch.randint(0, 4, [r.randint(0, 9)], dtype=r.choice([torch.int64, torch.int32]))
    known = r.random() < 0.5
    return Case(strided(r, t, expand=False), **({"output_size": int(t.sum())} if known else {}),
                allocate=() if known else (0,))


@case("aten.repeat_interleave.self_int")
def repeat_interleave_int(r):
    t = tensor(r, ALL)
    return Case(t, r.randint(0, 3), r.choice([None, dim_of(r, t)]))


@case("aten.view_copy.default")
def view_copy(r):
    t = values(r, r.choice(ALL), sizes(r))
    return Case(t, [t.numel()])


@case("aten.permute_copy.default")
def permute_copy(r):
    t = tensor(r, ALL)
    order = list(range(t.dim()))
    r.shuffle(order)
    return Case(t, order)


@case("aten.slice_copy.Tensor")
def slice_copy(r):
    t = tensor(r, ALL, least=1)
    return Case(t, dim_of(r, t), *slice_of(r))


def slice_of(r):
    return r.choice([None, -3, 0, 1, 50]), r.choice([None, -1, 2, 100, 2**63 - 1]), r.randint(1, 3)


@case("aten.slice_backward.default")
def slice_backward(r):
    shape = sizes(r, least=1)
    axis = r.randint(-len(shape), len(shape) - 1)
    start, end, step = slice_of(r)
    start, end = start or 0, 2**63 - 1 if end is None else end
    part = torch.ops.aten.slice(torch.empty(shape), axis, start, end, step)
    return Case(tensor(r, ALL, part.shape), shape, axis, start, end, step)


@case("aten.select_backward.default")
def select_backward(r):
    shape = sizes(r, least=1, low=1)
    axis = r.randint(-len(shape), len(shape) - 1)
    at = r.randint(-shape[axis], shape[axis] - 1)
    return Case(tensor(r, ALL, torch.empty(shape).select(axis, at).shape), shape, axis, at)


@case("aten.slice_scatter.default")
def slice_scatter(r):
    t = tensor(r, ALL, least=1)
    axis, part = dim_of(r, t), slice_of(r)
    return Case(t, tensor(r, t.dtype, torch.ops.aten.slice(t, axis, *part).shape), axis, *part)


@case("aten.select_scatter.default")
def select_scatter(r):
    t = tensor(r, ALL, least=1, low=1)
    axis = dim_of(r, t)
    at = r.randint(-t.shape[axis], t.shape[axis] - 1)
    return Case(t, tensor(r, t.dtype, t.select(axis, at).shape), axis, at)


# --- factories ---

@case("aten.linspace.default")
def linspace(r):
    return Case(r.choice([0, -3, 0.5]), r.choice([1, 10, 2.25]), r.choice([0, 1, 2, 5, 100]),
                dtype=r.choice([torch.float32, torch.float64, torch.int64]))


@case("aten.eye.m")
def eye(r):
    return Case(r.randint(0, 5), r.randint(0, 5), dtype=r.choice(ALL))


@case("aten.tril_indices.default")
def tril_indices(r):
    return Case(r.randint(0, 5), r.randint(0, 5), r.randint(-6, 6))


# --- numbers of the host ---

@case("aten._local_scalar_dense.default")
def item(r):
    return Case(values(r, r.choice(REAL + [torch.bool]), []))
