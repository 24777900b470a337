#!/usr/bin/env python3
"""opinfo_dtypes.py: writes opinfo_dtypes.txt: of which of our element types PyTorch's OpInfo says that its CPU kernels take them.

A line an overload of libgraph/op.def or composites.def that an OpInfo is about: `aten.NAME.OVERLOAD TYPES`. An OpInfo is about the aten
operator that it names (`aten_name`), its in-place form, and, with the types of backward, `NAME_backward`. Of several (a function under
two names, variants) a type counts that any of them has. Needs a PyTorch; op_coverage.py reads the file without one.
"""
import collections
import sys
from pathlib import Path

import torch
from torch.testing._internal.common_methods_invocations import op_db

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from op_coverage import DTYPES, rows  # noqa: E402

OURS = {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64", torch.int32: "i32",
        torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool", torch.complex64: "c64", torch.complex128: "c128"}

WHOLE = {"i64", "i32", "i16", "i8", "u8", "bool"}


def told():
    """aten name -> types."""
    out = collections.defaultdict(set)
    for op in op_db:
        forward = {OURS[t] for t in op.supported_dtypes("cpu") if t in OURS}
        backward = {OURS[t] for t in op.supported_backward_dtypes("cpu") if t in OURS} if op.supports_autograd else set()
        in_place = forward if op.inplace_variant else set()
        if getattr(op, "promotes_int_to_float", False):      # what is a float has no place in whole numbers
            in_place = in_place - WHOLE
        out[op.aten_name] |= forward
        out[op.aten_name + "_"] |= in_place
        out[op.aten_backward_name or op.aten_name + "_backward"] |= backward
    return out


def main():
    types = told()
    lines = []
    for row in sorted(rows()):
        found = types.get(row.split(".")[1]) if row.startswith("aten.") else None
        if found:
            lines.append(f"{row} {' '.join(t for t in DTYPES if t in found)}")
    (HERE / "opinfo_dtypes.txt").write_text(f"# torch {torch.__version__.split('+')[0]}\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
