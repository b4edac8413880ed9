"""The programs that are compared: how each is installed, started, and what it calls the same readings."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build/side_by_side"
NVITOP, GLANCES, OURS, SLOWER = "nvitop-exporter", "glances", "gpuslice-exporter", "gpuslice-exporter, 5 s"
INSTALL_SECONDS = 180


class ProgramError(Exception):
    """A program cannot be installed or does not start; the text says which and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a page calls a reading, "" where it has none, and the labels that tell of whom it is.

    ``device`` labels a reading of a GPU and ``holder`` one of a process or a container. What they hold is in
    ``unit`` bytes. Every program has ``used``.
    """

    device: str
    holder: str
    power: str
    used: str
    held: str
    rest: str
    utilization: str
    fan: str
    unit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program: ``command`` makes its words of a free port and a folder that it may write to."""

    name: str
    interval: float
    packages: tuple[str, ...]
    command: Callable[[int, Path], list[str]]
    names: Names
    environment: dict[str, str] = field(default_factory=dict)


def python_of(name: str) -> Path:
    """Return the interpreter of the virtual environment of a program that is not ours."""
    return KEPT / name / "bin/python"


def install(program: Program) -> None:
    """Install a program's packages into a virtual environment below build/, once; raise ProgramError."""
    wanted = "\n".join(program.packages)
    mark = KEPT / program.name / "installed"
    if not program.packages or (mark.exists() and mark.read_text() == wanted):
        return
    try:
        venv.create(KEPT / program.name, with_pip=True, clear=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ProgramError(f"no virtual environment can be made for {program.name}: {error}") from None
    pip = [str(python_of(program.name)), "-m", "pip", "install", "--quiet", *program.packages]
    try:
        done = subprocess.run(  # noqa: S603 - pinned words of ours
            pip, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ProgramError(
            f"{program.name} was not installed in {INSTALL_SECONDS} s: is there a network?"
        ) from None
    if done.returncode != 0:
        raise ProgramError(
            f"{program.name} cannot be installed, which needs a network once: {done.stderr.strip()[-300:]}"
        )
    mark.write_text(wanted)


def environment(program: Program, driver: Path | None, control: Path | None) -> dict[str, str]:
    """Return what a program runs with; ``driver`` is the folder of the library, None where there is none."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GPUSLICE_")}
    library = {} if driver is None else {"LD_LIBRARY_PATH": str(driver)}
    steering = {} if control is None else {"STUB_CONTROL": str(control)}
    return own | library | steering | program.environment


def nvitop() -> Program:
    """Return nvitop-exporter, at its own interval of 1 s."""

    def command(port: int, _folder: Path) -> list[str]:
        words = ["-m", "nvitop_exporter", "--hostname", "side-by-side", "--bind-address", "127.0.0.1"]
        return [str(python_of(NVITOP)), *words, "--port", str(port)]

    return Program(
        name=NVITOP,
        interval=1.0,
        packages=("nvitop-exporter==1.7.2", "nvitop==1.7.2"),
        command=command,
        names=Names(
            device="uuid",
            holder="pid",
            power="gpu_power_usage_W",
            used="gpu_memory_used_MiB",
            held="process_gpu_memory_MiB",
            rest="",
            utilization="gpu_utilization_Percentage",
            fan="gpu_fan_speed_Percentage",
            unit=1 << 20,
        ),
    )


def glances() -> Program:
    """Return glances with nothing but its plugin for GPUs, polling each second."""

    def command(port: int, folder: Path) -> list[str]:
        config = folder / "glances.conf"
        config.write_text(f"[prometheus]\nhost=127.0.0.1\nport={port}\nprefix=glances\nlabels=src:glances\n")
        alone = ["--disable-plugin", "all", "--enable-plugin", "gpu", "--disable-check-update"]
        export = ["--quiet", "--config", str(config), "--export", "prometheus", "--time", "1"]
        return [str(python_of(GLANCES)), "-m", "glances", *export, *alone]

    return Program(
        name=GLANCES,
        interval=1.0,
        packages=("glances==4.5.8", "nvidia-ml-py==13.615.71", "prometheus-client==0.26.0"),
        command=command,
        names=Names(
            device="gpu_id",
            holder="pid",
            power="",
            used="glances_gpu_mem",
            held="",
            rest="",
            utilization="glances_gpu_proc",
            fan="glances_gpu_fan_speed",
            unit=1,
        ),
    )


def ours(variables: dict[str, str], *, seconds: int, name: str) -> Program:
    """Return this project's exporter, which ``variables`` point at the node, as a user would run it."""

    def command(port: int, _folder: Path) -> list[str]:
        listen = ["--listen", f"127.0.0.1:{port}", "--poll-interval", f"{seconds}s"]
        return [sys.executable, "-m", "exporter", *listen]

    return Program(
        name=name,
        interval=float(seconds),
        packages=(),
        command=command,
        environment=variables | {"PYTHONPATH": str(ROOT)},
        names=Names(
            device="uuid",
            holder="pod",
            power="gpuslice_gpu_power_watts",
            used="gpuslice_gpu_memory_used_bytes",
            held="gpuslice_container_memory_used_bytes",
            rest="gpuslice_gpu_unattributed_memory_bytes",
            utilization="gpuslice_gpu_utilization_ratio",
            fan="gpuslice_gpu_fan_ratio",
            unit=1,
        ),
    )


def all_programs(variables: dict[str, str]) -> Sequence[Program]:
    """Return the programs in the order of the tables."""
    return (
        nvitop(),
        glances(),
        ours(variables, seconds=1, name=OURS),
        ours(variables, seconds=5, name=SLOWER),
    )
