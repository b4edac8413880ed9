"""NVML in software: an object for ``pynvml.nvmlLib``, so that the real binding runs above it."""
