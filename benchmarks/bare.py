"""The calls to driver and kubelet that a poll cannot do without, with nothing around them."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import grpc.aio
import pynvml

from exporter.nvml.driver.binding import CORRECTED
from podresources import messages
from podresources.channel import target

Call = tuple[Callable[..., Any], tuple[Any, ...]]
# It waits for events in a thread of its own, and is not a part of a poll.
_WAITS = "nvmlEventSetWait"
# Its wrapper takes a record from the caller, which is one more argument.
_MADE_BY_CALLER = "nvmlDeviceGetGpuFabricInfoV"
# Bytes; the files of a process that are read are shorter.
_READ_BYTES = 4096
_LISTS = (
    (messages.LIST_V1, messages.ListPodResourcesResponse),
    (messages.ALLOCATABLE_V1, messages.AllocatableResourcesResponse),
)


class _Within(threading.local):
    """Whether this thread is inside a wrapper already: one may call another."""

    call = False


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Record each call of a wrapper of the binding inside the block, by any thread.

    Where the exporter replaces a wrapper by its own, the binding's is recorded. Replay before the next poll:
    arguments may point to memory of the caller.
    """
    calls: list[Call] = []
    within = _Within()

    def recording(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        bare = function if name == _MADE_BY_CALLER else wrappers.get(name, function)

        def record(*arguments: Any) -> Any:
            if within.call or name.startswith(_WAITS):
                return function(*arguments)
            calls.append((bare, arguments))
            within.call = True
            try:
                return function(*arguments)
            finally:
                within.call = False

        return record

    wrappers = {
        name: value for name, value in vars(pynvml).items() if name.startswith("nvml") and callable(value)
    }
    # The exporter holds this object, so its items are replaced in place.
    table = cast("dict[str, Callable[..., Any]]", CORRECTED)
    corrected = dict(table)
    vars(pynvml).update({name: recording(name, value) for name, value in wrappers.items()})
    table.update({name: recording(name, value) for name, value in corrected.items()})
    try:
        yield calls
    finally:
        vars(pynvml).update(wrappers)
        table.update(corrected)


def replay(calls: list[Call]) -> None:
    """Make the calls again, and drop the answers."""
    for function, arguments in calls:
        with contextlib.suppress(pynvml.NVMLError):
            function(*arguments)


@contextmanager
def idle_driver() -> Iterator[None]:
    """Replace the open driver by one that does nothing: what is left of a call is the binding."""
    pynvml.nvmlLib, library = _Idle(), pynvml.nvmlLib
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - the binding has no public way
    try:
        yield
    finally:
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - as above


class _Idle:
    """A library whose functions all return success."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: pynvml.NVML_SUCCESS


async def ask_kubelet(pod_resources: Path, pods: Path) -> None:
    """Make the kubelet calls of a poll by bare gRPC stubs, and parse the answers by protobuf."""
    async with _channel(pod_resources) as channel:
        for method, answer in _LISTS:
            await channel.unary_unary(method, response_deserializer=answer.FromString)(b"")
    if await asyncio.to_thread(pods.exists):
        async with _channel(pods) as channel:
            answer = messages.ListPodsResponse.FromString
            listed = await channel.unary_unary(messages.LIST_PODS, response_deserializer=answer)(b"")
        for payload in listed.pods:
            messages.Pod.FromString(payload)


def read_places(proc_root: str, pids: Iterable[int]) -> None:
    """Read the cgroup and the start time of each process by system calls."""
    for pid in pids:
        for name in ("stat", "cgroup"):
            file = os.open(f"{proc_root}/{pid}/{name}", os.O_RDONLY)
            os.read(file, _READ_BYTES)
            os.close(file)


def _channel(path: Path) -> grpc.aio.Channel:
    authority = ("grpc.default_authority", "localhost")
    return grpc.aio.insecure_channel(target(str(path)), (authority,))
