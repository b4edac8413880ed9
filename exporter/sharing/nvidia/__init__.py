"""NVIDIA's device plugin and vGPU."""
