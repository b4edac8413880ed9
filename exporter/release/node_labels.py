"""The labels of this node, followed through the Kubernetes API.

The client is an extra of this package and large, so it is imported when it is needed, and in a thread.
"""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from exporter.release.errors import ApiError, ExpiredError
from exporter.worker import Worker

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

log = logging.getLogger(__name__)
Labels = Mapping[str, str]

# What was known longer ago is no longer a reason to be blind. A watch that is well is renewed before that.
FORGET_SECONDS: Final = 300.0
WATCH_SECONDS: Final = 240
_GRACE_SECONDS: Final = 10
_LIST_SECONDS: Final = 10.0
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_MISSING: Final = (
    "the labels of this node are not followed: the Kubernetes client cannot be imported (%s);"
    " install gpuslice-exporter[kubernetes], or set --kubernetes-api off"
)


class NodeLabels:
    """Follows the labels of the node of that name.

    ``configure`` makes the client's configuration, anew for each connection, because the token of a pod is
    replaced while it lives; by default it is that of a pod. After an error the pause begins with
    ``first_pause`` seconds and doubles; what was known is forgotten ``forget_after`` seconds after the
    API server was last heard of.
    """

    def __init__(
        self,
        node: str,
        configure: "Callable[[], Configuration] | None" = None,
        *,
        first_pause: float = _FIRST_PAUSE,
        forget_after: float = FORGET_SECONDS,
    ) -> None:
        self._node = node
        self._configure = configure or _of_pod
        self._first_pause = first_pause
        self._forget_after = forget_after
        self._pause = first_pause
        self._failure = ""
        self._forgetting: asyncio.TimerHandle | None = None
        self._tell: Callable[[Labels], None] = lambda _labels: None

    async def run(self, tell: Callable[[Labels], None]) -> None:
        """Tell the labels now and whenever they change, until cancelled; {} when they are no longer known.

        Returns at once, with a line in the log, where the client is not installed.
        """
        self._tell = tell
        worker = Worker("kubernetes-import")
        try:
            library = await worker.run(_library)
        except Exception as error:  # noqa: BLE001 - a library that is broken is as good as none
            log.error(_MISSING, error)  # noqa: TRY400 - there is nothing to see in a traceback
            return
        finally:
            worker.stop()
        try:
            while True:
                await self._connection(library)
                await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        finally:
            self._forget_nothing()

    async def _connection(self, library: ModuleType) -> None:
        """List and watch until something fails, and tell the log of it once."""
        try:
            async with library.ApiClient(self._configure()) as client:
                nodes = _Nodes(library.CoreV1Api(client), self._node)
                while True:
                    with suppress(ExpiredError):
                        await self._follow(nodes)
                    await asyncio.sleep(self._first_pause)
        except TimeoutError:
            self._failed("the API server does not answer in time")
        except Exception as error:  # noqa: BLE001 - whatever a client meets, the exporter goes on without it
            self._failed(str(error) or repr(error))

    async def _follow(self, nodes: "_Nodes") -> None:
        """List once, then watch, each watch from where the last one ended; raises ExpiredError and others."""
        labels, version = await nodes.list()
        self._heard(labels)
        while True:
            # That a watch was granted proves that the labels hold, but not yet that it will last.
            async with nodes.watch(version) as events:
                self._heard(None)
                async for changed, newest in events:
                    version = newest
                    self._heard(changed)
                    self._recovered()
            self._recovered()
            await asyncio.sleep(self._first_pause)

    def _heard(self, labels: Labels | None) -> None:
        """Note that the server vouches for what is known, and tell the labels if it told any."""
        self._forget_nothing()
        self._forgetting = asyncio.get_running_loop().call_later(self._forget_after, self._forget)
        if labels is not None:
            self._tell(labels)

    def _recovered(self) -> None:
        self._pause = self._first_pause
        if self._failure:
            log.info("the labels of node %s are followed again", self._node)
            self._failure = ""

    def _failed(self, failure: str) -> None:
        if failure != self._failure:
            log.warning("the labels of node %s are not followed: %s", self._node, failure)
            self._failure = failure

    def _forget(self) -> None:
        log.warning(
            "the labels of node %s are forgotten: not heard of for %g s", self._node, self._forget_after
        )
        self._tell({})

    def _forget_nothing(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()


class _Nodes:
    """The API's collection of nodes, as far as one node is in it."""

    def __init__(self, api: Any, node: str) -> None:
        self._api = api
        self._node = node

    async def list(self) -> tuple[Labels, str]:
        """Return the labels of the node ({} if there is none), and the version of the collection."""
        async with await self._ask("PartialObjectMetadataList", _LIST_SECONDS) as answer:
            self._check(answer.status)
            found = json.loads(await answer.read())
        items = found.get("items") or [{}]
        return _labels(items[0]), found["metadata"]["resourceVersion"]

    @asynccontextmanager
    async def watch(self, version: str) -> AsyncIterator[AsyncIterator[tuple[Labels | None, str]]]:
        """Open a watch from a version on. Its events are labels, or None where only the version went on.

        They end when the server ends the watch in good order. Raises ExpiredError, at any time, when the
        server has forgotten the version.
        """
        async with await self._ask(
            "PartialObjectMetadata",
            WATCH_SECONDS + _GRACE_SECONDS,
            watch=True,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=WATCH_SECONDS,
        ) as answer:
            self._check(answer.status)
            yield (self._event(json.loads(line)) async for line in answer.content)

    async def _ask(self, form: str, within: float, **query: Any) -> Any:
        # Names, labels and versions only: a whole node is a hundred times as large.
        accept = f"application/json;as={form};g=meta.k8s.io;v=v1,application/json"
        self._api.api_client.set_default_header("Accept", accept)
        return await self._api.list_node(
            field_selector=f"metadata.name={self._node}",
            _preload_content=False,
            _request_timeout=within,
            **query,
        )

    def _event(self, event: Mapping[str, Any]) -> tuple[Labels | None, str]:
        about = event["object"]
        if event["type"] == "ERROR":
            self._check(about.get("code", HTTPStatus.INTERNAL_SERVER_ERROR), about.get("message", ""))
        version = about["metadata"]["resourceVersion"]
        if event["type"] == "BOOKMARK":
            return None, version
        return {} if event["type"] == "DELETED" else _labels(about), version

    def _check(self, status: int, message: str = "") -> None:
        if status == HTTPStatus.GONE:
            raise ExpiredError
        if status != HTTPStatus.OK:
            raise ApiError(self._node, status, message)


def _labels(node: Mapping[str, Any]) -> Labels:
    return (node.get("metadata") or {}).get("labels") or {}


def _library() -> ModuleType:
    import kubernetes_asyncio.client  # noqa: PLC0415 - only who wants it pays for it
    import kubernetes_asyncio.config  # noqa: PLC0415

    return kubernetes_asyncio.client


def _of_pod() -> "Configuration":
    from kubernetes_asyncio import client, config  # noqa: PLC0415 - as above

    configuration = client.Configuration()
    load: Callable[..., None] = config.load_incluster_config
    load(client_configuration=configuration)
    return configuration
