"""A day on a GPU node as a pure function of the number of the poll: who is there, and what goes wrong.

Nothing is remembered from poll to poll, so that the node costs the same memory at the end as in the
beginning, and so that the measured process and the one that judges it know the same without messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from exporter.demo.scenario import (
    DriverReload,
    Fault,
    GpuAbsent,
    KubeletFailure,
    MigLayout,
    NvmlError,
    PodAdd,
    Scenario,
    XidEvent,
)
from exporter.demo.scenario.derive import make_hex, make_uuid
from exporter.demo.scenario.pods import Container, Pod
from tests.together.soak.scenario import CUT, FRAIL, SHARED, SLICED, beginning, layout

PERIOD = 5
"""Seconds from poll to poll, as by default."""
POLLS = 86_400 // PERIOD
PODS = 100_000
SHORTEST = 2
_KEPT = "keep-"
_PIDS = 200
# From the first poll at which it happens: how many polls there are between two, and how many each lasts.
_KUBELET, _LIMIT, _LOST, _ABSENT, _RELOAD, _XID = (97, 2), (211, 1), (151, 5), (401, 8), (503, 3), (13, 1)
_TROUBLES = (_KUBELET, _LIMIT, _LOST, _ABSENT, _RELOAD)
LONGEST = max(lasts for _, lasts in _TROUBLES)
"""The most polls for which something is wrong."""
_RECUT = 61
_ON_CUT = "cut-"
# What a pod is entitled to of the compute of its GPU, by the first word of its place.
_SHARES = {"sliced": 1 / SHARED, "hami": 0.3, "cgpu": 0.25, "volcano": 0.5, "kai": 0.25}
_XIDS = (13, 31, 43, 45, 94)


@dataclass(frozen=True, slots=True)
class Turn:
    """A pod in its place: at poll ``first`` it is there, at poll ``stop`` no more."""

    pod: Pod
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Day:
    """``polls`` polls in which about ``pods`` pods come and go."""

    polls: int = POLLS
    pods: int = PODS

    @property
    def kept(self) -> tuple[Pod, ...]:
        """The pods that stay all day."""
        return tuple(pod for pod in beginning().pods if pod.name.startswith(_KEPT))

    @property
    def places(self) -> tuple[Pod, ...]:
        """The pods that stand for all that take turns in their place."""
        return tuple(pod for pod in beginning().pods if not pod.name.startswith(_KEPT))

    @property
    def life(self) -> int:
        """How many polls a pod lives."""
        return max(SHORTEST, round(len(self.places) * self.polls / self.pods))

    def turns(self, poll: int) -> Iterator[Turn]:
        """Yield the pod in each place at a poll."""
        for number, place in enumerate(self.places):
            shifted = (poll + number) // self.life
            first, stop = shifted * self.life - number, (shifted + 1) * self.life - number
            pod = place
            if place.name.startswith(_ON_CUT):
                # Who is on a MIG device goes with it.
                epoch = poll // _RECUT
                first, stop = max(first, epoch * _RECUT), min(stop, (epoch + 1) * _RECUT)
                pod = _on_cut(place, epoch)
            yield Turn(_born(pod, number, first), max(first, 0), stop)

    def come(self, polls: int) -> int:
        """Return about how many pods have come in the first ``polls`` polls."""
        return len(self.places) * (1 + polls // self.life)

    def stay(self, name: str) -> tuple[float | None, int, int]:
        """Return the share of compute of a pod by its name, its first poll, and the first one without it.

        The share is None where it is entitled to none.
        """
        place, _, number = name.rpartition("-")
        if place == _KEPT.removesuffix("-"):
            return _SHARES.get(number), 0, self.polls
        index = [pod.name for pod in self.places].index(place)
        first = int(number, 16) - index
        stop = (int(number, 16) // self.life + 1) * self.life - index
        if not place.startswith(_ON_CUT):
            return _SHARES[place.partition("-")[0]], max(first, 0), stop
        cut = layout(first // _RECUT)[int(place.removeprefix(_ON_CUT))]
        return cut.compute_slices / 7, max(first, 0), min(stop, (first // _RECUT + 1) * _RECUT)

    def scenario(self, poll: int) -> Scenario:
        """Return the node as it is at a poll."""
        came = tuple(
            PodAdd(kind="pod_add", at=turn.first * PERIOD, pod=turn.pod) for turn in self.turns(poll)
        )
        return replace(beginning(), pods=self.kept, faults=(*came, *faults(poll)))


def most_pods(polls: int) -> int:
    """Return the number of pods if each lives just long enough to be seen twice."""
    return len(Day().places) * polls // SHORTEST


def faults(poll: int) -> Iterator[Fault]:
    """Yield what is wrong or changed at a poll."""
    began = poll // _RECUT * _RECUT
    cuts = layout(poll // _RECUT)
    yield MigLayout(kind="mig_layout", at=began * PERIOD, gpu=CUT, instances=cuts)
    uuids = [gpu.uuid for gpu in beginning().gpus]
    if (at := _since(poll, *_KUBELET)) is not None:
        yield KubeletFailure(kind="kubelet_down", at=at)
    if (at := _since(poll, *_LIMIT)) is not None:
        yield KubeletFailure(kind="kubelet_rate_limit", at=at)
    if (at := _since(poll, *_LOST)) is not None:
        yield NvmlError(kind="nvml_error", at=at, device=uuids[FRAIL], code="GPU_IS_LOST")
    if (at := _since(poll, *_ABSENT)) is not None:
        yield GpuAbsent(kind="gpu_absent", at=at, gpu=FRAIL)
    if (at := _since(poll, *_RELOAD)) is not None:
        yield DriverReload(kind="driver_reload", at=at)
    if (at := _since(poll, *_XID)) is not None:
        xid = _XIDS[poll // _XID[0] % len(_XIDS)]
        yield XidEvent(kind="xid", at=at, device=uuids[SLICED], xid=xid)


def troubles(first: int, stop: int) -> int:
    """Count the polls from ``first`` to before ``stop`` at which something could not be read."""
    return sum(any(_since(poll, *kind) is not None for kind in _TROUBLES) for poll in range(first, stop))


def happened(polls: int) -> dict[str, int]:
    """Count what went wrong or changed in the first ``polls`` polls."""
    kinds = {
        "restarts of the kubelet": _KUBELET,
        "refusals by its rate limit": _LIMIT,
        "GPUs lost": _LOST,
        "GPUs unplugged": _ABSENT,
        "reloads of the driver": _RELOAD,
        "XID errors": _XID,
    }
    counts = {what: (polls - 1) // every for what, (every, _) in kinds.items()}
    return counts | {"new MIG layouts": (polls - 1) // _RECUT}


def _since(poll: int, every: int, lasts: int) -> float | None:
    """Return the second since which this happens, None when it does not; never in the first round."""
    over = poll % every
    return (poll - over) * PERIOD if poll >= every and over < lasts else None


def _on_cut(place: Pod, epoch: int) -> Pod:
    (container,) = place.containers
    cut = layout(epoch)[int(place.name.rpartition("-")[2])]
    (process,) = container.processes
    container = replace(
        container,
        devices={f"nvidia.com/mig-{cut.profile}": (cut.uuid,)},
        processes=(replace(process, device=cut.uuid),),
    )
    return replace(place, containers=(container,))


def _born(place: Pod, number: int, first: int) -> Pod:
    """Return the pod that took its place at poll ``first``; its pid is used again later."""
    name = f"{place.name}-{first + number:x}"
    pid = 10_000 + number * _PIDS + (first + number) % _PIDS

    def made(container: Container) -> Container:
        processes = tuple(replace(process, pid=pid) for process in container.processes)
        return replace(container, container_id=make_hex(name, container.name), processes=processes)

    return replace(place, name=name, uid=make_uuid(name), containers=tuple(map(made, place.containers)))
