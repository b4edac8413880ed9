"""Two hours of one fleet in each dialect: as the old dcgm-exporter, the new one and ours would print it."""

import math
import random
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Literal, NamedTuple

from exporter.metrics.dcgm.dialects import LABELS, RENAMED, Field
from exporter.metrics.dcgm.own_names import OWN

Dialect = Literal["old", "new", "gpuslice"]

HOSTS = ("h0", "h1")
STEP = 30
LENGTH = 7200
# Fields that are 0 on an idle GPU.
IDLE = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_FB_USED")
# Fields that keep their names.
KEPT = ("DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_VGPU_LICENSE_STATUS")
_RENAMED_LABELS = {label.old: label.new for label in LABELS}
_OWN_LABELS = {"Hostname": "node", "UUID": "uuid", "gpu": "gpu", "instance": "instance", "job": "job"}
_OTHERS = 'kube_node_labels{{node="{0}",label_zone="zone-{0}"}}'


class _Card(NamedTuple):
    host: str
    gpu: int

    @property
    def idle(self) -> bool:
        """Return whether nothing runs on it."""
        return self == (HOSTS[0], 1)

    @property
    def busy(self) -> bool:
        """Return whether all of it is in use, all the time."""
        return self == (HOSTS[1], 1)

    def labels(self) -> dict[str, str]:
        instance = {"GPU_I_ID": "3", "GPU_I_PROFILE": "2g.20gb"} if self == (HOSTS[1], 0) else {}
        return instance | {
            "instance": f"{self.host}:9400",
            "job": "dcgm",
            "gpu": str(self.gpu),
            "UUID": f"GPU-{self.host}-{self.gpu}",
            "device": f"nvidia{self.gpu}",
            "modelName": "NVIDIA L4",
            "Hostname": self.host,
            "DCGM_FI_DRIVER_VERSION": "580.1",
            "namespace": "ml",
            "pod": f"train-{self.gpu}",
            "container": "main",
            "exported_namespace": "ml",
            "exported_pod": f"train-{self.gpu}",
            "exported_container": "main",
        }


def page(dialect: Dialect, end: int, *, whole: bool) -> Iterator[str]:
    """Yield the samples of the fleet in OpenMetrics' format, until a time.

    ``whole``: all values are whole in the old units, so that nothing is lost by its rounding.
    """
    times = range(end - LENGTH, end + 1, STEP)
    for host in HOSTS:
        yield from (f"{_OTHERS.format(host)} 1 {at}" for at in times)
    cards = [_Card(host, gpu) for host in HOSTS for gpu in (0, 1)]
    for field in (*RENAMED, *(Field(old=name, new=name) for name in KEPT)):
        for card in cards:
            name = _name(field, dialect)
            if name is None:
                continue
            series = f"{name[0]}{{{_written(card, dialect, name[1])}}}"
            for at, (old, new) in zip(times, _values(field, card, len(times), whole=whole), strict=True):
                value = old if dialect == "old" else new if dialect == "new" else _own(field, old, new)
                yield f"{series} {value} {at}"


def _name(field: Field, dialect: Dialect) -> tuple[str, Mapping[str, str]] | None:
    if dialect != "gpuslice":
        return field.old if dialect == "old" else field.new, {}
    own = OWN.get(field.old)
    return None if own is None else (own.name, own.matchers)


def _own(field: Field, old: float, new: float) -> float:
    """Return our value: bytes, hertz and joules as in the new dialect, others by their factor."""
    factor = OWN[field.old].factor
    return new if factor == field.factor else float(Fraction(old) * factor)


def _written(card: _Card, dialect: Dialect, matchers: Mapping[str, str]) -> str:
    labels = card.labels()
    if dialect == "new":
        labels = {_RENAMED_LABELS.get(name, name): value for name, value in labels.items()}
    elif dialect == "gpuslice":
        labels = {new: labels[old] for old, new in _OWN_LABELS.items()} | dict(matchers)
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def _values(field: Field, card: _Card, count: int, *, whole: bool) -> Iterator[tuple[float, float]]:
    """Yield the old and the new value of each moment."""
    source = random.Random(f"{field.old} {card}")  # noqa: S311 - made-up readings
    total = 0
    for _ in range(count):
        reading = 100 if card.busy else source.randrange(1, 101)
        if card.idle and field.old in IDLE:
            reading = 0
        total += reading
        if field.old_type == "counter" and field.new_type == "counter":
            reading = total
        if field.steps == "finer":
            # Less than a unit, which the old rounding hides.
            rest = 0 if whole else source.randrange(1, 400_000)
            true = reading * 37 * field.factor.numerator + rest
            yield math.floor(true / field.factor), true
        elif field.steps == "coarser":
            true = reading * 1000 + (0 if whole else source.randrange(1000))
            yield true, math.floor(true * field.factor)
        elif field.factor > 1:
            yield reading * 15, float(reading * 15 * field.factor)
        else:
            yield reading, float(reading * field.factor)
