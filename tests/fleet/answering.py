"""An HTTP server that speaks Prometheus's API, with the answers of a test."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

Samples = list[tuple[Mapping[str, str], float]]
Answer = Callable[[str], Samples | str]
AT = 1_700_000_000.0


def nothing(_expression: str) -> Samples | str:
    """Answer as a Prometheus does that has no series."""
    return []


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Answer instant queries at a URL: samples by expression, or the text of an error; its clock stands."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            (expression,) = form["query"]
            found = [({}, AT)] if expression == "vector(time())" else answer(expression)
            body = json.dumps(_body(found)).encode()
            self.send_response(422 if isinstance(found, str) else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _body(found: Samples | str) -> dict[str, Any]:
    if isinstance(found, str):
        return {"status": "error", "errorType": "execution", "error": found}
    result = [{"metric": dict(labels), "value": [AT, str(value)]} for labels, value in found]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def nodes(expression: str, *names: str) -> Samples | None:
    """Answer which nodes there are, each scraped by a target of its name; None for other questions."""
    if expression.startswith("count(node:gpuslice_exporters:count"):
        return [({}, float(len(names)))]
    targets = [{"job": "gpus", "instance": f"{name}:9836"} for name in names]
    if expression.startswith("max by") and "last_over_time(gpuslice_node_info" in expression:
        return [({**target, "node": name}, 1.0) for target, name in zip(targets, names, strict=True)]
    if expression.startswith(("max by (cluster, job, instance) (last_over_time", "topk by (cluster, node)")):
        return [(target, AT - 4) for target in targets]
    return None
