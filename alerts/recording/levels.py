"""What is there, held, used and wasted by GPU, node, model, namespace and cluster."""

from alerts.model import Record
from alerts.recording.windows import Windows


def gpu_records() -> tuple[Record, ...]:
    """Give what is held and used of each GPU, with its names."""
    return ()


def level_records(windows: Windows) -> tuple[Record, ...]:
    """Give sums and efficiency by node, model and cluster."""
    return ()


def namespace_records(windows: Windows) -> tuple[Record, ...]:
    """Give sums and efficiency by namespace."""
    return ()
