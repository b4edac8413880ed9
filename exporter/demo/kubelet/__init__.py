"""A kubelet in software."""
