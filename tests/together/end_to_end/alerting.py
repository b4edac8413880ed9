"""Alertmanager as a program of its own, and receivers of its notices: a webhook, and a server of mail."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer, ThreadingTCPServer
from typing import Any, TypeAlias

from tests.together.end_to_end.programs import PATIENCE, free_port, get, until
from tests.tools import tool

Mail: TypeAlias = EmailMessage
NAMES = ("prometheus-alertmanager", "alertmanager")
"""The program in Debian, and in releases."""


class Receiver:
    """The alerts that a webhook at ``url`` has received."""

    def __init__(self) -> None:
        self.url = ""
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
    receiver = Receiver()
    with posted(receiver.take) as receiver.url:
        yield receiver


@contextmanager
def posted(take: Callable[[dict[str, Any]], None]) -> Iterator[str]:
    """Take each JSON document that is posted to the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            # What Slack answers; Alertmanager reads nothing of others.
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with _serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield f"http://127.0.0.1:{port}/"


@contextmanager
def mailed(take: Callable[[EmailMessage], None]) -> Iterator[int]:
    """Take each mail that is sent to the port, by as much of SMTP as that needs."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 test\r\n")
            for line in self.rfile:
                word = line[:4].upper()
                if word == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    take(self._mail())
                self.wfile.write(b"221 end\r\n" if word == b"QUIT" else b"250 ok\r\n")

        def _mail(self) -> EmailMessage:
            lines = [*iter(self.rfile.readline, b".\r\n")]
            whole = b"".join(line.removeprefix(b".") for line in lines)
            return message_from_bytes(whole, EmailMessage, policy=policy.default)

    with _serving(ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        yield port


@contextmanager
def _serving(server: TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def alertmanager(folder: Path, webhook: str) -> Iterator[str]:
    """Run Alertmanager and yield its URL; it sends each alert at once, and again when resolved."""
    at_once = {"group_by": ["..."], "group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"}
    receiver = {"name": "webhook", "webhook_configs": [{"url": webhook, "send_resolved": True}]}
    configuration = {"route": {"receiver": "webhook", **at_once}, "receivers": [receiver]}
    with configured_alertmanager(folder, configuration) as url:
        yield url


@contextmanager
def configured_alertmanager(folder: Path, configuration: Mapping[str, Any]) -> Iterator[str]:
    """Run Alertmanager with a configuration, and yield its URL."""
    config = folder / "alertmanager.json"
    config.write_text(json.dumps(configuration))
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
