#!/usr/bin/env python3
"""run_unit_tests.py --bin BIN [unittest arguments]: what the capture package promises, case by case."""

import os
import sys
import unittest

from interpreter import ROOT, use_python_with_torch

use_python_with_torch()
sys.path.insert(0, os.path.join(ROOT, "tools", "capture"))

if __name__ == "__main__":
    place = sys.argv.index("--bin")
    os.environ["SG_BIN"] = os.path.abspath(sys.argv[place + 1])
    arguments = sys.argv[:1] + sys.argv[1:place] + sys.argv[place + 2 :]
    names = ("annotate", "capture", "checkpoint", "chunking", "collectives", "command", "rounding", "symbols")
    names += ("optimizers", "trace_time", "flex", "constants", "left_alone")
    modules = [f"test_{name}" for name in names]
    suite = unittest.defaultTestLoader.loadTestsFromNames(arguments[1:] or modules)
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
