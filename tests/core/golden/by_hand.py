"""Reading ``truth.toml``: the numbers of a page, worked out from the node's scenario with pencil and paper.

``[[container]]`` and ``[[device]]`` are all rows of the page after 10 s; ``[every.container]`` and
``[every.device]`` are their defaults. ``gpu`` is the index of a GPU in the scenario (or the name of a device
without a driver), ``mig`` the index of an instance (or partition) of it; a list of them, or of holders, makes
a row for each. Memory is in bytes, or written as ``"1536 MiB"``; ``"absent"`` must not be on the page.

Each ``reading`` is one number of a device: its ``family`` and some of its further ``labels``, in which
``{gpu:1}`` is the uuid of GPU 1. ``vgpu`` is the index of a vGPU in its GPU's list. The ``value`` is in the
base unit of the family, or ``[least, most]``.
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

    The readings are triples: the name of the family, the labels given, and the value.
    """

    def __init__(self, path: Path, scenario: Scenario) -> None:
        self._gpus = (*scenario.gpus, *gpus_of(scenario.amd))
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
        """Return the labels of the device, and those that are written out."""
        key = self._key(row)
        labels = {"uuid": key.uuid}
        if key.mig_uuid:
            labels["mig_uuid"] = key.mig_uuid
        if "vgpu" in row:
            labels["vgpu_uuid"] = vgpu_uuid(self._gpus[row["gpu"]].vgpus[row["vgpu"]])
        return labels | {name: self._with_uuids(value) for name, value in row.get("labels", {}).items()}

    def _with_uuids(self, value: str) -> str:
        return _GPU.sub(lambda match: self._gpus[int(match[1])].uuid, value)


def number(written: float | str) -> float | None:
    """Return a number that is written as such, as a fraction or in mebibytes; None if it must be absent."""
    if written == ABSENT:
        return None
    if not isinstance(written, str):
        return written
    value, _, unit = written.partition(" ")
    return float(Fraction(value)) * (MEBIBYTE if unit == "MiB" else 1)


def _rows(written: list[Row], every: Row) -> Iterator[Row]:
    for row in written:
        full = every | row
        several = {name: _list(full[name]) for name in ("holder", "gpu", "mig", "vgpu") if name in full}
        for values in itertools.product(*several.values()):
            yield full | dict(zip(several, values, strict=True))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
