"""A Prometheus with the rules of the recipes that scrapes fake nodes of two clusters."""

import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import yaml

from alerts.thresholds import load_thresholds
from alerts.write import RECORDING, rule_files
from tests.together.end_to_end.programs import SCRAPE_SECONDS, Prometheus, demo, free_port, prometheus, until

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
RECIPES = ROOT / "deploy/recipes"
CLUSTERS = ("east", "west")
IDLE_SECONDS = 5
"""Replaces the half hour after which a pod is idle."""
QUEUES = r"kueue\.x-k8s\.io/.+-queue-name"
CLAIMS = "gpuslice_container_claim_info"
THRESHOLDS = '[rules]\ninterval = "1s"\nslow_interval = "1s"\n'


@contextmanager
def scene(folder: Path) -> Iterator[Prometheus]:
    """Scrape one node as a node of two clusters, and another that stops; yield when all rules have seen that.

    Queries are of that moment. The series of other exporters are in kube.txt.
    """
    ports = [free_port(), free_port()]
    with ExitStack() as running, _text((HERE / "kube.txt").read_bytes()) as other:
        targets = [
            (ports[0], "east"),
            (ports[0], "west"),
            (ports[1], "east"),
            (other, "east"),
            (other, "west"),
        ]
        scrape = {
            "honor_labels": True,
            "static_configs": [
                {"targets": [f"127.0.0.1:{port}"], "labels": {"cluster": cluster}}
                for port, cluster in targets
            ],
        }
        jobs = {"recipes": f"http://127.0.0.1:{ports[0]}/metrics"}
        server = running.enter_context(prometheus(folder, jobs, scrape=scrape, rules=_rules(folder)))
        options = ("--pod-labels", QUEUES, "--metric-allowlist", CLAIMS)
        running.enter_context(_node("node.json", ports[0], *options))
        with _node("away.json", ports[1]):
            wide = 'workload:gpuslice_used_of_held:ratio{cluster="east", owner_name="wide"}'
            pods = 'pod:gpuslice_used_of_held:ratio{cluster="east", pod=~"wide-.*"}'
            until(lambda: len(server.query(pods)) == 2 and server.query(wide), "a workload is on both nodes")

        def settled() -> bool:
            server.at = time.time() - SCRAPE_SECONDS
            return (
                bool(server.query("count(up == 0) == 1"))
                and not server.query(wide)
                and len(server.query("DCGM_FI_PROF_GR_ENGINE_ACTIVE == 0")) == 4
                and len(server.query("namespace:gpuslice_used_cost:increase1h > 0")) == 2
            )

        until(settled, "one node is away, its workload is not measured, pods are idle, and GPUs have costs")
        yield server


def _node(scenario: str, port: int, *options: str) -> AbstractContextManager[str]:
    listen = f"--listen=127.0.0.1:{port}"
    return demo(str(HERE / scenario), "--poll-interval=1s", "--dcgm-names=off", listen, *options)


def _rules(folder: Path) -> list[Path]:
    """Write the records and the rules of the recipes, evaluated each second."""
    thresholds = folder / "thresholds.toml"
    thresholds.write_text(THRESHOLDS)
    texts = {"recording": rule_files(load_thresholds(thresholds))[RECORDING]}
    for path in sorted(RECIPES.glob("*-rules.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        texts[path.stem] = re.sub(
            r"(\binterval:) \w+|(>=) 1800\b|\[30m\]", _soon, yaml.safe_dump(spec, width=1000)
        )
    paths = [folder / f"{name}.yaml" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    return paths


def _soon(found: re.Match[str]) -> str:
    interval, least = found.groups()
    return f"{interval} 1s" if interval else f"{least} {IDLE_SECONDS}" if least else f"[{IDLE_SECONDS}s]"


@contextmanager
def _text(page: bytes) -> Iterator[int]:
    """Serve a page in the text format; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
