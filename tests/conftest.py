"""What holds for all tests."""

import os
import sys

from hypothesis import settings

# The program is started a hundred times, and the tests are read by each worker: what they import is compiled
# once, also where nothing is to be kept of what is compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long one example takes depends on what else the machine does; speed is what the benchmarks measure.
settings.register_profile("gpuslice", deadline=None)
settings.load_profile("gpuslice")
