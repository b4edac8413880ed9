"""The driver's own profiling meter (GPM): shares of time and of the peak, of GPUs and of MIG devices.

A sample is a buffer that the driver fills with its counters; what is told is the mean between two of them.
Each device has two buffers, filled in turn at every sweep, so that the time between two sweeps is the
window and nothing ever has to wait for a second sample.
"""

import contextlib
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pynvml

from exporter.model import MigReading
from exporter.model.readings import Profile, Traffic
from exporter.nvml.driver.calls import Calls, DeviceHangsError
from exporter.nvml.mig import Fingerprint, Layout
from exporter.nvml.readings.answers import ask_until_refused, refusals
from exporter.nvml.readings.gpm_metrics import (
    BYTES,
    OF_COMPUTE_INSTANCE,
    OF_GPU,
    OF_GPU_INSTANCE,
    Question,
    first_known,
)

GROUP = "profiling"
# What is asked for where a meter writes its samples.
ROOM = "room for samples"
SUPPORT, SAMPLE, METRICS = "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"
# The driver renews its counters at this rate; two samples nearer to each other may be the same.
SHORTEST_WINDOW_SECONDS = 0.1
# What drivers say that do not know a metric, or take no such handle here.
REFUSAL = "InvalidArgument"

Take = Callable[[Any], Any]


class Instance(NamedTuple):
    """A MIG device: what it is, its handle now, and whether it is all that its GPU instance is cut into."""

    mark: Fingerprint
    handle: Any
    alone: bool


@dataclass(slots=True)
class Meter:
    """The two buffers of one device, and what they stand for.

    ``mark`` is what the device was when they were filled, ``taken`` when the newer one was (monotonic clock,
    None while neither was), ``newest`` which of them it is. ``profile`` is the last answer. ``reduced``: this
    driver knows the oldest metrics only.
    """

    mark: Hashable
    samples: tuple[Any, Any]
    taken: float | None = None
    newest: int = 0
    profile: Profile | None = None
    reduced: bool = False

    def reseed(self, mark: Hashable) -> None:
        """Begin anew: the device is another one, though it has the same name."""
        self.mark, self.taken, self.profile = mark, None, None

    @property
    def spare(self) -> Any:
        """The buffer to fill next."""
        return self.samples[1 - self.newest]

    def turn(self, now: float) -> None:
        """Make the buffer that was just filled the newer one."""
        self.newest, self.taken = 1 - self.newest, now


