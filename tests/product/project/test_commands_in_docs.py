"""Every command in the documentation names what exists; those of README.md and the quick start are run.

They are run by bash as they are, in their order, in a folder that looks like a checkout. Programs that would
need a cluster, a container engine, root or the network have a stand-in in ``stand_ins/``, which explains what
it does instead; it fails if it is given any other command.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.product.project.documented_commands import PAGES, WrongCommandError, blocks, check, commands
from tests.together.end_to_end.programs import free_port, get
from tests.tools import ROOT, tool
from tests.waiting import wait_until

STAND_INS = Path(__file__).with_name("stand_ins")
RUN_PAGES = ("README.md", "docs/quickstart.md")
# Blocks in these languages are not typed into a shell.
OTHER_LANGUAGES = {"text", "promql", "yaml"}
# These serve until they are ended.
SERVES = re.compile(r"make demo\b.*|docker run .*|(sudo )?gpuslice/bin/gpuslice-exporter( demo)?")
# The doctor's exit code depends on this machine.
EXIT_CODES = {"gpuslice-exporter doctor": {0, 1, 3}}
COMMANDS = list(dict.fromkeys(command for page in RUN_PAGES for command in commands(page)))


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands(page))])
def test_commands_name_what_exists(page: str) -> None:
    """Options, targets, paths, values of the chart, objects, ports and routes."""
    for command in commands(page):
        check(command)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("gpuslice-exporter snapshott", "invalid choice"),
        ("gpuslice-exporter doctor --jsn", "unrecognized arguments: --jsn"),
        ("gpuslice-exporter serve --poll-interval soon", "poll-interval"),
        ("gpuslice-exporter snapshot --scenario nowhere", "no scenario nowhere"),
        ("kubectl gpuslice --detailss", "unrecognized arguments"),
        ("kubectl -n gpuslice rollout status ds/gpuslice", "no object ds/gpuslice"),
        ("kubectl -n gpuslice port-forward ds/gpuslice-exporter 9400", "no port 9400"),
        ("kubectl -n gpuslice exec ds/gpuslice-exporter -- gpuslice-exporter docter", "invalid choice"),
        ("kubectl apply -k deploy/overlays/nowhere", "no deploy/overlays/nowhere"),
        ("kubectl apply -k deploy/image", "no kustomization in deploy/image"),
        ("kubectl label namespace gpuslice resource.kubernetes.io/admin-access=false", "no label"),
        ("helm install gpuslice deploy/charts", "no chart in deploy/charts"),
        (
            "helm upgrade gpuslice deploy/charts/gpuslice-exporter --set config.poll=1s",
            "no value config.poll",
        ),
        ("helm install gpuslice deploy/charts/gpuslice-exporter --sets a=b", "no option of helm --sets"),
        (
            "helm upgrade gpuslice deploy/charts/gpuslice-exporter --set podMonitors.labels.release=a",
            "no value podMonitors.labels",
        ),
        ("docker build --build-arg EXTRA=kubernetes .", "no argument EXTRA"),
        ("docker run --rm gpuslice-exporter:0.1.0 dem", "invalid choice"),
        ("make nothing", "no target nothing"),
        ("make demo SCENARIOS=showcase", "no variable SCENARIOS"),
        ("curl -s http://localhost:9836/api/v2/snapshot", "no path /api/v2/snapshot"),
        ("python3 -m nowhere", "no module nowhere"),
        ("sudo rm -rf gpuslice", "rm is not known here"),
    ],
)
def test_a_wrong_command_is_noticed(command: str, reason: str) -> None:
    with pytest.raises(WrongCommandError, match=re.escape(reason)):
        check(command)


@pytest.mark.parametrize("page", RUN_PAGES)
def test_each_block_of_commands_has_prompts(page: str) -> None:
    """Its language says that it has commands, and each starts with ``$``."""
    assert {language for language, _ in blocks(page)} <= {"console", *OTHER_LANGUAGES}
    assert all(text.startswith("$ ") for language, text in blocks(page) if language == "console")


class Terminal:
    """A folder like a checkout, an environment, and the program that still runs there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for path in ROOT.iterdir():
            (folder / path.name).symlink_to(path)
        self._port = free_port()
        real = {f"REAL_{name.upper()}": tool(name) for name in ("curl", "helm", "kustomize", "make")}
        own = {key: text for key, text in os.environ.items() if key not in {"CI", "MAKEFLAGS", "MAKELEVEL"}}
        self._environment = (
            own
            | real
            | {
                "PATH": f"{STAND_INS}:{os.environ['PATH']}",
                "PYTHON": sys.executable,
                "GPUSLICE_LISTEN": f"127.0.0.1:{self._port}",
                "DEMO_PORT": str(self._port),
            }
        )
        self._serving: subprocess.Popen[bytes] | None = None

    def run(self, command: str) -> str:
        """Return the output of a command; its failure fails the test."""
        if SERVES.fullmatch(command):
            return self._serve(command)
        done = subprocess.run(
            ("bash", "-c", command),
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        allowed = next((codes for end, codes in EXIT_CODES.items() if command.endswith(end)), {0})
        if done.returncode not in allowed:
            pytest.fail(f"{command} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-2000:]}")
        return done.stdout

    def _serve(self, command: str) -> str:
        """Start a command, wait for its page, and leave it running for the next commands."""
        self.end()
        self._serving = subprocess.Popen(
            ("bash", "-c", f"exec {command}"),
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return wait_until(lambda: _page(self._port), f"{command} answers")

    def end(self) -> None:
        """End the program that serves as Ctrl-C does; if that is an error, the test fails."""
        if self._serving is not None:
            process, self._serving = self._serving, None
            os.killpg(process.pid, signal.SIGINT)
            try:
                # An interrupted make ends by the signal, whatever the exit code of its program.
                assert process.wait() in {0, -signal.SIGINT}, process.args
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


def _page(port: int) -> str | None:
    try:
        return get(f"http://127.0.0.1:{port}/")[1].decode()
    except (OSError, HTTPException):
        return None


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Return a terminal in which the commands are typed in their order."""
    opened = Terminal(tmp_path_factory.mktemp("checkout"))
    yield opened
    opened.end()


@pytest.fixture(scope="module")
def printed(terminal: Terminal) -> dict[str, str]:
    """Return the output of each command, run in their order."""
    return {command: terminal.run(command) for command in COMMANDS}


@pytest.mark.slow
@pytest.mark.tools
def test_the_commands_work(printed: dict[str, str]) -> None:
    """All ended without an error, and those that serve a node served its page."""
    assert printed.keys() == set(COMMANDS)
    assert all("gpu-node-1" in page for command, page in printed.items() if command.endswith("demo"))


@pytest.mark.slow
@pytest.mark.tools
def test_the_demo_answers_the_requests(printed: dict[str, str]) -> None:
    """The three requests of the quick start get text, series and JSON."""
    text, series, document = (page for command, page in printed.items() if command.startswith("curl "))

    assert "HOLDER" in text
    assert "\ngpuslice_container_memory_used_bytes{" in series
    assert document.startswith("{")


@pytest.mark.slow
@pytest.mark.tools
def test_the_installed_image_is_the_one_in_the_command(printed: dict[str, str]) -> None:
    """Helm's DaemonSets have the image of the command's registry, and kubectl makes a DaemonSet too."""
    charts = [text for command, text in printed.items() if command.startswith("helm install")]
    overlays = [
        text for command, text in printed.items() if command.startswith("kubectl apply --server-side -k")
    ]

    assert charts
    assert overlays
    assert all("registry.example.com/gpuslice-exporter:" in text for text in charts)
    assert all("kind: DaemonSet" in text for text in overlays)
