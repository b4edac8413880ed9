"""The rows of pods: those of their labels that the settings let through, to be joined to other series."""

import re
from collections.abc import Sequence
from functools import lru_cache

from exporter.metrics.family import AnyFamily, Family

POD_LABELS = ("namespace", "pod", "pod_uid")

_INVALID = re.compile(r"[^a-zA-Z0-9_]")
_CAMEL = re.compile(r"([a-z0-9])([A-Z])")


@lru_cache(maxsize=1024)
def label_names(names: Sequence[str]) -> tuple[str, ...]:
    """Spell the names of a pod's labels, given in order, as kube-state-metrics does in ``kube_pod_labels``.

    ``app.kubernetes.io/name`` is ``label_app_kubernetes_io_name``. Names that become the same are numbered in
    their order, ``label_a_b_conflict1`` on, past numbers that another name has by itself.
    """
    wanted = [_name(name) for name in names]
    shared = {name for name in wanted if wanted.count(name) > 1}
    taken = {name for name in wanted if name not in shared}
    spelled = []
    for name in wanted:
        free = _free(name, taken) if name in shared else name
        taken.add(free)
        spelled.append(free)
    return tuple(spelled)


def _name(name: str) -> str:
    return "label_" + _CAMEL.sub(r"\1_\2", _INVALID.sub("_", name)).lower()


def _free(name: str, taken: set[str]) -> str:
    numbers = (f"{name}_conflict{number}" for number in range(1, len(taken) + 2))
    return next(each for each in numbers if each not in taken)


POD: tuple[AnyFamily, ...] = (
    Family(
        "gpuslice_pod_labels",
        "gauge",
        "pod",
        "Labels of a pod that holds or uses a device here, as far as --pod-labels lets them through; each is "
        "a label of the series, named as in kube_pod_labels of kube-state-metrics.",
        lambda _: 1,
    ),
)
"""Families with one entity per pod (a PodRow), labelled ``namespace``, ``pod``, ``pod_uid`` and its own."""
