"""Every command in README.md and in the quick start is run.

They are run by bash as they stand, in their order, in a folder that looks like a checkout. Programs that
would need a cluster, a container engine, root or the network have a stand-in in ``stand_ins/``, and each says
there what it does instead, and why; one that is asked for anything else fails.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.deploy.tools import tool
from tests.end_to_end.programs import free_port, get, until

ROOT = Path(__file__).parents[2]
STAND_INS = Path(__file__).with_name("stand_ins")
PAGES = ("README.md", "docs/quickstart.md")
# What blocks of other languages hold is not typed into a shell.
OTHERS = {"text", "promql"}
# These serve until they are told to end.
SERVES = re.compile(r"make demo\b.*|docker run .*|(sudo )?gpuslice/bin/gpuslice-exporter( demo)?")
# The doctor tells by its code what it found, and nothing is said here of this machine.
MAY_END_WITH = {"gpuslice-exporter doctor": {0, 1, 3}}


def _blocks(page: str) -> list[tuple[str, str]]:
    """List the blocks of code of a page, with their languages."""
    tokens = MarkdownIt("commonmark").parse((ROOT / page).read_text())
    return [(token.info, token.content) for token in tokens if token.type in {"fence", "code_block"}]


def _commands() -> Iterator[str]:
    """List the commands of all pages, each once, without their comments."""
    for page in PAGES:
        for language, text in _blocks(page):
            if language == "console":
                whole = re.sub(r"\\\n", "", text)
                yield from (
                    re.sub(r" +# .*", "", line) for line in re.findall(r"^\$ (.*)", whole, re.MULTILINE)
                )


COMMANDS = list(dict.fromkeys(_commands()))


class Terminal:
    """A folder like a checkout, an environment, and the one program that is left running there."""

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
        self._left: subprocess.Popen[str] | None = None

    def run(self, command: str) -> str:
        """Run a command, give its output; the test fails where it does."""
        if SERVES.fullmatch(command):
            return self._serve(command)
        done = subprocess.run(
            ("bash", "-c", command),
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        allowed = next((codes for end, codes in MAY_END_WITH.items() if command.endswith(end)), {0})
        if done.returncode not in allowed:
            pytest.fail(f"{command} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-2000:]}")
        return done.stdout

    def _serve(self, command: str) -> str:
        """Start a command, wait until it answers, and leave it running for those that come after."""
        self.end()
        self._left = subprocess.Popen(
            ("bash", "-c", f"exec {command}"),
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _, page = until(lambda: get(f"http://127.0.0.1:{self._port}/"), f"{command} answers")
        return page.decode()

    def end(self) -> None:
        """End what is running as Ctrl-C does; the test fails where that is an error."""
        if self._left is not None:
            left, self._left = self._left, None
            os.killpg(left.pid, signal.SIGINT)
            try:
                # Of a make that is interrupted the signal is told, whatever its program ended with.
                assert left.wait(30) in {0, -signal.SIGINT}, left.args
            finally:
                if left.poll() is None:
                    os.killpg(left.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Open a terminal in which the commands are typed one after the other."""
    opened = Terminal(tmp_path_factory.mktemp("checkout"))
    yield opened
    opened.end()


@pytest.fixture(scope="module")
def printed(terminal: Terminal) -> dict[str, str]:
    """Run all commands in their order; give what each printed."""
    return {command: terminal.run(command) for command in COMMANDS}


@pytest.mark.parametrize("page", PAGES)
def test_no_command_hides(page: str) -> None:
    """Each block of code says its language, and none is indented: what is typed stands behind a ``$``."""
    blocks = _blocks(page)

    assert {language for language, _ in blocks} <= {"console", *OTHERS}
    assert all(text.startswith("$ ") for language, text in blocks if language == "console")


@pytest.mark.slow
def test_the_commands_work(printed: dict[str, str]) -> None:
    """All of them were run and ended well, and what serves the page of a node has served it."""
    assert printed.keys() == set(COMMANDS)
    assert all("gpu-node-1" in page for command, page in printed.items() if command.endswith("demo"))


@pytest.mark.slow
def test_what_is_asked_of_the_demo_is_answered(printed: dict[str, str]) -> None:
    """The three questions of the quick start get text, series and JSON."""
    text, series, document = (page for command, page in printed.items() if command.startswith("curl "))

    assert "HOLDER" in text
    assert "\ngpuslice_container_memory_used_bytes{" in series
    assert document.startswith("{")


@pytest.mark.slow
def test_what_is_installed_is_the_image_that_was_named(printed: dict[str, str]) -> None:
    """Helm's DaemonSets have the image of the registry in the command, and kubectl's has an image too."""
    charts = [text for command, text in printed.items() if command.startswith("helm install")]
    overlays = [
        text for command, text in printed.items() if command.startswith("kubectl apply --server-side -k")
    ]

    assert charts
    assert overlays
    assert all("registry.example.com/gpuslice-exporter:" in text for text in charts)
    assert all("kind: DaemonSet" in text for text in overlays)


@pytest.mark.parametrize(
    "command",
    [
        "kubectl -n gpuslice delete ds/gpuslice-exporter",
        "kubectl -n gpuslice rollout status ds/gpuslice",
        "kubectl -n gpuslice port-forward ds/gpuslice-exporter 9400",
        "kubectl apply --server-side -k deploy/overlays/nowhere",
        "kubectl label namespace gpuslice resource.kubernetes.io/admin-access=false",
        "helm install gpuslice deploy/charts/nowhere",
        "helm uninstall gpuslice",
        "docker push registry.example.com/gpuslice-exporter",
        "make nothing",
        "python3 -m http.server",
    ],
)
def test_what_cannot_be_run_fails(terminal: Terminal, command: str) -> None:
    """A command that nothing here stands in for, or that names what there is not, is no silent success."""
    with pytest.raises(pytest.fail.Exception, match="ended with"):
        terminal.run(command)


@pytest.mark.parametrize("path", sorted(STAND_INS.iterdir()), ids=lambda path: path.name)
def test_each_stand_in_says_why(path: Path) -> None:
    """Its second line is a comment, it can be run, and some command needs it."""
    assert path.read_text().splitlines()[1].startswith("# ")
    assert os.access(path, os.X_OK)
    assert any(re.search(rf"\b{path.name}\b", command) for command in COMMANDS)
    assert path.name in {"docker", "helm", "kubectl", "sudo"} or shutil.which(path.name)
