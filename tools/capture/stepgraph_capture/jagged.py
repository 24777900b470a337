"""Nested tensors of the jagged layout: as inputs, whose parts are the graph's, and attention over their pieces."""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from . import compat, recorder
from .attention import fused
from .errors import CaptureError


class Shared:
    """Offsets or lengths of a run. PyTorch takes nested tensors for alike if they hold the same one."""

    def __init__(self) -> None:
        self.now: Optional[Tensor] = None


class Input:
    """A jagged input: its parts, and how it is made of those of a run. known: the offsets and lengths of inputs before
    this one, by id; those are no parts of this one as well."""

    def __init__(self, tensor: Any, known: Dict[int, Shared]) -> None:
        if not compat.is_jagged(tensor):
            raise CaptureError("a nested tensor among the inputs has the strided layout: make it with layout=torch.jagged")
        self._axis, self._shortest, self._longest = compat.ragged_axis(tensor), compat.shortest(tensor), compat.longest(tensor)
        self.parts: Dict[str, Tensor] = {"values": tensor.detach().values().requires_grad_(tensor.requires_grad)}
        self._places: Dict[str, Shared] = {}
        for name, part in (("offsets", tensor.offsets()), ("lengths", tensor.lengths())):
            if part is not None and id(part) not in known:
                known[id(part)] = Shared()
                self.parts[name] = part
            if part is not None:
                self._places[name] = known[id(part)]

    def of(self, parts: Dict[str, Tensor]) -> Tensor:
        """The tensor of these parts. If it knows its longest piece, to which it is padded, so does this one: where the
        number of rows is a symbol that of its offsets, and otherwise the graph checks that it is the example's."""
        for name, place in self._places.items():
            place.now = parts.get(name, place.now)
        values, (offsets, lengths) = parts["values"], (self._now("offsets"), self._now("lengths"))
        shortest, longest = self._shortest, self._longest
        if longest is not None:
            pieces = lengths if lengths is not None else offsets.diff()
            if isinstance(values.shape[self._axis - 1], torch.SymInt):
                shortest, longest = None, pieces.max().item()
            else:
                torch._assert_async(pieces.max() == longest, _OTHER_LENGTH.format(longest))
        return compat.jagged(values, offsets, lengths, self._axis, shortest, longest)

    def _now(self, name: str) -> Any:
        return self._places[name].now if name in self._places else None


_OTHER_LENGTH = (
    "the longest piece of a nested tensor has another length than {}, to which this step pads: capture it with a dynamic "
    "number of rows, or with a tensor that is not told its longest piece"
)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Optional[Tensor]:
    """Attention within each piece, as attention over padded rows under a mask: PyTorch's kernels take offsets, or nested
    tensors of another layout, which no graph holds. None where it is not over pieces."""
    three: Any = (query, key, value)
    if not all(compat.is_jagged(t) and t.dim() == 4 and compat.ragged_axis(t) == 2 for t in three) or attn_mask is not None:
        return None
    lengths = [t.offsets().diff() if t.lengths() is None else t.lengths() for t in three[:2]]
    sizes = [_longest(t, n) for t, n in zip(three, lengths)]
    places = [torch.arange(size, device=query.device) for size in sizes]
    mask = places[1] < lengths[1].view(-1, 1, 1, 1)
    mask = mask.expand(mask.shape[0], 1, sizes[0], sizes[1])
    if is_causal:
        mask = mask & (places[0].unsqueeze(1) >= places[1])
    padded = [_padded(t, size) for t, size in zip(three, (sizes[0], sizes[1], sizes[1]))]
    found = fused(*padded, mask, dropout_p, scale=scale, enable_gqa=enable_gqa)
    if found is None:
        found = F.scaled_dot_product_attention(*padded, mask, dropout_p, scale=scale, enable_gqa=enable_gqa)
    return compat.from_padded(found.transpose(1, 2), query).transpose(1, 2)


def _longest(tensor: Tensor, lengths: Tensor) -> Any:
    known = compat.longest(tensor)
    return lengths.max().item() if known is None else known


def _padded(heads: Tensor, size: Any) -> Tensor:
    """[pieces, heads, size, width]."""
    rows: Any = heads.transpose(1, 2)
    told = compat.jagged(rows.values(), rows.offsets(), rows.lengths(), longest=size)
    return torch.nested.to_padded_tensor(told, 0.0).transpose(1, 2)


def drop_lengths(graph: fx.Graph) -> None:
    """A ragged axis' size is a list of lengths: it leaves the graph, or the step is refused."""
    use = compat.drop_lengths(graph)
    if use is not None:
        place = recorder.place(recorder.origin_of(use), graph)
        raise CaptureError(
            f"the step takes the size of a nested tensor's ragged axis for a number{f' at {place}' if place else ''}, and "
            "each piece has its own: compute with its values() and offsets()"
        )
