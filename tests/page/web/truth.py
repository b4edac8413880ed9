"""The pages of a scenario and the metrics of the same snapshot, read independently.

Texts of a page are never compared with texts that the program makes: their numbers are parsed here and
compared with the samples that prometheus_client reads. What no series has is None.
"""

import re
from collections.abc import Iterator
from functools import cache, cached_property
from typing import NamedTuple
from urllib.parse import unquote

from prometheus_client.parser import text_string_to_metric_families

from exporter.exposition import Exposition, Format
from exporter.web.kit.html import page
from exporter.web.node.pages.holder_columns import COLUMNS
from exporter.web.node.pages.layout import holder_drawing
from exporter.web.node.pages.scene import Scene
from exporter.web.node.parameters import Query
from tests.page.web.views_reading import Element, gpu_page, node_page, read, scenario

GIB = 1 << 30
UNKNOWN = "\N{EN DASH}"
# Scenarios are as old as half a minute, so that some of their holders are idle by now, and some not yet.
IDLE_AFTER, IDLE_LATER = 20.0, frozenset({"t4-timeslicing"})
_ACTIVE = 60.0
QUERY = Query(columns=tuple(column.key for column in COLUMNS))
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


class Key(NamedTuple):
    """A container on a device, by its labels; ``mig_uuid`` is "" on a whole GPU."""

    namespace: str
    pod: str
    container: str
    uuid: str
    mig_uuid: str

    @property
    def holder(self) -> tuple[str, str, str]:
        """The container without the device."""
        return self[:3]

    @property
    def device(self) -> str:
        """The uuid that stands for the device on pages."""
        return self.mig_uuid or self.uuid


_NAMES = ("node", "gpu")


class Sample(NamedTuple):
    """One line of a page of metrics."""

    labels: dict
    value: float


def _without_names(labels) -> frozenset[tuple[str, str]]:
    """Return labels without those that follow from the others: a test of golden pages compares these."""
    # The profile of a MIG device follows from its UUID; the profile of a GPU model identifies its series.
    names = (*_NAMES, "profile") if "mig_uuid" in labels else _NAMES
    return frozenset((name, value) for name, value in labels.items() if value and name not in names)


