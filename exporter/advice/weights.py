"""GPUs entitled and freed, as means over the window: of a pod that held half of it, half counts."""

from collections.abc import Iterable

from exporter.advice.model import Use, Window


def entitled_gpus(window: Window, use: Use) -> float:
    """Return the GPUs that a container is entitled to on a device: the larger share of memory and compute.

    Without an entitlement it may use all of the device.
    """
    device = window.device
    memory = use.memory_entitled / device.memory if use.memory_entitled and device.memory else None
    shares = [share for share in (memory, use.compute_entitled) if share is not None]
    if device.profile:
        return use.compute_entitled if use.compute_entitled is not None else 1.0
    return min(max(shares), 1.0) if shares else 1.0


def average_gpus(window: Window, uses: Iterable[Use], recommended: float = 0.0) -> float:
    """Return the GPUs that would be freed if each of these held ``recommended`` GPUs."""
    if window.span <= 0:
        return 0.0
    return sum((entitled_gpus(window, use) - recommended) * min(use.held / window.span, 1.0) for use in uses)
