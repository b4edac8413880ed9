"""The HTTP server: returns results of the last poll; no request reads the node or changes anything."""

from exporter.web.app import make_app
from exporter.web.http.server import ListenError, Server

__all__ = ["ListenError", "Server", "make_app"]
