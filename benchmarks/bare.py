"""The calls that a poll cannot do without: to driver and kubelet, with nothing around them."""

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
# It blocks until something happens, in a thread of its own, and is no part of a poll.
_WAITS = "nvmlEventSetWait"
# The binding wants a record from its caller, which is an argument more.
_MADE_BY_CALLER = "nvmlDeviceGetGpuFabricInfoV"
# Bytes; what is read of a process is shorter.
_ENOUGH = 4096
_ASKED = (
    (messages.LIST_V1, messages.ListPodResourcesResponse),
    (messages.ALLOCATABLE_V1, messages.AllocatableResourcesResponse),
)


class _Within(threading.local):
    """Whether this thread is inside a wrapper already: one may call another."""

    call = False


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Note every call of a wrapper of the binding that is made inside the block, by any thread.

    Of a call that the exporter makes in its own way it is the binding's wrapper that is noted.
    What an argument points to is the caller's: replay before the next poll.
    """
    calls: list[Call] = []
    within = _Within()

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        bare = function if name == _MADE_BY_CALLER else wrappers.get(name, function)

        def note(*arguments: Any) -> Any:
            if within.call or name.startswith(_WAITS):
                return function(*arguments)
            calls.append((bare, arguments))
            within.call = True
            try:
                return function(*arguments)
            finally:
                within.call = False

        return note

    wrappers = {
        name: value for name, value in vars(pynvml).items() if name.startswith("nvml") and callable(value)
    }
    # What is in it does not matter to who reads it, as long as it is the same object.
    table = cast("dict[str, Callable[..., Any]]", CORRECTED)
    corrected = dict(table)
    vars(pynvml).update({name: noting(name, value) for name, value in wrappers.items()})
    table.update({name: noting(name, value) for name, value in corrected.items()})
    try:
        yield calls
    finally:
        vars(pynvml).update(wrappers)
        table.update(corrected)


def replay(calls: list[Call]) -> None:
    """Make the calls again, and throw the answers away."""
    for function, arguments in calls:
        with contextlib.suppress(pynvml.NVMLError):
            function(*arguments)


@contextmanager
def idle_driver() -> Iterator[None]:
    """Put a driver that does nothing in the place of the one that is open: what is left is the binding."""
    real = pynvml.nvmlLib
    _use(_Idle())
    try:
        yield
    finally:
        _use(real)


def _use(library: Any) -> None:
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - the binding has no public way


class _Idle:
    """A library whose functions all say that they succeeded."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: pynvml.NVML_SUCCESS


async def ask_kubelet(pod_resources: Path, pods: Path) -> None:
    """Make the calls of a poll to the kubelet by a stub each, and have protobuf parse the answers."""
    async with _stubs(pod_resources) as channel:
        for method, answer in _ASKED:
            await channel.unary_unary(method, response_deserializer=answer.FromString)(b"")
    if await asyncio.to_thread(pods.exists):
        async with _stubs(pods) as channel:
            answer = messages.ListPodsResponse.FromString
            listed = await channel.unary_unary(messages.LIST_PODS, response_deserializer=answer)(b"")
        for payload in listed.pods:
            messages.Pod.FromString(payload)


def read_places(proc_root: str, pids: Iterable[int]) -> None:
    """Read once for each process what tells where it runs and since when, by calls of the kernel."""
    for pid in pids:
        for name in ("stat", "cgroup"):
            file = os.open(f"{proc_root}/{pid}/{name}", os.O_RDONLY)
            os.read(file, _ENOUGH)
            os.close(file)


def _stubs(path: Path) -> grpc.aio.Channel:
    authority = ("grpc.default_authority", "localhost")
    return grpc.aio.insecure_channel(target(str(path)), (authority,))
