"""AMD GPUs, read from the files of their kernel drivers: amdgpu for boards, KFD for compute."""

from exporter.amd.amd_source import AmdOptions, AmdSource

__all__ = ["AmdOptions", "AmdSource"]
