"""What may differ between two pages, and what must not."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from tests.together.faults.pages import Page, labels_of, name_of

# How old something is, how long it took, and what the process itself costs: different at every poll.
LIVE = frozenset(
    {
        # It counts the events of the last five minutes.
        "DCGM_EXP_XID_ERRORS_COUNT",
        "gpuslice_allocations_timestamp_seconds",
        "gpuslice_collector_duration_seconds",
        "gpuslice_collector_last_success_timestamp_seconds",
        "gpuslice_container_last_active_timestamp_seconds",
        "gpuslice_gpu_read_timestamp_seconds",
        "gpuslice_gpu_slow_read_timestamp_seconds",
        "gpuslice_nvml_call_seconds_total",
        "gpuslice_nvml_calls_total",
        "gpuslice_nvml_field_read_seconds",
        # A repartitioned GPU gets some calls again and others not.
        "gpuslice_nvml_unsupported",
        "gpuslice_render_duration_seconds",
        "gpuslice_snapshot_timestamp_seconds",
        "process_cpu_seconds_total",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
    }
)
# What counts failures and events: it may begin and grow, and stays when they are over.
FAILURES = frozenset(
    {"gpuslice_collector_errors_total", "gpuslice_gpu_events_total", "gpuslice_nvml_errors_total"}
)
CONDITION = "gpuslice_gpu_condition"
# What is decided over minutes, and unknown before.
AFTER_MINUTES = frozenset({"throttled_by_heat_or_power"})
# What must never appear, whatever fails.
NEVER = frozenset({"gpuslice_attribution_inconsistent_total"})
# Use without a known container: it includes what is unknown of containers.
RESTS = frozenset(
    {
        "gpuslice_gpu_unattributed_energy_joules_total",
        "gpuslice_gpu_unattributed_memory_bytes",
        "gpuslice_gpu_unattributed_utilization_ratio",
        "gpuslice_mig_unattributed_memory_bytes",
        "gpuslice_mig_unattributed_utilization_ratio",
    }
)
# The balances of GPUs. A fault may move time to what is not known, and idle time to that of no known holder;
# some cells remove an instance for a poll, so that the driver is asked again.
BALANCES = {"gpuslice_gpu_allocation_seconds_total": 7, "gpuslice_gpu_use_seconds_total": 5}
MOVED_TO = frozenset({"unknown", "down", "unmeasured", "idle_free", "unpartitioned"})
# The peak is that of all polls, also of one with too high a reading.
PEAK = "gpuslice_container_memory_peak_bytes"
# The rate of a profiling metric replaces the counter of the same traffic if that is absent.
RATE, COUNT = "_bytes_per_second", "_bytes_total"
# The driver's counters are whole numbers of milli-something: a part of the growth since the page before.
PACE_TOLERANCE = 0.02

Own = Callable[[str], bool]
_PROFILE = re.compile(r'(?<=[{,])profile="[^"]*",?|,profile="[^"]*"(?=})')


@dataclass(frozen=True, slots=True)
class Baseline:
    """A page at rest: the samples at ``time``, and how much those that are counters grow in a second."""

    page: Page
    time: float
    growth: Mapping[str, float]

    @classmethod
    def between(cls, earlier: Page, then: float, page: Page, now: float) -> "Baseline":
        """Return the second page, with the growth of its counters since the first."""
        growth = {}
        for series, value in page.samples.items():
            first = earlier.samples.get(series, math.nan)
            if not _ours(series) and not math.isclose(first, value, rel_tol=1e-9):
                assert now > then, f"{series} changes while time stands still: {first}, {value}"
                assert value > first, f"{series} is not at rest: {first}, {value}"
                growth[series] = (value - first) / (now - then)
        return cls(page, now, growth)

    def due(self, series: str, now: float) -> float:
        """Return the value of a sample at that time if there were no fault."""
        return self.page.samples[series] + self.growth.get(series, 0.0) * (now - self.time)

    def moved_to(self, page: Page, now: float) -> "Baseline":
        """Return a later page that is as this one."""
        return Baseline(page, now, self.growth)

    def behind(self, page: Page, now: float) -> bool:
        """Return whether counters of devices are behind, on a page that is otherwise as this one.

        Counters of containers and of unattributed use do not catch up: time without a reading is never
        counted.
        """
        return any(
            not _close(page.samples[series], self, series, now)
            for series in self.growth
            if not (series.startswith("gpuslice_container_") or name_of(series) in {*RESTS, *BALANCES})
        )

    def uncounted(self, own: Own) -> Own:
        """Return a test for counters of the device at fault: time without a reading is not counted."""
        return lambda series: own(series) and (series in self.growth or name_of(series) in RESTS)


def changed(baseline: Baseline, page: Page, now: float, own: Own) -> Iterator[str]:
    """Yield series outside the fault's reach that are absent or have another value."""
    for series in baseline.page.samples:
        value = page.samples.get(series)
        if value is not None and name_of(series) in BALANCES:
            # ``made_up`` and ``broken_sums`` have what must be true of them, whichever GPU is at fault.
            continue
        # Most series are as they were, and need no answer to whose they are.
        if value is not None and _close(value, baseline, series, now):
            continue
        if _ours(series) or own(series):
            continue
        if value is None:
            yield f"{series} is gone"
        else:
            yield f"{series} is {value:g} and was {baseline.due(series, now):g}"


