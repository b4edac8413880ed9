"""Servers are what their descriptions say, whatever is asked: schemathesis against a node and a hub."""

import json
import subprocess
import sys
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from jsonschema import Draft202012Validator

from exporter.web.openapi.operations import document
from tests.alerts.committed import quick_rules
from tests.commands.program import environment, serving
from tests.end_to_end.programs import demo, prometheus, until

SCENARIO = "showcase"
# Streams have no end, which a fuzzer would wait for.
STREAMS = "^/(live/|api/v1/stream)"
# At most so many at a time of each path, beside the edges of all its parameters.
EXAMPLES = 30


def fuzz(url: str, folder: Path, seconds: int) -> None:
    """Run all checks against a server for that long, and fail with what they found."""
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/api/v1/openapi.json", "--url", url),
        *("--checks", "all", "--exclude-path-regex", STREAMS, "--no-color", "--warnings", "off"),
        *("--max-examples", f"{EXAMPLES}", "--seed", "1"),
        *("--max-time", f"{seconds}", "--request-timeout", "20", "--generation-database", "none"),
    ]
    variables = {"FUZZED_URL": url, "SCHEMATHESIS_HOOKS": "tests.web.fuzz_hooks", "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        command, cwd=folder, env=environment(**variables), capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"{done.stdout}\n{done.stderr}", pytrace=False)


def _fields(stream: HTTPResponse) -> dict[str, str]:
    """Read the next event of a stream, without comments and the time to wait."""
    fields: dict[str, str] = {}
    while "data" not in fields:
        name, _, value = stream.readline().decode().rstrip("\n").partition(": ")
        fields |= {name: value} if name in ("event", "id", "data") else {}
    return fields


def _faults(name: str, value: Any) -> list[str]:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document()["components"]}
    return [fault.message for fault in Draft202012Validator(schema).iter_errors(value)]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_node_matches_its_description(tmp_path: Path) -> None:
    with demo(SCENARIO) as url:
        fuzz(url, tmp_path, 40)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_hub_matches_its_description(tmp_path: Path) -> None:
    rules = [quick_rules(tmp_path)]
    with (
        demo("t4-timeslicing") as node,
        prometheus(tmp_path, {"node": f"{node}/metrics"}, rules=rules) as server,
    ):
        held = 'container:gpuslice_last_week:value{value="held"}'
        until(lambda: server.query(held), "the node was scraped, and there are records for advice")
        with serving("hub", "--prometheus-url", server.url, "--refresh", "10s") as hub:
            until(lambda: hub.get("-/ready") == "ok\n", "the first look")
            fuzz(hub.url.removesuffix("/"), tmp_path, 20)
            assert hub.end()[0] == 0


@pytest.mark.slow
def test_a_stream_matches_its_description() -> None:
    """The stream ends properly when the server does."""
    with demo(SCENARIO, "--poll-interval", "1s") as url:
        connection = HTTPConnection(urlsplit(url).netloc, timeout=20)
        connection.request("GET", "/api/v1/stream")
        stream = connection.getresponse()
        assert (stream.status, stream.headers["Content-Type"]) == (200, "text/event-stream")
        for kind in ("snapshot", "delta", "delta", "delta"):
            fields = _fields(stream)
            assert fields["event"] == kind
            assert _faults("StreamEvent", fields) == []
            assert _faults(kind.capitalize(), json.loads(fields["data"])) == []
    # What comes before the end is read; an end in the midst of a chunk would be an IncompleteRead.
    stream.read()
    connection.close()
