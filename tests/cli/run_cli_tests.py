#!/usr/bin/env python3
"""Tests of the command line: streams, exit codes, pipes, messages, atomic outputs. Needs nothing but Python.

run_cli_tests.py --bin DIR [--probe FILE] [--update] [NAME...]
  --update rewrites tests/golden/help; NAME runs only the cases whose name contains it.
"""
import argparse
import os
import sys

from support import CASES, given
import option_cases  # noqa: F401
import stream_cases  # noqa: F401
import output_cases  # noqa: F401
import target_cases  # noqa: F401
import rank_cases  # noqa: F401
import message_cases  # noqa: F401
import tool_cases  # noqa: F401
import diff_cases  # noqa: F401
import sim_cases  # noqa: F401


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--probe")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    given.bin, given.update = os.path.abspath(options.bin), options.update
    given.probe = os.path.abspath(options.probe) if options.probe else None
    os.environ["PATH"] = given.bin + os.pathsep + os.environ["PATH"]  # where this process looks programs up
    return CASES.run(options.names)


if __name__ == "__main__":
    sys.exit(main())
