"""What a process has in memory is what its command needs."""

import json
import platform
import subprocess
import sys

import pytest

from tests.core.commands.program import ROOT, TIMEOUT, environment

# Prints what the interpreter has imported: libraries, and modules of ours.
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
# Nine threads that allocate at the same time; then glibc reports each of its heaps.
THREADS = """
import ctypes, sys, threading
from exporter.server_process import tune_malloc
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
    """Run a few lines in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-c", source, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT,
        cwd=ROOT,
        env=environment(),
    )


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_library(option: str):
    loaded = set(json.loads(python(SAY, LOADED, option).stdout.splitlines()[-1]))
    assert "argparse" in loaded
    libraries = {"aiohttp", "asyncio", "bcrypt", "google", "grpc", "jinja2", "prometheus_client", "pynvml"}
    assert not loaded & libraries
    modules = ("exporter.web", "exporter.poll.poller", "exporter.demo")
    assert not [name for name in loaded if name.startswith(modules)]


@pytest.mark.slow
def test_serving_imports_nothing_that_only_pages_or_other_commands_need():
    loaded = set(json.loads(python("import exporter.commands.serve" + LOADED).stdout))
    assert {"aiohttp", "grpc", "exporter.web.node.caches"} <= loaded
    assert not loaded & {"jinja2", "kubernetes_asyncio", "plotly", "exporter.web.node.timelines.figures"}
    modules = (
        "exporter.web.node.pages",
        "exporter.fleet.pages",
        "exporter.demo",
        "exporter.fleet",
        "exporter.cli",
    )
    assert not [name for name in loaded if name.startswith(modules)]


def test_threads_share_one_heap():
    """In heaps of their own, freed memory would stay."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("only glibc has heaps of threads")
    heaps = {how: python(THREADS, how).stderr.count("Arena ") for how in ("little", "as usual")}
    assert heaps["little"] == 1 < heaps["as usual"]
