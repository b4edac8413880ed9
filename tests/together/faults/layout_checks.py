"""What the page may show of a node that changes in the middle of a poll."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter.model import ContainerRef, DeviceKey
from tests.together.faults.pages import Labels, Page
from tests.truth import ContainerTruth, Truth

COUNTED = "gpuslice_attribution_inconsistent_total"
Row = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A change: the truth before and after it; the pages of the polls before, during and after it."""

    before: Truth
    now: Truth
    earlier: Page
    during: Page
    after: Page


def check_sums(page: Page, before: Page | None = None) -> None:
    """Containers + unattributed = used, on every device with a reading of its memory.

    Contradictions in the driver's answers are counted, and the rest is 0 then.
    """
    for level, names in (("gpu", ("uuid",)), ("mig", ("uuid", "mig_uuid"))):
        for labels, used in page.series(f"gpuslice_{level}_memory_used_bytes"):
            device = {name: labels[name] for name in names}
            rest = page.value(f"gpuslice_{level}_unattributed_memory_bytes", **device)
            assert rest is not None
            held = page.total("gpuslice_container_memory_used_bytes", **device)
            if _contradictions(page, device) == _contradictions(before, device):
                assert held + rest == used, f"{held} + {rest} of {used} on {device}"
            else:
                total = page.value(f"gpuslice_{level}_memory_total_bytes", **device)
                assert rest == 0
                assert used < held <= (total or 0)


def _contradictions(page: Page | None, device: Labels) -> float:
    place = {"mig_uuid": "", **device}
    counted = None if page is None else page.value(COUNTED, quantity="memory", **place)
    return counted or 0


def check_between(seen: Seen) -> None:
    """Require the values of before or of now, for each GPU and each holder."""
    page = seen.during
    check_sums(page, seen.earlier)
    _check_layouts(seen)
    rows = {_row(*place) for truth in (seen.before, seen.now) for place in truth.containers}
    for labels, _ in page.series("gpuslice_container_info"):
        assert _row_of(labels) in rows
    for family in ("slices", "processes", "memory_used_bytes"):
        for labels, value in page.series(f"gpuslice_container_{family}"):
            _check_value(seen, family, _row_of(labels), value)


def check_now(seen: Seen) -> None:
    """Require that the page after is right: every holder, every process, every byte."""
    page, rows = seen.after, {_row(*place): truth for place, truth in seen.now.containers.items()}
    check_sums(page, seen.during)
    assert {_row_of(labels) for labels, _ in page.series("gpuslice_container_info")} == set(rows)
    for row, truth in rows.items():
        for family in ("slices", "processes", "memory_used_bytes"):
            shown = page.value(f"gpuslice_container_{family}", **_labels(row))
            assert shown == _value(truth, family), (family, row)
    assert _layouts(page) == _true_layouts(seen.now)


def _check_layouts(seen: Seen) -> None:
    before, now, shown = _true_layouts(seen.before), _true_layouts(seen.now), _layouts(seen.during)
    for uuid, devices in shown.items():
        assert devices in (before[uuid], now[uuid]), f"{uuid} is shown as a mixture: {devices}"


def _check_value(seen: Seen, family: str, row: Row, value: float) -> None:
    true = [
        _value(truth, family)
        for moment in (seen.before, seen.now)
        for place, truth in moment.containers.items()
        if _row(*place) == row
    ]
    # A pod whose process has gone, or has not come yet, has none there: that zero is true.
    gone = len(true) == 1 or 0 in true
    known = [*true, *([0] if gone else []), *_of_device(seen, family, row)]
    assert value in known, f"{family} of {row} is {value}, and was and is {true}"


def _of_device(seen: Seen, family: str, row: Row) -> Iterator[float]:
    """Yield the memory of the device if the page says that it replaces that of processes."""
    (info,) = (labels for labels, _ in seen.during.series("gpuslice_container_info", **_labels(row)))
    if family == "memory_used_bytes" and info.get("memory_source") in ("device", "instance"):
        for truth in (seen.before, seen.now):
            yield from (now.memory_used for key, now in truth.devices.items() if tuple(key) == row[3:])


def _layouts(page: Page) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {
        labels["uuid"]: frozenset() for labels, _ in page.series("gpuslice_gpu_up")
    }
    for labels, _ in page.series("gpuslice_mig_info"):
        found[labels["uuid"]] |= {labels["mig_uuid"]}
    return found


def _true_layouts(truth: Truth) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {key.uuid: frozenset() for key in truth.devices}
    for key in truth.devices:
        found[key.uuid] |= {key.mig_uuid} - {""}
    return found


def _value(truth: ContainerTruth, family: str) -> float | None:
    return {"slices": truth.slices, "processes": truth.processes, "memory_used_bytes": truth.memory}[family]


def _row(holder_: ContainerRef, key: DeviceKey) -> Row:
    return (holder_.namespace, holder_.pod, holder_.container, key.uuid, key.mig_uuid)


def _row_of(labels: Mapping[str, str]) -> Row:
    found = (labels.get(name, "") for name in ("namespace", "pod", "container", "uuid", "mig_uuid"))
    return tuple(found)  # type: ignore[return-value]


def _labels(row: Row) -> dict[str, str]:
    return dict(zip(("namespace", "pod", "container", "uuid", "mig_uuid"), row, strict=True))
