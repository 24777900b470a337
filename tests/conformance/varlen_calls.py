"""Calls for make_vectors.py of attention by the kernels that take heads inside, or pieces of unlike lengths. PyTorch has these for
CUDA alone: here they are what its other operators give for each piece by itself. By name: element type -> calls."""
import itertools

import torch
from torch.nn.attention import varlen  # noqa: F401  (its ops)

from more_calls import FLOATS, some


def pieces_of(q, k, ends_q, ends_k):
    """The rows of each piece, of queries and of keys; a batch's images are pieces, too."""
    if ends_q is None:
        return [(i, i) for i in range(len(q))]
    ends = [itertools.pairwise(e.tolist()) for e in (ends_q, ends_k)]
    return [(slice(*a), slice(*b)) for a, b in zip(*ends)]


def one(q, k, v, left, right, scale, grad=None):
    """Of [length, heads, width]: the result and the logarithms of the sums; with its gradient those of the three."""
    heads, share = k.shape[1], q.shape[1] // k.shape[1]
    q, k, v = q.transpose(0, 1), *(t.transpose(0, 1).repeat_interleave(share, 0) for t in (k, v))
    at = torch.arange(k.shape[1]) - torch.arange(q.shape[1])[:, None] - (k.shape[1] - q.shape[1])
    seen = (at <= (right if right >= 0 else at.numel())) & (at >= (-left if left >= 0 else -at.numel()))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = (q @ k.mT * scale).masked_fill(~seen, -torch.inf)
    sums = scores.logsumexp(-1, keepdim=True)
    chances = (scores - sums).exp()
    out = chances @ v
    if grad is None:
        return out.transpose(0, 1), sums[..., 0]
    grad = grad.transpose(0, 1)
    of_scores = chances * (grad @ v.mT - (grad * out).sum(-1, keepdim=True)) * scale
    by_head = lambda t: t.unflatten(0, (heads, share)).sum(1)  # noqa: E731
    return [t.transpose(0, 1) for t in (of_scores @ k, by_head(of_scores.mT @ q), by_head(chances.mT @ grad))]


def wide(t):
    return t if t.dtype == torch.float32 else t.double()


def reach(is_causal, left, right):
    return -1 if left is None else left, 0 if is_causal else -1 if right is None else right


def forward(q, k, v, ends_q, ends_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, scale=None, window_size_left=None,
            window_size_right=None, seqused_k=None, alibi_slopes=None, block_table=None, num_splits=None):
    left, right = reach(is_causal, window_size_left, window_size_right)
    found = [one(wide(q[a]), wide(k[b]), wide(v[b]), left, right, scale) for a, b in pieces_of(q, k, ends_q, ends_k)]
    put = torch.stack if ends_q is None else torch.cat
    out, sums = put([o for o, _ in found]).to(q.dtype), put([s for _, s in found], *([] if ends_q is None else [1])).float()
    return out.contiguous(), sums.contiguous(), torch.zeros(2, dtype=torch.int64), torch.zeros((), dtype=torch.int64), q.new_empty(0)


def backward(grad_out, q, k, v, out, sums, ends_q, ends_k, max_q, max_k, dropout_p, is_causal, rng_state, unused, scale=None,
             window_size_left=None, window_size_right=None):
    left, right = reach(is_causal, window_size_left, window_size_right)
    found = [one(wide(q[a]), wide(k[b]), wide(v[b]), left, right, scale, wide(grad_out[a]))
             for a, b in pieces_of(q, k, ends_q, ends_k)]
    put = torch.stack if ends_q is None else torch.cat
    return tuple(put(pieces).to(q.dtype).contiguous() for pieces in zip(*found))


def by_window(q, k, v, a, b, m, n, is_causal=False, scale=None, window_size=None, *rest):
    return forward(q, k, v, a, b, m, n, 0.0, is_causal, False, scale, *(window_size or ()))[:3]


def by_window_backward(grad_out, q, k, v, out, sums, a, b, m, n, is_causal, seed, scale=None, window_size=None, *rest):
    return backward(grad_out, q, k, v, out, sums, a, b, m, n, 0.0, is_causal, seed, seed, scale, *(window_size or ()))


# The seeds are i64, which vectors hold, in place of u64; nothing is drawn.
_LIBRARIES = {space: torch.library.Library(space, "IMPL") for space in ("aten", "torch_attn")}
_LIBRARIES["aten"].impl("_flash_attention_forward", forward, "CPU")
_LIBRARIES["aten"].impl("_flash_attention_backward", backward, "CPU")
_LIBRARIES["torch_attn"].impl("_varlen_attn", by_window, "CPU", allow_override=True)
_LIBRARIES["torch_attn"].impl("_varlen_attn_backward", by_window_backward, "CPU", allow_override=True)


def settings(d):
    """(queries, keys, values, offsets of both, longest of both, is_causal, left, right): every query sees some key."""
    ends, more = torch.tensor([0, 3, 4, 9], dtype=torch.int32), torch.tensor([0, 5, 6, 13], dtype=torch.int32)
    made = lambda heads, rows=(9,): some(d, *rows, heads, 8, low=-1, high=1)  # noqa: E731
    both = lambda heads, rows: some(d, *rows, heads, 16, low=-1, high=1).chunk(2, -1)  # noqa: E731
    for is_causal, left, right in ((False, None, None), (True, None, None), (False, 2, 1), (True, 3, None), (False, -1, -1)):
        yield made(2), made(2), made(2), ends, ends, 5, 5, is_causal, left, right
        yield made(4), *both(2, (13,)), ends, more, 6, 9, is_causal, left, right
        yield made(3, (2, 4)), *both(1, (2, 6)), None, None, 4, 6, is_causal, left, right


def aten_forward(d):
    return [([*three, *rest, 0.0, is_causal, False], {"window_size_left": left, "window_size_right": right, "scale": scale})
            for scale in (None, 0.25) for *three, a, b, m, n, is_causal, left, right in settings(d) for rest in [(a, b, m, n)]]


def aten_backward(d):
    calls = []
    for args, kwargs in aten_forward(d):
        out, sums, seed, unused, _ = forward(*args, **kwargs)
        calls.append(([torch.rand_like(out), *args[:3], out, sums, *args[3:7], 0.0, args[8], seed, unused], kwargs))
    return [c for c in calls if c[0][6] is not None]      # PyTorch wants offsets here


def by_pieces(d):
    calls = []
    for *three, a, b, m, n, is_causal, left, right in settings(d):
        if a is not None:
            window = [-1 if left is None else left, 0 if is_causal else -1 if right is None else right]
            calls.append(([*three, a, b, m, n, window == [-1, 0], None, window, three[0].shape[1] != three[1].shape[1]], {}))
    return calls


def by_pieces_backward(d):
    calls = []
    for args, _ in by_pieces(d):
        q, k, v, a, b, m, n, is_causal, scale, window, _ = args
        out, sums, seed, *_ = forward(q, k, v, a, b, m, n, 0.0, is_causal, False, scale, *window)
        calls.append(([torch.rand_like(out), q, k, v, out, sums, a, b, m, n, is_causal, seed, scale, window], {}))
    return calls


def only(make):
    return lambda d: make(d) if d in FLOATS[1:] else []


CALLS = {
    "aten._flash_attention_forward.default": only(aten_forward),
    "aten._flash_attention_backward.default": only(aten_backward),
    "torch_attn._varlen_attn.default": only(by_pieces),
    "torch_attn._varlen_attn_backward.default": only(by_pieces_backward),
}
