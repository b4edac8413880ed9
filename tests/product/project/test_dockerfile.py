"""The Dockerfile builds from this tree, with locked files only."""

import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter.config import load_settings

ROOT = Path(__file__).parents[3]
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
    """The tag of the build's image names a Python and a distribution; the result starts from nothing."""
    arguments, *stages = _stages()
    (base,) = _rests(arguments, "ARG")

    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)
    assert [_rests(stage, "FROM") for stage in stages] == [["${PYTHON_IMAGE} AS build"], ["scratch"]]
    assert base in _rests(stages[-1], "ARG")


def test_the_build_context_has_what_is_copied() -> None:
    """.dockerignore includes exactly that, it exists, and ADD fetches nothing."""
    _, build, final = _stages()
    included = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = {name for rest in _rests(build, "COPY") for name in rest.split()[:-1]}

    assert copied == included
    assert all((ROOT / name).exists() for name in copied)
    assert _rests(final, "COPY") == ["--from=build /image/ /"]
    assert not [instruction for instruction in _instructions() if instruction.word == "ADD"]


def test_only_locked_files_are_installed() -> None:
    """By their hashes, or built by the build itself; none is compiled."""
    _, build, final = _stages()
    commands = [command.strip() for rest in _rests(build, "RUN") for command in rest.split("&&")]
    installations = [command for command in commands if re.search(r"\bpip\b.* install ", command)]

    assert len(installations) == 3
    assert all("--require-hashes" in each or "--no-deps --no-index" in each for each in installations)
    assert all("--only-binary=:all:" in each or "--no-deps --no-index" in each for each in installations)
    assert not _rests(final, "RUN")


def test_the_image_runs_the_program_on_its_port() -> None:
    """As root; the port is declared."""
    final = _stages()[-1]

    assert [json.loads(rest) for rest in _rests(final, "ENTRYPOINT")] == [["gpuslice-exporter"]]
    assert "gpuslice-exporter" in PROJECT["scripts"]
    assert _rests(final, "USER") == ["0:0"]
    assert _rests(final, "EXPOSE") == [str(load_settings({}, {}).listen.port)]


def test_the_image_is_labelled_with_the_version() -> None:
    final = _stages()[-1]

    assert f"VERSION={PROJECT['version']}" in _rests(final, "ARG")
    assert all("org.opencontainers.image." in label for label in _rests(final, "LABEL"))


@pytest.mark.parametrize("status", [200, 503])
def test_the_health_check_succeeds_if_the_program_is_healthy(status: int) -> None:
    """It ignores a proxy of the environment."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/-/healthy" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    python, flag, code = _health_check()
    assert (python, flag) == ("python", "-c")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        # A busy machine must not end the check.
        code = code.replace(":9836/", f":{server.server_port}/").replace("timeout=4", "timeout=600")
        done = subprocess.run(
            [sys.executable, flag, code],
            env=os.environ | {"http_proxy": "http://127.0.0.1:9"},
            capture_output=True,
            check=False,
        )
        server.shutdown()
        thread.join()

    assert (status == 200) == (done.returncode == 0)
