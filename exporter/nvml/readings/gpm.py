"""Profiling metrics of GPUs and MIG devices through GPM of NVML.

The driver fills a sample buffer with its counters; metrics are means between two samples. Each device has two
buffers, filled in turn, so that the window is the time between two sweeps and no read waits for a second
sample.
"""

import contextlib
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from exporter.model import MigReading
from exporter.model.bounds import IMPOSSIBLE_VALUE
from exporter.model.readings import Profile, Traffic
from exporter.nvml.driver.calls import Calls, DeviceHangsError
from exporter.nvml.mig_layout import GpuLayout, MigIdentity
from exporter.nvml.readings.answers import ask_until_refused, is_skipped, refusals
from exporter.nvml.readings.gpm_metrics import (
    BYTES,
    OF_COMPUTE_INSTANCE,
    OF_GPU,
    OF_GPU_INSTANCE,
    OF_GPU_WITHOUT_SWITCHES,
    MetricsRequest,
    first_known,
)
from exporter.nvml.readings.paths import GPU, name_of

GROUP = "profiling"
SWITCHES = (name_of(GPU.profiling), "context_switches")
# Place of the calls that allocate buffers.
ALLOCATION = "sample buffers"
SUPPORT, SAMPLE, METRICS = "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"
# The driver updates its counters at this interval; two closer samples may be equal.
SHORTEST_WINDOW_SECONDS = 0.1
# Error of drivers that do not know a metric, or do not accept the handle of a compute instance.
REFUSAL = "InvalidArgument"

# Fills a sample buffer; returns None if that failed.
TakeSample = Callable[[Any], Any]


@dataclass(slots=True)
class SampleBuffers:
    """The two sample buffers of one device."""

    # Identity of the device when they were filled.
    identity: Hashable
    samples: tuple[Any, Any]
    # Time of the newest sample (monotonic clock), None without one, and its index.
    taken: float | None = None
    newest: int = 0
    profile: Profile | None = None  # the last metrics
    reduced: bool = False  # whether the driver knows the oldest metrics only

    def restart(self, identity: Hashable) -> None:
        """Discard the samples: the device is another one with the same UUID."""
        self.identity, self.taken, self.profile = identity, None, None

    @property
    def spare(self) -> Any:
        """The buffer to fill next."""
        return self.samples[1 - self.newest]

    def swap(self, now: float) -> None:
        """Make the buffer that was just filled the newest one."""
        self.newest, self.taken = 1 - self.newest, now


