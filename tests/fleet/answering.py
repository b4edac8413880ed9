"""An HTTP server with the Prometheus API that returns the answers of a test."""

import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from exporter.fleet.prometheus import Prometheus
from exporter.fleet.watch import Inspection, inspect

Samples = list[tuple[Mapping[str, str], float]]
Answer = Callable[[str], Samples | str]
AT = 1_700_000_000.0
TARGET, NODE = {"job": "gpus", "instance": "n1:9836"}, {"node": "n1"}
GPU = {**TARGET, **NODE, "gpu": "0", "uuid": "GPU-1"}
HOLDER = {**GPU, "namespace": "ml", "pod": "train-0", "container": "main"}


def nothing(_expression: str) -> Samples | str:
    """Return what a Prometheus without any series answers."""
    return []


@contextmanager
def answering(answer: Answer, seen: list[dict[str, str]] | None = None) -> Iterator[str]:
    """Yield the URL of a server whose answers are samples or the text of an error; its time is AT.

    The headers of each request are appended to ``seen``.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if seen is not None:
                seen.append(dict(self.headers))
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            (expression,) = form["query"]
            result = [({}, AT)] if expression == "vector(time())" else answer(expression)
            body = json.dumps(_body(result)).encode()
            self.send_response(422 if isinstance(result, str) else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@asynccontextmanager
async def connected(answer: Answer) -> AsyncIterator[Prometheus]:
    """Yield a client of a server with these answers."""
    with answering(answer) as url:
        prometheus = Prometheus(url, deadline=60)
        try:
            yield prometheus
        finally:
            await prometheus.close()


async def inspected(answer: Answer) -> Inspection:
    """Return what ``inspect`` shows of the node."""
    async with connected(answer) as prometheus:
        return await inspect(prometheus, ("n1",), details=True, idle_after=600)


def _body(answer: Samples | str) -> dict[str, Any]:
    if isinstance(answer, str):
        return {"status": "error", "errorType": "execution", "error": answer}
    result = [{"metric": dict(labels), "value": [AT, str(value)]} for labels, value in answer]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def of_node(answers: Mapping[str, Samples]) -> Answer:
    """Return the answers about node n1: those to queries for it, and others by patterns of their queries."""

    def answer(expression: str) -> Samples:
        if (known := nodes(expression, "n1")) is not None:
            return known
        return next((samples for pattern, samples in answers.items() if re.match(pattern, expression)), [])

    return answer


# The answers about a namespace with one container, and with a GPU-hour in each sum.
HOURS: Mapping[str, Samples] = {
    r"sum by \(cluster, namespace\)": [({"namespace": "ml"}, 3600.0)],
    "namespace:gpuslice_containers:count": [({"namespace": "ml"}, 1.0)],
}


def nodes(expression: str, *names: str) -> Samples | None:
    """Return the answer to a query for nodes or targets, one target a node; None for other queries."""
    if expression.startswith("count(node:gpuslice_exporters:count"):
        return [({}, float(len(names)))]
    targets = [{"job": "gpus", "instance": f"{name}:9836"} for name in names]
    if expression.startswith("max by") and "last_over_time(gpuslice_node_info" in expression:
        return [({**target, "node": name}, 1.0) for target, name in zip(targets, names, strict=True)]
    if expression.startswith(("max by (cluster, job, instance) (last_over_time", "topk by (cluster, node)")):
        return [(target, AT - 4) for target in targets]
    return None
