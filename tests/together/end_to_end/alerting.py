"""Alertmanager as a program of its own, and a receiver of its notices."""

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.together.end_to_end.programs import PATIENCE, free_port, get, until
from tests.tools import tool

NAMES = ("prometheus-alertmanager", "alertmanager")
"""The program in Debian, and in releases."""


class Receiver:
    """The alerts that a webhook at ``url`` has received."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._alerts: list[dict[str, Any]] = []

    def take(self, notice: dict[str, Any]) -> None:
        """Keep the alerts of a notice."""
        self._alerts += notice["alerts"]

    def alerts(self, name: str, status: str) -> list[dict[str, Any]]:
        """Return the alerts of that name with the status "firing" or "resolved", each once."""
        by_start = {
            (alert["fingerprint"], alert["startsAt"]): alert
            for alert in self._alerts
            if (alert["labels"]["alertname"], alert["status"]) == (name, status)
        }
        return list(by_start.values())

    def received_all(self, names: Sequence[str], status: str) -> bool:
        """Return whether there is an alert of each name."""
        return all(self.alerts(name, status) for name in names)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Receive notices on a free port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}/")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server.RequestHandlerClass = Handler
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def alertmanager(folder: Path, webhook: str) -> Iterator[str]:
    """Run Alertmanager and yield its URL; it sends each alert at once, and again when resolved."""
    config = folder / "alertmanager.json"
    at_once = {"group_by": ["..."], "group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"}
    receiver = {"name": "webhook", "webhook_configs": [{"url": webhook, "send_resolved": True}]}
    config.write_text(json.dumps({"route": {"receiver": "webhook", **at_once}, "receivers": [receiver]}))
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        tool(*NAMES),
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    with (folder / "alertmanager.log").open("w") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            until(lambda: get(f"{url}/-/ready")[1] == b"OK", "Alertmanager is ready")
            yield url
        finally:
            process.terminate()
            process.wait(PATIENCE)
