"""Reading ``truth.toml``: what a person worked out from a node's scenario with paper and pencil.

``[[container]]`` and ``[[device]]`` are the rows that the page must have after 10 s, all of them and no
others; ``[every.container]`` and ``[every.device]`` hold for each that does not say otherwise. ``gpu`` is
an NVML index and ``mig`` the place of an instance in the scenario; a list of them, or of holders, makes a
row for each. Memory is in bytes, or written as ``"1536 MiB"``; ``"absent"`` must not be on the page.
"""

import itertools
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from exporter.demo.schema import Scenario
from exporter.model import DeviceKey

ABSENT = "absent"
MEBIBYTE = 1024 * 1024

Row = dict[str, Any]


class Truth:
    """The containers by (namespace, pod, container, uuid, mig_uuid), and the devices by key."""

    def __init__(self, path: Path, told: Scenario) -> None:
        self._told = told
        document = tomllib.loads(path.read_text())
        every = document.get("every", {})
        self.containers = {
            (*row["holder"].split("/"), *self._key(row)): row
            for row in _rows(document["container"], every.get("container", {}))
        }
        self.devices = {self._key(row): row for row in _rows(document["device"], every.get("device", {}))}

    def _key(self, row: Row) -> DeviceKey:
        gpu = self._told.gpus[row["gpu"]]
        if "mig" not in row or gpu.mig is None:
            return DeviceKey(gpu.uuid)
        return DeviceKey(gpu.uuid, gpu.mig.instances[row["mig"]].uuid)


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
        several = {name: _list(full[name]) for name in ("holder", "gpu", "mig") if name in full}
        for values in itertools.product(*several.values()):
            yield full | dict(zip(several, values, strict=True))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
