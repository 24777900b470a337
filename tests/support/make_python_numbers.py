#!/usr/bin/env python3
"""Writes tests/data/python_numbers.txt: what Python's own numbers give at their edges, a line a call: OP, its arguments, the result.
A whole number is written in decimal, a float as float.hex does; "none" where Python raises an error or the result is neither an
i64 nor a float."""
import operator
from pathlib import Path

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 0.3, 2.5, -2.675, 2.0**53, 2.0**63, -2.0**63, 5e-324, -5e-324, float("inf"), float("-inf"),
          float("nan")]
WHOLES = [0, 1, -1, 3, -7, 2**53 + 1, -2**53 - 1, 2**62 + 1, 2**63 - 1, -2**63]
TO_ROUND = [0, 5, 15, -25, 149, 5 * 10**18, 5 * 10**18 + 1, -5 * 10**18, -5 * 10**18 - 1, 15 * 10**17, 2**63 - 1, -2**63]


def sym(choose):
    """As torch.sym_max has it: a float beside a float."""
    return lambda a, b: float(choose(a, b)) if isinstance(a, float) or isinstance(b, float) else choose(a, b)


WHOLE_PAIRS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
PAIRS = {"truediv": operator.truediv, "floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min, "sym_max": sym(max),
         "sym_min": sym(min), "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
         "ge": operator.ge}
BASES = [0, 0.0, -0.0, 1, -1, 2, 2.0, 3, -3, -8.0, 0.25, 1e300, float("inf"), float("-inf"), float("nan")]
POWERS = [0, 1, 2, 3, -1, -2, -7, 62, 63, 64, 0.5, -1.0, 2.0, float("inf"), float("-inf"), float("nan")]


def text(value):
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return value.hex()
    return str(value) if isinstance(value, int) and -2**63 <= value < 2**63 else "none"


def line(op, call, *given):
    try:
        out = call(*given)
    except (ArithmeticError, ValueError):
        out = None
    return " ".join([op, *map(text, given), text(out)])


def lines():
    for op, call in WHOLE_PAIRS.items():
        yield from (line(op, call, a, b) for a in WHOLES for b in WHOLES)
    for op, call in PAIRS.items():
        yield from (line(op, call, a, b) for a in WHOLES + FLOATS for b in WHOLES + FLOATS)
    yield from (line("pow", operator.pow, a, b) for a in BASES for b in POWERS)
    yield from (line("round", round, a, digits) for a in TO_ROUND for digits in (3, 0, -1, -2, -18, -19, -20, -400))
    yield from (line("round", round, a, digits) for a in FLOATS for digits in (400, 2, 1, 0, -1, -400))
    yield line("round", round, 1.7e308, -308)


Path(__file__).parents[1].joinpath("data/python_numbers.txt").write_text("\n".join(lines()) + "\n")
