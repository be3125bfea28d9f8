#!/usr/bin/env python3
"""Runs the tests of this folder over the installed package, and counts as `cargo test` does.

Names of modules, or of tests as unittest writes them, run only those. Ends with 0 if all passed.
"""

from __future__ import annotations

import faulthandler
import sys
import unittest
from pathlib import Path

HANG_S = 600


class Result(unittest.TextTestResult):
    """Counts what passed as well."""

    passed = 0

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.passed += 1


def main() -> int:
    here = str(Path(__file__).resolve().parent)
    sys.path.insert(0, here)
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    loader = unittest.TestLoader()
    names = sys.argv[1:]
    suite = loader.loadTestsFromNames(names) if names else loader.discover(here)
    result = unittest.TextTestRunner(sys.stdout, verbosity=2, resultclass=Result).run(suite)
    for test, why in result.skipped:
        print(f"SKIPPED: {test}: {why}", file=sys.stderr)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    status = "FAILED" if failed or not result.testsRun else "ok"
    print(
        f"test result: {status}. {result.passed} passed; {failed} failed; "
        f"{len(result.skipped)} ignored; 0 measured; 0 filtered out"
    )
    return 0 if status == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
