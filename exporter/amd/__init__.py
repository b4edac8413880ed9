"""AMD GPUs, read from the files of their kernel drivers: amdgpu for the boards, KFD for what computes."""

from exporter.amd.amd_source import AmdSource

__all__ = ["AmdSource"]
