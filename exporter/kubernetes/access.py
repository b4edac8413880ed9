"""Whether the Kubernetes API is used, and with which credentials.

The client is an optional extra and large, so it is imported only if it is needed, and in a thread.
"""

import errno
import importlib.util
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal

from exporter.concurrency import Worker

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

CLIENT: Final = "kubernetes_asyncio"
TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
ADDRESS: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")

# Returns the client's configuration, for each connection again: a pod's token is replaced while it runs.
Configure = Callable[[], "Awaitable[Configuration]"]


def access(
    mode: Literal["auto", "on", "off"],
    kubeconfig: Path | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    token: Path = TOKEN,
) -> Configure | None:
    """Return the configuration of the API server, None if it is not used.

    ``auto`` uses it with a kubeconfig, or in a pod with a token, the server's address and the client library.
    """
    if mode == "off":
        return None
    if kubeconfig is not None:
        return lambda: _of_kubeconfig(kubeconfig)
    possible = (
        token.exists() and all(map(environ.get, ADDRESS)) and importlib.util.find_spec(CLIENT) is not None
    )
    return _of_pod if mode == "on" or possible else None


def library() -> ModuleType:
    """Import the client and return it; takes a second or two."""
    import kubernetes_asyncio.client  # noqa: PLC0415 - large, and optional
    import kubernetes_asyncio.config  # noqa: PLC0415

    return kubernetes_asyncio.client


async def _of_pod() -> "Configuration":
    from kubernetes_asyncio import client, config  # noqa: PLC0415 - as above

    configuration = client.Configuration()
    load: Callable[..., None] = config.load_incluster_config
    load(client_configuration=configuration)
    return configuration


async def _of_kubeconfig(path: Path) -> "Configuration":
    from kubernetes_asyncio import client, config  # noqa: PLC0415 - as above

    configuration = client.Configuration()
    await _check_readable(path)
    # By default the client writes renewed tokens into the file.
    await config.load_kube_config(str(path), client_configuration=configuration, persist_config=False)
    # Token files usually end in a line feed, which is not allowed in a header.
    configuration.api_key = {name: value.strip() for name, value in configuration.api_key.items()}
    return configuration


async def _check_readable(path: Path) -> None:
    """Raise OSError if this is not a readable file; the client would only log a warning, each time.

    In a thread, because a file system may hang.
    """
    worker = Worker("kubeconfig")
    try:
        await worker.run(lambda: _open(path))
    finally:
        worker.stop()


def _open(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "this is not a regular file", str(path))
    path.open("rb").close()