def made_up(  # noqa: PLR0917 - a page, and what differs on it
    baseline: Baseline,
    page: Page,
    now: float,
    own: Own,
    states: frozenset[str] | None,
    misled: Iterable[Own] = (),
) -> Iterator[str]:
    """Yield samples that are wrong: another value than before the fault, or not there before.

    A counter of the device at fault may have stood still, and its unattributed use may be more.
    Its ``states`` and info series may differ; None: no longer. Time of ``misled`` series was counted by an
    answer that was believed, and stays in its class.
    """
    for series, value in page.samples.items():
        name = name_of(series)
        if name in NEVER:
            yield f"{series} counts containers that use more than there is"
        if series in baseline.page.samples and _close(value, baseline, series, now):
            continue
        if name in BALANCES:
            yield from _time_made_up(value, baseline, series, now, misled)
            continue
        if _ours(series) or (
            states is not None and own(series) and (name in states or name.endswith("_info"))
        ):
            continue
        if series not in baseline.page.samples:
            if name == CONDITION and not value and labels_of(series)["condition"] in AFTER_MINUTES:
                continue
            if states is None or not (own(series) and _stands_in(value, baseline, page, series)):
                yield f"{series} {value:g} was not there before"
        elif own(series) and not _true(value, baseline, series, now):
            yield f"{series} is {value:g} and should be {baseline.due(series, now):g}"


def _time_made_up(
    value: float, baseline: Baseline, series: str, now: float, misled: Iterable[Own]
) -> Iterator[str]:
    """Yield a class of a balance that fell, or has more time than without the fault and may not."""
    if series not in baseline.page.samples:
        yield f"{series} {value:g} was not there before"
    elif value < baseline.page.samples[series]:
        yield f"{series} fell to {value:g}"
    elif (
        labels_of(series)["class"] not in MOVED_TO
        and value > baseline.due(series, now) * (1 + 1e-9)
        and not any(own(series) for own in misled)
    ):
        yield f"{series} is {value:g} and should be {baseline.due(series, now):g} at most"


def missing(baseline: Baseline, page: Page) -> Iterator[str]:
    """Yield the series that have left the page."""
    for series in baseline.page.samples:
        if series not in page.samples and not _ours(series):
            yield f"{series} is gone"


def failures_of(before: Page, page: Page) -> dict[tuple[str, ...], float]:
    """Return failures since ``before``: (uuid, call, error) of calls, (collector, reason) of collectors."""
    found = {}
    for series, value in page.samples.items():
        labels = labels_of(series)
        if name_of(series) in FAILURES and "event" not in labels and value > before.samples.get(series, 0.0):
            names = ("collector", "reason") if "collector" in labels else ("uuid", "call", "error")
            found[tuple(labels.get(name, "") for name in names)] = value - before.samples.get(series, 0.0)
    return found


