"""Whether the Kubernetes API is to be asked, and as whom.

The client is an extra of this package and large, so it is imported when it is needed, and in a thread.
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

Configure = Callable[[], "Awaitable[Configuration]"]
"""Makes the client's configuration, anew for each connection: a pod's token is replaced while it lives."""


def access(
    mode: Literal["auto", "on", "off"],
    kubeconfig: Path | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    token: Path = TOKEN,
) -> Configure | None:
    """Return how to reach the API server, None where it is not to be asked.

    With ``auto`` it is asked where a pod has all that it takes, or where a kubeconfig is named.
    """
    if mode == "off":
        return None
    if kubeconfig is not None:
        return lambda: _of_kubeconfig(kubeconfig)
    has_all = (
        token.exists() and all(map(environ.get, ADDRESS)) and importlib.util.find_spec(CLIENT) is not None
    )
    return _of_pod if mode == "on" or has_all else None


def library() -> ModuleType:
    """Import the client; takes a second or two."""
    import kubernetes_asyncio.client  # noqa: PLC0415 - only who wants it pays for it
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
    await _look_at(path)
    # By default the client writes tokens that it has renewed into the file.
    await config.load_kube_config(str(path), client_configuration=configuration, persist_config=False)
    # Files with a token mostly end in a line feed, which no header may hold.
    configuration.api_key = {name: value.strip() for name, value in configuration.api_key.items()}
    return configuration


async def _look_at(path: Path) -> None:
    """Raise OSError for what is no file that can be read; the client would only warn of it, each time.

    In a thread, where a file system may hang.
    """
    worker = Worker("kubeconfig")
    try:
        await worker.run(lambda: _open(path))
    finally:
        worker.stop()


def _open(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "this is no regular file", str(path))
    path.open("rb").close()