class GpmReader:
    """Reads the profiling meter of every device; keeps the buffers of those that exist.

    ``clock`` (seconds) is when samples are taken.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._meters: dict[str, Meter] = {}
        self._supported: set[str] = set()
        self._questions: dict[tuple[int, ...], Question] = {}

    def read_gpu(self, calls: Calls, uuid: str, handle: Any) -> Profile | None:
        """Return what a GPU did since the last read, cut or not; None at the first read and without GPM.

        Raises as ``Calls.ask`` does, like ``read_mig``.
        """
        calls.group = GROUP
        if not self._supports(calls, uuid, handle):
            return None

        def take(sample: Any) -> Any:
            return calls.ask(uuid, SAMPLE, handle, since=sample)

        return self._read(calls, uuid, uuid, OF_GPU, take)

    def read_migs(
        self, calls: Calls, uuid: str, parent: Any, layout: Layout, devices: Iterable[MigReading] | None
    ) -> dict[str, Profile]:
        """Return what each MIG device of a GPU did since the last read, by uuid.

        ``devices`` are the readings of those in the layout. One that fills its GPU instance leaves no room
        for another, whether all of them were told or not; two that are both said to do so do not.
        """
        filling = {device.uuid for device in devices or () if device.fills_instance}
        sharers = layout.sharers()
        instances = [
            Instance(mark, handle, mark.uuid in filling and sharers[mark.gi] == 1)
            for mark, handle in layout.devices or ()
        ]
        found = {each.mark.uuid: self.read_mig(calls, uuid, parent, each) for each in instances}
        return {device: profile for device, profile in found.items() if profile is not None}

    def read_mig(self, calls: Calls, uuid: str, parent: Any, instance: Instance) -> Profile | None:
        """Return what a MIG device of the GPU ``uuid`` did since the last read, as shares of itself.

        Where several compute instances share one GPU instance, or one has a part of it, the figures of that
        are none's alone: then the compute instance itself is asked, which older drivers refuse.
        """
        calls.group = GROUP
        mark = instance.mark
        # The GPU answers for its instances: asked of their own handles, some drivers get into trouble.
        if not self._supports(calls, uuid, parent):
            return None
        with calls.about(mark.uuid):
            return self._read_instance(calls, parent, instance)

    def forget(self, calls: Calls, existing: Collection[str]) -> None:
        """Free the buffers of GPUs and MIG devices whose uuid is not among these.

        Not yet where a call about them hangs, which may write into one when it goes on.
        """
        for uuid in self._meters.keys() - existing - calls.hanging:
            _free(calls, self._meters.pop(uuid))
        self._supported.intersection_update(existing)

    def hand_over(self) -> None:
        """Leave the questions to the thread that hangs: the driver may yet write its answer into one."""
        self._questions = {}

    def free_all(self, calls: Calls) -> None:
        """Free every buffer, before the driver is shut down, and ask everything anew after it."""
        while self._meters:
            _free(calls, self._meters.popitem()[1])
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

    def _read_instance(self, calls: Calls, parent: Any, instance: Instance) -> Profile | None:
        mark = instance.mark
        if instance.alone:

            def take(sample: Any) -> Any:
                return calls.ask(mark.uuid, "nvmlGpmMigSampleGet", parent, mark.gi, since=sample)

            return self._read(calls, mark.uuid, (mark, instance.alone), OF_GPU_INSTANCE, take)

        def take_own(sample: Any) -> Any:
            return ask_until_refused(calls, REFUSAL, mark.uuid, SAMPLE, instance.handle, since=sample)

        return self._read(calls, mark.uuid, (mark, instance.alone), OF_COMPUTE_INSTANCE, take_own)

    def _read(
        self, calls: Calls, device: str, mark: Hashable, ids: tuple[int, ...], take: Take
    ) -> Profile | None:
        meter = self._meter(calls, device, mark)
        if meter is None:
            return None
        now = self._clock()
        if meter.taken is not None and now - meter.taken < SHORTEST_WINDOW_SECONDS:
            return meter.profile
        if take(meter.spare) is None:
            # The older sample stays: the next window is longer, and no less true.
            return None
        seeded = meter.taken is not None
        # The driver may have taken its time: the window begins when it was done at the latest.
        meter.turn(self._clock())
        meter.profile = self._ask(calls, device, meter, ids) if seeded else None
        return meter.profile

    def _meter(self, calls: Calls, device: str, mark: Hashable) -> Meter | None:
        meter = self._meters.get(device)
        if meter is None:
            samples = None
            # That no room for samples can be had costs the meter, and not the GPU.
            with contextlib.suppress(DeviceHangsError), calls.about(ROOM, device):
                samples = _allocate(calls, device)
            if samples is None:
                return None
            meter = self._meters[device] = Meter(mark, samples)
        elif meter.mark != mark:
            meter.reseed(mark)
        return meter

    def _ask(self, calls: Calls, device: str, meter: Meter, ids: tuple[int, ...]) -> Profile | None:
        """Ask for all metrics, or for the oldest where a driver fails over an id that it does not know."""
        if meter.reduced or not calls.supports(device, METRICS):
            return self._metrics(calls, device, meter, first_known(ids))
        before = refusals(calls, REFUSAL, device, METRICS)
        answer = self._metrics(calls, device, meter, ids)
        if answer is not None:
            return answer
        # Another failure passes, and must not cost the newer metrics for good.
        refused = refusals(calls, REFUSAL, device, METRICS) > before
        if not calls.supports(device, METRICS):
            # The refusal of the whole list says nothing of the oldest; that of those is the last word.
            calls.forget_unsupported(device, METRICS)
            refused = True
        answer = self._metrics(calls, device, meter, first_known(ids))
        meter.reduced = refused and answer is not None
        return answer

    def _metrics(self, calls: Calls, device: str, meter: Meter, ids: tuple[int, ...]) -> Profile | None:
        if ids not in self._questions:
            self._questions[ids] = Question(ids)
        question = self._questions[ids]
        struct = question.between(meter.spare, meter.samples[meter.newest])
        return None if calls.ask(device, METRICS, struct) is None else question.answer()


def counted(
    calls: Calls, uuid: str, told: Mapping[Traffic, int], profile: Profile | None
) -> dict[Traffic, int]:
    """Take the bytes over PCIe from the meter of a GPU that has one, and as they were told from another.

    The two have begun to count at different times: where one fails for a moment, the other must not step in.
    """
    if not calls.supports(uuid, SUPPORT):
        return dict(told)
    links = {traffic: count for traffic, count in told.items() if traffic not in BYTES.values()}
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


def _free(calls: Calls, meter: Meter) -> None:
    for sample in meter.samples:
        _free_sample(calls, sample)


def _free_sample(calls: Calls, sample: Any) -> None:
    calls.give_back("nvmlGpmSampleFree", pynvml.nvmlGpmSampleFree, sample)
