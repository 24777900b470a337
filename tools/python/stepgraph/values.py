"""safetensors files as arrays: numpy where that is all there is, torch tensors where asked for.

Our own few lines, so that nothing has to be installed. bf16, which numpy does not have, comes as float32, exactly.
"""

from __future__ import annotations

import ctypes
import json
import struct
from typing import Any, Dict, Iterator, Mapping, Tuple

# safetensors' name: numpy's, torch's
_TYPES = {
    "F64": ("float64", "float64"), "F32": ("float32", "float32"), "F16": ("float16", "float16"),
    "BF16": (None, "bfloat16"),
    "I64": ("int64", "int64"), "I32": ("int32", "int32"), "I16": ("int16", "int16"), "I8": ("int8", "int8"),
    "U8": ("uint8", "uint8"), "U16": ("uint16", "uint16"), "U32": ("uint32", "uint32"), "U64": ("uint64", "uint64"),
    "BOOL": ("bool", "bool"), "C64": ("complex64", "complex64"),
    "F8_E4M3": (None, "float8_e4m3fn"), "F8_E5M2": (None, "float8_e5m2"),
}


def _parts(path: str) -> Iterator[Tuple[str, str, Tuple[int, ...], bytes]]:
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, entry["dtype"], tuple(entry["shape"]), data[8 + length + begin : 8 + length + end]


def _numpy_array(kind: str, shape: Tuple[int, ...], data: bytes) -> Any:
    import numpy

    if kind == "BF16":
        halves = numpy.frombuffer(data, dtype="<u2").astype("<u4")
        return (halves << 16).view("<f4").reshape(shape)
    name = _TYPES.get(kind, (None,))[0]
    if name is None:
        raise TypeError(f"numpy has no type for {kind}: ask for torch tensors")
    return numpy.frombuffer(bytearray(data), dtype=name).reshape(shape)


def _torch_tensor(kind: str, shape: Tuple[int, ...], data: bytes) -> Any:
    import torch

    dtype = getattr(torch, _TYPES[kind][1])
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def read_values(path: str, torch: bool = False) -> Dict[str, Any]:
    """The tensors of a file by name: numpy arrays, or torch tensors."""
    make = _torch_tensor if torch else _numpy_array
    return {name: make(kind, shape, data) for name, kind, shape, data in _parts(path)}


def _bytes_of(value: Any) -> Tuple[str, Tuple[int, ...], bytes]:
    if type(value).__module__.split(".")[0] == "torch":
        value = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        name = str(value.dtype).split(".")[1]
        kind = next((k for k, (_, torch_name) in _TYPES.items() if torch_name == name), None)
        data = ctypes.string_at(value.data_ptr(), value.numel() * value.element_size()) if value.numel() else b""
    else:
        import numpy

        value = numpy.asarray(value)
        kind = next((k for k, (numpy_name, _) in _TYPES.items() if numpy_name == value.dtype.name), None)
        name = value.dtype.name
        data = value.astype(value.dtype.newbyteorder("<"), order="C", copy=False).tobytes() if kind else b""
    if kind is None:
        raise TypeError(f"a file of values cannot hold {name}")
    return kind, tuple(value.shape), data


def write_values(path: str, values: Mapping[str, Any]) -> None:
    """Writes arrays or tensors by name, numpy's and torch's alike."""
    header, parts, at = {}, [], 0
    for name in sorted(values):
        kind, shape, data = _bytes_of(values[name])
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)
