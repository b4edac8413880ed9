"""One pod in a real Prometheus: the answers of its node's page; what ended, and what is unknown."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

import pytest

from tests.core.commands.program import run
from tests.together.end_to_end.programs import (
    Prometheus,
    demo,
    get,
    prometheus,
    until,
)

pytestmark = pytest.mark.slow

# One poll only, so that the nodes show what Prometheus has scraped.
ONCE = ("--poll-interval", "1h", "--stale-after", "2h")
SCENARIOS = ("t4-timeslicing", "a100-mig-mixed", "hami", "dra", "mps-daemon")
REPLAYED = "t4-timeslicing"
NODE = "replayed"
SAME = ("uuid", "mig_uuid", "state", "slices", "memory_used_bytes", "compute_used_ratio")
DURATION = re.compile(r"\d+ (?:s|min|h|d)(?: \d+ (?:min|h))?\b")
KUBELET = re.compile(r'(gpuslice_collector_success\{[^}]*collector="podresources"[^}]*\}) 1(\.0)?')


class Replay:
    """An exporter that serves the series of another node, as a test changes them."""

    def __init__(self, page: str) -> None:
        self.page = page
        replay = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = replay.page.encode()
                self.send_response(200 if body else 503)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def without(self, pod: str) -> str:
        """Return the page without the series of a pod."""
        return "".join(line for line in self.page.splitlines(keepends=True) if f'pod="{pod}"' not in line)


class Running(NamedTuple):
    """The Prometheus, the URLs of the nodes, and the replay."""

    server: Prometheus
    urls: list[str]
    replay: Replay

    def ask(self, *arguments: str) -> Any:
        """Run the command; lines of text are put together."""
        done = run("is", *arguments, "--prometheus-url", self.server.url)
        done.stdout = re.sub(r"\n +", " ", done.stdout)
        return done

    def shows(self, page: str, query: str, what: str) -> None:
        """Serve a page, and wait until a query has a result or, after ``!``, has none."""
        self.replay.page = page
        until(lambda: bool(self.server.query(query.removeprefix("!"))) != query.startswith("!"), what)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Scrape some nodes, and a replay of one of them under another name."""
    with ExitStack() as stack:
        urls = [stack.enter_context(demo(scenario, *ONCE)) for scenario in SCENARIOS]
        page = get(f"{urls[0]}/metrics", {"Accept": "text/plain"})[1].decode()
        node = json.loads(get(f"{urls[0]}/api/v1/snapshot")[1])["node"]["node"]
        renamed = page.replace(f'node="{node}"', f'node="{NODE}"').replace("GPU-", "GPU-r")
        replay = Replay(renamed.replace('namespace="', 'namespace="r-'))
        stack.callback(replay.close)
        jobs = {f"job-{place}": f"{url}/metrics" for place, url in enumerate(urls)}
        jobs["replay"] = f"http://127.0.0.1:{replay.port}/metrics"
        folder = tmp_path_factory.mktemp("tsdb")
        server = stack.enter_context(prometheus(folder, jobs, scrape={"honor_labels": True}))
        scraped = "count_over_time(gpuslice_snapshot_timestamp_seconds[1m]) >= 3"
        until(lambda: len(server.query(scraped)) == len(jobs), "each target was scraped three times")
        yield Running(server, urls, replay)


def answers(document: dict[str, Any], question: str) -> list[str]:
    """Return the sentences about a question, without times."""
    (found,) = [each for each in document["answers"] if each["question"] == question]
    return [DURATION.sub("…", sentence["text"]) for sentence in found["sentences"]]


def test_use_and_memory_are_answered_as_on_the_page_of_the_node(running: Running) -> None:
    """Of all pods with one row; the free memory of a device is not in Prometheus."""
    snapshots = {url: json.loads(get(f"{url}/api/v1/snapshot")[1]) for url in running.urls}
    rows = [(url, row) for url, snapshot in snapshots.items() for row in snapshot["containers"]]
    number = Counter((row["namespace"], row["pod"]) for _, row in rows)
    compared = 0
    for url, row in rows:
        name = f"{row['namespace']}/{row['pod']}"
        if number[row["namespace"], row["pod"]] > 1:
            continue
        done = running.ask(name, "-o", "json")
        assert (done.returncode, done.stderr) == (0, "")
        document = json.loads(done.stdout)
        page = get(f"{url}/holder/{name}/{row['container'] or ''}")[1].decode()
        page = DURATION.sub("…", " ".join(page.split()))
        (device,) = document["devices"]
        assert {name: device[name] for name in SAME} == {name: row[name] for name in SAME}
        for question in ("Is its slice used?", "Is there memory left for it?"):
            known = [text for text in answers(document, question) if "does not have it" not in text]
            assert [text for text in known if text not in page] == []
            compared += len(known)
    assert compared > 30


