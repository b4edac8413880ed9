"""Starting and stopping the HTTP server."""

import logging
import os

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from exporter.settings import ListenAddress

log = logging.getLogger(__name__)

# Requests that are being answered when the program ends get this long.
SHUTDOWN_SECONDS = 0.5
# The rest of a request that was refused for its body is waited for so long, so that the answer is read.
LINGER_SECONDS = 0.5


class ListenError(Exception):
    """The address cannot be listened on; the text names it and says what to do."""


class Server:
    """Serves an application on one address until it is stopped."""

    def __init__(self, app: web.Application, listen: ListenAddress) -> None:
        self._listen = listen
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_requests_log(),
            shutdown_timeout=SHUTDOWN_SECONDS,
            lingering_time=LINGER_SECONDS,
        )

    async def start(self) -> str:
        """Listen, and return the URL of the page; raises ListenError."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._listen.host or None, self._listen.port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            # Numbers below 0 are those of name resolution, which strerror does not know.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror
            raise ListenError(
                f"cannot listen on {self._listen}: {reason}; choose another with --listen"
            ) from None
        host, port = self._runner.addresses[0][:2]
        shown = "localhost" if host in ("0.0.0.0", "::") else host
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"

    async def stop(self) -> None:
        """Close the listener and all connections."""
        await self._runner.cleanup()


def _requests_log() -> logging.Logger:
    """Give the log of what goes wrong below the application, without what clients can fill it with."""
    requests = logging.getLogger(f"{__name__}.requests")
    requests.addFilter(_is_fault_of_ours)
    return requests


def _is_fault_of_ours(record: logging.LogRecord) -> bool:
    """Tell whether it was not the client who broke HTTP; that is worth a line to who wants to see all."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, HttpProcessingError):
        return True
    log.debug("a request that is not HTTP: %r", error.message)
    return False
