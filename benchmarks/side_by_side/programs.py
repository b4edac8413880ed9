"""The programs that are compared: how each is installed, started, and what it calls the same readings."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import ROOT, MissingError, Process, free_port, started
from benchmarks.side_by_side.driver import Control

INSTALLED = ROOT / "build/side_by_side"
NVITOP, GLANCES, OURS, SLOWER = "nvitop-exporter", "glances", "gpuslice-exporter", "gpuslice-exporter, 5 s"
GPU_EXPORTER = "nvidia_gpu_exporter, 5 s"
NO_BINARY = "not measured: no binary given"
INSTALL_SECONDS = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program."""

    name: str
    memory: str  # its series of the used memory of a GPU
    command: Callable[[int, Path], list[str]]  # of a free port and a folder that it may write to
    packages: tuple[str, ...] = ()  # to install
    version: str = "this tree"  # without packages
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Running:
    """A program that runs."""

    process: Process
    control: Control
    first_page: float  # seconds from the start to the first page that shows a GPU
    first_cpu: float  # CPU seconds until then

    def page(self, encoding: str = "identity") -> bytes:
        """Return its page in the classic format, as it is sent; raise OSError or HTTPException."""
        return self.process.get("metrics", {"Accept": "text/plain", "Accept-Encoding": encoding})[1]


@contextmanager
def started_program(program: Program, folder: Path, control: Control) -> Iterator[Running]:
    """Start a program with the stub in ``folder``, and wait for its first page with a GPU.

    Raise MissingError if there is none.
    """
    port = free_port()
    stub = {"LD_LIBRARY_PATH": str(folder), "STUB_CONTROL": str(control.path)}
    command, variables = program.command(port, folder), stub | program.environment
    log = folder / f"{port}.log"
    with (
        log.open("w") as output,
        started(command, port=port, variables=variables, output=output, folder=folder) as process,
    ):
        try:
            first_page = process.wait_for(f"\n{program.memory}{{")
        except RuntimeError as error:
            raise MissingError(f"{program.name}: {error}: {log.read_text()[-400:].strip()}") from None
        yield Running(process, control, first_page, process.cpu())


def _python(name: str) -> str:
    """Return the interpreter of the virtual environment of a program that is not ours."""
    return str(INSTALLED / name / "bin/python")


def install(program: Program) -> None:
    """Install a program's packages into a virtual environment below build/, once; raise MissingError."""
    wanted, mark = "\n".join(program.packages), INSTALLED / program.name / "installed"
    if not program.packages or (mark.exists() and mark.read_text() == wanted):
        return
    try:
        venv.create(INSTALLED / program.name, with_pip=True, clear=True)
        pip = [_python(program.name), "-m", "pip", "install", "--quiet", *program.packages]
        subprocess.run(pip, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)  # noqa: S603 - pinned
    except (OSError, subprocess.SubprocessError) as error:
        output = str(getattr(error, "stderr", None) or "").strip()[-300:]
        raise MissingError(
            f"{program.name} cannot be installed, which needs a network once: {error} {output}"
        ) from None
    mark.write_text(wanted)


def _glances(port: int, folder: Path) -> list[str]:
    """Return the command line of glances with its plugin for GPUs alone, which polls each second."""
    config = folder / "glances.conf"
    config.write_text(f"[prometheus]\nhost=127.0.0.1\nport={port}\nprefix=glances\nlabels=src:glances\n")
    alone = ["--disable-plugin", "all", "--enable-plugin", "gpu", "--disable-check-update"]
    export = ["--quiet", "--config", str(config), "--export", "prometheus", "--time", "1"]
    return [_python(GLANCES), "-m", "glances", *export, *alone]


def _nvidia_gpu_exporter(binary: Path) -> Program:
    """Return nvidia_gpu_exporter, which reads NVML every 5 s; raise MissingError if it does not run."""
    try:
        words, output = [str(binary), "--version"], subprocess.STDOUT
        version = subprocess.check_output(words, stderr=output, text=True, timeout=10)  # noqa: S603 - given
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingError(f"nvidia_gpu_exporter: {error}") from None
    polls = [str(binary), "--collect.backend=nvml", "--collect.interval=5s"]
    return Program(
        name=GPU_EXPORTER,
        memory="nvidia_smi_memory_used_bytes",
        command=lambda port, _folder: [*polls, f"--web.listen-address=127.0.0.1:{port}"],
        version=version.partition("\n")[0],
    )


def _ours(name: str, interval: str, variables: dict[str, str]) -> Program:
    words = [sys.executable, "-m", "exporter", "--poll-interval", interval]
    return Program(
        name=name,
        memory="gpuslice_gpu_memory_used_bytes",
        command=lambda port, _folder: [*words, "--listen", f"127.0.0.1:{port}"],
        environment=variables | {"PYTHONPATH": str(ROOT)},
    )


def all_programs(variables: dict[str, str]) -> Sequence[Program]:
    """Return the programs in the order of the tables; raise MissingError.

    ``variables`` point ours at the node. nvitop-exporter polls at its own interval of 1 s.
    """
    binary = os.environ.get("GPU_EXPORTER")
    nvitop = [_python(NVITOP), "-m", "nvitop_exporter", "--hostname", "side-by-side"]
    return (
        Program(
            name=NVITOP,
            memory="gpu_memory_used_MiB",
            command=lambda port, _folder: [*nvitop, "--bind-address", "127.0.0.1", "--port", str(port)],
            packages=("nvitop-exporter==1.7.2", "nvitop==1.7.2"),
        ),
        Program(
            name=GLANCES,
            memory="glances_gpu_mem",
            command=_glances,
            packages=("glances==4.5.8", "nvidia-ml-py==13.615.71", "prometheus-client==0.26.0"),
        ),
        *([_nvidia_gpu_exporter(Path(binary).resolve())] if binary else []),
        _ours(OURS, "1s", variables),
        _ours(SLOWER, "5s", variables),
    )
