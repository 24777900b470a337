#!/usr/bin/env python3
"""Tests of sg-recipe: messages, the cache, equal bytes however it runs, killed runners, goldens, locks, bisection.

run_recipes.py --bin DIR [--kills N] [NAME...]
"""
import argparse
import os
import sys

from support import CASES, given
import mistake_cases  # noqa: F401
import source_cases  # noqa: F401
import run_cases  # noqa: F401
import cache_cases  # noqa: F401
import limit_cases  # noqa: F401
import check_cases  # noqa: F401


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    given.bin, given.kills = os.path.abspath(options.bin), options.kills
    return CASES.run(options.names)


if __name__ == "__main__":
    sys.exit(main())
