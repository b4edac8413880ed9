"""A real systemd in namespaces of its own runs the commands of docs/systemd.md and the units.

Its /etc, /opt and /usr/local are this machine's with a layer above that is discarded, its network is a
loopback. Instead of an environment of pip, /opt has a script that runs this tree.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from sysconfig import get_path

import pytest

from tests.core.golden.page import Page
from tests.tools import ROOT, lacks, tool
from tests.waiting import wait_until

pytestmark = pytest.mark.tools

SYSTEMD = Path("/usr/lib/systemd/systemd")
UNITS = ROOT / "deploy/systemd"
SOURCE = "/run/program/source"
MADE_ENVIRONMENT = re.compile(r"python3 -m venv|/bin/pip install|ln -sf")
BOOT = """
set -e
mount --make-rprivate /
umount --recursive /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
for path in etc opt usr/local; do
    mkdir -p /run/layer/$path /run/work/$path
    mount -t overlay overlay -o lowerdir=/$path,upperdir=/run/layer/$path,workdir=/run/work/$path /$path
done
mkdir -p /run/program/source /run/program/python /run/program/libraries /opt/gpuslice-exporter/bin
mount --bind "$SOURCE" /run/program/source
mount --bind "$PYTHON" /run/program/python
mount --bind "$LIBRARIES" /run/program/libraries
install -m 755 "$FOLDER/gpuslice-exporter" /opt/gpuslice-exporter/bin/
ip link set lo up
export container=other SYSTEMD_UNIT_PATH="$FOLDER/units:/etc/systemd/system"
exec /usr/lib/systemd/systemd --system --unit=basic.target --log-level=notice --show-status=no
"""
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PROGRAM = f"""#!/bin/sh
export PYTHONPATH={SOURCE}:/run/program/libraries LD_LIBRARY_PATH=/run/program/python/lib
exec /run/program/python/bin/{PYTHON} -m exporter "$@"
"""
TARGET = "[Unit]\nDescription=A target of a whole system\nDefaultDependencies=no\n"
TARGETS = ("basic", "sysinit", "shutdown", "network", "multi-user", "sockets", "timers", "paths")


def as_root() -> list[str]:
    """Return the prefix that runs a command as root."""
    if os.geteuid() == 0:
        return []
    if subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode:
        lacks("only root can boot a systemd")
    return ["sudo", "-n", "--preserve-env=FOLDER,SOURCE,PYTHON,LIBRARIES"]


class Machine:
    """A booted systemd; ``pid`` is its pid on this machine."""

    def __init__(self, pid: int, root: list[str]) -> None:
        self.pid = pid
        spaces = ("--mount", "--root", "--pid", "--net", "--ipc", "--uts", "--cgroup")
        self._enter = [*root, "nsenter", f"--target={pid}", *spaces]

    def run(self, *command: str) -> str:
        """Return what a command in there prints; its failure fails the test."""
        words = [*self._enter, "--wdns=/", *command]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"{command}: {done.stderr or done.stdout}\n{self.log()}")
        return done.stdout

    def log(self) -> str:
        """Return the output and the status of the units."""
        logs = "cat /run/*.log; systemctl --no-pager --full status '*gpuslice*'"
        words = [*self._enter, "sh", "-c", logs]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout

    def properties(self, unit: str) -> dict[str, str]:
        """Return the properties of a unit."""
        shown = self.run("systemctl", "show", unit).splitlines()
        return dict(line.split("=", 1) for line in shown if "=" in line)

    def page(self, url: str) -> str:
        """Return a page once there is an answer."""
        code = f'import urllib.request as u; print(u.urlopen("{url}", timeout=60).read().decode())'
        fetch = f"/run/program/python/bin/{PYTHON} -c '{code}' 2>/run/fetch.log"
        return self.run("timeout", "120", "sh", "-c", f"until {fetch}; do sleep 0.5; done")


def commands(heading: str) -> list[str]:
    """Return the commands of a section of docs/systemd.md, without those that make the environment."""
    page = (ROOT / "docs/systemd.md").read_text()
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if not MADE_ENVIRONMENT.search(line)]


def child_of(pid: int) -> int | None:
    """Return the child of a process, if it has one; those of the shell that prepares the boot end soon."""
    with suppress(FileNotFoundError, ProcessLookupError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return int(text.split()[0]) if text.strip() else None
    return None


def first_process(pid: int) -> int | None:
    """Return the descendant that is systemd, once it is."""
    while (child := child_of(pid)) is not None:
        pid = child
        with suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "systemd":
                return pid
    return None


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Iterator[Machine]:
    """Boot, and install as the page says; a fake node runs as a third unit, confined as the first."""
    for program in ("systemd-analyze", "systemd-sysusers", "nsenter", "ip"):
        tool(program)
    assert SYSTEMD.exists()
    root, folder = as_root(), tmp_path_factory.mktemp("machine")
    (folder / "gpuslice-exporter").write_text(PROGRAM)
    (folder / "units").mkdir()
    for name in TARGETS:
        (folder / f"units/{name}.target").write_text(TARGET)
    serve = (UNITS / "gpuslice-exporter.service").read_text()
    demo = re.sub(r"^(ExecStart=\S+) serve$", r"\1 demo --listen=127.0.0.1:9900", serve, flags=re.MULTILINE)
    assert demo != serve
    (folder / "units/gpuslice-demo.service").write_text(demo)
    for name in ("exporter", "hub", "demo"):
        log = f"[Service]\nStandardOutput=append:/run/{name}.log\nStandardError=inherit\n"
        drop_in = folder / f"units/gpuslice-{name}.service.d/log.conf"
        drop_in.parent.mkdir()
        drop_in.write_text(log)
    spaces = ["--mount", "--pid", "--fork", "--kill-child", "--cgroup", "--ipc", "--uts", "--net"]
    places = {"FOLDER": folder, "SOURCE": ROOT, "PYTHON": sys.base_prefix, "LIBRARIES": get_path("purelib")}
    with (folder / "boot.log").open("w") as log:
        process = subprocess.Popen(
            [*root, "unshare", *spaces, "sh", "-c", BOOT],
            env=os.environ | {name: str(path) for name, path in places.items()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: process.poll() is not None or first_process(process.pid), "systemd runs")
        assert process.poll() is None, (folder / "boot.log").read_text()
        booted = Machine(first_process(process.pid) or 0, root)
        # Only root sees the files of other users' processes.
        socket = [*root, "test", "-e", f"/proc/{booted.pid}/root/run/systemd/private"]
        wait_until(lambda: subprocess.run(socket, check=False).returncode == 0, "systemd has its socket")
        for command in commands("Installing"):
            booted.run("sh", "-c", f"cd {SOURCE} && {command}")
        booted.run("systemctl", "start", "gpuslice-demo.service")
        yield booted
    finally:
        # The shell has a kill of its own.
        kill = f"kill -KILL {first_process(process.pid) or process.pid}"
        subprocess.run([*root, "sh", "-c", kill], check=False)
        process.wait()


def confinement(machine: Machine, unit: str) -> dict[str, str]:
    """Return the user, rights and filters of the unit's process."""
    pid = machine.properties(unit)["MainPID"]
    lines = machine.run("cat", f"/proc/{pid}/status").splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def test_the_exporter_serves_after_the_commands_of_the_page(machine) -> None:
    """It answers at its port and reads the files of jobs that its settings name."""
    machine.page("http://127.0.0.1:9836/-/ready")
    page = machine.page("http://127.0.0.1:9836/metrics")

    assert Page(page).value("gpuslice_collector_success", collector="jobs") == 1
    assert machine.properties("gpuslice-exporter.service")["UnitFileState"] == "enabled"


