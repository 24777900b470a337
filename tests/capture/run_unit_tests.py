#!/usr/bin/env python3
"""run_unit_tests.py --bin BIN [NAME...]: what the capture package promises, case by case.

The cases of test_*.py, or those named as unittest names them: test_flex, test_capture.Ways.test_gzip.
"""

import os
import sys
import unittest

from interpreter import ROOT, use_python_with_torch

use_python_with_torch()
sys.path.insert(0, os.path.join(ROOT, "tools", "capture"))

if __name__ == "__main__":
    place = sys.argv.index("--bin")
    os.environ["SG_BIN"] = os.path.abspath(sys.argv[place + 1])
    names = sys.argv[1:place] + sys.argv[place + 2 :]
    folder = os.path.dirname(os.path.abspath(__file__))
    load = unittest.defaultTestLoader
    suite = load.loadTestsFromNames(names) if names else load.discover(folder, "test_*.py")
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
