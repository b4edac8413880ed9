"""The pictures of GPUs equal /metrics: holders, widths and sums."""

import re
from collections import Counter

import pytest

from exporter.model.conditions import TABLE
from tests.page.web.truth import GIB, gpu_of, is_number, linked_holder, node, series_of, uuids
from tests.page.web.truth_bars import bar_of, misdrawn
from tests.page.web.views_reading import SCENARIOS

# Memory and compute of a container and of a device, in the unit of the page with its digits.
_GAUGES = {"memory": ("memory_used_bytes", "memory_entitled_bytes", GIB, 1)}
_GAUGES["compute"] = ("compute_used_ratio", "compute_entitled_ratio", 1, 2)


def scaled(value, unit) -> float | None:
    """Return a number in the unit of the page."""
    return None if value is None else value / unit


class Device:
    """The series of a device: a GPU, or with a ``mig_uuid`` a part of one."""

    def __init__(self, series, uuid, mig_uuid="") -> None:
        self.series, self.uuid, self.mig_uuid = series, uuid, mig_uuid
        self.keys = series.on(uuid, mig_uuid)

    def whole(self, gauge) -> float | None:
        """Return its memory in bytes, or its share of the physical GPU's compute."""
        if gauge == "memory":
            return self.series.device(self.uuid, self.mig_uuid, "memory_total_bytes")
        if not self.mig_uuid:
            return 1
        slices = self.series.device(self.uuid, self.mig_uuid, "compute_slices")
        (info,) = self.series.all("gpu_info", uuid=self.uuid)
        # Slices of an NVIDIA GPU that no instance can get are in no series.
        of = sum(self.series.values("gpu_mig_compute_slices", uuid=self.uuid))
        if info.labels["vendor"] == "nvidia":
            of = 4 if "A30" in info.labels["model"] else 7
        return slices / of if slices and of else None

    def used(self, gauge) -> float | None:
        """Return what of it is used; compute of a MIG device is the sum of its containers and the rest."""
        if gauge == "memory":
            return self.series.device(self.uuid, self.mig_uuid, "memory_used_bytes")
        if not self.mig_uuid:
            return self.series.device(self.uuid, "", "utilization_ratio")
        parts = [self.rest(gauge), *(self.series.of(key, "compute_used_ratio") for key in self.keys)]
        return None if None in parts else sum(parts)

    def rest(self, gauge) -> float | None:
        """Return what of it is used by no known container."""
        field = "unattributed_memory_bytes" if gauge == "memory" else "unattributed_utilization_ratio"
        return self.series.device(self.uuid, self.mig_uuid, field)

    @property
    def profile(self) -> str:
        """Return the profile of a MIG device."""
        (info,) = self.series.all("mig_info", uuid=self.uuid, mig_uuid=self.mig_uuid)
        return info.labels.get("profile", "")


def pictures(name):
    """Yield each picture of a GPU with its UUID: on the node's page and on its own page."""
    for section in node(name).all("section", of="gpu"):
        yield section.one("h3").attributes["title"], section
    for uuid in uuids(name):
        yield uuid, gpu_of(name, uuid).one("section", of="gpu")


def devices(series, uuid) -> list[Device]:
    """Return the MIG devices of a GPU, or the GPU if it has none."""
    parts = [sample.labels["mig_uuid"] for sample in series.all("mig_info", uuid=uuid)]
    return [Device(series, uuid, part) for part in parts or [""]]


def caption(cell) -> str:
    """Return the caption of a cell, without counts."""
    first = cell.one("p", of="caption").children[0]
    return first.split(" \N{MIDDLE DOT} ")[0].strip()


def gauges(cell):
    """Yield the bars of a cell with their names and numbers."""
    for gauge in cell.all("div", of="gauge"):
        name = gauge.one("span", of="what").text
        unit = "GiB" if name == "memory" else "GPU"
        used, whole = re.fullmatch(rf"(\S+) / (\S+) {unit}", gauge.one("span", of="value").text).groups()
        yield name, bar_of(gauge.one("svg", of="bar")), used, whole


def of_cell(cell, among) -> list[Device]:
    """Return the devices a cell can show: the one with its holders, or all without a holder."""
    links = {
        linked_holder(item)
        for item in (*cell.all("p", of="line"), *cell.all("li"))
        if item.all("a", of="who")
    }
    if links:
        return [device for device in among if links <= {key.holder for key in device.keys}]
    empty = [device for device in among if not device.keys]
    return [device for device in empty if not device.mig_uuid or device.profile in caption(cell)]


def untrue_box(device, cell):
    """Yield each gauge of a box with one holder that differs from the holder's series."""
    (key,) = device.keys
    for name, bar, used, whole in gauges(cell):
        field, limit, unit, digits = _GAUGES[name]
        use, share = device.series.of(key, field), device.series.of(key, limit)
        track = device.whole(name) if share is None else share
        parts = [] if use is None else [use, device.rest(name) or 0]
        limits = device.series.limits(key) if name == "memory" else {}
        fault = misdrawn(bar, parts, track, known=use is not None, limits=limits)
        right = is_number(used, scaled(use, unit), digits) and is_number(whole, scaled(share, unit), digits)
        if fault or not right or bar.dashed != (share is None):
            yield f"{name} of {key}: {used} of {whole}, {fault or bar}"