def test_what_prometheus_does_not_have_is_unknown_with_the_page_to_open(running: Running) -> None:
    """Compute inside MIG is not measured on this node."""
    snapshot = json.loads(get(f"{running.urls[1]}/api/v1/snapshot")[1])
    row = next(row for row in snapshot["containers"] if row["compute_used_ratio"] is None)
    done = running.ask(f"{row['namespace']}/{row['pod']}")

    assert done.returncode == 0
    assert f"{running.urls[1]}/holder/{row['namespace']}/{row['pod']}" in done.stdout
    assert "Not known: this Prometheus does not have it" in done.stdout


def test_all_pods_of_a_node_that_has_records_have_their_devices(running: Running) -> None:
    for url in running.urls:
        rows = json.loads(get(f"{url}/api/v1/snapshot")[1])["containers"]
        pods = {(row["namespace"], row["pod"]) for row in rows}
        for namespace, pod in sorted(pods):
            document = json.loads(running.ask(f"{namespace}/{pod}", "-o", "json").stdout)
            shown = {(each["container"], each["uuid"], each["mig_uuid"]) for each in document["devices"]}
            expected = {
                (row["container"], row["uuid"], row["mig_uuid"])
                for row in rows
                if (row["namespace"], row["pod"]) == (namespace, pod)
            }
            assert expected <= shown


def test_a_pod_ends_a_kubelet_fails_and_a_node_stops(running: Running) -> None:
    """Only the first says that it holds nothing any more."""
    whole, gone = running.replay.page, running.replay.without("nb-anna")
    try:
        _end(running, whole, gone)
    finally:
        running.replay.page = whole


def _end(running: Running, whole: str, gone: str) -> None:
    mine = 'gpuslice_container_info{pod="nb-anna", namespace="r-ml"}'
    assert running.ask("r-ml/nb-anna").returncode == 0

    running.shows(gone, f"!{mine}", "the pod is gone")
    done = running.ask("r-ml/nb-anna")
    assert done.returncode == 3
    assert done.stdout.startswith("r-ml/nb-anna holds no GPU now\n")
    assert re.search(rf"held nvidia.com/gpu of Tesla T4 0 on node {NODE}: until 2\d\d\d-", done.stdout)

    failing = KUBELET.sub(r"\1 0", gone)
    running.shows(failing, f'gpuslice_collector_success{{node="{NODE}"}} == 0', "the kubelet fails")
    done = running.ask("r-ml/nb-anna")
    assert done.returncode == 1
    assert "Whether it still does is not known: the kubelet of its node does not answer." in done.stdout

    running.shows("", 'up{job="replay"} == 0', "the exporter does not answer")
    done = running.ask("r-ml/nb-anna")
    assert done.returncode == 1
    assert "its exporter does not answer" in done.stdout
    assert running.ask("r-ml/never").returncode == 1

    running.shows(whole, mine, "the pod is there again")
    assert running.ask("r-ml/nb-anna").returncode == 0


def test_a_pod_that_held_nothing_is_no_pod_with_a_gpu(running: Running) -> None:
    done = running.ask("ml/never-there")

    assert done.returncode == 4
    assert done.stdout.startswith("ml/never-there: no such pod holds a GPU, or held one in the last 7 days")


def test_a_prometheus_without_holders_says_so(tmp_path) -> None:
    with demo("no-gpu") as url, prometheus(tmp_path, {"job": f"{url}/metrics"}) as server:
        until(lambda: server.query("gpuslice_snapshot_timestamp_seconds"), "the node is scraped")
        done = run("is", "ml/x", "--prometheus-url", server.url)

    assert (done.returncode, done.stdout) == (1, "")
    assert "this Prometheus has no records of holders" in done.stderr
