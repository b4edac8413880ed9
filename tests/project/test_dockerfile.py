"""The Dockerfile builds from this tree, and the image holds what it should and no more."""

import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter.config import load_settings

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


class Instruction(NamedTuple):
    """One instruction, its continuation lines joined."""

    word: str
    rest: str


def _instructions() -> list[Instruction]:
    text = (ROOT / "Dockerfile").read_text()
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [Instruction(*line.split(maxsplit=1)) for line in lines if line]


def _stages() -> list[list[Instruction]]:
    stages: list[list[Instruction]] = [[]]
    for instruction in _instructions():
        if instruction.word == "FROM":
            stages.append([])
        stages[-1].append(instruction)
    return stages


def _rests(stage: list[Instruction], word: str) -> list[str]:
    return [instruction.rest for instruction in stage if instruction.word == word]


def _health_check() -> list[str]:
    (check,) = _rests(_stages()[-1], "HEALTHCHECK")
    return json.loads(check.partition("CMD ")[2])


def test_the_base_is_pinned() -> None:
    """The build starts from an image whose tag names a Python and a distribution, the result from nothing."""
    arguments, *stages = _stages()
    (base,) = _rests(arguments, "ARG")

    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)
    assert [_rests(stage, "FROM") for stage in stages] == [["${PYTHON_IMAGE} AS build"], ["scratch"]]
    assert base in _rests(stages[-1], "ARG")


def test_the_build_is_reached_by_what_it_copies() -> None:
    """What is copied exists and is let through by .dockerignore; nothing is fetched by ADD."""
    _, build, final = _stages()
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = {name for rest in _rests(build, "COPY") for name in rest.split()[:-1]}

    assert copied == let_through
    assert all((ROOT / name).exists() for name in copied)
    assert _rests(final, "COPY") == ["--from=build /image/ /"]
    assert not [instruction for instruction in _instructions() if instruction.word == "ADD"]


def test_nothing_is_installed_that_the_lock_files_do_not_name() -> None:
    """Each installation takes files by their hashes, or what the build itself has made; none compiles."""
    _, build, final = _stages()
    commands = [command.strip() for rest in _rests(build, "RUN") for command in rest.split("&&")]
    installations = [command for command in commands if re.search(r"\bpip\b.* install ", command)]

    assert len(installations) == 3
    assert all("--require-hashes" in each or "--no-deps --no-index" in each for each in installations)
    assert all("--only-binary=:all:" in each or "--no-deps --no-index" in each for each in installations)
    assert not _rests(final, "RUN")


def test_the_image_runs_the_program_on_its_port() -> None:
    """The entry point is the project's script, as root, and the port that it listens on is declared."""
    final = _stages()[-1]

    assert [json.loads(rest) for rest in _rests(final, "ENTRYPOINT")] == [["gpuslice-exporter"]]
    assert "gpuslice-exporter" in PROJECT["scripts"]
    assert _rests(final, "USER") == ["0:0"]
    assert _rests(final, "EXPOSE") == [str(load_settings({}, {}).listen.port)]


def test_the_image_is_labelled_with_the_version() -> None:
    """The version that goes into the label is the project's, unless the build names another."""
    final = _stages()[-1]

    assert f"VERSION={PROJECT['version']}" in _rests(final, "ARG")
    assert all("org.opencontainers.image." in label for label in _rests(final, "LABEL"))


@pytest.fixture(params=[200, 503])
def answering(request) -> Iterator[tuple[int, int]]:
    """Run a server whose health is always the same; give its port and the status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(request.param if self.path == "/-/healthy" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, request.param
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_the_health_check_tells_health(answering) -> None:
    """The check succeeds on 200 and fails on 503, whatever proxy the environment names."""
    port, status = answering
    python, flag, code = _health_check()
    assert (python, flag) == ("python", "-c")

    done = subprocess.run(
        [sys.executable, flag, code.replace(":9836/", f":{port}/")],
        env=os.environ | {"http_proxy": "http://127.0.0.1:9"},
        capture_output=True,
        check=False,
        timeout=30,
    )

    assert (status == 200) == (done.returncode == 0)
