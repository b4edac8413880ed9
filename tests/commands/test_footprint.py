"""What a process has in memory is what its command needs."""

import json
import platform
import subprocess
import sys

import pytest

from tests.commands.program import ROOT, environment

# Of what a run of the interpreter has imported, the part that is of interest: libraries, and rooms of ours.
LOADED = """
import json, sys
print(json.dumps([name if name.startswith("exporter") else name.partition(".")[0] for name in sys.modules]))
"""
SAY = """
import atexit, sys
from exporter.cli import main
atexit.register(lambda: exec(sys.argv[1]))
main([sys.argv[2]])
"""
# Nine threads that allocate at the same time; then glibc tells of each of its heaps.
THREADS = """
import ctypes, sys, threading
from exporter.commands.server_process import tune_malloc
if sys.argv[1] == "little":
    tune_malloc()
together = threading.Barrier(9)
def allocate():
    together.wait()
    kept = [bytes(5000) for _ in range(50)]
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
together.wait()
together.wait()
ctypes.CDLL(None).malloc_stats()
"""


def python(source: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a few lines in an interpreter of their own."""
    return subprocess.run(
        [sys.executable, "-c", source, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=ROOT,
        env=environment(),
    )


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_library(option: str):
    """Who only asks what there is waits for the command line, and not for all that a node is read with."""
    loaded = set(json.loads(python(SAY, LOADED, option).stdout.splitlines()[-1]))
    assert "argparse" in loaded
    assert not loaded & {
        "aiohttp",
        "asyncio",
        "bcrypt",
        "google",
        "grpc",
        "jinja2",
        "prometheus_client",
        "pynvml",
    }
    assert not [
        name for name in loaded if name.startswith(("exporter.web", "exporter.poll.poller", "exporter.demo"))
    ]


@pytest.mark.slow
def test_serving_imports_nothing_that_only_open_pages_or_other_commands_need():
    """A node whose page nobody opens has nothing that draws, and no node has what others are asked with."""
    loaded = set(json.loads(python("import exporter.commands.serve" + LOADED).stdout))
    assert {"aiohttp", "grpc", "exporter.web.render_cache"} <= loaded
    assert not loaded & {"jinja2", "kubernetes_asyncio", "plotly", "exporter.web.timelines.figures"}
    rooms = (
        "exporter.web.pages",
        "exporter.web.cluster",
        "exporter.demo",
        "exporter.fleet",
        "exporter.cli",
    )
    assert not [name for name in loaded if name.startswith(rooms)]


@pytest.mark.slow
def test_threads_share_one_heap():
    """However many threads render at once, none has a heap of its own, in which freed memory would stay."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("only glibc has heaps of threads")
    heaps = {how: python(THREADS, how).stderr.count("Arena ") for how in ("little", "as usual")}
    assert heaps["little"] == 1 < heaps["as usual"]
