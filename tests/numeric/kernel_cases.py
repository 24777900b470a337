"""Random calls of ops: CASES has for each name a function of a random.Random that makes a Case. A file a family."""
import kernel_cases_composite  # noqa: F401 (adds its cases)
import kernel_cases_index  # noqa: F401
import kernel_cases_layers  # noqa: F401
import kernel_cases_linear  # noqa: F401
import kernel_cases_moves  # noqa: F401
import kernel_cases_planes  # noqa: F401
import kernel_cases_reductions  # noqa: F401
import kernel_cases_special  # noqa: F401
from kernel_calls import CASES  # noqa: F401
