"""One rank of mpi4py's suite: mpi_rank.py DIRECTORY SECONDS MAIN ARGUMENTS...

Its output goes to DIRECTORY/rank-N.log. Once a test has taken SECONDS the stack of each thread goes there as well: the
test that hangs is in it.
"""

import faulthandler
import os
import runpy
import sys
import unittest

directory, seconds, main = sys.argv[1], float(sys.argv[2]), sys.argv[3]
rank = next((os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK") if name in os.environ), "0")
log = os.open(os.path.join(directory, f"rank-{rank}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
os.dup2(log, 1)
os.dup2(log, 2)
begin = unittest.TextTestResult.startTest


def begin_in_time(self, test):
    faulthandler.dump_traceback_later(seconds)
    begin(self, test)


unittest.TextTestResult.startTest = begin_in_time
faulthandler.dump_traceback_later(seconds)
sys.argv = [main, *sys.argv[4:]]
sys.path.insert(0, os.path.dirname(main))
runpy.run_path(main, run_name="__main__")
