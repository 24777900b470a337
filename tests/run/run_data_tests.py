#!/usr/bin/env python3
"""Values in and out of sg-run, as a user meets them: files, names, exit codes. Needs nothing but Python.

run_data_tests.py --bin DIR [NAME...]      NAME runs only the cases whose name contains it.
"""
import argparse
import os
import sys

from support import CASES, given
import value_cases  # noqa: F401
import step_cases  # noqa: F401
import compare_cases  # noqa: F401
import number_cases  # noqa: F401
import refusal_cases  # noqa: F401
import rank_cases  # noqa: F401


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    given.bin = os.path.abspath(options.bin)
    return CASES.run(options.names)


if __name__ == "__main__":
    sys.exit(main())
