"""Tencent's gpu-manager (vCUDA) and qGPU, and Elastic GPU."""