def untrue_device(device, cell):
    """Yield each gauge of a pool or empty box that differs from the series of device and holders."""
    for name, bar, used, whole in gauges(cell):
        field, _, unit, digits = _GAUGES[name]
        size, rest = device.whole(name), device.rest(name)
        uses = [device.series.of(key, field) for key in device.keys]
        known = rest is not None or "is-free" in cell.classes
        sizes = [*(use or 0 for use in uses), rest or 0]
        fault = misdrawn_pool(bar, sizes, size or (None if device.keys else 1), known=known)
        right = is_number(used, scaled(device.used(name), unit), digits)
        if fault or not right or not is_number(whole, scaled(size, unit), digits):
            yield f"{name} of {device.uuid} {device.mig_uuid}: {used} of {whole}, {fault or bar}"


def misdrawn_pool(bar, sizes, track, *, known) -> str:
    """Return how a stack differs from the sizes of its parts; small ones may be drawn as one."""
    together = [part for part in bar.parts if re.fullmatch(r"\d+ other holders?", part.title)]
    if not together:
        return misdrawn(bar, sizes, track, known=known)
    full = max(track, sum(sizes))
    least = [part for part in bar.parts if part.width > 0.6]
    reach = max(part.x + part.width for part in least)
    return "" if abs(reach - 100 * sum(sizes) / full) < 0.7 else f"{sum(sizes)} of {track}? {bar}"


@pytest.mark.parametrize("name", SCENARIOS)
def test_cells_show_the_use_of_their_device_and_holders(name) -> None:
    """A box shows its holder; a pool shows the device: its holders stacked, the rest on top."""
    series = series_of(name)
    for uuid, section in pictures(name):
        for cell in section.all("div", of="cell"):
            if not cell.all("div", of="gauge"):
                continue
            candidates = of_cell(cell, devices(series, uuid))
            assert candidates, cell.text
            boxed = bool(cell.all("p", of="line")) and bool(cell.all("a", of="who"))
            untrue = untrue_box if boxed else untrue_device
            faults = [list(untrue(device, cell)) for device in candidates]
            assert [] in faults, faults


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_device_has_one_cell_as_wide_as_its_part_of_the_memory(name) -> None:
    series = series_of(name)
    for uuid, section in pictures(name):
        if section.all("div", of="problem"):
            continue
        cells = [cell for cell in section.all("div", of="cell") if cell.all("div", of="gauge")]
        among = devices(series, uuid)
        assert len(cells) == len(among)
        if not among[0].mig_uuid:
            continue
        assert Counter(map(caption, cells)) == Counter(device.profile for device in among)
        sizes = {
            device.profile: device.series.device(uuid, device.mig_uuid, "memory_slices") for device in among
        }
        for stretch in section.all("div", of="stretch"):
            (grid,) = (
                int(each[2:]) for each in section.one("div", of="cells").classes if each.startswith("of")
            )
            (wide,) = (int(each[1:]) for each in stretch.classes if re.fullmatch(r"s\d", each))
            inside = [cell for cell in stretch.all("div", of="cell") if caption(cell) in sizes]
            assert {sizes[caption(cell)] for cell in inside} <= {wide}
            shares = [
                device.whole("memory") for device in among if inside and device.profile == caption(inside[0])
            ]
            total = series.value("gpu_memory_total_bytes", uuid=uuid)
            assert all(abs(share / total - wide / grid) < 0.06 for share in shares if share and total)


@pytest.mark.parametrize("name", SCENARIOS)
def test_lists_of_holders_have_the_use_of_each(name) -> None:
    series = series_of(name)
    for uuid, section in pictures(name):
        for cell in section.all("div", of="cell"):
            for line in (
                line
                for keys in cell.all("ul", of="keys")
                for line in keys.all("li")
                if line.all("span", of="used")
            ):
                memory, compute = re.fullmatch(
                    r"(\S+) GiB \N{MIDDLE DOT} (\S+) GPU", line.one("span", of="used").text
                ).groups()
                among = of_cell(cell, devices(series, uuid))
                assert any(is_line(device, line, memory, compute) for device in among), line.text


def is_line(device, line, memory, compute) -> bool:
    """Whether a line of the list under a pool has the numbers of a device."""
    if not line.all("a", of="who"):
        uses = [(device.rest("memory"), device.rest("compute"))]
    else:
        keys = [key for key in device.keys if key.holder == linked_holder(line)]
        uses = [tuple(device.series.of(key, _GAUGES[name][0]) for name in _GAUGES) for key in keys]
    return any(
        is_number(memory, scaled(used, GIB), 1) and is_number(compute, share, 2) for used, share in uses
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_facts_next_to_a_picture_are_those_of_its_gpu(name) -> None:
    """Temperature, power, memory and held slices equal their series, or are absent."""
    series = series_of(name)
    for uuid, section in pictures(name):
        about = section.one("div", of="about").text
        facts = (
            (r"(\S+) °C", series.value("gpu_temperature_celsius", uuid=uuid), 0),
            (r"(\S+) W\b", series.value("gpu_power_watts", uuid=uuid), 0),
            (r"(\S+) GiB\b", scaled(series.value("gpu_memory_total_bytes", uuid=uuid), GIB), 1),
        )
        for pattern, value, digits in facts:
            found = re.search(pattern, about.split(" jobs ")[0].split(" job ")[0])
            assert (found is None) == (value is None), (pattern, about)
            assert found is None or is_number(found[1], value, digits), (pattern, about, value)
        raised = {
            sample.labels["condition"] for sample in series.all("gpu_condition", uuid=uuid) if sample.value
        }
        shown = {condition for condition, row in TABLE.items() if f" {row.title}, " in about}
        assert shown == raised - {"lost", "driver_released"}
        held = re.search(r"(\d+) of (\d+) slices held", about)
        if held:
            assert int(held[1]) == sum(series.values("gpu_slices_allocated", uuid=uuid))
            assert int(held[2]) == sum(series.values("gpu_slices", uuid=uuid))
