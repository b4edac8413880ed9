"""Alibaba's gpushare and cGPU, and Koordinator."""
