"""Everything that the doctor can find: one code for each cause that has a remedy of its own.

The codes are for good: people write them into tickets, and each is a heading of docs/troubleshooting.md.
"""

from itertools import chain
from typing import Final

from exporter.doctor.findings import driver, gpus, kubelet, objects, workloads
from exporter.doctor.findings.finding import Finding

__all__ = ["FINDINGS", "Finding", "driver", "gpus", "kubelet", "objects", "workloads"]

_PLACES: Final = (driver, gpus, kubelet, workloads, objects)
FINDINGS: Final = {
    each.code: each
    for each in chain.from_iterable(vars(place).values() for place in _PLACES)
    if isinstance(each, Finding)
}
"""Every finding by its code."""