class GpmReader:
    """Reads the profiling metrics of every device; keeps the buffers of those that exist.

    ``clock`` (seconds) dates the samples. ``skip`` are readings that are not read, as for DeviceReader.
    """

    def __init__(self, clock: Callable[[], float], skip: Collection[str] = ()) -> None:
        self._clock = clock
        self._ids = OF_GPU_WITHOUT_SWITCHES if is_skipped(SWITCHES, skip) else OF_GPU
        # By uuid of the GPU or MIG device.
        self._buffers: dict[str, SampleBuffers] = {}
        self._supported: set[str] = set()
        self._requests: dict[tuple[int, ...], MetricsRequest] = {}

    def read_gpu(self, calls: Calls, uuid: str, handle: Any) -> Profile | None:
        """Return the metrics of a whole GPU since the last read; None at the first read or without GPM.

        Raises as ``Calls.ask`` does.
        """
        calls.group = GROUP
        if not self._supports(calls, uuid, handle):
            return None
        return self._read(
            calls, uuid, uuid, self._ids, lambda sample: calls.ask(uuid, SAMPLE, handle, since=sample)
        )

    def read_migs(
        self, calls: Calls, uuid: str, parent: Any, layout: GpuLayout, devices: Iterable[MigReading] | None
    ) -> dict[str, Profile]:
        """Return the metrics of the MIG devices of a GPU since the last read, by uuid.

        ``devices`` are the readings of those in the layout. A device that fills its GPU instance is alone in
        it, even if some devices are unread; if two fill the same one, neither is taken to be alone.
        """
        filling = {device.uuid for device in devices or () if device.fills_instance}
        sharers = layout.sharers()
        profiles: dict[str, Profile] = {}
        for device in layout.devices or ():
            identity, _ = device
            alone = identity.uuid in filling and sharers[identity.gi] == 1
            profile = self.read_mig(calls, uuid, parent, device, alone=alone)
            if profile is not None:
                profiles[identity.uuid] = profile
        return profiles

    def read_mig(
        self, calls: Calls, uuid: str, parent: Any, device: tuple[MigIdentity, Any], *, alone: bool
    ) -> Profile | None:
        """Return the metrics of a MIG device (with its handle) of the GPU ``uuid`` since the last read.

        They are shares of it. If it is not ``alone``, the only compute instance of its GPU instance that it
        fills, the metrics of the GPU instance are not its own: the compute instance is then read by its
        handle, which older drivers refuse. Raises as ``Calls.ask`` does.
        """
        calls.group = GROUP
        # Some drivers fail if support is queried with the handle of an instance.
        if not self._supports(calls, uuid, parent):
            return None
        identity, handle = device

        def take(sample: Any) -> Any:
            if alone:
                return calls.ask(identity.uuid, "nvmlGpmMigSampleGet", parent, identity.gi, since=sample)
            return ask_until_refused(calls, REFUSAL, identity.uuid, SAMPLE, handle, since=sample)

        ids = OF_GPU_INSTANCE if alone else OF_COMPUTE_INSTANCE
        with calls.about(identity.uuid):
            return self._read(calls, identity.uuid, (identity, alone), ids, take)

    def keep_only(self, calls: Calls, existing: Collection[str]) -> None:
        """Free the buffers of GPUs and MIG devices with other uuids than these.

        Buffers of a device with a hanging call are kept: the call may still write into one.
        """
        for uuid in self._buffers.keys() - existing - calls.records.hanging:
            _free(calls, self._buffers.pop(uuid))
        self._supported.intersection_update(existing)

    def hand_over(self) -> None:
        """Leave the requests to the abandoned thread: the driver may still write into one."""
        self._requests = {}

    def free_all(self, calls: Calls) -> None:
        """Free all buffers, before the driver is shut down, and forget which GPUs have GPM."""
        while self._buffers:
            _free(calls, self._buffers.popitem()[1])
        self._supported.clear()

    def _supports(self, calls: Calls, uuid: str, handle: Any) -> bool:
        if uuid in self._supported:
            return True
        answer = calls.ask(uuid, SUPPORT, handle)
        if answer is None:
            return False
        if not answer.isSupportedDevice:
            calls.refused(uuid, SUPPORT)
            return False
        self._supported.add(uuid)
        return True

    def _read(
        self, calls: Calls, device: str, identity: Hashable, ids: tuple[int, ...], take: TakeSample
    ) -> Profile | None:
        buffers = self._buffers_of(calls, device, identity)
        if buffers is None:
            return None
        now = self._clock()
        if buffers.taken is not None and now - buffers.taken < SHORTEST_WINDOW_SECONDS:
            return buffers.profile
        if take(buffers.spare) is None:
            # The older sample is kept: the next window is longer.
            return None
        has_window = buffers.taken is not None
        # The call may have taken long: the sample was taken before it returned.
        buffers.swap(self._clock())
        buffers.profile = self._ask(calls, device, buffers, ids) if has_window else None
        return buffers.profile

    def _buffers_of(self, calls: Calls, device: str, identity: Hashable) -> SampleBuffers | None:
        buffers = self._buffers.get(device)
        if buffers is None:
            samples = None
            # Without buffers only the metrics are missing, not the GPU.
            with contextlib.suppress(DeviceHangsError), calls.about(ALLOCATION, device):
                samples = _allocate(calls, device)
            if samples is None:
                return None
            buffers = self._buffers[device] = SampleBuffers(identity, samples)
        elif buffers.identity != identity:
            buffers.restart(identity)
        return buffers

    def _ask(self, calls: Calls, device: str, buffers: SampleBuffers, ids: tuple[int, ...]) -> Profile | None:
        """Return all metrics, or only the oldest if the driver does not know one of the newer ids."""
        if buffers.reduced or not calls.supports(device, METRICS):
            return self._metrics(calls, device, buffers, first_known(ids))
        earlier = refusals(calls, REFUSAL, device, METRICS)
        profile = self._metrics(calls, device, buffers, ids)
        if profile is not None:
            return profile
        # Other failures are temporary: the newer metrics are then tried again.
        refused = refusals(calls, REFUSAL, device, METRICS) > earlier
        if not calls.supports(device, METRICS):
            # All metrics are unsupported only if the oldest are refused, too.
            calls.records.forget_unsupported(device, METRICS)
            refused = True
        profile = self._metrics(calls, device, buffers, first_known(ids))
        buffers.reduced = refused and profile is not None
        return profile

    def _metrics(
        self, calls: Calls, device: str, buffers: SampleBuffers, ids: tuple[int, ...]
    ) -> Profile | None:
        if ids not in self._requests:
            self._requests[ids] = MetricsRequest(ids)
        request = self._requests[ids]
        struct = request.between(buffers.spare, buffers.samples[buffers.newest])
        if calls.ask(device, METRICS, struct) is None:
            return None
        profile, any_impossible = request.answer()
        if any_impossible:
            calls.count(device, METRICS, IMPOSSIBLE_VALUE)
        return profile


def counted(
    calls: Calls, uuid: str, traffic_bytes: Mapping[Traffic, int], profile: Profile | None
) -> dict[Traffic, int]:
    """Return the byte counters of a GPU: of PCIe from GPM if it has GPM, else from its field values.

    The two start to count at different times, so one never replaces the other after a failure.
    """
    if not calls.supports(uuid, SUPPORT):
        return dict(traffic_bytes)
    links = {traffic: count for traffic, count in traffic_bytes.items() if traffic not in BYTES.values()}
    return links | dict(profile.bytes_total if profile is not None else {})


def _allocate(calls: Calls, device: str) -> tuple[Any, Any] | None:
    first = calls.ask(device, "nvmlGpmSampleAlloc")
    if first is None:
        return None
    second = None
    try:
        second = calls.ask(device, "nvmlGpmSampleAlloc")
    finally:
        if second is None:
            _free_sample(calls, first)
    return None if second is None else (first, second)


def _free(calls: Calls, buffers: SampleBuffers) -> None:
    for sample in buffers.samples:
        _free_sample(calls, sample)


def _free_sample(calls: Calls, sample: Any) -> None:
    calls.free("nvmlGpmSampleFree", pynvml.nvmlGpmSampleFree, sample)