def test_the_fake_node_is_read_under_the_same_confinement(machine) -> None:
    """A fake node's sockets, process table, threads and files need only the allowed system calls."""
    machine.page("http://127.0.0.1:9900/-/ready")
    page = machine.page("http://127.0.0.1:9900/metrics")
    failed = re.findall(r'^gpuslice_collector_success\{collector="(\w+)"\} 0', page, re.MULTILINE)

    assert re.search(r"^gpuslice_gpu_up\{.*\} 1$", page, re.MULTILINE)
    assert re.search(r"^gpuslice_container_memory_used_bytes\{.*\} [1-9]", page, re.MULTILINE)
    assert failed == []


def test_the_hub_serves(machine) -> None:
    """Without a Prometheus, on the port of its sample file."""
    assert machine.page("http://127.0.0.1:9837/-/healthy")


@pytest.mark.parametrize("unit", ["gpuslice-exporter.service", "gpuslice-hub.service"])
def test_the_process_is_a_plain_user_without_rights(machine, unit) -> None:
    """By the kernel: a user of its own, no capability, no way to gain one, a filter of calls."""
    status = confinement(machine, unit)

    assert int(status["Uid"].split()[0]) == int(machine.run("id", "-u", "gpuslice-exporter"))
    assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_memory_stays_far_below_the_limit(machine) -> None:
    """A busy fake node of several GPUs takes less than two thirds of the unit's limit."""
    machine.page("http://127.0.0.1:9900/")
    limit = int(machine.properties("gpuslice-exporter.service")["MemoryMax"])

    assert int(confinement(machine, "gpuslice-demo.service")["VmHWM"].split()[0]) * 1024 < limit * 2 / 3


def test_with_a_kubelet_it_is_root_without_capabilities(machine) -> None:
    """The drop-in changes only the user: root cannot read other users' files either."""
    for command in commands("With a kubelet"):
        machine.run("sh", "-c", f"cd {SOURCE} && {command}")
    machine.page("http://127.0.0.1:9836/-/healthy")
    status = confinement(machine, "gpuslice-exporter.service")

    assert status["Uid"].split()[0] == "0"
    assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd")} == {"0" * 16}


@pytest.mark.parametrize("unit", ["gpuslice-demo.service", "gpuslice-hub.service"])
def test_it_ends_by_a_signal(machine, unit) -> None:
    """Not by a kill, and with success."""
    machine.run("systemctl", "stop", unit)
    properties = machine.properties(unit)

    assert (properties["Result"], properties["ExecMainStatus"]) == ("success", "0"), json.dumps(properties)
