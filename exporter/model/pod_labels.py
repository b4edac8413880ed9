"""The selected labels of pods, by the containers of a snapshot."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

from exporter.model.snapshot import ContainerRow, PodRow

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values, in the order of the names."""


class PodLabels:
    """The selected labels of pods that hold or use a device."""

    def __init__(self, pods: Iterable[PodRow]) -> None:
        self._pods: dict[tuple[str, str], list[PodRow]] = defaultdict(list)
        for pod in pods:
            self._pods[pod.namespace, pod.name].append(pod)

    def of(self, row: ContainerRow) -> Labels:
        """Return the labels of a container's pod: () if none is selected, or they are unknown."""
        named = self._pods.get(row.holder[:2], ())
        same = [pod for pod in named if row.pod_uid in ("", pod.uid)]
        # While a pod is replaced by another one of its name, only the uid tells them apart.
        return same[0].labels if len(same) == 1 else ()
