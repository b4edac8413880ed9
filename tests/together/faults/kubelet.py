"""Faults of the kubelet, on both of its sockets, and what each may cost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from exporter.demo.fake_kubelet import FakeKubelet
from exporter.demo.scenario import Scenario
from exporter.demo.scenario.pods import Container, Pod
from tests.fake.demo.making import gpu, pod
from tests.fake.demo.making import made as scenario_of
from tests.together.faults import kubelet_servers as servers
from tests.together.faults.cells import Cell, Claim, Result
from tests.together.faults.compare import failures_of
from tests.together.faults.harness import Watch
from tests.together.faults.kubelet_servers import made, saying
from tests.together.faults.limits import short_requests
from tests.together.faults.pages import Page, name_of

POD_RESOURCES, PODS_API, BOTH = "pod-resources", "Pods API", "both sockets"
SOURCE = {POD_RESOURCES: "podresources", PODS_API: "identity"}
"""The collector of each of the two sockets."""
GPU = "nvidia.com/gpu"
HEALTH = frozenset({"gpuslice_collector_success"})
# Reports that the kubelet's list is incomplete.
FILLING = frozenset({"gpuslice_unlisted_pods"})
# Reports that the device plugin offers less.
UNHEALTHY = frozenset({"gpuslice_gpu_slices_unhealthy"})
WORKS = frozenset[str]()
Act = Callable[[FakeKubelet], contextlib.AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A way to fail at a socket, and the words that it may be counted under; none where it must work."""

    put: Callable[[Watch, Path], contextlib.AbstractAsyncContextManager[None]]
    reasons: frozenset[str]


def node() -> Scenario:
    """Make a node of a GPU that two pods share and one that a third has for itself."""
    process = {"memory": "1 GiB", "load": {"high": 30}}
    return scenario_of(
        identity="pods_api",
        gpus=[gpu(count=2)],
        offers=[{"resource": GPU, "of": "gpus", "gpus": [0], "replicas": 4}],
        pods=[
            pod("a", process, devices={GPU: ["{gpu:0}::0"]}),
            pod("b", process, devices={GPU: ["{gpu:0}::1"]}),
            pod("c", process, devices={"nvidia.com/whole": ["{gpu:1}"]}) | {"static": True},
        ],
    )


def at_path(place: servers.Place, *reasons: str) -> Fault:
    """Have something else at the path of the socket."""
    return Fault(put=lambda _, path: place(path), reasons=frozenset(reasons))


def behaving(*reasons: str, **changes: Any) -> Fault:
    """Have the kubelet behave otherwise; ``changes`` are its attributes."""

    @contextlib.asynccontextmanager
    async def put(watch: Watch, _path: Path) -> AsyncIterator[None]:
        kubelet = watch.node.kubelet
        before = {name: getattr(kubelet, name) for name in changes}
        _set(kubelet, changes)
        # The node sets these again with every step.
        real, watch.node._step_kubelet = watch.node._step_kubelet, _nothing
        try:
            yield
        finally:
            watch.node._step_kubelet = real
            _set(kubelet, before)

    return Fault(put=put, reasons=frozenset(reasons))