class Series:
    """A page of metrics; ``helps`` are the help texts of families by their names.

    ``computed`` are the containers that were seen computing, of which there is no series.
    """

    def __init__(self, text, computed=frozenset(), idle_after=IDLE_AFTER) -> None:
        self.computed = computed
        self.idle_after = idle_after
        self.samples: dict[str, list[Sample]] = {}
        self.helps: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self._values: dict[tuple, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.helps[sample.name] = family.documentation
                self.types[sample.name] = family.type
                self.samples.setdefault(sample.name, []).append(Sample(sample.labels, sample.value))
                at = sample.name, _without_names(sample.labels)
                assert at not in self._values, f"twice on the page: {sample}"
                self._values[at] = sample.value

    def value(self, family, **labels) -> float | None:
        """Return the sample with exactly these labels, besides those that name its device; "" is none."""
        return self._values.get((f"gpuslice_{family}", _without_names(labels)))

    def all(self, family, **labels) -> list[Sample]:
        """Return the samples that have these labels among theirs."""
        found = self.samples.get(f"gpuslice_{family}", ())
        return [sample for sample in found if labels.items() <= sample.labels.items()]

    def values(self, family, **labels) -> list[float]:
        """Return the values of samples that have these labels among theirs."""
        return [sample.value for sample in self.all(family, **labels)]

    def of(self, key, field) -> float | None:
        """Return a number of a container on a device."""
        return self.value(f"container_{field}", **key._asdict())

    def limits(self, key) -> dict[str, float]:
        """Return the limits of a container's memory that bars mark, by their looks."""
        limits = {"soft": self.of(key, "memory_guaranteed_bytes"), "hard": self.of(key, "memory_limit_bytes")}
        return {look: size for look, size in limits.items() if size}

    def info(self, key) -> dict:
        """Return the labels of the info series of a container on a device."""
        (labels,) = self._infos[key]
        return labels

    @property
    def containers(self) -> list[Key]:
        """Return the containers on devices."""
        return [key for key, infos in self._infos.items() for _ in infos]

    def on(self, uuid, mig_uuid="") -> list[Key]:
        """Return the containers on a device."""
        return self._on.get((uuid, mig_uuid), [])

    @cached_property
    def _infos(self) -> dict[Key, list[dict]]:
        """Labels of the info series by container and device, in the order of the page."""
        found: dict[Key, list[dict]] = {}
        for sample in self.all("container_info"):
            found.setdefault(_key(sample.labels), []).append(sample.labels)
        return found

    @cached_property
    def _on(self) -> dict[tuple[str, str], list[Key]]:
        """The containers on each device."""
        found: dict[tuple[str, str], list[Key]] = {}
        for key in self.containers:
            found.setdefault((key.uuid, key.mig_uuid), []).append(key)
        return found

    def device(self, uuid, mig_uuid, field) -> float | None:
        """Return a number that GPUs and MIG devices have by the same name."""
        if mig_uuid:
            return self.value(f"mig_{field}", uuid=uuid, mig_uuid=mig_uuid)
        return self.value(f"gpu_{field}", uuid=uuid)

    @property
    def timestamp(self) -> float:
        """When it was read."""
        (moment,) = self.values("snapshot_timestamp_seconds")
        return moment

    def state(self, key) -> str:
        """Return the state of a container by the rules in the documentation."""
        used, entitled = self.of(key, "memory_used_bytes"), self.of(key, "memory_entitled_bytes")
        computes, share = self.of(key, "compute_used_ratio"), self.of(key, "compute_entitled_ratio")
        over_memory = None not in (used, entitled) and used > entitled
        over_compute = None not in (computes, share) and computes > share + 0.01
        # Time with a kernel is not what MPS limits.
        over_compute = over_compute and self.info(key).get("sharing") != "mps"
        notional = self.info(key).get("isolation") == "none"
        quiet = self.quiet_for(key)
        if self.of(key, "slices") == 0:
            return "uses without holding"
        if not notional and (over_memory or over_compute):
            return "over its share"
        if not computes and quiet is not None and quiet >= self.idle_after:
            return "idle, holding memory" if used else "idle"
        if notional and over_memory:
            return "over its notional share"
        if not computes and quiet is None:
            return "unknown"
        return "active" if self.is_active(key) else "quiet"

    def states(self, key) -> str:
        """Return all states of a container: none hides another one."""
        state, quiet = self.state(key), self.quiet_for(key)
        idle = not self.of(key, "compute_used_ratio") and quiet is not None and quiet >= self.idle_after
        used, entitled = self.of(key, "memory_used_bytes"), self.of(key, "memory_entitled_bytes")
        notional = self.info(key).get("isolation") == "none"
        over = notional and None not in (used, entitled) and used > entitled
        also = [""]
        if idle and state in ("uses without holding", "over its share"):
            also.append("idle, holding memory" if used else "idle")
        elif idle and over:
            also.append("over its notional share")
        if self.health(key) not in ("", "Healthy", "Unknown"):
            also.append("slice reported unhealthy")
        return state + ", ".join(also)

    def health(self, key) -> str:
        """Return what the kubelet reports of its slices, "" if nothing."""
        samples = self.all("container_device_health_info")
        return next((sample.labels["health"] for sample in samples if _key(sample.labels) == key), "")

    def is_active(self, key) -> bool:
        """Whether a container computes, or was seen computing in the last minute and is not idle yet."""
        if self.of(key, "compute_used_ratio"):
            return True
        quiet = self.quiet_for(key)
        return key in self.computed and quiet is not None and quiet < min(_ACTIVE, self.idle_after)

    def quiet_for(self, key) -> float | None:
        """Return the seconds that a container has not computed."""
        last = self.of(key, "last_active_timestamp_seconds")
        if last is None or self.of(key, "compute_used_ratio") is None:
            return None
        return max(self.timestamp - last, 0.0)

    def efficiency(self, key) -> float | None:
        """Return GPU-seconds used per GPU-second held while use was measured."""
        used = self.of(key, "used_gpu_seconds_total")
        held = self.of(key, "compute_measured_gpu_seconds_total")
        return used / held if held and used is not None else None

    @property
    def unread(self) -> set[str]:
        """The devices that are not read; only their holders are known."""
        known = {"nvidia", "amd"}
        return {
            sample.labels["uuid"]
            for sample in self.all("gpu_info")
            if sample.labels.get("vendor", "nvidia") not in known
        }


def _key(labels) -> Key:
    return Key(*(labels.get(name, "") for name in Key._fields))


@cache
def series_of(name) -> Series:
    """Return the metrics of a scenario."""
    shown = scenario(name)
    return Series(
        Exposition().page(shown).body(Format.TEXT).decode(),
        computed(shown),
        idle_after(name),
    )


def idle_after(name) -> float:
    """Return after how many seconds a holder of a scenario is idle."""
    return 600.0 if name in IDLE_LATER else IDLE_AFTER


def computed(shown) -> frozenset[Key]:
    """Return the containers that were seen computing."""
    return frozenset(
        Key(*row.holder, row.device.uuid, row.device.mig_uuid)
        for row in shown.containers
        if row.totals is not None and row.totals.seen_computing
    )


@cache
def node(name) -> Element:
    """Return the page of the node, with all columns."""
    return read(node_page(scenario(name), idle_after=idle_after(name), query=QUERY))


@cache
def gpu_of(name, uuid) -> Element:
    """Return the page of a GPU, with all columns."""
    return read(gpu_page(scenario(name), uuid, idle_after=idle_after(name), query=QUERY))


@cache
def holder_of(name, holder) -> Element:
    """Return the page of a container."""
    shown = scenario(name)
    scene = Scene(shown, now=shown.timestamp + 3, idle_after=idle_after(name), root="../../../")
    return read(page(holder_drawing(scene, *holder), scene.root))


def uuids(name) -> list[str]:
    """Return the GPUs that have pages."""
    return [gpu.identity.uuid for gpu in scenario(name).gpus]


def holders(name) -> list[tuple[str, str, str]]:
    """Return the containers that have pages."""
    return list(dict.fromkeys(key.holder for key in series_of(name).containers))


def linked_holder(element) -> tuple[str, ...]:
    """Return the container that the only link of an element leads to."""
    link = element.one("a", of="who")
    return tuple(map(unquote, link.attributes["href"].rpartition("holder/")[2].split("/")))


def rows(shown) -> Iterator[tuple[tuple[str, ...], str, dict[str, Element]]]:
    """Yield the rows of the table of holders: container, device, and cells by column."""
    for row in (row for body in shown.all(id="holder-rows") for row in body.all("tr")):
        cells = {cell.attributes["data-label"]: cell for cell in row.all("td")}
        yield linked_holder(row.one("th")), cells["GPU"].attributes["title"], cells


def is_number(text, value, digits, *, least="") -> bool:
    """Whether a text is a number with these digits; a dash is None, and ``<`` is less than half a unit.

    A sum with missing parts has ``least`` before it.
    """
    if value is None:
        return text == UNKNOWN
    unit = 10.0**-digits
    if text.startswith("<"):
        return text == f"<{unit:.{digits}f}" and 0 < value < unit / 2
    shape = rf"{least}(-?\d+\.\d{{{digits}}})" if digits else rf"{least}(-?\d+)"
    found = re.fullmatch(shape, text)
    # Half a unit is written either way.
    return found is not None and abs(float(found[1]) - value) <= unit / 2 * (1 + 1e-6)


def is_duration(text, seconds) -> bool:
    """Whether a text is a duration in its two largest units."""
    if seconds is None:
        return text == UNKNOWN
    parts = re.fullmatch(r"(\d+) (s|min|h|d)(?: (\d+) (min|h))?", text)
    if parts is None:
        return False
    least = int(parts[1]) * _SECONDS[parts[2]] + int(parts[3] or 0) * _SECONDS.get(parts[4], 0)
    return least <= seconds < least + _SECONDS[parts[4] or parts[2]]
