"""What holds for all tests."""

from hypothesis import settings

# How long one example takes depends on what else the machine does; speed is what the benchmarks measure.
settings.register_profile("gpuslice", deadline=None)
settings.load_profile("gpuslice")
