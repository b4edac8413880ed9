"""Reading ``truth.toml``: what a person worked out from a node's scenario with paper and pencil.

``[[container]]`` and ``[[device]]`` are the rows that the page must have after 10 s, all of them and no
others; ``[every.container]`` and ``[every.device]`` hold for each that does not say otherwise. ``gpu`` is
the index of a GPU (or the name of a device that no driver of ours reads) and ``mig`` the place of an instance
(or partition) in the scenario; a list of them, or of holders, makes a row for each. Memory is in bytes, or
written as ``"1536 MiB"``; ``"absent"`` must not be on the page.

Each ``reading`` is one number that a device itself has to say: its ``family`` and what matters of its further
``labels``, where ``{gpu:1}`` stands for the uuid of GPU 1. ``vgpu`` is the place of a vGPU in its GPU's list.
The ``value`` is in the base unit of the family, ``[least, most]`` where it can only be bounded.
"""

import itertools
import re
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from exporter.demo.nvml.parts import vgpu_uuid
from exporter.demo.scenario import Scenario
from exporter.demo.scenario.amd_gpus import gpus_of
from exporter.model import DeviceKey

ABSENT = "absent"
MEBIBYTE = 1024 * 1024
_GPU = re.compile(r"\{gpu:(\d+)\}")

Row = dict[str, Any]
Labels = dict[str, str]


class Truth:
    """The containers by (namespace, pod, container, uuid, mig_uuid), and the devices by key.

    The readings are triples: the name of the family, all labels that were told, and the value.
    """

    def __init__(self, path: Path, told: Scenario) -> None:
        self._gpus = (*told.gpus, *gpus_of(told.amd))
        document = tomllib.loads(path.read_text())
        every = document.get("every", {})
        self.containers = {
            (*row["holder"].split("/"), *self._key(row)): row
            for row in _rows(document["container"], every.get("container", {}))
        }
        self.devices = {self._key(row): row for row in _rows(document["device"], every.get("device", {}))}
        self.readings: list[tuple[str, Labels, Any]] = [
            (row["family"], self._labels(row), row["value"]) for row in _rows(document.get("reading", []), {})
        ]

    def _key(self, row: Row) -> DeviceKey:
        if isinstance(row["gpu"], str):
            return DeviceKey(row["gpu"])
        gpu = self._gpus[row["gpu"]]
        if "mig" not in row or gpu.mig is None:
            return DeviceKey(gpu.uuid)
        return DeviceKey(gpu.uuid, gpu.mig.instances[row["mig"]].uuid)

    def _labels(self, row: Row) -> Labels:
        """Return the labels that the device brings, and those that were written out."""
        key = self._key(row)
        labels = {"uuid": key.uuid}
        if key.mig_uuid:
            labels["mig_uuid"] = key.mig_uuid
        if "vgpu" in row:
            labels["vgpu_uuid"] = vgpu_uuid(self._gpus[row["gpu"]].vgpus[row["vgpu"]])
        return labels | {name: self._spelled(word) for name, word in row.get("labels", {}).items()}

    def _spelled(self, word: str) -> str:
        return _GPU.sub(lambda found: self._gpus[int(found[1])].uuid, word)


def has_readings(path: Path) -> bool:
    """Say whether somebody worked out what the devices themselves have to say."""
    return "reading" in tomllib.loads(path.read_text())


def number(told: float | str) -> float | None:
    """Read what was written down: a number, a fraction, mebibytes, or None for what must be absent."""
    if told == ABSENT:
        return None
    if not isinstance(told, str):
        return told
    value, _, unit = told.partition(" ")
    return float(Fraction(value)) * (MEBIBYTE if unit == "MiB" else 1)


def _rows(written: list[Row], every: Row) -> Iterator[Row]:
    for row in written:
        full = every | row
        several = {name: _list(full[name]) for name in ("holder", "gpu", "mig", "vgpu") if name in full}
        for values in itertools.product(*several.values()):
            yield full | dict(zip(several, values, strict=True))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
