"""All that is followed through the Kubernetes API: this node's pods and its own object."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar

from exporter.concurrency import NoThreadError, Worker
from exporter.kubernetes.access import Configure, library
from exporter.kubernetes.follower import PACE, Client, Follower, Pace
from exporter.kubernetes.node_objects import WatchedPods, by_uid, object_of, pods_of, read_node, read_pod
from exporter.model import NodeObject, PodIdentity

log = logging.getLogger(__name__)
T = TypeVar("T")
# So long the first poll waits for what may forbid it to open the driver, and for the names of pods.
FIRST_SECONDS: Final = 5.0
# After so many it is tried again to start a thread.
THREAD_SECONDS: Final = 5.0
MISSING: Final = (
    "the Kubernetes client cannot be imported (%s); install gpuslice-exporter[kubernetes], or set"
    " --kubernetes-api off"
)


class Cluster:
    """Follows the objects of ``node``; where ``configure`` is None, nothing is asked and nothing is known.

    ``told`` hears the node's labels, first and as they change; {} when they are no longer known.
    """

    def __init__(
        self,
        node: str,
        configure: Configure | None,
        told: Callable[[Mapping[str, str]], None] = lambda _labels: None,
        pace: Pace = PACE,
    ) -> None:
        self._configure = configure
        self._told = told
        self._pods: Follower[PodIdentity] = Follower(pods_of(node), read_pod, pace=pace)
        self._node: Follower[NodeObject] = Follower(object_of(node), read_node, self._tell, pace)
        self._task: asyncio.Task[None] | None = None
        self._missing = ""

    @property
    def pods(self) -> WatchedPods | None:
        """The pods of the node, None where the API does not tell of them."""
        found = self._pods.objects
        return None if found is None else WatchedPods(by_uid(found), self._pods.live)

    @property
    def node(self) -> NodeObject | None:
        """The object of the node, None where the API does not tell of it."""
        return _only(self._node.objects)

    @property
    def failures(self) -> tuple[str, ...]:
        """Why something is not followed that should be, a sentence without a full stop for each."""
        return tuple(filter(None, (self._missing, self._pods.failure, self._node.failure)))

    async def start(self) -> None:
        """Begin to follow, and return once the API server has answered, or some seconds later."""
        if self._configure is None:
            return
        self._task = asyncio.create_task(self._run(self._configure))
        answers = asyncio.gather(self._pods.answered.wait(), self._node.answered.wait())
        first = asyncio.FIRST_COMPLETED
        try:
            await asyncio.wait((self._task, answers), timeout=FIRST_SECONDS, return_when=first)
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, configure: Configure) -> None:
        """Follow until cancelled; ends at once, with a line in the log, where the client is not installed."""
        worker = Worker("kubernetes-import")
        try:
            client = Client(await _run_soon(worker, library), configure)
        except Exception as error:  # noqa: BLE001 - a library that is broken is as good as none
            self._missing = MISSING % error
            log.error("kubernetes API is not used: %s", self._missing)  # noqa: TRY400 - as above
            return
        finally:
            worker.stop()
        await asyncio.gather(self._pods.run(client), self._node.run(client))

    def _tell(self, nodes: Mapping[str, NodeObject] | None) -> None:
        node = _only(nodes)
        self._told(node.labels if node is not None else {})


async def _run_soon(worker: Worker, job: Callable[[], T]) -> T:
    """Run a job as soon as a thread can be started."""
    while True:
        with suppress(NoThreadError):
            return await worker.run(job)
        await asyncio.sleep(THREAD_SECONDS)


def _only(nodes: Mapping[str, NodeObject] | None) -> NodeObject | None:
    return next(iter((nodes or {}).values()), None)
