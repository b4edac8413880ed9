"""The HTTP side: hands out what the last poll made; no request reads the node or changes anything."""

from exporter.web.app import make_app
from exporter.web.http.server import ListenError, Server

__all__ = ["ListenError", "Server", "make_app"]