def broken_sums(page: Page) -> Iterator[str]:
    """Yield the sums of containers and unattributed use that differ from the device."""
    for level, key in (("gpu", "uuid"), ("mig", "mig_uuid")):
        for labels, used in page.series(f"gpuslice_{level}_memory_used_bytes"):
            device = {"uuid": labels["uuid"], "mig_uuid": labels.get("mig_uuid", "")}
            at = device if level == "mig" else {"uuid": labels["uuid"]}
            yield from _sum(page, labels[key], used, at, f"gpuslice_{level}_unattributed_memory_bytes")
    for labels, used in page.series("gpuslice_gpu_utilization_ratio"):
        rest = page.value("gpuslice_gpu_unattributed_utilization_ratio", uuid=labels["uuid"])
        held = page.total("gpuslice_container_compute_used_ratio", uuid=labels["uuid"])
        if rest is not None and not math.isclose(held + rest, max(used, held), abs_tol=1e-9):
            yield f"compute of {labels['uuid']}: {held:g} + {rest:g} is not {used:g}"
    for labels, _ in page.series("gpuslice_gpu_info"):
        yield from _unbalanced(page, labels["uuid"])
    for labels, drawn in page.series("gpuslice_gpu_energy_joules_total"):
        parts = page.total("gpuslice_container_energy_joules_total", uuid=labels["uuid"])
        rest = page.value("gpuslice_gpu_unattributed_energy_joules_total", uuid=labels["uuid"]) or 0.0
        if parts + rest > drawn * (1 + 1e-9):
            yield f"energy of {labels['uuid']}: {parts:g} + {rest:g} is more than {drawn:g}"


def _unbalanced(page: Page, uuid: str) -> Iterator[str]:
    """Yield a balance of a GPU without all of its classes, and two balances of different sums."""
    sums = []
    for name, classes in BALANCES.items():
        found = [value for _, value in page.series(name, uuid=uuid)]
        sums.append(sum(found))
        if len(found) != classes:
            yield f"{name} of {uuid} has {len(found)} classes"
    if not math.isclose(*sums, rel_tol=1e-9, abs_tol=1e-9):
        yield f"the balances of {uuid} are {sums[0]:g} and {sums[1]:g} seconds"


def _sum(page: Page, device: str, used: float, at: Mapping[str, str], rest_name: str) -> Iterator[str]:
    labels = {key: value for key, value in at.items() if value}
    rest = page.value(rest_name, **labels)
    held = page.total("gpuslice_container_memory_used_bytes", **labels)
    if rest is not None and held + rest != used:
        yield f"memory of {device}: {held:g} + {rest:g} is not {used:g}"
    if held > used:
        yield f"memory of {device}: containers have {held:g} of {used:g}"


@cache
def _ours(series: str) -> bool:
    name = name_of(series)
    return name in LIVE or name in FAILURES or name in NEVER or name.startswith("python_")


def _close(value: float, baseline: Baseline, series: str, now: float) -> bool:
    if value == baseline.page.samples[series] and series not in baseline.growth:
        return True
    if name_of(series) == PEAK and value >= baseline.page.samples[series]:
        return True
    grown = baseline.growth.get(series, 0.0) * (now - baseline.time)
    tolerance = max(PACE_TOLERANCE * grown, 1e-9)
    return math.isclose(value, baseline.due(series, now), rel_tol=1e-9, abs_tol=tolerance)


def _true(value: float, baseline: Baseline, series: str, now: float) -> bool:
    if _close(value, baseline, series, now):
        return True
    least = baseline.page.samples[series] * (1 - 1e-9)
    if name_of(series) in RESTS:
        return value >= least
    return series in baseline.growth and least <= value <= baseline.due(series, now) * (1 + 1e-9)


def _stands_in(value: float, baseline: Baseline, page: Page, series: str) -> bool:
    """Return whether this series replaces one from before the fault.

    It is the rate of a counter, or the counter of a rate; or of the GPU, as none of its instances has it
    now; or of a MIG device whose profile is unknown now.
    """
    if value in (now for other, now in baseline.page.samples.items() if _PROFILE.sub("", other) == series):
        return True
    counter = series.replace(RATE, COUNT)
    if counter != series and counter in baseline.page.samples:
        grew = baseline.growth.get(counter, 0.0)
        return math.isclose(value, grew, rel_tol=PACE_TOLERANCE, abs_tol=1.0)
    rate = series.replace(COUNT, RATE)
    if rate != series and rate in baseline.page.samples:
        # A page has one of the two.
        return rate not in page.samples
    of_gpu = name_of(series), labels_of(series).get("UUID")
    return "GPU_I_ID" not in labels_of(series) and of_gpu in _of_instances(baseline.page) - _of_instances(
        page
    )


def _of_instances(page: Page) -> set[tuple[str, str | None]]:
    return {
        (name_of(series), labels_of(series).get("UUID"))
        for series in page.samples
        if "GPU_I_ID" in labels_of(series)
    }