def _set(kubelet: FakeKubelet, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(kubelet, name, value)


async def _nothing(_now: object) -> None:
    """Leave the kubelet as it is."""


@contextlib.asynccontextmanager
async def _restarted(watch: Watch, _path: Path) -> AsyncIterator[None]:
    kubelet = watch.node.kubelet
    await kubelet.stop()
    for socket in (kubelet.socket, kubelet.pods_socket):
        socket.unlink()
    await kubelet.start()
    yield


def filling(pods: int, **changes: Any) -> Fault:
    """Restart the kubelet, which then lists ``pods`` pods, static ones first; its Pods API is not ready."""

    @contextlib.asynccontextmanager
    async def _filling(watch: Watch, path: Path) -> AsyncIterator[None]:
        async with _restarted(watch, path), behaving(filled=pods, **changes).put(watch, path):
            yield

    return Fault(put=_filling, reasons=WORKS)


def unhealthy(*numbers: int) -> Fault:
    """Have the device plugin report these replicas unhealthy, all if none is named."""

    @contextlib.asynccontextmanager
    async def _unhealthy(watch: Watch, path: Path) -> AsyncIterator[None]:
        lost = tuple(f"::{number}" for number in numbers) or ("",)
        offered = tuple(each for each in watch.node.kubelet.offered if not each[1].endswith(lost))
        async with behaving(offered=offered).put(watch, path):
            yield

    return Fault(put=_unhealthy, reasons=WORKS)


@contextlib.asynccontextmanager
async def hanging(watch: Watch, _path: Path, called: asyncio.Event | None = None) -> AsyncIterator[None]:
    """Take calls, after which ``called`` is set, and answer them when it is over."""
    over = asyncio.Event()

    async def wait(_method: str, _context: object) -> None:
        if called is not None:
            called.set()
        await over.wait()

    kubelet = watch.node.kubelet
    real, kubelet._misbehave = kubelet._misbehave, wait
    try:
        yield
    finally:
        kubelet._misbehave = real
        over.set()


@contextlib.asynccontextmanager
async def _killed(watch: Watch, path: Path) -> AsyncIterator[None]:
    """Go down in the middle of a call."""
    called, kubelet = asyncio.Event(), watch.node.kubelet

    async def stop() -> None:
        await called.wait()
        await kubelet.stop()

    async with hanging(watch, path, called):
        stopping = asyncio.create_task(stop())
        yield
        await stopping
        await kubelet.start()


def _nonsense() -> tuple[Pod, ...]:
    """Make pods of everything that a string can be."""
    texts = ("", "x" * 70_000, 'quote" back\\slash\nline', "\u0000\u202e\U0001f600", "-1", "GPU-", "::::")
    return tuple(
        Pod(
            namespace=text,
            name=text,
            uid=text,
            phase=text,
            labels={text: text},
            annotations={text: text},
            containers=(Container(name=text, devices={text: (text, text, "\u00e9")}, container_id=text),),
        )
        for text in texts
    )


@contextlib.asynccontextmanager
async def _with_nonsense(watch: Watch, path: Path) -> AsyncIterator[None]:
    more = (*watch.node.kubelet.pods, *_nonsense())
    async with behaving(pods=more).put(watch, path):
        yield


def cell_of(what: str, how: str) -> Cell:
    """Return a cell of this matrix."""
    return Cell(source="kubelet", what=what, how=how, where="poll")


METHODS = ("List", "ListPods")
INTERNAL = dict.fromkeys(METHODS, (grpc.StatusCode.INTERNAL, "no such luck"))
SHUTTING_DOWN = dict.fromkeys(METHODS, (grpc.StatusCode.UNAVAILABLE, "shutting down"))
NOT_SYNCED = dict.fromkeys(METHODS, (grpc.StatusCode.FAILED_PRECONDITION, "not synced"))
FAULTS: Mapping[str, Fault] = {
    "absent": at_path(made(lambda _: None), "absent"),
    "dead": at_path(made(servers.make_dead), "unavailable"),
    "a file": at_path(made(Path.touch), "absent"),
    "a directory": at_path(made(Path.mkdir), "absent"),
    "a link to nothing": at_path(made(lambda path: path.symlink_to("nothing")), "absent"),
    "a link to itself": at_path(made(lambda path: path.symlink_to(path)), "absent"),
    "a link to /dev/zero": at_path(made(lambda path: path.symlink_to("/dev/zero")), "absent"),
    "another gRPC server": at_path(servers.other_service, "unimplemented"),
    "a web server": at_path(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n", ends=True), "unavailable"),
    "noise": at_path(saying(servers.noise(1)), "unavailable", "deadline", "internal"),
    "HTTP/2, then noise": at_path(
        saying(servers.SETTINGS, servers.noise(2)), "unavailable", "deadline", "internal"
    ),
    "HTTP/2, then goodbye": at_path(
        saying(servers.SETTINGS, servers.GOAWAY, ends=True), "unavailable", "deadline"
    ),
    "silent": at_path(saying(b""), "deadline", "unavailable"),
    "half an answer, then silence": at_path(
        saying(servers.SETTINGS, servers.ACKNOWLEDGED + servers.ANSWER_BEGINS), "deadline"
    ),
    "half an answer, then the end": at_path(
        saying(servers.SETTINGS, servers.ACKNOWLEDGED + servers.ANSWER_BEGINS, ends=True), "unavailable"
    ),
    "no permission": at_path(servers.resting(servers.forbidden), "permission"),
    "hangs": Fault(put=hanging, reasons=frozenset({"deadline"})),
    "killed while it answers": Fault(put=_killed, reasons=frozenset({"unavailable"})),
    "rate limit": behaving("rate_limited", rate_limited=True),
    "internal error": behaving("internal", errors=INTERNAL),
    "shutting down": behaving("unavailable", errors=SHUTTING_DOWN),
    "not synced": behaving("not_ready", errors=NOT_SYNCED),
    "no protobuf": behaving("malformed", garbage=frozenset(METHODS)),
    "an answer of 33 MiB": behaving("too_large", padding_bytes=33 << 20),
    "an answer of 5 MB": behaving(padding_bytes=5_000_000),
    "an answer of 17 MB": behaving(padding_bytes=17_000_000),
    "nonsense": Fault(put=_with_nonsense, reasons=WORKS),
    "a new socket": Fault(put=_restarted, reasons=WORKS),
    "a new socket without pods yet": filling(0, offered=()),
    "a new socket with a static pod": filling(1),
    "a new socket with some pods": filling(2, offered=()),
    "an unhealthy replica that is free": unhealthy(2),
    "an unhealthy replica that is held": unhealthy(1),
    "the last replica is unhealthy": unhealthy(3),
    "a device plugin that is away": unhealthy(),
}
"""By name. Some concern both sockets at once."""
AT_BOTH = frozenset(
    name
    for name, fault in FAULTS.items()
    if fault.put.__qualname__.startswith(("behaving", "filling", "hanging", "unhealthy", "_"))
)
CELLS = (
    *(cell_of(what, how) for what in SOURCE for how in FAULTS if how not in AT_BOTH),
    *(cell_of(BOTH, how) for how in FAULTS if how in AT_BOTH),
)


def claim_of(cell: Cell) -> Claim:
    """Nothing leaves the page in the first poll; the socket's collector, and no other, says what is wrong."""
    fault = FAULTS[cell.how]
    faulty = {SOURCE[cell.what]} if cell.what != BOTH else set(SOURCE.values())

    def health(before: Page, page: Page) -> Iterator[str]:
        counted = {key[0]: key[1] for key in failures_of(before, page)}
        for collector in counted.keys() - faulty:
            yield f"{collector} fails too"
        # Names have a second source, so a silent Pods API costs nothing.
        expected = {"podresources"} & faulty if fault.reasons else set()
        for collector in expected:
            reason = counted.get(collector)
            if reason not in fault.reasons:
                yield f"{collector} is counted under {reason}, not under {sorted(fault.reasons)}"
            if page.value("gpuslice_collector_success", collector=collector) != 0:
                yield f"{collector} is said to be well"
        if not expected and counted:
            yield f"is counted as a failure: {counted}"

    states = HEALTH | FILLING | UNHEALTHY
    return Claim(own=lambda series: name_of(series) in states, health=health, states=states)


def outcome(before: Page, page: Page) -> str:
    """Return the reasons under which it was counted."""
    reasons = sorted(f"{key[0]}: {key[1]}" for key in failures_of(before, page))
    return ", ".join(reasons) or "works"


async def try_cell(watch: Watch, cell: Cell) -> Result:
    """Put the fault of a cell on for one poll."""
    servers.let_in(watch.node)
    return await watch.under(cell, put(watch, cell), claim_of(cell), outcome)


@contextlib.asynccontextmanager
async def put(watch: Watch, cell: Cell) -> AsyncIterator[None]:
    """Put the fault of a cell on; if a socket may not answer, its client alone waits shortly."""
    kubelet, sources, fault = watch.node.kubelet, watch.poller._sources, FAULTS[cell.how]
    path = kubelet.socket if cell.what == POD_RESOURCES else kubelet.pods_socket
    clients = {POD_RESOURCES: (sources.pod_resources,), PODS_API: (sources.names._pods,)}
    late = clients.get(cell.what, sum(clients.values(), ())) if "deadline" in fault.reasons else ()
    with short_requests(*late):
        async with fault.put(watch, path):
            yield
